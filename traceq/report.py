"""The report of a run as plain data: numbers of the canned queries, their window and coverage."""

from dataclasses import dataclass, field
from itertools import islice
from typing import Any

import polars as pl

from traceq.model.collectives import Op, algbw_gbps, busbw_gbps
from traceq.model.reasons import REASONS
from traceq.model.timing import PARTS, RATIOS
from traceq.query import run_query
from traceq.runfile import Run

SCHEMA = "traceq.report/1"
MIN_STEPS = 3
_MOST_MISSING = 1000
_TIMING_COLUMNS = (*PARTS, *RATIOS, "transfer_overlap_ratio", "reason")

Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Report:
    """A run as plain data; the fields are the keys of `report --format json`.

    Attributes:
        name: name of the run.
        traceq_version: version that made the run file.
        run: world_size, ranks present and missing, nodes, GPUs, window, steps.
        sources: one row per input file.
        metrics: run-level numbers by name; None where unknown.
        reasons: reason code by the name of each unknown metric.
        spread: per metric, the least and greatest value over ranks and who holds it.
        ranks: one row per rank, over the window of the headline.
        steps: one row per step and rank.
        streams: one row per stream of each rank.
        kernels: the names that took most time.
        collectives: one row per kind of communication.
        stragglers: empty until collectives are matched.
        matching: how many communication operations are matched, and the clocks.
        findings: empty until there are rules.
        diagnostics: what was noticed about the data.
        gates: empty without gates.
    """

    name: str
    traceq_version: str
    run: Row
    sources: list[Row]
    metrics: dict[str, Any]
    reasons: dict[str, str]
    spread: dict[str, Row]
    ranks: list[Row]
    steps: list[Row]
    streams: list[Row]
    kernels: list[Row]
    collectives: list[Row]
    matching: Row
    diagnostics: list[Row]
    stragglers: list[Row] = field(default_factory=list)
    findings: list[Row] = field(default_factory=list)
    gates: list[Row] = field(default_factory=list)

    @property
    def complete(self) -> bool:
        """Returns: whether every source was read whole."""
        unread = any(d["code"] == "source_unreadable" for d in self.diagnostics)
        return not unread and all(source["complete"] for source in self.sources)


def build_report(run: Run) -> Report:
    """Returns: the report of a run.

    The headline is over all steps when every rank has at least three, else over the capture.

    Raises:
        QueryError: the run file is damaged.
    """
    identity = run.frame("SELECT * FROM run").to_dicts()[0]
    ranks = run.frame("SELECT * FROM ranks ORDER BY rank")
    steps = run_query(run, "step_times")
    scope = _headline_scope(ranks, steps)
    timings = run_query(run, "comm_fraction", {"scope": scope})
    overlap = run_query(run, "overlap", {"scope": scope})
    total = timings.filter(pl.col("rank").is_null()).to_dicts()[0]
    by_rank = timings.drop_nulls("rank").join(
        overlap.select("rank", "transfer_overlap_ratio"), on="rank"
    )
    collectives = _collectives(run)
    metrics, reasons = _metrics(total, steps, ranks)
    # One number for all operations would mean nothing: bandwidths are told by operation and size.
    for name in ("busbw_gbps", "efficiency"):
        metrics[name], reasons[name] = None, "by_operation" if collectives else "no_comm"
    return Report(
        name=identity["name"],
        traceq_version=identity["traceq_version"],
        run=_run(identity, ranks, scope, steps),
        sources=_sources(run),
        metrics=metrics,
        reasons=reasons,
        spread=_spread(by_rank),
        ranks=_ranks(run, ranks, by_rank),
        steps=_steps(run),
        streams=run_query(run, "streams").to_dicts(),
        kernels=run_query(run, "top_kernels", {"k": 10}).to_dicts(),
        collectives=collectives,
        matching=_matching(run),
        diagnostics=_diagnostics(run),
    )


