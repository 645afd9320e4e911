"""What the host did: API calls, and the NVTX ranges that mark steps and NCCL calls."""

import re
from dataclasses import dataclass

import numpy as np
import polars as pl

from traceq.ingest.accounting import Intervals, Union
from traceq.ingest.nsys.activity import NODES
from traceq.ingest.nsys.export import Export

RUNTIME = "CUPTI_ACTIVITY_KIND_RUNTIME"
_CARRIED = {"blob": "binaryData", "json": "jsonText"}
_NVTX_TABLES = ("NVTX_EVENTS", "NVTX_EVENTS_V3", "NVTX_EVENTS_V2")
_PUSH_POP, _START_END, _DOMAIN_CREATE = 59, 60, 75
_NCCL_NAME = r"^nccl[A-Z]"
_CALLS_OF_NCCL = (
    r"(?:AllGather|AllGatherV|AllReduce|AlltoAll|AllToAll|Bcast|Broadcast|Gather|PutSignal|Recv"
    r"|Reduce|ReduceScatter|Scatter|Send|Signal|WaitSignal)"
)
# The advanced NCCL trace names its ranges without the prefix.
_ADVANCED = rf"^(?:API Group|GroupLaunch|KernelLaunch|{_CALLS_OF_NCCL})$"
# Calls that put work of a collective on a stream; the others only set up.
_NCCL_LAUNCHES = rf"^nccl(?:{_CALLS_OF_NCCL}|GroupEnd)$|{_ADVANCED}"
_GRAPH_LAUNCH = re.compile(r"^cu(?:da)?GraphLaunch")


@dataclass(frozen=True, slots=True)
class Ranges:
    """Finished NVTX ranges whose name was asked for.

    Attributes:
        named: process, thread [id], start_ns, end_ns [ns], name, nccl (bool): in NCCL's domain; and
            what it carries: event [id], blob (binary payload, empty without), json.
        unfinished: ranges of a wanted name that never ended [1].
    """

    named: pl.DataFrame
    unfinished: int


_RANGES = pl.Schema(
    {
        "process": pl.Int64,
        "thread": pl.Int64,
        "start_ns": pl.Int64,
        "end_ns": pl.Int64,
        "name": pl.String,
        "nccl": pl.Boolean,
        "event": pl.Int64,
        "blob": pl.Binary,
        "json": pl.String,
    }
)


def nvtx_table(export: Export) -> str | None:
    """Returns: the name of the table with NVTX events, None when the export has none."""
    return next((table for table in _NVTX_TABLES if export.has(table)), None)


def read_calls(export: Export, threads: int) -> pl.DataFrame:
    """Returns: CUDA API calls: process, thread, correlation [id], launch_ns [ns], graph (bool).

    `graph` marks launches of a CUDA graph.
    """
    select = {
        "process": f"{export.column(RUNTIME, 'globalTid')} >> 24",
        "thread": export.column(RUNTIME, "globalTid"),
        "correlation": f"nullif({export.column(RUNTIME, 'correlationId')}, 0)",
        "launch_ns": export.column(RUNTIME, "start"),
        "name_key": export.column(RUNTIME, "nameId"),
    }
    graph_ids = [key for key, name in export.strings.items() if _GRAPH_LAUNCH.match(name)]
    chunks = [
        chunk.drop_nulls(["process", "correlation", "launch_ns"])
        .with_columns(graph=pl.col("name_key").is_in(graph_ids))
        .drop("name_key")
        for chunk in export.scan(RUNTIME, select, threads=threads)
    ]
    return pl.concat(chunks).cast(_CALLS) if chunks else pl.DataFrame(schema=_CALLS)


_CALLS = pl.Schema(
    {
        "process": pl.Int64,
        "thread": pl.Int64,
        "correlation": pl.Int64,
        "launch_ns": pl.Int64,
        "graph": pl.Boolean,
    }
)


def read_node_origins(export: Export) -> pl.DataFrame:
    """Returns: where nodes of CUDA graphs were made: process, graph_node, thread, launch_ns.

    An instantiated graph clones the nodes of the captured one; the clone's origin is that of the
    node it was cloned from.
    """
    nodes = pl.DataFrame(
        [
            (tid >> 24, node, original, tid, start)
            for tid, node, original, start in export.rows(
                NODES, ("globalTid", "graphNodeId", "originalGraphNodeId", "start")
            )
            if tid is not None and node is not None
        ],
        schema={
            "process": pl.Int64,
            "graph_node": pl.Int64,
            "original": pl.Int64,
            "thread": pl.Int64,
            "launch_ns": pl.Int64,
        },
        orient="row",
    ).unique(["process", "graph_node"], keep="first", maintain_order=True)
    originals = nodes.select("process", "thread", "launch_ns", original="graph_node")
    return nodes.join(originals, on=["process", "original"], how="left", suffix="_first").select(
        "process",
        "graph_node",
        pl.coalesce("thread_first", "thread").alias("thread"),
        pl.coalesce("launch_ns_first", "launch_ns").alias("launch_ns"),
    )


