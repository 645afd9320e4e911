"""The catalog on SQLite and on a real PostgreSQL server: migrations, uniqueness, errors."""

import datetime as dt
import os
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, inspect, text

from tests.commands import traceq_process as run_traceq
from tests.postgres import Postgres
from tests.storing import Place
from tests.test_bad_input import WITHOUT_POWER
from traceq.catalog import Catalog, Run, Source, Tag, TakenError
from traceq.catalog.engine import REVISIONS, VERSION_TABLE, make_engine, upgrade
from traceq.catalog.models import Base
from traceq.errors import StoreError

MOMENT = dt.datetime(2026, 1, 2, 3, 4, 5)  # noqa: DTZ001  # as the catalog keeps it


@pytest.fixture
def where(place: Place) -> Path | str:
    """What a catalog is made of: a file that is not there yet, or the URL of an empty database."""
    place.folder.mkdir()
    return place.url or place.folder / "catalog.sqlite"


@pytest.fixture
def catalog(where: Path | str) -> Catalog:
    catalog = Catalog(where)
    catalog.migrate()
    return catalog


def run(name: str = "night", **changed: object) -> Run:
    columns = {
        "token": f"token of {name}", "fingerprint": f"content of {name}", "name": name,
        "status": "complete", "stored_at": MOMENT, "world_size": 8, "rank_count": 2, "nodes": None,
        "gpus": ["H100", "B200"], "step_time_ns": 2**40, "device_kind": "gpu",
    } | changed  # fmt: skip
    return Run(
        **columns,
        tags=[Tag(name="new"), Tag(name="base")],
        sources=[
            Source(position=k, file_name=f"{k}.sqlite", kind="nsys", sha256="ab", size_bytes=2**40)
            for k in range(2)
        ],
    )


def add(catalog: Catalog, *runs: Run) -> None:
    for each in runs:
        with catalog.adding(each):
            pass


@contextmanager
def begun(where: Path | str) -> Iterator[Connection]:
    """A transaction past the catalog, which is committed when the block ends well."""
    engine, _ = make_engine(where)
    with engine.execution_options(writes=True).begin() as connection:
        yield connection


def columns(found: Run) -> dict[str, object]:
    return {c.name: getattr(found, c.name) for c in Run.__table__.columns if c.name != "id"}


class TestMigrations:
    """From nothing, and from the revision before."""

    def test_the_revisions_known_are_those_there_are(self) -> None:
        config = Config()
        config.set_main_option("script_location", "traceq:migrations")
        config.set_main_option("path_separator", "os")
        scripts = ScriptDirectory.from_config(config).walk_revisions()
        assert tuple(each.revision for each in scripts) == REVISIONS[::-1]

    def test_from_empty_they_make_the_tables_of_the_models(self, where: Path | str) -> None:
        Catalog(where).migrate()
        with begun(where) as connection:
            context = MigrationContext.configure(connection, opts={"version_table": VERSION_TABLE})
            assert compare_metadata(context, Base.metadata) == []

    def test_from_the_revision_before_they_keep_every_row(self, where: Path | str) -> None:
        with begun(where) as connection:
            upgrade(connection, "0001")
            connection.execute(
                text(
                    "INSERT INTO runs (id, token, fingerprint, name, status, stored_at, world_size,"
                    " rank_count, nodes, gpus) VALUES (7, 't', 'f', 'night', 'complete', :moment,"
                    " 8, 2, NULL, '[\"H100\"]')"
                ),
                {"moment": str(MOMENT)},
            )
            connection.execute(text("INSERT INTO tags VALUES (7, 'base'), (7, 'new')"))
            connection.execute(text("INSERT INTO sources VALUES (7, 0, 'a', 'nsys', 'ab', 3)"))
        catalog = Catalog(where)
        catalog.migrate()
        (found,) = catalog.runs()
        assert columns(found) == {
            "token": "t", "fingerprint": "f", "name": "night", "status": "complete",
            "stored_at": MOMENT, "world_size": 8, "rank_count": 2, "nodes": None, "gpus": ["H100"],
            "step_time_ns": None, "device_kind": None,
        }  # fmt: skip
        assert [tag.name for tag in found.tags] == ["base", "new"]
        assert [(s.file_name, s.size_bytes) for s in found.sources] == [("a", 3)]
        assert catalog.unread() == ["t"]
        catalog.complete("t", "cpu", 5)
        assert catalog.unread() == []
        (found,) = catalog.runs()
        assert (found.device_kind, found.step_time_ns) == ("cpu", 5)

    def test_one_that_fails_leaves_the_database_as_it_was(self, where: Path | str) -> None:
        with begun(where) as connection:
            connection.execute(text("CREATE TABLE sources (of_another INTEGER)"))
        with pytest.raises(StoreError, match="sources"):
            Catalog(where).migrate()
        with begun(where) as connection:
            assert inspect(connection).get_table_names() == ["sources"]

    def test_a_catalog_of_a_newer_version_is_refused(
        self, where: Path | str, catalog: Catalog
    ) -> None:
        with begun(where) as connection:
            connection.execute(text(f"UPDATE {VERSION_TABLE} SET version_num = '9999'"))
        with pytest.raises(StoreError, match=r"is of a newer traceq: install that version"):
            Catalog(where).migrate()

    def test_eight_processes_may_begin_at_once(self, where: Path | str) -> None:
        code = (
            "import sys\nfrom pathlib import Path\nfrom traceq.catalog import Catalog\n"
            "import alembic.command\nprint('ready', flush=True)\nsys.stdin.readline()\n"
            "place = sys.argv[1]\n"
            "Catalog(place if '://' in place else Path(place)).migrate()\n"
        )
        processes = [
            subprocess.Popen(
                [sys.executable, "-c", code, where],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            )
            for _ in range(8)
        ]  # fmt: skip
        pipes = [(process.stdin, process.stdout) for process in processes]
        assert [out and out.readline() for _, out in pipes] == ["ready\n"] * 8
        for word, _ in pipes:
            assert word is not None
            word.write("go\n")
            word.flush()
        assert [process.communicate(timeout=60)[1] for process in processes] == [""] * 8
        assert [process.returncode for process in processes] == [0] * 8
        add(Catalog(where), run())


