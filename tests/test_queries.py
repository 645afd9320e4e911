"""Every canned query against its own header, on real run files, and against hand-made answers."""

import re
from pathlib import Path

import polars as pl
import pytest

from tests.conftest import RunMaker
from tests.traces.nsys import NsysExport
from traceq.errors import QueryError
from traceq.queries import Query, load_query, parse_query, query_names
from traceq.query import run_query
from traceq.runfile import Run

UNIT_OF_SUFFIX = {"_ns": "ns", "_bytes": "bytes", "_gbps": "GB/s", "_fraction": "1", "_ratio": "1",
                  "_count": "1"}  # fmt: skip
QUERIES = query_names()


def queries() -> list[Query]:
    return [load_query(name) for name in QUERIES]


def test_the_first_set_of_queries_is_there() -> None:
    first = {"comm_fraction", "overlap", "streams", "top_kernels", "step_times", "idle_gaps"}
    assert first <= set(QUERIES)


@pytest.mark.parametrize("query", queries(), ids=QUERIES)
class TestHeader:
    """What a header says is what DuckDB sees."""

    def test_columns_have_the_names_types_and_order_of_the_result(
        self, query: Query, sample_run: Run
    ) -> None:
        assert [(c.name, c.type) for c in query.columns] == sample_run.describe(query.sql)

    def test_the_name_is_that_of_the_file(
        self, query: Query, request: pytest.FixtureRequest
    ) -> None:
        assert query.name in request.node.callspec.id
        assert query.title.endswith("?")
        assert query.source.startswith("docs/")

    def test_units_follow_the_suffix(self, query: Query) -> None:
        for column in query.columns:
            for suffix, unit in UNIT_OF_SUFFIX.items():
                if column.name.endswith(suffix):
                    assert column.unit == unit, column

    def test_it_is_one_select(self, query: Query, sample_run: Run) -> None:
        body = "\n".join(line for line in query.sql.splitlines() if not line.startswith("--"))
        assert re.match(r"\s*(SELECT|WITH)\b", body)
        sample_run.frame(query.sql)  # refuses anything but one SELECT

    def test_parameters_are_declared_with_the_default_the_text_has(self, query: Query) -> None:
        used = set(re.findall(r"coalesce\(getvariable\('(\w+)'\), ([^)]+)\)", query.sql))
        assert used == {(p.name, p.default) for p in query.parameters}
        assert query.sql.count("getvariable") == len(
            re.findall(r"coalesce\(getvariable\(", query.sql)
        )

    def test_keys_are_unique_and_ranges_hold(
        self, query: Query, sample_run: Run, sized_run: Run, grouped_run: Run
    ) -> None:
        frames = [run_query(run, query.name) for run in (sample_run, sized_run, grouped_run)]
        assert sum(frame.height for frame in frames) > 0
        for frame in frames:
            self.holds(query, frame)

    def holds(self, query: Query, frame: pl.DataFrame) -> None:
        assert frame.select(query.key).is_unique().all()
        for column in query.columns:
            values = frame[column.name].drop_nulls()
            if column.low is not None:
                assert (values >= column.low).all(), column
            if column.high is not None:
                assert (values <= column.high).all(), column

    def test_it_answers_for_an_empty_run_and_for_one_rank(
        self, query: Query, tmp_path: Path, make_run: RunMaker, sample_run: Run
    ) -> None:
        export = NsysExport().capture().kernel("gemm<float>", 1000, 1000)
        one = make_run(export.write(tmp_path / "a.sqlite"))
        assert run_query(one, query.name).columns == [c.name for c in query.columns]
        graph = make_run(NsysExport().capture().graph(1, 2).write(tmp_path / "graph.sqlite"))
        assert run_query(graph, query.name).schema == run_query(sample_run, query.name).schema


