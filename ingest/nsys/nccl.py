"""NCCL's own ranges: its calls with their payloads, which of them launch, and its communicators.

A call outside a group launches inside its own range. Calls inside a group launch inside the
outermost ncclGroupEnd; under the advanced trace they lie inside the range of the group.
"""

from dataclasses import dataclass

import msgspec
import polars as pl

from traceq.config import LARGEST_RANK
from traceq.ingest.nsys import payload
from traceq.ingest.nsys.export import Export
from traceq.ingest.nsys.payload import FIELDS, Schemas
from traceq.model.collectives import Op
from traceq.model.dtypes import element_bytes

_OPS = {
    "AllReduce": Op.ALL_REDUCE,
    "AllGather": Op.ALL_GATHER,
    "AllGatherV": Op.ALL_GATHER,
    "ReduceScatter": Op.REDUCE_SCATTER,
    "AlltoAll": Op.ALL_TO_ALL,
    "AllToAll": Op.ALL_TO_ALL,
    "Broadcast": Op.BROADCAST,
    "Bcast": Op.BROADCAST,
    "Reduce": Op.REDUCE,
    "Gather": Op.GATHER,
    "Scatter": Op.SCATTER,
    "Send": Op.SEND,
    "Recv": Op.RECV,
}
_BEGINS, _ENDS, _ENCLOSES = "GroupStart", "GroupEnd", ("API Group", "GroupLaunch", "KernelLaunch")
_INITS = ("CommInitRank", "CommInitRankConfig", "CommInitRankScalable")
_MEMBER_EVENTS = {
    **dict.fromkeys(_INITS, "init"),
    **dict.fromkeys(("CommDestroy", "CommAbort", "CommRevoke"), "end"),
    "CommSplit": "split",
    "CommGrow": "init",
}
_SIZES = ("payload_bytes", "count")
SCHEMA_ENTRIES = "NVTX_PAYLOAD_SCHEMA_ENTRIES"
_MOST_BYTES = 1 << 50  # no message is larger; a larger one is damage
DYNAMIC = "DYNAMIC_NVTXPAYLOAD_DATATYPE_"


@dataclass(frozen=True, slots=True)
class Nccl:
    """What NCCL's ranges say.

    Attributes:
        calls: one row per call of an operation, in order on each thread: process, thread,
            start_ns, end_ns, op, launch (the range that launches it, NULL when that is not there)
            and the fields of its payload, with size_source: where its size came from.
        launches: the ranges that launch: launch [id], process, thread, start_ns, end_ns.
        members: what ranges of communicators say: `MEMBERS_SCHEMA` less key, with process.
    """

    calls: pl.DataFrame
    launches: pl.DataFrame
    members: pl.DataFrame


_ROW = ["process", "thread", "start_ns", "end_ns"]


def read_nccl(export: Export, ranges: pl.DataFrame) -> Nccl:
    """Returns: NCCL's calls, launching ranges and communicators.

    Args:
        export: the export, for the schemas and tables of payloads.
        ranges: finished ranges as `host.read_ranges` returns them.
    """
    mine = (
        ranges.filter("nccl")
        .with_columns(func=pl.col("name").str.strip_prefix("nccl"))
        .sort("thread", "start_ns", pl.col("end_ns").neg())
        .with_row_index("row")
        .cast({"row": pl.Int32})
    )
    mine = pl.concat([mine.drop("blob", "json"), _fields(export, mine)], how="horizontal")
    grouped = _grouped(mine)
    op = pl.col("func").replace_strict({k: v.value for k, v in _OPS.items()}, default=None)
    calls = _sized(grouped.with_columns(op=op).drop_nulls("op"))
    launches = grouped.filter(pl.col("row") == pl.col("launch")).select("launch", *_ROW)
    return Nccl(
        calls.select(*_ROW, "op", "launch", *FIELDS, "size_source"), launches, _members(mine)
    )


def _sized(calls: pl.DataFrame) -> pl.DataFrame:
    """Completes the bytes of calls that state a count of elements instead."""
    types = calls["dtype"].drop_nulls().unique().to_list()
    known = {name: element_bytes(name.removeprefix("nccl")) for name in types}
    element = pl.col("dtype").replace_strict(known, default=None, return_dtype=pl.UInt64)
    size = pl.coalesce("payload_bytes", pl.col("count") * element)
    plain = pl.col("dtype").str.contains(r"^\w+$")
    return calls.with_columns(
        payload_bytes=pl.when(size <= _MOST_BYTES).then(size),
        dtype=pl.when(plain).then(pl.col("dtype").str.slice(0, 40)),
    )


def launch_of(calls: pl.DataFrame, launches: pl.DataFrame) -> pl.Series:
    """Returns: the launching range inside which each API call lies, NULL outside; shape (calls,).

    Args:
        calls: thread [id], launch_ns [ns].
        launches: as in `Nccl`.
    """
    found = (
        calls.select("thread", "launch_ns")
        .with_row_index("row")
        .sort("launch_ns", nulls_last=True)
        .join_asof(
            launches.select("thread", "launch", "end_ns", launch_ns="start_ns").sort("launch_ns"),
            on="launch_ns",
            by="thread",
            strategy="backward",
            check_sortedness=False,
        )
        .sort("row")
    )
    inside = found["launch_ns"] <= found["end_ns"]
    return found["launch"].set(~inside.fill_null(value=False), None).alias("nccl_launch")


