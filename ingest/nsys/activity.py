"""What ran on the devices: kernels, copies and sets of an export as one frame."""

from dataclasses import dataclass

import polars as pl

from traceq.ingest.nsys.export import Export
from traceq.ingest.tables import NAMES_SCHEMA
from traceq.ingest.timings import longest_ns
from traceq.model.families import classify

KERNEL = "CUPTI_ACTIVITY_KIND_KERNEL"
MEMCPY = "CUPTI_ACTIVITY_KIND_MEMCPY"
MEMSET = "CUPTI_ACTIVITY_KIND_MEMSET"
GRAPH = "CUPTI_ACTIVITY_KIND_GRAPH_TRACE"
NODES = "CUDA_GRAPH_NODE_EVENTS"
DEVICE_TABLES = (KERNEL, MEMCPY, MEMSET, GRAPH)

PEER_COPY = 10
# ENUM_CUDA_MEMCPY_OPER of the export format; kinds between device memories may carry a collective.
_COPY_KINDS = {
    0: "unknown", 1: "HtoD", 2: "DtoH", 3: "HtoA", 4: "AtoH", 5: "AtoA", 6: "AtoD", 7: "DtoA",
    8: "DtoD", 9: "HtoH", PEER_COPY: "PtoP",
    11: "unified HtoD", 12: "unified DtoH", 13: "unified DtoD",
}  # fmt: skip
DEVICE_TO_DEVICE = (0, 8, PEER_COPY)

# A name is a StringIds id for a kernel, and far below zero for what has no name of its own.
_MEMSET_KEY = -(2**62)
_COPY_KEY = _MEMSET_KEY - 1

UNKNOWN_PROCESS = -1


@dataclass(frozen=True, slots=True)
class DeviceOps:
    """The device operations of an export.

    Attributes:
        frame: one row per operation: process, device, context, stream, correlation, graph_node
            [id], start_ns, end_ns [ns], name_key [id], copy_kind, bytes [bytes].
        short: by name_key, the StringIds id of the short name.
        skipped: operations left out because their times are impossible [1].
    """

    frame: pl.DataFrame
    short: dict[int, int]
    skipped: int


def read_ops(export: Export, threads: int) -> DeviceOps:
    """Returns: every kernel, copy and set of an export with possible times.

    A record that starts at 0 has no timestamp (CUPTI's convention: a capture begins before its
    first kernel); one that ends before it starts, or never, has no duration; one longer than twice
    the span of all starts, and than an hour, is none.
    """
    chunks: list[pl.DataFrame] = []
    short: dict[int, int] = {}
    skipped = 0
    for table, extra in (
        (KERNEL, _kernel_columns),
        (MEMCPY, _copy_columns),
        (MEMSET, _set_columns),
    ):
        select = _place(export, table) | extra(export)
        for chunk in export.scan(table, select, threads=threads):
            if "short" in chunk.columns:
                pairs = chunk.select("name_key", "short").unique().drop_nulls()
                short.update(pairs.iter_rows())
            narrow = _narrow(chunk)
            chunks.append(narrow)
            skipped += chunk.height - narrow.height
    frame = pl.concat(chunks, rechunk=True) if chunks else pl.DataFrame(schema=_OPS)
    possible = frame.filter(pl.col("end_ns") - pl.col("start_ns") <= longest_ns(frame["start_ns"]))
    return DeviceOps(possible, short, skipped + frame.height - possible.height)


_OPS = pl.Schema(
    {
        "process": pl.Int64,
        "device": pl.Int32,
        "context": pl.Int64,
        "stream": pl.Int64,
        "start_ns": pl.Int64,
        "end_ns": pl.Int64,
        "correlation": pl.Int64,
        "graph_node": pl.Int64,
        "name_key": pl.Int64,
        "copy_kind": pl.Int32,
        "bytes": pl.Int64,
    }
)