def _headline_scope(ranks: pl.DataFrame, steps: pl.DataFrame) -> str:
    per_rank = ranks.join(steps.group_by("rank").len(), on="rank", how="left")["len"]
    return "step" if bool((per_rank.fill_null(0) >= MIN_STEPS).all()) else "capture"


def _run(identity: Row, ranks: pl.DataFrame, scope: str, steps: pl.DataFrame) -> Row:
    present = ranks["rank"].to_list()
    world = identity["world_size"]
    return {
        "world_size": world,
        "ranks_present": present,
        "ranks_missing": None if world is None else _missing(world, present),
        "ranks_missing_count": None if world is None else world - len(present),
        "nodes": identity["nodes"],
        "gpus": sorted(ranks["gpu_name"].drop_nulls().unique()),
        "window": "steps" if scope == "step" else "capture",
        "steps": steps["step"].n_unique(),
    }


def _missing(world: int, present: list[int]) -> list[int]:
    """Returns: the missing ranks, the first thousand of them."""
    there = set(present)
    absent = (rank for rank in range(world) if rank not in there)
    return list(islice(absent, _MOST_MISSING))


def _metrics(
    total: Row, steps: pl.DataFrame, ranks: pl.DataFrame
) -> tuple[dict[str, Any], dict[str, str]]:
    metrics: dict[str, Any] = {name: total[name] for name in (*PARTS, *RATIOS)}
    cause = total["reason"]
    reasons = {name: cause for name in metrics if metrics[name] is None and cause}
    if total["comm_ns"] == 0:
        reasons["overlap_ratio"] = "no_comm"
    if total["window_ns"] == 0:
        reasons |= dict.fromkeys(("comm_fraction", "exposed_comm_fraction"), "empty_window")
    slowest = steps.group_by("step").agg(pl.col("window_ns").max())
    step_ns = slowest["window_ns"].quantile(0.5, "lower")
    metrics["step_time_ms"] = None if step_ns is None else step_ns / 1e6
    if step_ns is None:
        reasons["step_time_ms"] = "no_steps"
    no_comm = total["comm_ns"] == 0
    across = "no_comm" if no_comm else "single_rank" if ranks.height == 1 else "unmatched"
    for name in ("transfer_overlap_ratio", "straggler_fraction"):
        metrics[name], reasons[name] = None, across
    return metrics, reasons


def _spread(by_rank: pl.DataFrame) -> dict[str, Row]:
    spread = {}
    for name in (*PARTS, *RATIOS):
        known = by_rank.drop_nulls(name).sort(name, "rank")
        if known.is_empty():
            continue
        least, most = known.row(0, named=True), known.row(-1, named=True)
        spread[name] = {
            "min": least[name],
            "min_rank": least["rank"],
            "max": most[name],
            "max_rank": most["rank"],
        }
    return spread


def _ranks(run: Run, ranks: pl.DataFrame, by_rank: pl.DataFrame) -> list[Row]:
    files = run.frame("SELECT source_id, file_name AS source FROM sources")
    columns = ["rank", "rank_source", "source", "pid", "device", "device_kind", "host", "gpu"]
    return (
        ranks.join(files, on="source_id")
        .join(by_rank, on="rank")
        .rename({"gpu_name": "gpu"})
        .sort("rank")
        .select(*columns, *_TIMING_COLUMNS)
        .to_dicts()
    )


def _steps(run: Run) -> list[Row]:
    columns = ", ".join(("step", "rank", "start_ns", "end_ns", *_TIMING_COLUMNS))
    return run.frame(
        f"SELECT {columns} FROM rank_timings WHERE scope = 'step' ORDER BY step, rank"
    ).to_dicts()


def _sources(run: Run) -> list[Row]:
    return run.frame(
        """
        SELECT file_name AS file, kind, ranks, tool_version, capture_version, schema_version,
               complete, events_read, events_skipped, host, clock_offset_ns, clock_residual_p95_ns
        FROM sources JOIN (
            SELECT source_id, list(rank ORDER BY rank) AS ranks FROM ranks GROUP BY source_id
        ) USING (source_id)
        ORDER BY source_id
        """
    ).to_dicts()