def _grouped(ranges: pl.DataFrame) -> pl.DataFrame:
    """Adds `launch`: the row of the range that launches what each call asks for.

    A group whose begin was not captured launches calls that cannot be told: they are lost.
    """
    func, row = pl.col("func"), pl.col("row")
    ends, holds = func == _ENDS, func.is_in([*_OPS, *_ENCLOSES])
    raw = ((func == _BEGINS).cast(pl.Int32) - ends.cast(pl.Int32)).cum_sum()
    lowest = pl.min_horizontal(raw.cum_min(), 0)
    until = pl.when(holds).then("end_ns").cum_max().forward_fill().shift(1)
    beginless = ends & (lowest < lowest.shift(1, fill_value=0))
    depth = pl.col("depth")
    placed = (
        ranges.filter(holds | ends | (func == _BEGINS))
        .with_columns(
            depth=(raw - lowest).over("thread"),
            nested=(pl.col("end_ns") <= until).fill_null(value=False).over("thread"),
            lost=(beginless.cum_sum(reverse=True) > 0).over("thread"),
        )
        .with_columns(
            top=pl.when(holds & ~pl.col("nested") & (depth == 0)).then(row),
            closes=pl.when(ends & (depth == 0)).then(row),
        )
    )
    around = pl.col("top").forward_fill().over("thread")
    closing = pl.col("closes").backward_fill().over("thread")
    return placed.with_columns(
        launch=pl.when(ends)
        .then("closes")
        .when(depth > 0)
        .then(closing)
        .when(~pl.col("lost"))
        .then(around)
    ).drop("depth", "nested", "lost", "top", "closes")


def _fields(export: Export, ranges: pl.DataFrame) -> pl.DataFrame:
    """Returns: the payload of each range (`FIELDS`): decoded tables, then JSON, then bytes."""
    schemas = Schemas.of(
        export.rows(SCHEMA_ENTRIES, ("domainId", "schemaId", "idx", "type", "name", "offset"))
    )  # fmt: skip
    binary = payload.decode(ranges["blob"].to_list(), schemas)
    labelled = _frame([_from_json(text) for text in ranges["json"]])
    tables = _decoded_tables(export)
    decoded = (
        ranges.select("process", "event").join(
            tables, on=["process", "event"], how="left", maintain_order="left"
        )
        if tables.height
        else _frame([{}] * ranges.height)
    )
    carriers = {"nsys_table": decoded, "nsys_json": labelled, "nsys_binary": binary}
    stacked = pl.concat(
        [
            frame.select(pl.col(name).alias(f"{source}.{name}") for name in FIELDS)
            for source, frame in carriers.items()
        ],
        how="horizontal",
    )
    tells_size = (
        pl.when(pl.any_horizontal(pl.col(f"{source}.{n}").is_not_null() for n in _SIZES)).then(
            pl.lit(source)
        )
        for source in carriers
    )
    return stacked.select(
        *(pl.coalesce(f"{source}.{name}" for source in carriers).alias(name) for name in FIELDS),
        size_source=pl.coalesce(*tells_size),
    )


def _frame(rows: list[dict[str, object]]) -> pl.DataFrame:
    return pl.DataFrame(
        {name: [row.get(name) for row in rows] for name in FIELDS}, schema=FIELDS, strict=False
    )


def _from_json(text: str | None) -> dict[str, object]:
    if not text:
        return {}
    try:
        values = msgspec.json.decode(text)
    except msgspec.DecodeError:
        return {}
    if not isinstance(values, dict):
        return {}
    inner = values.get("payload", values.get("Payload"))
    return payload.from_labels(inner if isinstance(inner, dict) else values)


def _decoded_tables(export: Export) -> pl.DataFrame:
    """Returns: the payloads that the export holds as tables: process, event [id], `FIELDS`."""
    key = {"process": pl.Int64(), "event": pl.Int64()}
    parts = [pl.DataFrame(schema=key | dict(FIELDS))]
    for table in export.tables(DYNAMIC):
        process = _digits(table.removeprefix(DYNAMIC).split("_")[0])
        labels = [name for name in sorted(export.columns(table)) if name in payload.LABELS]
        if process is None or not labels or "eventId" not in export.columns(table):
            continue
        rows = export.rows(table, ("eventId", *labels))
        fields = _frame([payload.from_labels(dict(zip(labels, r[1:], strict=True))) for r in rows])
        at = pl.DataFrame(
            {"process": [process >> 24] * len(rows), "event": [row[0] for row in rows]}, schema=key
        )
        parts.append(pl.concat([at, fields], how="horizontal"))
    return pl.concat(parts).unique(["process", "event"], keep="first")


def _digits(text: str) -> int | None:
    return int(text) if text.isdecimal() else None


def _members(ranges: pl.DataFrame) -> pl.DataFrame:
    """Returns: who said to be which rank of which communicator."""
    event = pl.col("func").replace_strict(_MEMBER_EVENTS, default=None)
    return (
        ranges.with_columns(event=event)
        .drop_nulls("event")
        .filter(
            pl.col("nranks").is_between(1, LARGEST_RANK + 1)
            & (pl.col("comm_rank").is_null() | (pl.col("comm_rank") < pl.col("nranks")))
            & (pl.col("comm_rank").is_null() | (pl.col("comm_rank") >= 0))
        )
        .select(
            "process",
            "start_ns",
            pl.col("event").alias("kind"),
            _hash("comm"),
            _hash("parent"),
            *(_small(name) for name in ("nranks", "comm_rank", "cuda_device", "color")),
            _small("key").alias("split_key"),
        )
    )  # fmt: skip


def _small(name: str) -> pl.Expr:
    return pl.col(name).cast(pl.Int32, strict=False)


def comm_id(value: int | None) -> str | None:
    """Returns: a communicator's hash as its identity; 0 is one that was not known yet."""
    return f"0x{value:016x}" if value else None


def _hash(name: str) -> pl.Expr:
    return pl.col(name).map_elements(comm_id, return_dtype=pl.String).alias(name)