class TestRows:
    """Rows in and out."""

    def test_a_run_is_found_as_it_was_added(self, catalog: Catalog) -> None:
        add(catalog, run())
        for found in (catalog.find(name="night"), catalog.find(fingerprint="content of night")):
            assert found is not None
            assert columns(found) == columns(run())
            assert [tag.name for tag in found.tags] == ["base", "new"]
            assert [s.file_name for s in found.sources] == ["0.sqlite", "1.sqlite"]
        assert catalog.find(name="nigh") is None

    def test_the_newest_come_first_and_a_tag_chooses(self, catalog: Catalog) -> None:
        add(catalog, run("a"), run("b", stored_at=MOMENT - dt.timedelta(days=1)), run("c"))
        assert [each.name for each in catalog.runs()] == ["c", "a", "b"]
        catalog.tag("a", ["odd"], [])
        assert [each.name for each in catalog.runs(tag="odd")] == ["a"]
        assert catalog.runs(tag="od") == []

    @pytest.mark.parametrize("column", ["token", "fingerprint", "name"])
    def test_token_fingerprint_and_name_are_unique(self, catalog: Catalog, column: str) -> None:
        add(catalog, run("a"))
        with pytest.raises(TakenError):
            add(catalog, run(**({"name": "b"} | {column: getattr(run("a"), column)})))
        assert [each.name for each in catalog.runs()] == ["a"]

    def test_an_error_while_adding_adds_nothing(self, catalog: Catalog) -> None:
        with pytest.raises(OSError, match="no space"), catalog.adding(run()):
            raise OSError("no space")
        assert catalog.tokens() == []

    def test_tags_are_given_and_taken(self, catalog: Catalog) -> None:
        add(catalog, run())
        found = catalog.tag("night", ["x", "base"], ["new", "nothing"])
        assert found is not None
        assert [tag.name for tag in found.tags] == ["base", "x"]
        assert catalog.tag("other", ["x"], []) is None

    def test_eight_threads_that_tag_one_run_lose_no_tag(self, catalog: Catalog) -> None:
        add(catalog, run())
        threads = [
            threading.Thread(target=catalog.tag, args=("night", [f"t{k}", "same"], []))
            for k in range(8)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        (found,) = catalog.runs()
        assert [tag.name for tag in found.tags] == sorted(
            ["base", "new", "same", *(f"t{k}" for k in range(8))]
        )

    def test_a_run_being_removed_gives_up_name_and_content(
        self, where: Path | str, catalog: Catalog
    ) -> None:
        add(catalog, run())
        assert catalog.retire("night") == "token of night"
        assert catalog.retire("night") is None
        assert (catalog.runs(), catalog.find(name="night")) == ([], None)
        assert catalog.tokens() == catalog.tokens(removing=True) == ["token of night"]
        add(catalog, run(token="another"))
        catalog.forget("token of night")
        assert catalog.tokens() == ["another"]
        with begun(where) as connection:
            for table in ("tags", "sources"):
                assert connection.execute(text(f"SELECT count(*) FROM {table}")).scalar() == 2

    def test_the_absence_of_a_token_is_asked_without_a_trace(self, catalog: Catalog) -> None:
        add(catalog, run())
        for token, expected in (("token of night", False), ("another", True)):
            with catalog.absence(token) as absent:
                assert absent == expected
        assert catalog.tokens() == ["token of night"]

    def test_absence_waits_for_a_transaction_that_may_yet_commit(self, catalog: Catalog) -> None:
        told: list[bool] = []

        def ask() -> None:
            with catalog.absence("token of night") as absent:
                told.append(absent)

        with catalog.adding(run()):
            thread = threading.Thread(target=ask)
            thread.start()
            time.sleep(0.5)
            assert told == []
        thread.join()
        assert told == [False]


class TestErrors:
    """One line each, and no word of who and where."""

    SECRETS = ("hunter2", "somebody", "nowhere.invalid", "127.0.0.1")

    @pytest.mark.parametrize(
        ("url", "words"),
        [
            ("postgresql://somebody:hunter2@127.0.0.1:1/runs", "server cannot be reached"),
            ("postgres://somebody:hunter2@nowhere.invalid/runs", "server cannot be reached"),
            ("mysql://somebody:hunter2@127.0.0.1/runs", "no database that traceq can use"),
            ("postgresql://somebody:hunter2@127.0.0.1:x/runs", "cannot be read"),
            ("somebody hunter2", "cannot be read"),
            ("sqlite://", "no database that traceq can use"),
        ],
    )
    def test_a_url_of_no_use_is_one_line(self, tmp_path: Path, url: str, words: str) -> None:
        line = self.refused(tmp_path, TRACEQ_CATALOG=url)
        assert words in line

    def test_a_refused_login_is_one_line(self, postgres: Postgres, tmp_path: Path) -> None:
        url = postgres.new_database().replace("postgres@", "somebody:hunter2@")
        assert "or refuses" in self.refused(tmp_path, TRACEQ_CATALOG=url)

    def test_a_database_one_may_not_change_is_one_line(
        self, postgres: Postgres, tmp_path: Path
    ) -> None:
        url = postgres.new_database() + "&options=-cdefault_transaction_read_only%3Don"
        line = self.refused(tmp_path, TRACEQ_CATALOG=url)
        assert "its server refuses: cannot execute CREATE TABLE in a read-only transaction" in line

    def test_a_missing_driver_is_told_how_to_get(self, tmp_path: Path) -> None:
        code = (
            "import sys\nsys.modules['psycopg'] = None\nsys.argv = ['traceq', 'runs', 'list']\n"
            "from traceq.cli import main\nmain()\n"
        )
        done = subprocess.run(
            [sys.executable, "-c", code],
            capture_output=True, text=True, check=False,
            env=os.environ | {"TRACEQ_CATALOG": "postgresql://x/y", "TRACEQ_STORE": str(tmp_path)},
        )  # fmt: skip
        assert done.returncode == 2
        assert done.stderr.endswith("pip install 'traceq[postgres]'\n")
        assert len(done.stderr.splitlines()) == 1

    def test_a_file_that_is_no_catalog_is_one_line(self, tmp_path: Path) -> None:
        (tmp_path / "catalog.sqlite").write_text("this is not a database\n" * 100)
        assert "catalog.sqlite: not a catalog: move it away" in self.refused(tmp_path)

    def test_a_damaged_catalog_is_one_line(self, tmp_path: Path) -> None:
        assert run_traceq("runs", "list", "--store", tmp_path).returncode == 0
        path = tmp_path / "catalog.sqlite"
        content = path.read_bytes()
        path.write_bytes(content[:4096] + b"\xff" * (len(content) - 4096))
        assert "catalog.sqlite: damaged: move it away" in self.refused(tmp_path)

    def test_a_catalog_that_another_holds_is_waited_for(self, tmp_path: Path) -> None:
        catalog = Catalog(tmp_path / "catalog.sqlite")
        catalog.migrate()
        with closing(sqlite3.connect(tmp_path / "catalog.sqlite", isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            thread = threading.Thread(target=add, args=(catalog, run()))
            thread.start()
            time.sleep(0.5)
            assert catalog.runs() == []  # who only reads does not wait
            other.execute("COMMIT")
            thread.join()
        assert [each.name for each in catalog.runs()] == ["night"]

    def test_a_folder_one_may_not_write_is_one_line(self, tmp_path: Path) -> None:
        (tmp_path / "store").mkdir(mode=0o555)
        done = subprocess.run(
            [*WITHOUT_POWER, sys.executable, "-m", "traceq", "runs", "list"],
            capture_output=True, text=True, check=False,
            env=os.environ | {"TRACEQ_STORE": str(tmp_path / "store")},
        )  # fmt: skip
        assert (done.returncode, done.stdout) == (2, "")
        assert done.stderr == (
            "traceq: store: the store cannot be used: Permission denied: set TRACEQ_STORE to a "
            "folder of yours\n"
        )

    def refused(self, folder: Path, **environment: str) -> str:
        """What the command says of a store, which is one line without a secret."""
        done = subprocess.run(
            [sys.executable, "-m", "traceq", "runs", "list"],
            capture_output=True, text=True, check=False,
            env=os.environ | {"TRACEQ_STORE": str(folder)} | environment,
        )  # fmt: skip
        assert (done.returncode, done.stdout) == (2, "")
        (line,) = done.stderr.splitlines()
        assert not [secret for secret in (*self.SECRETS, str(folder)) if secret in line]
        return line