class TestAnswers:
    """The sample's numbers, worked out by hand in tests/traces/sample.py."""

    def test_comm_fraction_over_steps(self, sample_run: Run) -> None:
        frame = run_query(sample_run, "comm_fraction", {"scope": "step"})
        us = 1000
        assert frame.select(
            "rank", "windows", "window_ns", "compute_ns", "comm_ns", "overlap_ns", "idle_ns"
        ).rows() == [
            (0, 4, 4 * 950 * us, 4 * 600 * us, 4 * 500 * us, 4 * 200 * us, 0),
            (1, 4, 4 * 1100 * us, 4 * 750 * us, 4 * 500 * us, 4 * 300 * us, 4 * 100 * us),
            (None, 8, 8200 * us, 5400 * us, 4000 * us, 2000 * us, 400 * us),
        ]
        assert frame["comm_fraction"].to_list() == [500 / 950, 500 / 1100, 4000 / 8200]
        assert frame["overlap_ratio"].to_list() == [0.4, 0.6, 0.5]

    def test_latency_and_bandwidth_of_a_ring(self, sized_run: Run) -> None:
        rows = run_query(sized_run, "latency_bandwidth", {"ranks": 8}).to_dicts()
        assert [row["bucket_bytes"] for row in rows] == [1 << 20, 4 << 20, 16 << 20]
        for row in rows:
            # Two ranks: two steps, and each sends S. Eight: 14 steps, and 1.75 S.
            assert row["alpha_us"] == pytest.approx(5, rel=1e-3)
            assert row["beta_gbps"] == pytest.approx(100, rel=1e-3)
            expected = 10_000 + row["bucket_bytes"] / 100
            assert row["model_ns"] == pytest.approx(expected, rel=1e-3)
            assert row["latency_fraction"] == pytest.approx(10_000 / expected, rel=1e-3)
            predicted = 14 * 5_000 + 1.75 * row["bucket_bytes"] / 100
            assert row["predicted_ns"] == pytest.approx(predicted, rel=1e-3)

    def test_bus_bandwidth_against_the_peak(self, sample_run: Run) -> None:
        (row,) = run_query(sample_run, "busbw").to_dicts()
        assert (row["op"], row["group_size"], row["link"]) == ("all_reduce", 2, "intra")
        assert row["busbw_gbps"] == row["algbw_gbps"] == (64 << 20) / 500_000
        assert (row["peak_gbps"], row["peak_source"]) == (450, "NVLink 4")
        assert row["efficiency"] == row["busbw_gbps"] / 450
        assert (row["call_count"], row["collective_count"]) == (8, 4)

    def test_exposed_communication_and_its_neighbours(self, sample_run: Run) -> None:
        rows = run_query(sample_run, "top_exposed", {"k": 4}).to_dicts()
        assert {(row["rank"], row["exposed_ns"]) for row in rows} == {(0, 300_000)}
        assert {row["before_name"] for row in rows} == {"gemm_bf16"}

    def test_what_each_rank_sends(self, sample_run: Run) -> None:
        rows = run_query(sample_run, "volume").to_dicts()
        assert [(r["rank"], r["step_count"], r["step_wire_bytes"]) for r in rows] == [
            (0, 4, 64 << 20), (1, 4, 64 << 20),
        ]  # fmt: skip

    def test_a_ratio_of_the_run_is_one_of_sums(self, tmp_path: Path, make_run: RunMaker) -> None:
        exports = []
        for rank, (length, comm) in enumerate(((1000, 1000), (9000, 900))):
            export = NsysExport().capture(environment=f"RANK={rank}")
            export.kernel("gemm<float>", 10_000, 10_000 + length)
            export.kernel("ncclDevKernel_Broadcast_RING_LL", 10_000, 10_000 + comm, stream=8)
            exports.append(export.write(tmp_path / f"{rank}.sqlite"))
        total = run_query(make_run(*exports), "comm_fraction").row(-1, named=True)
        assert total["comm_fraction"] == 0.19  # 1900 of 10000; a mean of ratios would say 0.55

    def test_an_unknown_rank_makes_the_sum_unknown(
        self, tmp_path: Path, make_run: RunMaker
    ) -> None:
        known = NsysExport().capture(environment="RANK=0").kernel("gemm<float>", 1000, 1100)
        hidden = NsysExport().capture(environment="RANK=1").graph(1000, 1100)
        run = make_run(known.write(tmp_path / "a.sqlite"), hidden.write(tmp_path / "b.sqlite"))
        rows = (
            run_query(run, "comm_fraction").select("rank", "window_ns", "comm_ns", "reason").rows()
        )
        assert rows == [
            (0, 100, 0, None),
            (1, 100, None, "graph_hidden"),
            (None, 200, None, "graph_hidden"),
        ]

    def test_step_times(self, sample_run: Run) -> None:
        frame = run_query(sample_run, "step_times")
        parts = ("compute_ns", "exposed_comm_ns", "exposed_copy_ns", "idle_ns")
        assert frame.select("step", "rank", "window_ns", *parts).rows()[:2] == [
            (0, 0, 950_000, 600_000, 300_000, 50_000, 0),
            (0, 1, 1_100_000, 750_000, 200_000, 50_000, 100_000),
        ]
        assert (frame["window_ns"] == frame.select(pl.sum_horizontal(parts)).to_series()).all()

    def test_top_kernels(self, sample_run: Run) -> None:
        frame = run_query(sample_run, "top_kernels", {"k": 2})
        assert frame.select(
            "short_name", "class", "op", "rank_count", "call_count", "total_ns"
        ).rows() == [
            ("gemm_bf16", "compute", None, 2, 12, 5_400_000),
            ("ncclDevKernel_AllReduce_Sum_bf16_RING_LL", "comm", "all_reduce", 2, 8, 4_000_000),
        ]
        assert frame["total_fraction"].to_list() == [5400 / 9800, 4000 / 9800]
        assert frame.select("min_ns", "p50_ns", "max_ns").row(0) == (50_000, 600_000, 700_000)

    def test_idle_gaps_tell_a_late_host_from_queued_work(
        self, tmp_path: Path, make_run: RunMaker
    ) -> None:
        export = NsysExport().capture()
        export.kernel("a<f>", 1000, 2000).kernel("b<f>", 1200, 1500, stream=8)
        export.kernel("late<f>", 3000, 3100, launch=2700)  # gap 1000, of which 700 before the call
        export.kernel("queued<f>", 3600, 3700, launch=900)  # gap 500
        export.kernel("lost<f>", 3900, 4000, called=False)  # gap 200
        export.kernel("next<f>", 4000, 4100)  # no gap
        run = make_run(export.write(tmp_path / "a.sqlite"))
        rows = run_query(run, "idle_gaps").select("idle_ns", "next_name", "host", "late_ns").rows()
        assert rows == [
            (1000, "late", "late", 700),
            (500, "queued", "queued", 0),
            (200, "lost", "unknown", None),
        ]
        assert run_query(run, "idle_gaps", {"k": 1}).height == 1


