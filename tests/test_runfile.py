"""The run file: documented whole, sealed when open, refused when it is something else."""

from pathlib import Path

import duckdb
import polars as pl
import pytest

from traceq.errors import QueryError, RunFileError
from traceq.ingest.pipeline import ingest_run
from traceq.runfile import Run, create, open_run, schema_sql


def test_every_table_and_column_has_a_comment(sample_run: Run) -> None:
    tables = sample_run.frame(
        "SELECT table_name, comment FROM duckdb_tables() WHERE NOT internal"
    ).rows()
    columns = sample_run.frame(
        "SELECT column_name, comment FROM duckdb_columns() WHERE NOT internal"
    ).rows()
    assert len(tables) == 13
    assert all(comment for _, comment in tables + columns)


def test_every_column_with_a_unit_suffix_has_it_in_its_comment(sample_run: Run) -> None:
    units = {"_ns": "ns", "_bytes": "bytes", "_fraction": "1", "_ratio": "1"}
    for name, comment in sample_run.frame(
        "SELECT column_name, comment FROM duckdb_columns() WHERE NOT internal"
    ).iter_rows():
        for suffix, unit in units.items():
            if name.endswith(suffix):
                assert f"[{unit}" in comment, (name, comment)


@pytest.mark.parametrize(
    "statement",
    [
        "SELECT * FROM read_csv('/etc/passwd')",
        "SELECT * FROM read_text('/etc/passwd')",
        "SELECT * FROM glob('/*')",
        "SELECT * FROM '/etc/passwd'",
        "ATTACH '/tmp/other.duckdb'",
        "COPY ranks TO '/tmp/stolen.csv'",
        "DELETE FROM ranks",
        "CREATE TABLE x (y INTEGER)",
        "SET enable_external_access = true",
        "INSTALL httpfs",
        "PRAGMA database_list",
        "SELECT 1; SELECT 2",
        "SELECT nonsense FROM ranks",
        "",
    ],
)
def test_only_one_select_on_the_file_itself_is_allowed(sample_run: Run, statement: str) -> None:
    with pytest.raises(QueryError):
        sample_run.frame(statement)


def test_the_settings_of_an_open_run_file_are_locked(sample_run: Run) -> None:
    with pytest.raises(duckdb.Error, match="configuration has been locked"):
        sample_run._connection.execute("SET threads = 1")


def test_an_error_of_duckdb_is_one_line_without_paths(sample_run: Run) -> None:
    with pytest.raises(QueryError) as caught:
        sample_run.frame("SELECT * FROM read_csv('/etc/passwd')")
    assert "\n" not in str(caught.value)


def test_memory_is_limited_where_asked(tmp_path: Path, sample_folder: Path) -> None:
    path = tmp_path / "run.duckdb"
    ingest_run([sample_folder], path)
    hungry = "SELECT len(list(range)) AS n FROM range(50000000)"
    with open_run(path) as run:
        assert run.frame(hungry).item() == 50_000_000
    with (
        open_run(path, memory_limit="100MB") as run,
        pytest.raises(QueryError, match=r"run\.duckdb: Out of Memory Error"),
    ):
        run.frame(hungry)


def test_a_missing_or_foreign_file_is_no_run_file(tmp_path: Path) -> None:
    (tmp_path / "text.duckdb").write_text("hello")
    for name in ("text.duckdb", "missing.duckdb"):
        with pytest.raises(RunFileError, match="not a run file: make one with traceq report"):
            open_run(tmp_path / name)


def test_another_database_or_version_is_no_run_file(tmp_path: Path) -> None:
    duckdb.connect(tmp_path / "other.duckdb").close()
    with duckdb.connect(tmp_path / "old.duckdb") as connection:
        connection.execute("CREATE TABLE run AS SELECT 999 AS schema_version")
    for name in ("other.duckdb", "old.duckdb"):
        with pytest.raises(RunFileError, match="read its sources again"):
            open_run(tmp_path / name)


def test_a_damaged_run_file_is_refused(tmp_path: Path, sample_folder: Path) -> None:
    path = ingest_run([sample_folder], tmp_path / "run.duckdb").path
    path.write_bytes(path.read_bytes()[:20_000])
    with pytest.raises((RunFileError, QueryError)):
        open_run(path).frame("SELECT * FROM device_ops")


def test_a_failed_build_leaves_nothing_behind(tmp_path: Path) -> None:
    def build() -> None:
        with create(tmp_path / "run.duckdb") as writer:
            writer.append("ranks", pl.DataFrame({"rank": [0], "no_such_column": [1]}))

    with pytest.raises(RunFileError, match=r"run\.duckdb: cannot be written"):
        build()
    assert list(tmp_path.iterdir()) == []


def test_a_run_file_that_appears_meanwhile_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "run.duckdb"
    with pytest.raises(RunFileError, match="made by another process"), create(path):
        path.write_text("theirs")
    assert path.read_text() == "theirs"
    assert list(tmp_path.iterdir()) == [path]


def test_the_schema_is_what_the_file_holds(sample_run: Run) -> None:
    with duckdb.connect() as fresh:
        fresh.execute(schema_sql())
        query = (
            "SELECT table_name, column_name, data_type FROM duckdb_columns() "
            "WHERE NOT internal ORDER BY ALL"
        )
        assert sample_run.frame(query).rows() == fresh.execute(query).fetchall()
