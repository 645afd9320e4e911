"""What an export tells about itself, and what it cannot tell: facts and diagnostics."""

import re
from collections import Counter
from typing import TYPE_CHECKING

import polars as pl

from traceq.ingest.notes import launch_unknown, no_steps
from traceq.ingest.nsys import host
from traceq.ingest.nsys.export import Export
from traceq.ingest.nsys.identity import Identity
from traceq.ingest.nsys.nccl import DYNAMIC
from traceq.ingest.tables import SourceFacts
from traceq.model.reasons import (
    MARK_STEPS,
    RECAPTURE,
    RECAPTURE_GRAPH,
    REEXPORT,
    Diagnostic,
    Severity,
)

if TYPE_CHECKING:
    from traceq.ingest.nsys.reader import Capture

_WARNING_LEVEL, _ERROR_LEVEL = 2, 3
# nsys's own words, by what they mean; the text itself is never kept, since it may hold paths.
_MESSAGES: tuple[tuple[str, str, Severity, str, str | None], ...] = (
    (
        r"(?:dropped|lost|discarded)",
        "events_lost",
        Severity.ERROR,
        "nsys says that it lost events: every time is a lower bound",
        f"shorten the capture or flush more often (--cuda-flush-interval): {RECAPTURE}",
    ),
    (
        r"Not all (?:CUDA|NVTX) events",
        "events_maybe_lost",
        Severity.WARNING,
        "nsys says that CUDA or NVTX events may be missing, as it does when a program was killed",
        "let the program end by itself, or stop the capture with --capture-range=cudaProfilerApi",
    ),
    (
        r"CUDA profiling might have not been started",
        "cuda_not_started",
        Severity.INFO,
        "CUDA tracing did not start in some processes",
        None,
    ),
)


def source_facts(identity: Identity, capture: "Capture", first_ns: int) -> SourceFacts:
    """Returns: what an export states about itself; checksum and size are the file's."""
    lost = any(code == "events_lost" for code in _said_by_nsys(identity.export))
    return SourceFacts(
        file_name=identity.export.label,
        kind="nsys",
        tool_version=identity.exporter_version,
        capture_version=identity.capture_version,
        driver_version=identity.driver_version,
        cuda_version=identity.cuda_version,
        schema_version=identity.schema_version,
        host_key=identity.host_key,
        utc_origin_ns=identity.utc_origin_ns(first_ns),
        complete=not lost,
        events_read=capture.ops.height + capture.graphs.height,
        events_skipped=capture.skipped,
        world_size=identity.world_size or _largest(capture),
    )


def _largest(capture: "Capture") -> int | None:
    """Returns: ranks of the largest communicator that was seen."""
    told = capture.members.filter(pl.col("kind").is_in(["init", "end"]))["nranks"].max()
    return told if isinstance(told, int) else None


def diagnose(identity: Identity, capture: "Capture") -> list[Diagnostic]:
    """Returns: everything a reader of the numbers should know about this export."""
    return [
        *_about_graphs(capture),
        *_about_names(capture),
        *_about_sizes(identity, capture),
        *_about_steps(capture),
        *_about_records(capture),
        *losses(identity.export),
    ]


def size_hint(identity: Identity, ranges: host.Ranges) -> str:
    """Returns: how to capture or export so that message sizes are there."""
    export = identity.export
    if not ranges.named.filter("nccl").height:
        return f"NCCL's NVTX ranges are missing: {RECAPTURE}"
    if has_payloads(export):
        return "calls share kernels, or their ranges carry no size: give a log with --nccl-log"
    table = host.nvtx_table(export) or ""
    if "binaryData" not in export.columns(table):
        return (
            "this export predates message sizes: re-export the report with nsys 2024.6 or newer: "
            f"{REEXPORT} run.nsys-rep"
        )
    return f"message sizes are left out by default: {REEXPORT} run.nsys-rep"


