"""Every page on every kind of store, as Streamlit runs it."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from streamlit.testing.v1 import AppTest

import traceq.dashboards
from tests.conftest import RunMaker
from tests.dashboard.conftest import HOSTILE, KINDS, one_source
from tests.traces.workload import Workload
from traceq.dashboards.charts import step_rows
from traceq.dashboards.notes import clock_note
from traceq.dashboards.panel import plain
from traceq.model.reasons import REASONS, WAYS_OUT
from traceq.report import build_report
from traceq.store import Store

Show = Callable[..., AppTest]
APP = Path(traceq.dashboards.__file__).with_name("app.py")
VIEWS = ("runs", "overview", "ranks", "collectives", "timeline", "compare", "sql")


@pytest.fixture
def show(monkeypatch: pytest.MonkeyPatch, stores: dict[str, Path]) -> Show:
    """Runs a page on a store."""

    def shown(kind: str, view: str, *, run: str | None = None) -> AppTest:
        monkeypatch.setenv("TRACEQ_STORE", str(stores[kind]))
        app = AppTest.from_file(APP, default_timeout=60)
        if run is not None:
            app.query_params["run"] = run
        app.run()
        return app.switch_page(f"views/{view}.py").run()

    return shown


def words(app: AppTest) -> str:
    """Everything that a page says."""
    kinds = ("markdown", "caption", "info", "error", "warning", "success", "header", "subheader")
    return "\n".join(str(each.value) for kind in kinds for each in app.get(kind))


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("kind", KINDS)
def test_every_page_shows_every_kind_of_run(show: Show, kind: str, view: str) -> None:
    app = show(kind, view)
    assert not app.exception
    assert not app.error or (kind, view) == ("eight", "ranks")
    if kind == "empty":
        assert "The store is empty" in words(app)
    elif view not in {"runs", "compare"}:
        assert "Window: " in words(app)
        assert "Coverage: " in words(app)


def test_one_rank_without_sizes_says_what_is_unknown_and_how_to_know_it(show: Show) -> None:
    overview = show("one", "overview")
    assert {m.label: m.value for m in overview.metric}["Straggler late by"] == "unknown"
    assert "with the file of every rank" in words(overview)
    assert "mark steps with torch.cuda.nvtx" in words(overview)
    assert "No bandwidth to show" in words(show("one", "collectives"))
    assert "No waiting to show" in words(show("one", "ranks"))


def test_eight_ranks_name_the_late_one(show: Show) -> None:
    said = words(show("eight", "ranks")).replace("\\", "")
    assert "Rank 5 is a straggler: late by 80.0 ms in sum" in said
    assert "Cause: compute" in said


def test_an_incomplete_run_says_so_on_every_page(show: Show) -> None:
    for view in ("overview", "ranks", "collectives", "timeline"):
        assert "incomplete" in words(show("incomplete", view))


def test_a_link_to_a_run_that_is_not_there_is_one_clear_line(show: Show) -> None:
    app = show("eight", "overview", run="gone <b>x</b>")
    assert [error.value.replace("\\", "") for error in app.error] == [
        "gone <b>x</b>: no such run in the store: choose one at the left"
    ]


def test_runs_are_added_to_a_comparison_one_by_one(
    full_store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRACEQ_STORE", str(full_store))
    app = AppTest.from_file(APP, default_timeout=60)
    app.query_params["run"] = "eight"
    app.run()
    app.switch_page("views/compare.py").run()
    for count, name in enumerate(("four", "one", "cpu"), 1):
        app.multiselect[0].select(name).run()
        assert not app.exception
        assert app.multiselect[0].value == ["four", "one", "cpu"][:count]
        linked = app.query_params["with"]
        assert (linked if count > 1 else [linked]) == ["four", "one", "cpu"][:count]
    app.selectbox(key="compared_scaling").select("strong").run()
    assert app.query_params["scaling"] == "strong"
    assert app.multiselect[0].value == ["four", "one", "cpu"]


def test_names_of_runs_are_text_where_they_head_a_column(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = Store(tmp_path / "store")
    names = ("setting", "![x](https:evil.example)", "base")
    for ranks, name in enumerate(names, 2):
        folder = tmp_path / str(ranks)
        folder.mkdir()
        work = Workload(ranks=ranks, per_node=ranks, steps=3)
        store.ingest(work.write_nsys(folder), name=name)
    monkeypatch.setenv("TRACEQ_STORE", str(tmp_path / "store"))
    app = AppTest.from_file(APP, default_timeout=60)
    app.query_params["run"] = "base"
    app.run()
    app.switch_page("views/compare.py").run()
    app.multiselect[0].set_value(list(names[:2])).run()
    assert not app.exception
    settings = app.table[1].value.columns.to_list()
    assert settings[:3] == ["setting", "base", "setting "]
    assert settings[3] == plain(names[1])


def test_a_damaged_run_is_one_line_that_names_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = Store(tmp_path / "store")
    run = store.ingest(one_source(tmp_path), name="night").run
    run.path.write_bytes(bytes(run.path.stat().st_size))
    monkeypatch.setenv("TRACEQ_STORE", str(tmp_path / "store"))
    app = AppTest.from_file(APP, default_timeout=60).run()
    for view in ("overview", "ranks", "collectives", "timeline", "sql"):
        app.switch_page(f"views/{view}.py").run()
        assert not app.exception
        (error,) = app.error
        assert error.value.replace("\\", "").startswith("night: not a run file: ")


def test_an_error_while_rows_are_read_is_one_line(show: Show) -> None:
    app = show("eight", "sql")
    statement = (
        "SELECT CASE WHEN n = 9000 THEN error('broken') ELSE n END AS a FROM range(20000) r(n)"
    )
    app.text_area(key="statement").set_value(statement).run()
    app.button[0].click().run()
    assert not app.exception
    (error,) = app.error
    assert error.value.replace("\\", "") == "eight: Invalid Input Error: broken"


@pytest.mark.parametrize(
    "columns",
    [
        "[1, 2] AS x, 1 AS y",
        "{'a': 1} AS x, 1.5::DECIMAL(9, 2) AS y",
        "TIME '01:00' AS x, 1 AS y",
        "'a'::BLOB AS x, 1::HUGEINT AS y",
        "DATE '2026-01-01' AS x, 2 AS y",
    ],
)
def test_rows_of_any_type_are_shown(show: Show, columns: str) -> None:
    app = show("eight", "sql")
    app.text_area(key="statement").set_value(f"SELECT {columns}").run()
    app.button[0].click().run()
    assert not app.exception
    assert not app.error


@pytest.mark.parametrize(
    ("statement", "refusal"),
    [
        ("CREATE TABLE x (a INTEGER)", "only one SELECT"),
        ("ATTACH '/tmp/other.duckdb'", "only one SELECT"),
        ("SELECT 1; SELECT 2", "only one SELECT"),
        ("SELECT * FROM read_csv('/etc/passwd')", "disabled"),
        ("SELECT * FROM '/etc/passwd'", "Table with name /etc/passwd does not exist"),
        ("SELECT count(*) FROM range(100000000000) a, range(100000) b", "longer than 0.5 s"),
        ("SELECT nonsense", "nonsense"),
    ],
)
def test_sql_that_does_more_than_read_is_refused_in_one_line(
    show: Show, monkeypatch: pytest.MonkeyPatch, statement: str, refusal: str
) -> None:
    monkeypatch.setattr("traceq.dashboards.data.SQL_LIMIT_S", 0.5)
    app = show("eight", "sql")
    app.text_area(key="statement").set_value(statement).run()
    app.button[0].click().run()
    assert not app.exception
    (error,) = app.error
    assert refusal in error.value.replace("\\", "")


def test_sql_shows_rows_up_to_the_limit(show: Show) -> None:
    app = show("eight", "sql")
    app.text_area(key="statement").set_value("SELECT * FROM range(20000) r(n)").run()
    app.button[0].click().run()
    assert len(app.dataframe[0].value) == 10_000
    assert "10,000 rows, the first of more" in words(app)


def test_sources_of_unknown_hosts_are_not_taken_for_one_host(
    tmp_path: Path, make_run: RunMaker
) -> None:
    work = Workload(ranks=2, per_node=2, steps=3)
    report = build_report(make_run(*work.write_nsys(tmp_path)))
    assert clock_note(report) == "Clocks: one host, nothing to align."
    nameless = [source | {"host": None} for source in report.sources]
    assert "one host" not in clock_note(replace(report, sources=nameless))


def test_a_step_with_a_part_unknown_on_some_rank_is_not_drawn() -> None:
    parts = {"compute_ns": 4, "exposed_comm_ns": 3, "exposed_copy_ns": 2, "idle_ns": 1}
    steps = [
        {"step": step, "window_ns": 10 * (1 + rank)} | {
            name: None if (step, rank) == (1, 1) else ns * (1 + rank) for name, ns in parts.items()
        }
        for step in range(3) for rank in range(2)
    ]  # fmt: skip
    frame = step_rows(steps)
    assert set(frame["step"]) == {0, 2}
    assert (frame["slowest_ms"] * 1e6).to_list() == pytest.approx([20] * 8)
    assert (frame.filter(part="compute")["mean_ms"] * 1e6).to_list() == pytest.approx([6, 6])


def test_a_name_is_shown_as_text() -> None:
    assert "![" not in plain(HOSTILE)
    assert "\\<img" in plain(HOSTILE)


def test_every_reason_has_a_way_out_or_says_that_nothing_is_missing() -> None:
    assert set(WAYS_OUT) == set(REASONS)
