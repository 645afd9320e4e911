"""Events to columns: the few fields of the few events that are needed, batch by batch."""

import io
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

import msgspec
import polars as pl

from traceq.ingest.torch_profiler.stream import UNDECODABLE, Event, repair, text_of

_LARGEST = 2**63 - 1
_DECIMAL = pl.Decimal(38, 9)
_DIGITS = 20  # of nanoseconds in 64 bits
_NOT_IN_JSON = "\x01"

# What an event is by its category, without case; other categories are not needed.
_KINDS = {
    "kernel": "kernel",
    "gpu_memcpy": "copy",
    "memcpy": "copy",
    "gpu_memset": "set",
    "memset": "set",
    "cuda_runtime": "call",
    "cuda_driver": "call",
    "runtime": "call",
    "driver": "call",
    "hip_runtime": "call",
    "user_annotation": "range",
    "gpu_user_annotation": "device_range",
    "cpu_op": "cpu_op",
    "operator": "cpu_op",
    "trace": "trace",
}
_HALVES = frozenset("BE")
DEVICE_KINDS = ("kernel", "copy", "set")
KIND = pl.Enum(DEVICE_KINDS)


class CollectiveArgs(msgspec.Struct, gc=False):
    """What a record says of the collective that it belongs to."""

    collective: Any = msgspec.field(default=None, name="Collective name")
    in_elements: Any = msgspec.field(default=None, name="In msg nelems")
    out_elements: Any = msgspec.field(default=None, name="Out msg nelems")
    group_size: Any = msgspec.field(default=None, name="Group size")
    dtype: Any = None
    group_name: Any = msgspec.field(default=None, name="Process Group Name")
    group_description: Any = msgspec.field(default=None, name="Process Group Description")
    group_ranks: Any = msgspec.field(default=None, name="Process Group Ranks")
    seq: Any = msgspec.field(default=None, name="Seq")


class DeviceArgs(CollectiveArgs, gc=False):
    """Arguments of a device operation."""

    device: Any = None
    context: Any = None
    stream: Any = None
    correlation: Any = None
    bytes: Any = None


class RangeArgs(CollectiveArgs, gc=False):
    """Arguments of an annotation or operator, with the tensors that went in."""

    dims: Any = msgspec.field(default=None, name="Input Dims")
    types: Any = msgspec.field(default=None, name="Input type")


class CallArgs(msgspec.Struct, gc=False):
    """Arguments of an API call."""

    correlation: Any = None


COLLECTIVE_FIELDS = CollectiveArgs.__struct_fields__


class Categories(dict[str | None, str | None]):
    """What an event is, by its category as written; None when it is not needed."""

    def __missing__(self, category: str | None) -> str | None:
        kind = self[category] = _KINDS.get((category or "").lower())
        return kind


@dataclass(slots=True)
class Numbers:
    """Numbers for texts, in the order in which they are first met."""

    ids: dict[bytes, int] = field(default_factory=dict)

    def of(self, raws: Iterable[msgspec.Raw]) -> list[int]:
        """Returns: the number of each raw value."""
        keys = list(map(bytes, raws))
        for key in dict.fromkeys(keys):
            self.ids.setdefault(key, len(self.ids))
        return list(map(self.ids.__getitem__, keys))

    def texts(self) -> list[str]:
        """Returns: the texts, by number."""
        return [text_of(raw) for raw in self.ids]