def has_payloads(export: Export) -> bool:
    """Returns: whether NVTX payloads, which hold NCCL's message sizes, are in the export."""
    table = host.nvtx_table(export)
    if table is None:
        return False
    columns = export.columns(table) & {"binaryData", "jsonText", "jsonTextId"}
    if export.tables(DYNAMIC):
        return True
    return any(export.holds(table, f'"{column}" IS NOT NULL') for column in columns)


def _about_graphs(capture: "Capture") -> list[Diagnostic]:
    hidden = capture.graphs.height + sum(capture.lost_graphs.values())
    if not hidden:
        return []
    message = (
        f"{hidden} CUDA graph launches were traced as a whole: "
        "communication inside them is not visible"
    )
    return [Diagnostic("graph_hidden", Severity.ERROR, message, RECAPTURE_GRAPH, count=hidden)]


def _about_names(capture: "Capture") -> list[Diagnostic]:
    found = []
    unnamed = capture.ops["class"].null_count()
    if unnamed:
        message = f"{unnamed} kernels have no name: communication cannot be told from compute"
        hint = f"export again, with every table: {REEXPORT} run.nsys-rep"
        found.append(Diagnostic("names_unknown", Severity.ERROR, message, hint, count=unnamed))
    launches = capture.ranges.named.filter("nccl").height
    if launches and not unnamed and not (capture.ops["class"] == "comm").any():
        message = (
            f"{launches} NCCL calls but no communication kernel: "
            "their kernels are not in the capture"
        )
        hint = "capture all processes and, with CUDA graphs, their nodes: " + RECAPTURE
        found.append(
            Diagnostic("calls_without_kernels", Severity.WARNING, message, hint, count=launches)
        )
    return found


def _about_sizes(identity: Identity, capture: "Capture") -> list[Diagnostic]:
    found = []
    sizeless = capture.comm["payload_bytes"].null_count()
    if sizeless:
        message = f"message sizes of {sizeless} operations are unknown, so bus bandwidth is too"
        hint = size_hint(identity, capture.ranges)
        found.append(Diagnostic("size_unknown", Severity.WARNING, message, hint, count=sizeless))
    uncalled = capture.comm.height - int(capture.comm["linked"].sum())
    if uncalled and uncalled < capture.comm.height:
        message = (
            f"{uncalled} of {capture.comm.height} communication operations have no NCCL call in "
            "the capture: only their names tell what they are"
        )
        hint = "they were launched before the capture began, or outside of NCCL"
        found.append(Diagnostic("call_unknown", Severity.INFO, message, hint, count=uncalled))
    return found


def _about_steps(capture: "Capture") -> list[Diagnostic]:
    if capture.steps.is_empty():
        return [no_steps(MARK_STEPS)]
    if capture.ranges.unfinished:
        count = capture.ranges.unfinished
        message = f"{count} ranges of steps or NCCL calls never ended and are left out"
        return [Diagnostic("ranges_unfinished", Severity.INFO, message, None, count=count)]
    return []


def _about_records(capture: "Capture") -> list[Diagnostic]:
    found = []
    if capture.skipped:
        message = f"{capture.skipped} device records have impossible times and are left out"
        found.append(
            Diagnostic("ops_skipped", Severity.WARNING, message, None, count=capture.skipped)
        )
    if capture.unlinked:
        hint = "they were launched before the capture began, or CUDA API tracing was off"
        found.append(launch_unknown(capture.unlinked, capture.ops.height, hint))
    return found


def losses(export: Export) -> list[Diagnostic]:
    """Returns: what nsys itself says is missing from its capture, worst first."""
    return [
        Diagnostic(code, severity, message, hint, count=count)
        for _, code, severity, message, hint in _MESSAGES
        if (count := _said_by_nsys(export)[code])
    ]


def _said_by_nsys(export: Export) -> Counter[str]:
    said: Counter[str] = Counter()
    levels = f"severity IN ({_WARNING_LEVEL}, {_ERROR_LEVEL})"
    for (text,) in export.rows("DIAGNOSTIC_EVENT", ("text",), levels):
        said.update(
            code for pattern, code, *_ in _MESSAGES if re.search(pattern, str(text), re.IGNORECASE)
        )
    return said
