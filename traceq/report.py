"""The report of a run as plain data: numbers of the canned queries, their window and coverage."""

import json
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

import polars as pl

from traceq.findings import find_all
from traceq.findings.facts import Facts
from traceq.model.collectives import Op, wire_bytes
from traceq.model.reasons import REASONS
from traceq.model.timing import PARTS, RATIOS, lower_median
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
        stragglers: one row per rank that took part in matched collectives.
        matching: how many communication operations are matched, and the clocks.
        latency_bandwidth: one row per kind of collective whose times could be fitted.
        volume: bytes each rank sends per step, and what the layout should send.
        findings: what costs time, most first.
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
    latency_bandwidth: list[Row]
    volume: Row
    diagnostics: list[Row]
    stragglers: list[Row]
    findings: list[Row]
    gates: list[Row] = field(default_factory=list)

    @property
    def complete(self) -> bool:
        """Returns: whether every source was read whole."""
        unread = any(d["code"] == "source_unreadable" for d in self.diagnostics)
        return not unread and all(source["complete"] for source in self.sources)


@dataclass(frozen=True, slots=True)
class Layout:
    """A data-parallel model, to tell what each step should send.

    Attributes:
        parameters: how many it has [1].
        element_bytes: bytes of one [bytes].
    """

    parameters: int
    element_bytes: int


def build_report(run: Run, layout: Layout | None = None) -> Report:
    """Returns: the report of a run.

    The headline is over all steps when every rank has at least three, else over the capture.

    Args:
        run: an open run file.
        layout: the model, to compare what each step sends with what it should.

    Raises:
        QueryError: the run file is damaged.
    """
    identity = run.frame("SELECT * FROM run").to_dicts()[0]
    options = json.loads(identity["config"])
    ranks = run.frame("SELECT * FROM ranks ORDER BY rank")
    steps = run_query(run, "step_times")
    scope = _headline_scope(ranks, steps)
    timings = run_query(run, "comm_fraction", {"scope": scope})
    overlap = run_query(run, "overlap", {"scope": scope})
    total = timings.filter(pl.col("rank").is_null()).to_dicts()[0]
    by_rank = timings.drop_nulls("rank").join(
        overlap.select("rank", "transfer_overlap_ratio"), on="rank"
    )
    collectives = _collectives(run, options)
    stragglers = _stragglers(run, scope, options)
    metrics, reasons = _metrics(total, steps)
    transfers = _transfers(run, scope)
    _across_ranks(metrics, reasons, transfers, stragglers, several=ranks.height > 1)
    # One number for all operations would mean nothing: bandwidths are told by operation and size.
    for name in ("busbw_gbps", "efficiency"):
        metrics[name], reasons[name] = None, "by_operation" if collectives else "no_comm"
    latency = run_query(run, "latency_bandwidth").to_dicts()
    streams = run_query(run, "streams").to_dicts()
    diagnostics = _diagnostics(run)
    facts = Facts(
        metrics=metrics,
        transfer_exposed_ns=transfers["exposed_ns"],
        collectives=collectives,
        stragglers=stragglers,
        latency=latency,
        imbalance=run_query(run, "imbalance", {"scope": scope}).to_dicts(),
        slow_links=run_query(run, "slow_links").to_dicts(),
        streams=streams,
        diagnostics=diagnostics,
        on_cpus=bool((ranks["device_kind"] == "cpu").all()),
    )
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
        streams=streams,
        kernels=run_query(run, "top_kernels", {"k": 10}).to_dicts(),
        collectives=collectives,
        matching=_matching(run),
        latency_bandwidth=latency,
        volume=_volume(run, layout, ranks=identity["world_size"]),
        diagnostics=diagnostics,
        stragglers=stragglers,
        findings=[finding.as_json() for finding in find_all(facts)],
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


def _metrics(total: Row, steps: pl.DataFrame) -> tuple[dict[str, Any], dict[str, str]]:
    metrics: dict[str, Any] = {name: total[name] for name in (*PARTS, *RATIOS)}
    cause = total["reason"]
    reasons = {name: cause for name in metrics if metrics[name] is None and cause}
    if total["comm_ns"] == 0:
        reasons["overlap_ratio"] = "no_comm"
    if total["window_ns"] == 0:
        reasons |= dict.fromkeys(("comm_fraction", "exposed_comm_fraction"), "empty_window")
    slowest = steps.group_by("step").agg(pl.col("window_ns").max())
    step_ns = lower_median(slowest["window_ns"])
    metrics["step_time_ms"] = None if step_ns is None else step_ns / 1e6
    if step_ns is None:
        reasons["step_time_ms"] = "no_steps"
    return metrics, reasons