@dataclass(slots=True)
class Columns:
    """Every needed event of a trace, as columns.

    Attributes:
        categories: the categories met so far.
        names: event names by number.
        threads: thread ids by number.
        pids: how often each process id made an API call or ran an operator.
        frames: by kind, the frames read so far.
        arguments: collective arguments of device operations by their position in `frames`.
        ranges: arguments of NCCL and gloo annotations and operators, by their position.
        halves: begins and ends of such events, written as events of their own [1].
    """

    categories: Categories = field(default_factory=Categories)
    names: Numbers = field(default_factory=Numbers)
    threads: Numbers = field(default_factory=Numbers)
    pids: dict[bytes, int] = field(default_factory=lambda: defaultdict(int))
    frames: dict[str, list[pl.DataFrame]] = field(default_factory=lambda: defaultdict(list))
    collectives: list[tuple[Any, ...]] = field(default_factory=list)
    tensors: list[tuple[Any, ...]] = field(default_factory=list)
    halves: int = 0

    def add(self, batch: list[Event]) -> None:
        """Takes the needed events of a batch."""
        kinds: dict[str, list[Event]] = defaultdict(list)
        for event in batch:
            kind = self.categories[event.cat]
            if kind is None:
                continue
            if event.ph == "X":
                kinds[kind].append(event)
            elif event.ph in _HALVES:
                self.halves += 1
        for kind, events in kinds.items():
            if kind in DEVICE_KINDS:
                self._add_device(kind, events)
            elif kind == "call":
                self._add_calls(events)
            else:
                self._add_ranges(kind, events)

    def frame(self, *kinds: str) -> pl.DataFrame | None:
        """Returns: all events of some kinds, None when there is none."""
        frames = [frame for kind in kinds for frame in self.frames[kind]]
        return pl.concat(frames, how="diagonal") if frames else None

    def _timed(self, events: list[Event]) -> dict[str, pl.Series | list[int]]:
        times = nanoseconds([e.ts for e in events] + [e.dur for e in events])
        return {
            "start_ns": times.head(len(events)),
            "length_ns": times.tail(len(events)),
            "name": pl.Series(self.names.of([e.name for e in events]), dtype=pl.Int32),
            "thread": pl.Series(self.threads.of([e.tid for e in events]), dtype=pl.Int32),
        }

    def _add_device(self, kind: str, events: list[Event]) -> None:
        arguments = decoded(events, DeviceArgs)
        base = len(self.collectives)
        rows = []
        for position, each in enumerate(arguments):
            if each.collective is not None or each.group_name is not None:
                rows.append(position)
                self.collectives.append(tuple(getattr(each, name) for name in COLLECTIVE_FIELDS))
        index = pl.Series([None] * len(events), dtype=pl.Int32)
        if rows:
            index = index.scatter(rows, range(base, base + len(rows)))
        frame = pl.DataFrame(
            {
                **self._timed(events),
                "kind": pl.repeat(kind, len(events), dtype=KIND, eager=True),
                "device": _or_else([a.device for a in arguments], [e.pid for e in events]),
                "context": integers([a.context for a in arguments]),
                "stream": _or_else(
                    [a.stream for a in arguments], [e.tid for e in events]
                ).fill_null(0),
                "correlation": integers([a.correlation for a in arguments]),
                "bytes": integers([a.bytes for a in arguments]),
                "collective": index,
            }
        )
        self.frames[kind].append(frame)

    def _add_calls(self, events: list[Event]) -> None:
        arguments = decoded(events, CallArgs)
        for event in events[:1]:
            self.pids[bytes(event.pid)] += len(events)
        frame = pl.DataFrame(
            {**self._timed(events), "correlation": integers([a.correlation for a in arguments])}
        )
        self.frames["call"].append(frame.drop("length_ns"))

    def _add_ranges(self, kind: str, events: list[Event]) -> None:
        if kind == "cpu_op":
            for event in events[:1]:
                self.pids[bytes(event.pid)] += len(events)
        frame = pl.DataFrame(self._timed(events)).with_columns(tensors=pl.lit(None, pl.Int32))
        if kind == "device_range":
            frame = frame.with_columns(device=integers([_as_integer(e.pid) for e in events]))
        wanted = [i for i, e in enumerate(events) if _describes_collective(bytes(e.name))]
        if wanted and kind in {"range", "cpu_op"}:
            base = len(self.tensors)
            for each in decoded([events[i] for i in wanted], RangeArgs):
                self.tensors.append(
                    (each.dims, each.types, *(getattr(each, n) for n in COLLECTIVE_FIELDS))
                )
            index = pl.Series([None] * len(events), dtype=pl.Int32)
            index = index.scatter(wanted, range(base, base + len(wanted)))
            frame = frame.with_columns(tensors=index)
        self.frames[kind].append(frame)