def _collectives(run: Run) -> list[Row]:
    counted = run.frame(
        """
        SELECT op, group_size, link, 1 << floor(log2(nullif(bytes, 0)))::BIGINT AS bucket_bytes,
               CASE WHEN count(DISTINCT dtype) = 1 THEN min(dtype) END AS dtype,
               count(*) AS count, quantile_disc(bytes, 0.5) AS bytes_p50,
               min(end_ns - start_ns) AS duration_ns_min,
               quantile_disc(end_ns - start_ns, 0.5) AS duration_ns_p50,
               quantile_disc(end_ns - start_ns, 0.95) AS duration_ns_p95,
               max(end_ns - start_ns) AS duration_ns_max,
               quantile_disc(transfer_ns, 0.5) AS transfer_ns_p50,
               quantile_disc(transfer_ns, 0.95) AS transfer_ns_p95,
               max(transfer_ns) AS transfer_ns_max,
               CASE WHEN count(wait_ns) > 0 THEN sum(wait_ns)::BIGINT END AS wait_ns,
               bool_and(match = 'matched') AS all_matched,
               bool_or(coalesce(collective_id IN (
                   SELECT collective_id FROM nccl_kernels GROUP BY collective_id
                   HAVING count(DISTINCT bytes) > 1
               ), false)) AS uneven
        FROM nccl_kernels
        GROUP BY op, group_size, link, bucket_bytes
        ORDER BY sum(end_ns - start_ns) DESC, op, bucket_bytes
        """
    ).to_dicts()
    return [_with_bandwidth(row) for row in counted]


def _with_bandwidth(row: Row) -> Row:
    """Returns: a kind of collective with its bandwidths, from the medians of size and transfer.

    An exchange in which ranks send different amounts has none.
    """
    size, n, transfer = row["bytes_p50"], row["group_size"], row["transfer_ns_p50"]
    whole, uneven = row.pop("all_matched"), row.pop("uneven")
    known = size is not None and transfer is not None and not uneven
    return row | {
        "algbw_gbps": algbw_gbps(size, transfer) if known else None,
        "busbw_gbps": busbw_gbps(Op(row["op"]), size, n, transfer) if known and n else None,
        **dict.fromkeys(("peak_gbps", "peak_source", "efficiency", "exposed_ns")),
        "quality": "uneven" if uneven else _quality(row, whole=whole),
    }


def _quality(row: Row, *, whole: bool) -> str:
    if row["bytes_p50"] is None:
        return "size_unknown"
    if row["transfer_ns_p50"] is None:
        return "unmatched"
    return "measured" if whole else "partial_ranks"


def _matching(run: Run) -> Row:
    counts = dict(run.frame("SELECT match, count(*) FROM nccl_kernels GROUP BY match").iter_rows())
    states = ("matched", "partial", "mismatched", "unmatched")
    aligned = run.frame(
        "SELECT host, clock_offset_ns, clock_residual_p95_ns FROM sources ORDER BY source_id"
    )
    known = aligned.drop_nulls("clock_offset_ns").to_dicts()
    return {state: counts.get(state, 0) for state in states} | {"clock": {"hosts": known}}


def _diagnostics(run: Run) -> list[Row]:
    return run.frame(
        """
        SELECT d.severity, d.code, d.message, d.hint, s.file_name AS source, d.rank, d.count
        FROM diagnostics d LEFT JOIN sources s USING (source_id)
        ORDER BY array_position(['error', 'warning', 'info'], d.severity), d.code, d.source_id
        """
    ).to_dicts()


def reason_text(code: str | None) -> str:
    """Returns: a reason code in words."""
    return REASONS.get(code or "", code or "")