def _place(export: Export, table: str) -> dict[str, str]:
    def column(name: str) -> str:
        return export.column(table, name)

    return {
        "process": f"coalesce({column('globalPid')} >> 24, {UNKNOWN_PROCESS})",
        "device": f"coalesce({column('deviceId')}, 0)",
        "context": column("contextId"),
        "stream": f"coalesce({column('streamId')}, 0)",
        "start_ns": column("start"),
        "end_ns": column("end"),
        # 0 is what a record without a call carries; it never names one.
        "correlation": f"nullif({column('correlationId')}, 0)",
        "graph_node": column("graphNodeId"),
    }


def _kernel_columns(export: Export) -> dict[str, str]:
    names = [export.column(KERNEL, f"{kind}Name") for kind in ("demangled", "short", "mangled")]
    return {
        "name_key": f"coalesce({', '.join(names)})",
        "short": f"coalesce({names[1]}, {names[0]})",
    }


def _copy_columns(export: Export) -> dict[str, str]:
    kind = f"coalesce({export.column(MEMCPY, 'copyKind')}, 0)"
    return {
        "name_key": f"{_COPY_KEY} - {kind}",
        "copy_kind": kind,
        "bytes": export.column(MEMCPY, "bytes"),
    }


def _set_columns(export: Export) -> dict[str, str]:
    return {"name_key": str(_MEMSET_KEY), "bytes": export.column(MEMSET, "bytes")}


def _narrow(chunk: pl.DataFrame) -> pl.DataFrame:
    start, end = pl.col("start_ns"), pl.col("end_ns")
    return chunk.filter((end >= start) & (start != 0)).select(
        pl.col(name).cast(dtype) if name in chunk.columns else pl.lit(None, dtype).alias(name)
        for name, dtype in _OPS.items()
    )


def read_graphs(export: Export) -> pl.DataFrame:
    """Returns: CUDA graphs traced as a whole: process, device, start_ns, end_ns, correlation."""
    columns = ("process", "device", "start_ns", "end_ns", "correlation")
    select = {name: sql for name, sql in _place(export, GRAPH).items() if name in columns}
    schema = pl.Schema({name: _OPS[name] for name in columns})
    chunks = [
        chunk.filter(pl.col("end_ns") >= pl.col("start_ns")).cast(schema)
        for chunk in export.scan(GRAPH, select)
    ]
    return pl.concat(chunks) if chunks else pl.DataFrame(schema=schema)


def name_table(ops: DeviceOps, strings: dict[int, str], patterns: tuple[str, ...]) -> pl.DataFrame:
    """Returns: one row per distinct name: name_key, and the columns of `NAMES_SCHEMA`.

    A kernel whose name is not in the export has class NULL: it may be communication or compute.
    """
    rows = []
    for local_id, key in enumerate(ops.frame["name_key"].unique(maintain_order=True)):
        rows.append((key, local_id, *_describe(key, ops.short, strings, patterns)))
    return pl.DataFrame(rows, schema={"name_key": pl.Int64, **NAMES_SCHEMA}, orient="row")


def _describe(
    key: int | None, short: dict[int, int], strings: dict[int, str], patterns: tuple[str, ...]
) -> tuple[str, str, str | None, str | None, str | None]:
    if key is not None and key <= _MEMSET_KEY:
        kind = _COPY_KINDS.get(_COPY_KEY - key, "unknown")
        name = "memset" if key == _MEMSET_KEY else f"memcpy {kind}"
        return name, name, "copy", None, None
    if key is None or key not in strings:
        label = "unnamed kernel" if key is None else f"unnamed kernel {key}"
        return label, label, None, None, None
    name = strings[key]
    short_name = strings.get(short.get(key, -1), name)
    found = classify(short_name, patterns) or classify(name, patterns)
    if found is None:
        return name, short_name, "compute", None, None
    return name, short_name, "comm", found.family, found.op.value
