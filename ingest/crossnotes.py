"""What a reader should know about what was found across ranks."""

from collections.abc import Mapping

import polars as pl

from traceq.ingest.clocks import Clock
from traceq.ingest.communicators import ASSUMED, Job
from traceq.ingest.matching import COLLECTIVE
from traceq.model.reasons import Diagnostic, Severity
from traceq.model.units import size_text, time_text

_MOST_NAMED = 4


def notes_across(comm: pl.DataFrame, clocks: Mapping[int, Clock], job: Job) -> list[Diagnostic]:
    """Returns: notes on collectives that disagree or could not be matched, groups and clocks.

    Args:
        comm: every communication operation, matched.
        clocks: what aligning did to the clock of each source.
        job: what is known of the job.
    """
    return [
        *_mismatches(comm),
        *_unmatched(comm, job),
        *_sizes(comm),
        *_assumed(comm),
        *_warmups(comm),
        *_loose_clocks(comm, clocks),
    ]


def _mismatches(comm: pl.DataFrame) -> list[Diagnostic]:
    """Names, for each communicator, the first collective whose ranks disagree, and both sides."""
    notes = []
    wrong = comm.filter(pl.col("match") == "mismatched")
    for (comm_id,), rows in wrong.group_by("comm_id", maintain_order=True):
        first = rows.filter(pl.col("collective_id") == rows["collective_id"].min())
        sides = (
            first.group_by("op", "bytes")
            .agg(pl.col("rank").sort())
            .sort(pl.col("rank").list.len(), "op", "bytes")
        )
        said = "; ".join(
            f"rank{'s' * (len(ranks) > 1)} {_listed(ranks)}: {op} of {size_text(size)}"
            for op, size, ranks in sides.iter_rows()
        )
        count = rows["collective_id"].n_unique()
        message = (
            f"the ranks of {comm_id} disagree on {count} collective{'s' * (count > 1)}, first on "
            f"number {first['collective_id'][0]}: {said}"
        )
        hint = "check that all ranks run the same code with the same shapes and bucket sizes"
        notes.append(Diagnostic("mismatched", Severity.WARNING, message, hint, count=count))
    return notes


def _unmatched(comm: pl.DataFrame, job: Job) -> list[Diagnostic]:
    if len(job.present) == 1:
        return []
    lost = comm.filter((pl.col("match") == "unmatched") & pl.col("op").is_in(list(COLLECTIVE)))
    if lost.is_empty():
        return []
    message = (
        f"{lost.height} collective operations could not be matched across ranks: their "
        "communicators are unknown, records were lost, or their ranks did not leave together"
    )
    hint = (
        "capture all ranks over the same steps, with groups and sizes: nsys export "
        "--include-blobs=true, or torch 2.2 or newer"
    )
    return [Diagnostic("unmatched", Severity.WARNING, message, hint, count=lost.height)]


def _sizes(comm: pl.DataFrame) -> list[Diagnostic]:
    unknown = comm.filter(pl.col("payload_bytes").is_not_null() & pl.col("bytes").is_null())
    if unknown.is_empty():
        return []
    message = (
        f"{unknown.height} operations state the bytes of one rank, but not how many ranks there "
        "are, so their sizes are unknown"
    )
    hint = "give the ranks of the group with --nranks, or capture from the start of the program"
    return [Diagnostic("group_size_unknown", Severity.WARNING, message, hint, count=unknown.height)]


def _assumed(comm: pl.DataFrame) -> list[Diagnostic]:
    rows = comm.filter(pl.col("comm_id").str.starts_with(ASSUMED))
    if rows.is_empty():
        return []
    message = (
        f"{rows.height} operations do not say their communicator: those on the same stream of each "
        "rank are taken for one"
    )
    return [Diagnostic("communicator_assumed", Severity.INFO, message, None, count=rows.height)]


def _warmups(comm: pl.DataFrame) -> list[Diagnostic]:
    calls = comm.filter("warmup")
    count = calls["collective_id"].n_unique()
    if not count:
        return []
    longest = (calls["end_ns"] - calls["start_ns"]).max()
    message = (
        f"{count} first call{'s' * (count > 1)} of communicators, of up to {time_text(longest)}, "  # type: ignore[arg-type]
        "are warm-up: they are left out of bandwidths and stragglers"
    )
    return [
        Diagnostic("warmup", Severity.INFO, message, "count them with --keep-warmup", count=count)
    ]


def _loose_clocks(comm: pl.DataFrame, clocks: Mapping[int, Clock]) -> list[Diagnostic]:
    """Says where what aligning leaves is longer than the collectives themselves."""
    usual = comm["transfer_ns"].median()
    if not isinstance(usual, float):
        return []
    loose = [source for source, clock in clocks.items() if clock.residual_p95_ns > usual]
    if not loose:
        return []
    worst = max(clocks[source].residual_p95_ns for source in loose)
    message = (
        f"the clocks of {len(loose)} sources cannot be aligned better than {time_text(worst)}, "
        "which is more than a usual collective takes: do not compare their times with others"
    )
    return [Diagnostic("clock_loose", Severity.WARNING, message, None, count=len(loose))]


def _listed(ranks: list[int]) -> str:
    return ", ".join(map(str, ranks[:_MOST_NAMED])) + ", ..." * (len(ranks) > _MOST_NAMED)
