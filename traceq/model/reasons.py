"""The one list of codes that say why a number is unknown or limited, and what to do about it."""

from dataclasses import dataclass
from enum import StrEnum


class Severity(StrEnum):
    """How much a diagnostic costs the reader: missing numbers, limited numbers, or nothing."""

    ERROR = "error"
    WARNING = "warning"
    INFO = "info"


@dataclass(frozen=True, slots=True)
class Diagnostic:
    """One thing noticed about the data.

    Attributes:
        code: stable code of the finding.
        severity: what it costs the reader.
        message: the finding in words.
        hint: what to do about it, if anything.
        source: position of the source it is about, None for the whole run.
        rank: rank it is about, None for all.
        count: how many events it concerns, None when not countable.
    """

    code: str
    severity: Severity
    message: str
    hint: str | None = None
    source: int | None = None
    rank: int | None = None
    count: int | None = None


REASONS: dict[str, str] = {
    "no_comm": "no communication ran in the window",
    "no_steps": "no training steps are marked in the capture",
    "few_steps": "fewer than three training steps are marked on some rank",
    "world_size_unknown": "how many ranks the job has is not in the capture: give --nranks",
    "graph_hidden": "CUDA graphs were traced as a whole: the kernels inside are not visible",
    "names_unknown": "kernel names are missing, so communication cannot be told from compute",
    "size_unknown": "message sizes are not in the capture",
    "by_operation": "one number for all operations would mean nothing: see the collectives",
    "partial_ranks": "ranks of the group are missing, so it is a bound",
    "group_size_unknown": "how many ranks the group has is not in the capture",
    "uneven": "ranks exchange different amounts, so one size would mean nothing",
    "unmatched": "collectives are not matched across ranks",
    "peak_unknown": "the peak of the link is not known: give it with --link-peak",
    "single_rank": "one rank alone shows neither who waits for whom nor a bandwidth",
    "too_few_steps": "too few steps to tell lateness from chance",
    "rooted": "ranks leave at different times, so the shortest is a lower bound of the time",
    "incomplete": "a source is incomplete: --allow-incomplete judges what single ranks tell",
    "inconclusive": "the steps of one run differ more among themselves: capture more steps",
    "nothing_to_compare": "it needs a run to compare with: use traceq compare BASE RUN",
    "op_absent": "no such operation, or none of that size, ran",
    "empty_window": "the window has no length",
}

MARK_STEPS = 'mark steps with torch.cuda.nvtx.range_push(f"step {i}"), or use --step-pattern'
RECAPTURE_GRAPH = "re-capture with nsys profile --trace=cuda,nvtx --cuda-graph-trace=node"
RECAPTURE = "nsys profile --trace=cuda,nvtx --cuda-graph-trace=node -o run <your command>"
REEXPORT = "nsys export --type sqlite --include-blobs=true --include-json=true"

# What makes an unknown number known; None where nothing is missing.
WAYS_OUT: dict[str, str | None] = {
    "no_comm": None,
    "no_steps": MARK_STEPS,
    "few_steps": MARK_STEPS,
    "world_size_unknown": "traceq ingest SOURCES --nranks N",
    "graph_hidden": RECAPTURE_GRAPH,
    "names_unknown": f"{REEXPORT} run.nsys-rep",
    "size_unknown": "traceq ingest SOURCES --nccl-log LOG, of a run with NCCL_DEBUG=INFO "
    "NCCL_DEBUG_SUBSYS=COLL; traceq doctor SOURCES tells how to capture sizes",
    "by_operation": None,
    "partial_ranks": "traceq ingest SOURCES, with the file of every rank",
    "group_size_unknown": "traceq ingest SOURCES --nranks N",
    "uneven": None,
    "unmatched": "traceq ingest SOURCES, with the file of every rank; traceq doctor SOURCES",
    "peak_unknown": "traceq ingest SOURCES --link-peak GBPS, or --baseline NCCL_TESTS_OUTPUT",
    "single_rank": "traceq ingest SOURCES, with the file of every rank",
    "too_few_steps": "capture at least 8 steps",
    "rooted": None,
    "incomplete": "traceq doctor SOURCES",
    "inconclusive": "capture more steps",
    "nothing_to_compare": "traceq compare BASE RUN",
    "op_absent": None,
    "empty_window": "traceq doctor SOURCES",
}
