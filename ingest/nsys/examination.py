"""What an nsys export can and cannot answer, and how to capture or export it better."""

from pathlib import Path

import polars as pl

from traceq.ingest.nsys import activity, host, notes
from traceq.ingest.nsys.export import Export
from traceq.ingest.nsys.identity import Identity
from traceq.ingest.nsys.nccl import read_nccl
from traceq.ingest.ranks import rank_in_file_name
from traceq.ingest.steps import any_step
from traceq.ingest.tables import Answer
from traceq.model.reasons import MARK_STEPS, RECAPTURE, RECAPTURE_GRAPH, REEXPORT

_GRAPH_MODE = "CUDA_GRAPH_TRACE_OPTIONS:MODE"


def examine_nsys(path: Path, label: str) -> list[Answer]:
    """Returns: the questions a report answers, each with a verdict, evidence and remedy.

    Raises:
        SourceError: the file cannot be read as an nsys export.
    """
    export = Export(path, label)
    identity = Identity(export)
    ranges = host.read_ranges(export, any_step(None))
    return [
        _versions(identity),
        _device_work(export),
        _graphs(export),
        _launches(export),
        _steps(ranges),
        _sizes(identity, ranges),
        _rank(identity),
        _gpu(export),
        _clock(export),
        _losses(export),
    ]


def _versions(identity: Identity) -> Answer:
    export = identity.exporter_version or "2021 or older (the export does not say)"
    capture = identity.capture_version or "unknown"
    return Answer("Which nsys made it?", "yes", f"captured by {capture}, exported by {export}")


def _device_work(export: Export) -> Answer:
    question = "What ran on the GPU?"
    counts = {
        table: export.count(table) for table in (activity.KERNEL, activity.MEMCPY, activity.MEMSET)
    }
    kernels, copies, sets = counts.values()
    if not sum(counts.values()):
        return Answer(question, "no", "no kernel, copy or set was traced", RECAPTURE)
    return Answer(question, "yes", f"{kernels:,} kernels, {copies:,} copies, {sets:,} sets")


def _graphs(export: Export) -> Answer:
    question = "Are kernels inside CUDA graphs visible?"
    graphs = export.count(activity.GRAPH)
    if graphs:
        return Answer(question, "no", f"{graphs:,} graphs were traced as a whole", RECAPTURE_GRAPH)
    mode = export.rows("META_DATA_CAPTURE", ("value",), f"name = '{_GRAPH_MODE}'")
    if mode and str(mode[0][0]).lower() == "graph":
        return Answer(
            question, "yes", "none was launched; the capture would have hidden their kernels"
        )
    return Answer(question, "yes", "no graph was traced as a whole")


def _launches(export: Export) -> Answer:
    question = "Which call launched an operation, and in which step?"
    calls = export.count(host.RUNTIME)
    if not calls:
        return Answer(question, "no", f"no {host.RUNTIME} table", RECAPTURE)
    return Answer(question, "yes", f"{calls:,} API calls")


def _steps(ranges: host.Ranges) -> Answer:
    question = "Where are the training steps?"
    steps = ranges.named.filter(~pl.col("nccl")).height
    if not steps:
        remedy = MARK_STEPS
        return Answer(question, "no", "no NVTX range is named like a step", remedy)
    return Answer(question, "yes", f"{steps:,} ranges are named like a step")


def _sizes(identity: Identity, ranges: host.Ranges) -> Answer:
    question = "How large are NCCL's messages?"
    if notes.has_payloads(identity.export):
        return _sizes_of_calls(identity.export, ranges)
    flag = identity.metadata("EXPORT_PARAM_INCLUDE_BLOBS")
    evidence = "no NVTX payload is in the export" + (
        f" (--include-blobs={flag})" if flag is not None else ""
    )
    return Answer(question, "no", evidence, notes.size_hint(identity, ranges))


def _sizes_of_calls(export: Export, ranges: host.Ranges) -> Answer:
    question = "How large are NCCL's messages?"
    of_nccl = read_nccl(export, ranges.named)
    calls = of_nccl.calls.height
    sized = calls - of_nccl.calls["payload_bytes"].null_count()
    groups = of_nccl.members.filter(pl.col("kind") == "init").height
    told = (
        f"; {groups} communicators say how many ranks they have"
        if groups
        else "; no communicator says how many ranks it has"
    )
    remedy = None if groups else "give it with --nranks, or capture from the start of the program"
    verdict = "no" if not sized else "yes" if groups and sized == calls else "partly"
    return Answer(
        question, verdict, f"{sized:,} of {calls:,} calls state their bytes{told}", remedy
    )


def _rank(identity: Identity) -> Answer:
    question = "Which rank is it?"
    ranks = identity.mpi_ranks()
    if ranks:
        return Answer(
            question, "yes", f"MPI says rank {', '.join(map(str, sorted(ranks.values())))}"
        )
    if identity.rank is not None:
        return Answer(
            question,
            "partly",
            f"the command ran as rank {identity.rank}: true if it was one process",
        )
    named = rank_in_file_name(identity.export.label)
    if named is not None:
        return Answer(question, "partly", f"only the file name does: rank {named}")
    remedy = (
        "give it with --rank-map FILE=RANK, or name the file by it: nsys profile -o rank%q{RANK}"
    )
    return Answer(question, "no", "neither MPI nor the command's environment says", remedy)


def _gpu(export: Export) -> Answer:
    question = "Which GPU model?"
    names = {str(name) for (name,) in export.rows("TARGET_INFO_GPU", ("name",)) if name}
    if not names:
        return Answer(
            question,
            "no",
            "no TARGET_INFO_GPU table",
            f"export all tables: {REEXPORT} run.nsys-rep",
        )
    return Answer(question, "yes", ", ".join(sorted(names)))


def _clock(export: Export) -> Answer:
    question = "Can it be laid beside other files in time?"
    if not export.has("TARGET_INFO_SESSION_START_TIME"):
        remedy = f"re-export with a newer nsys: {REEXPORT} run.nsys-rep"
        return Answer(question, "no", "the start of the session is missing", remedy)
    return Answer(question, "yes", "the session start is given in UTC")


def _losses(export: Export) -> Answer:
    question = "Is anything missing?"
    said = notes.losses(export)
    if not said:
        return Answer(question, "yes", "nsys reports no loss")
    return Answer(question, "partly", said[0].message, said[0].hint)