def _transfers(run: Run, scope: str) -> Row:
    """Returns: communication less waiting over all windows: comm_ns, overlap_ns, exposed_ns [ns].

    All are None where a rank has no matched collective although it communicates.
    """
    sums = run.frame(
        """
        SELECT sum(transfer_comm_ns)::BIGINT AS comm_ns,
               sum(transfer_overlap_ns)::BIGINT AS overlap_ns,
               bool_and(transfer_comm_ns IS NOT NULL OR coalesce(comm_ns = 0, false)) AS known
        FROM rank_timings WHERE scope = getvariable('scope')
        """,
        {"scope": scope},
    ).to_dicts()[0]
    if not sums["known"] or sums["comm_ns"] is None:
        return dict.fromkeys(("comm_ns", "overlap_ns", "exposed_ns"))
    exposed = sums["comm_ns"] - sums["overlap_ns"]
    return {"comm_ns": sums["comm_ns"], "overlap_ns": sums["overlap_ns"], "exposed_ns": exposed}


def _across_ranks(
    metrics: Row, reasons: dict[str, str], transfers: Row, stragglers: list[Row], *, several: bool
) -> None:
    """Adds the metrics that need several ranks, or why they are unknown."""
    why = "no_comm" if metrics["comm_ns"] == 0 else "unmatched" if several else "single_rank"
    comm, overlap = transfers["comm_ns"], transfers["overlap_ns"]
    metrics["transfer_overlap_ratio"] = overlap / comm if comm else None
    late = [row["straggler_fraction"] for row in stragglers if row["straggler"]]
    open_ = any(row["straggler"] is None for row in stragglers)
    told = bool(stragglers) and (bool(late) or not open_)
    metrics["straggler_fraction"] = max(late, default=0.0) if told else None
    for name in ("transfer_overlap_ratio", "straggler_fraction"):
        if metrics[name] is None:
            reasons[name] = why
    if open_ and not told:
        partial = any(row["partial"] and row["straggler"] is None for row in stragglers)
        reasons["straggler_fraction"] = "partial_ranks" if partial else "too_few_steps"


def _stragglers(run: Run, scope: str, options: Row) -> list[Row]:
    parameters = {
        "scope": scope,
        "warmup": int(options["keep_warmup"]),
        "fraction": options["straggler_fraction"],
        "p": options["straggler_p"],
    }
    names = {"collective_count": "collectives", "last_fraction": "share_last"}
    return run_query(run, "stragglers", parameters).rename(names).to_dicts()


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


def _collectives(run: Run, options: Row) -> list[Row]:
    parameters = {"warmup": int(options["keep_warmup"])}
    return run_query(run, "busbw", parameters).rename({"call_count": "count"}).to_dicts()


def _volume(run: Run, layout: Layout | None, ranks: int | None) -> Row:
    """Returns: bytes sent per step by operation, of the rank that sends most, and what is expected.

    Data parallel training reduces every gradient once a step: 2 (n - 1) / n of their bytes.
    """
    rows = run_query(run, "volume")
    by_op = (
        rows.group_by("op", maintain_order=True)
        .agg(
            pl.len().alias("rank_count"),
            pl.col("step_wire_bytes").min().alias("step_wire_bytes_min"),
            pl.col("step_wire_bytes").max().alias("step_wire_bytes_max"),
            pl.col("step_wire_bytes").null_count().alias("unknown_count"),
        )
        .to_dicts()
    )
    expected = None
    if layout is not None and ranks is not None and ranks > 1:
        size = layout.parameters * layout.element_bytes
        expected = wire_bytes(Op.ALL_REDUCE, size, ranks)
    return {"by_op": by_op, "expected_bytes": expected}


def _matching(run: Run) -> Row:
    """Returns: how many operations are in which state, and what aligning did to each clock."""
    counts = dict(run.frame("SELECT match, count(*) FROM nccl_kernels GROUP BY match").iter_rows())
    states = ("matched", "partial", "mismatched", "unmatched")
    clock = run.frame(
        """
        SELECT host, file_name AS source, clock_offset_ns, clock_residual_p95_ns,
               clock_collectives AS collective_count
        FROM sources WHERE clock_offset_ns IS NOT NULL ORDER BY source_id
        """
    ).to_dicts()
    return {state: counts.get(state, 0) for state in states} | {"clock": {"sources": clock}}


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