def read_ranges(export: Export, step_names: str) -> Ranges:
    """Returns: the NVTX ranges that are named like a step or like an NCCL call.

    A name is the event's own text, or a registered string. NCCL's ranges are those in a domain
    called NCCL; where the export has lost the row that names the domain, a call of NCCL's API
    outside the default domain is taken for one.

    Args:
        export: the export.
        step_names: regular expression of step names.
    """
    table = nvtx_table(export)
    if table is None:
        return Ranges(pl.DataFrame(schema=_RANGES), 0)
    of_nccl = f"{_NCCL_NAME}|{_ADVANCED}"
    wanted = f"{of_nccl}|{step_names}"
    registered = _matching_strings(export.strings, wanted)
    carriers = _matching_strings(export.strings, of_nccl)["text_id"]
    select = {
        "process": f"{export.column(table, 'globalTid')} >> 24",
        "thread": export.column(table, "globalTid"),
        "domain": f"coalesce({export.column(table, 'domainId')}, 0)",
        "start_ns": export.column(table, "start"),
        "end_ns": export.column(table, "end"),
        "text_id": export.column(table, "textId"),
        "text": f"CAST(coalesce({export.column(table, 'text')}, '') AS BLOB)",
        "event": f"coalesce({export.column(table, 'eventId')}, -1)",
        "json_id": f"coalesce({export.column(table, 'jsonTextId')}, -1)",
    } | _payload_columns(export, table, carriers)
    kinds = f"{export.column(table, 'eventType')} IN ({_PUSH_POP}, {_START_END})"
    chunks = [
        chunk.with_columns(_decoded(chunk["text"]))
        .join(registered, on="text_id", how="left")
        .with_columns(name=pl.when(pl.col("text") != "").then("text").otherwise("registered"))
        .filter(pl.col("name").str.contains(wanted))
        .with_columns(json=_json(pl.col("json"), pl.col("json_id"), export.strings))
        .drop("text", "text_id", "registered", "json_id")
        for chunk in export.scan(table, select, where=kinds)
        if chunk.height
    ]
    if not chunks:
        return Ranges(pl.DataFrame(schema=_RANGES), 0)
    events = pl.concat(chunks)
    finished = events.filter(pl.col("end_ns") >= pl.col("start_ns"))
    named = _mark_nccl(finished, _nccl_domains(export, table))
    return Ranges(named.select(_RANGES.keys()), events.height - finished.height)


def _payload_columns(export: Export, table: str, carriers: pl.Series) -> dict[str, str]:
    """Returns: SQL of what NCCL's ranges carry; other ranges carry nothing that is wanted."""
    ids = ", ".join(map(str, carriers.to_list())) or "NULL"
    named, text = (export.column(table, column) for column in ("textId", "text"))
    of_nccl = f"({named} IN ({ids}) OR coalesce({text}, '') <> '')"
    carried = {name: export.column(table, column) for name, column in _CARRIED.items()}
    return {
        name: f"CASE WHEN {of_nccl} THEN CAST(coalesce({column}, '') AS BLOB) ELSE x'' END"
        for name, column in carried.items()
    }


def _json(own: pl.Expr, key: pl.Expr, strings: dict[int, str]) -> pl.Expr:
    """Returns: the JSON of an event, its own or a registered one; NULL without."""
    registered = key.replace_strict(
        {-1: None} | {i: text for i, text in strings.items() if text.startswith("{")},
        default=None,
        return_dtype=pl.String,
    )
    return pl.when(own != b"").then(own.cast(pl.String, strict=False)).otherwise(registered)


def _decoded(texts: pl.Series) -> pl.Series:
    """Returns: texts stored as bytes; bytes that are not UTF-8 are replaced."""
    try:
        return texts.cast(pl.String)
    except pl.exceptions.PolarsError:
        return pl.Series(texts.name, [text.decode("utf-8", "replace") for text in texts])


def _matching_strings(strings: dict[int, str], wanted: str) -> pl.DataFrame:
    table = pl.DataFrame(
        {"text_id": list(strings.keys()), "registered": list(strings.values())},
        schema={"text_id": pl.Int64, "registered": pl.String},
    )
    return table.filter(pl.col("registered").str.contains(wanted))


def _nccl_domains(export: Export, table: str) -> pl.DataFrame:
    rows = export.rows(
        table, ("globalTid", "domainId", "text", "textId"), f"eventType = {_DOMAIN_CREATE}"
    )
    found = [
        (tid >> 24, domain, True)
        for tid, domain, text, text_id in rows
        if (text or export.strings.get(text_id)) == "NCCL" and tid is not None
    ]
    schema = {"process": pl.Int64, "domain": pl.Int64, "nccl_domain": pl.Boolean}
    return pl.DataFrame(found, schema=schema, orient="row").unique()


def _mark_nccl(ranges: pl.DataFrame, domains: pl.DataFrame) -> pl.DataFrame:
    named = ranges.join(domains, on=["process", "domain"], how="left")
    domain_known = pl.col("process").is_in(domains["process"].implode())
    by_name = (pl.col("domain") != 0) & pl.col("name").str.contains(_NCCL_NAME)
    return named.with_columns(
        nccl=pl.when(domain_known)
        .then(pl.col("nccl_domain").fill_null(value=False))
        .otherwise(by_name)
    )


def launched_by_nccl(calls: pl.DataFrame, ranges: pl.DataFrame) -> pl.Series:
    """Returns: whether each call lies inside an NCCL call that launches work; shape (calls,).

    Args:
        calls: thread [id], launch_ns [ns].
        ranges: as `read_ranges` returns them.
    """
    launches = ranges.filter(pl.col("nccl") & pl.col("name").str.contains(_NCCL_LAUNCHES))
    inside = np.zeros(calls.height, dtype=np.bool_)
    if launches.is_empty():
        return pl.Series("by_nccl", inside)
    threads, moments = calls["thread"].to_numpy(), calls["launch_ns"].to_numpy()
    for (thread,), group in launches.group_by("thread"):
        union = Union.of(Intervals(group["start_ns"].to_numpy(), group["end_ns"].to_numpy()))
        (mine,) = np.nonzero(threads == thread)
        index = np.searchsorted(union.start_ns, moments[mine], side="right") - 1
        inside[mine] = (index >= 0) & (moments[mine] <= union.end_ns[index])
    return pl.Series("by_nccl", inside)