def _describes_collective(name: bytes) -> bool:
    return name.startswith((b'"nccl:', b'"gloo:', b'"c10d::', b'"record_param_comms"'))


def decoded(events: list[Event], shape: type[Any]) -> list[Any]:
    """Returns: the arguments of events in a shape; what does not decode is left at defaults."""
    decoder = msgspec.json.Decoder(list[shape | None])  # type: ignore[valid-type]
    raws = [e.args for e in events]
    try:
        return [each or shape() for each in decoder.decode(b"[" + b",".join(raws) + b"]")]
    except UNDECODABLE:
        return [_decoded_alone(bytes(raw), shape) for raw in raws]


def _decoded_alone(raw: bytes, shape: type[Any]) -> Any:  # noqa: ANN401
    for text in (raw, repair(raw)):
        try:
            return msgspec.json.decode(text, type=shape)
        except UNDECODABLE:
            continue
    return shape()


def _or_else(values: list[Any], raws: list[msgspec.Raw]) -> pl.Series:
    """Returns: whole numbers; a missing one is the id that its row stands under."""
    numbers = integers(values)
    if numbers.null_count():
        numbers = numbers.zip_with(numbers.is_not_null(), integers([_as_integer(r) for r in raws]))
    return numbers


def _as_integer(raw: bytes) -> int | None:
    try:
        return int(bytes(raw).strip(b'"'))
    except ValueError:
        return None


def integers(values: Sequence[Any]) -> pl.Series:
    """Returns: whole numbers as 64-bit integers; what is none, or too large for one, is NULL."""
    try:
        return pl.Series(values, dtype=pl.Int64, strict=True)
    except (TypeError, OverflowError, pl.exceptions.PolarsError):
        return pl.Series([_whole(value) for value in values], dtype=pl.Int64)


def _whole(value: Any) -> int | None:  # noqa: ANN401
    if isinstance(value, str):
        value = _as_integer(value.encode())
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    fits = isinstance(value, int) and not isinstance(value, bool) and -_LARGEST <= value <= _LARGEST
    return value if fits else None


def nanoseconds(raws: Sequence[msgspec.Raw]) -> pl.Series:
    """Returns: microseconds as written, as whole nanoseconds; what is no finite number is NULL.

    The digits are read as decimals, never as binary floats, so that 1499.6 is 1499600 exactly.
    """
    if not raws:
        return pl.Series([], dtype=pl.Int64)
    lines = pl.read_csv(
        io.BytesIO(b"\n".join(raws)),
        has_header=False,
        schema={"text": pl.String},
        quote_char=None,
        separator=_NOT_IN_JSON,
        encoding="utf8-lossy",
    )["text"]
    if len(lines) != len(raws):
        lines = pl.Series([bytes(raw).decode("utf-8", "replace") for raw in raws], dtype=pl.String)
    exact = (lines.cast(_DECIMAL, strict=False) * 1000).round(0).cast(pl.Int64, strict=False)
    odd = exact.is_null() & (lines != "null")
    if odd.any():
        mended = [_slow_nanoseconds(text) for text in lines.filter(odd)]
        exact = exact.scatter(odd.arg_true(), pl.Series(mended, dtype=pl.Int64))
    return exact


def _slow_nanoseconds(text: str) -> int | None:
    try:
        value = Decimal(text.strip('"')) * 1000
        if not value.is_finite() or value.adjusted() > _DIGITS:
            return None
        whole = int(value.to_integral_value())
    except ArithmeticError:
        return None
    return whole if abs(whole) <= _LARGEST else None