class TestRunning:
    """Names, parameters and values are checked before anything runs."""

    @pytest.mark.parametrize(
        ("name", "parameters", "message"),
        [
            ("comm_fractoin", {}, "no such query; did you mean comm_fraction?"),
            ("zzz", {}, "no such query; there are: busbw, collective_costs, collectives"),
            ("comm_fraction", {"scop": "step"}, "no parameter scop; did you mean scope?"),
            ("streams", {"k": 1}, "no parameter k; it takes none"),
            ("top_kernels", {"k": "many"}, "'many' is not of type INTEGER"),
        ],
    )
    def test_mistakes_are_named_with_the_nearest_right_word(
        self, sample_run: Run, name: str, parameters: dict[str, str], message: str
    ) -> None:
        with pytest.raises(QueryError, match=re.escape(message)):
            run_query(sample_run, name, parameters)

    def test_a_value_is_never_part_of_the_sql(self, sample_run: Run) -> None:
        assert run_query(sample_run, "comm_fraction", {"scope": "x' OR 1=1 --"}).is_empty()

    @pytest.mark.parametrize(
        "text",
        [
            "SELECT 1",
            "-- no title here\nSELECT 1",
            "-- q: what?\n-- column x: no type\nSELECT 1",
            "-- q: what?\n-- param k = 3: no type\nSELECT 1",
        ],
    )
    def test_a_header_that_follows_no_form_is_refused(self, text: str) -> None:
        with pytest.raises(ValueError, match=r"first line must be|follows no form"):
            parse_query(text)
