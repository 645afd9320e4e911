"""What a trace says about each collective: operation, size, element type and group.

The record of a kernel says it itself since torch 2.2. Else the launch lies, on its own thread,
inside the `nccl:<op>` annotation of the call and the `c10d::` operator around that, whose inputs
tell the same. Sizes follow the conventions of nccl-tests.

Source: docs/metrics.md, operations and sizes; names as ProcessGroupNCCL and ProcessGroupGloo write.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import polars as pl

from traceq.ingest.tables import COLLECTIVE_SCHEMA
from traceq.model.collectives import Op, wire_bytes
from traceq.model.dtypes import element_bytes

_OPS = {
    "allreduce": Op.ALL_REDUCE,
    "allreducecoalesced": Op.ALL_REDUCE,
    "allgather": Op.ALL_GATHER,
    "allgatherbase": Op.ALL_GATHER,
    "allgatherinto": Op.ALL_GATHER,
    "allgathercoalesced": Op.ALL_GATHER,
    "allgatherintotensorcoalesced": Op.ALL_GATHER,
    "reducescatter": Op.REDUCE_SCATTER,
    "reducescatterbase": Op.REDUCE_SCATTER,
    "reducescattertensorcoalesced": Op.REDUCE_SCATTER,
    "alltoall": Op.ALL_TO_ALL,
    "alltoallv": Op.ALL_TO_ALL,
    "alltoallbase": Op.ALL_TO_ALL,
    "broadcast": Op.BROADCAST,
    "reduce": Op.REDUCE,
    "gather": Op.GATHER,
    "scatter": Op.SCATTER,
    "send": Op.SEND,
    "recv": Op.RECV,
    "barrier": Op.BARRIER,
}
_MOST = 2**58  # elements of 16 bytes whose bytes 64 bits can count
_MOST_RANKS = 10**6
_LISTED = re.compile(r"-?\d+")

ARGUMENTS, ANNOTATION = "torch_arguments", "torch_annotation"


@dataclass(frozen=True, slots=True)
class Group:
    """A process group; ranks may call different groups by one name, so its ranks are part of it."""

    name: str
    description: str | None
    size: int | None
    ranks: tuple[int, ...] | None

    @property
    def comm_id(self) -> str:
        """Returns: an identity that is equal on all its ranks."""
        if self.ranks is None:
            return f"{self.name} of {self.size or 'unknown size'}"
        whole = self.ranks == tuple(range(len(self.ranks)))
        listed = f"0-{len(self.ranks) - 1}" if whole else ",".join(map(str, self.ranks))
        return f"{self.name} [{listed}]"


class Groups:
    """The process groups of a trace, from `distributedInfo`."""

    def __init__(self, info: Mapping[str, Any]) -> None:
        world = info.get("world_size")
        self._world = rank_count(world)
        self._known: dict[str, Group] = {}
        configured = info.get("pg_config")
        for each in configured if isinstance(configured, list) else []:
            if isinstance(each, dict) and "pg_name" in each:
                name = _plain(each["pg_name"]) or ""
                ranks = _ranks(each.get("ranks"))
                size = rank_count(each.get("pg_size"))
                self._known[name] = Group(
                    name,
                    _plain(each.get("pg_desc")),
                    size if size is not None else len(ranks) if ranks else None,
                    ranks if ranks and (size is None or len(ranks) == size) else None,
                )

    @property
    def configured(self) -> bool:
        """Returns: whether the trace lists its groups."""
        return bool(self._known)

    @property
    def only_one(self) -> bool:
        """Returns: whether no more than one group can be meant."""
        return len(self._known) <= 1

    def default(self) -> Group | None:
        """Returns: the only group there is, or that of all ranks; None when neither is known."""
        if len(self._known) == 1:
            return next(iter(self._known.values()))
        if "0" in self._known:
            return self._known["0"]
        if self._world is None:
            return None
        return Group("0", None, self._world, tuple(range(self._world)))

    def of(self, name: Any, description: Any, size: Any, ranks: Any) -> Group | None:  # noqa: ANN401
        """Returns: the group that arguments describe; a list that was cut is looked up by name."""
        if name is None:
            return None
        name, description = _plain(name), _plain(description)
        listed = _ranks(ranks)
        whole = rank_count(size)
        known = self._known.get(name or "")
        if listed is None or (whole is not None and len(listed) != whole):
            listed = known.ranks if known and (whole is None or known.size == whole) else None
        return Group(
            name or "",
            description if description is not None else known.description if known else None,
            whole if whole is not None else len(listed) if listed else None,
            listed,
        )


def _plain(text: object) -> str | None:
    """Returns: a name of a group; what could be a path becomes underscores."""
    return None if text is None else _NO_NAME.sub("_", str(text))[:_NAME_DIGITS]


_NO_NAME = re.compile(r"[^\w .:,+()\[\]-]")
_NAME_DIGITS = 100


def _ranks(value: Any) -> tuple[int, ...] | None:  # noqa: ANN401
    if isinstance(value, str):
        if "..." in value:
            return None
        value = [int(n) for n in _LISTED.findall(value)]
    if not isinstance(value, list):
        return None
    ranks = [n for n in map(rank_number, value) if n is not None]
    return tuple(ranks) if ranks and len(ranks) == len(value) else None


def _count(value: object) -> int | None:
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= _MOST:
        return value
    return None


def rank_number(value: Any) -> int | None:  # noqa: ANN401
    """Returns: a rank as recorded, None when it cannot be one [id]."""
    number = _count(value)
    return number if number is not None and number < _MOST_RANKS else None


def rank_count(value: Any) -> int | None:  # noqa: ANN401
    """Returns: a number of ranks as recorded, None when it cannot be one [1]."""
    count = _count(value)
    return count if count and count <= _MOST_RANKS else None


def operation(name: Any) -> Op:  # noqa: ANN401
    """Returns: the operation that a collective's name in a trace stands for.

    >>> operation("_allgather_base"), operation("nccl:all_reduce"), operation("coalesced")
    (<Op.ALL_GATHER: 'all_gather'>, <Op.ALL_REDUCE: 'all_reduce'>, <Op.UNKNOWN: 'unknown'>)
    """
    plain = str(name).lower().rsplit(":", 1)[-1].split(" ")[0].replace("_", "")
    return _OPS.get(plain, Op.UNKNOWN)


@dataclass(frozen=True, slots=True)
class Described:
    """What is known of one collective on one rank; the columns of `COLLECTIVE_SCHEMA`."""

    op: Op
    group: Group | None = None
    seq: int | None = None
    size: int | None = None
    dtype: str | None = None
    source: str | None = None
    exchanged: tuple[int | None, int | None] = (None, None)

    def row(self) -> tuple[Any, ...]:
        """Returns: the values of `COLLECTIVE_SCHEMA`."""
        group = self.group
        n = group.size if group else None
        wire = None if self.size is None or n is None else wire_bytes(self.op, self.size, n)
        return (
            self.op.value,
            group.comm_id if group else None,
            n,
            self.seq,
            self.size,
            self.dtype,
            wire,
            self.source if self.size is not None else None,
            None,
            None,
            *self.exchanged,
        )


def from_arguments(values: tuple[Any, ...], groups: Groups) -> Described:
    """Returns: what the arguments of a record say (`COLLECTIVE_FIELDS`)."""
    name, inward, outward, size, dtype, group_name, description, ranks, seq = values
    op = operation(name)
    element = element_bytes(dtype)
    return Described(
        op,
        groups.of(group_name, description, size, ranks),
        _count(seq),
        _size(op, inward, outward, element),
        _dtype_name(dtype),
        ARGUMENTS,
        _exchanged(op, inward, outward, element),
    )


def _exchanged(
    op: Op,
    inward: object,
    outward: object,
    element: int | None,
) -> tuple[int | None, int | None]:
    """Returns: what this rank sends and receives in an all_to_all [bytes]."""
    given, made = _count(inward), _count(outward)
    if op != Op.ALL_TO_ALL or element is None:
        return None, None
    return (
        None if given is None else given * element,
        None if made is None else made * element,
    )


def _size(op: Op, inward: Any, outward: Any, element: int | None) -> int | None:  # noqa: ANN401
    if element is None:
        return None
    given, made = _count(inward), _count(outward)
    elements = given
    if op in {Op.ALL_GATHER, Op.RECV}:
        elements = made
    elif op in {Op.ALL_TO_ALL, Op.GATHER, Op.SCATTER, Op.UNKNOWN}:
        elements = max((n for n in (given, made) if n is not None), default=None)
    return None if elements is None else elements * element


def from_annotation(
    name: str, inputs: tuple[Any, Any], operator: tuple[Any, Any] | None, group: Group | None
) -> Described:
    """Returns: what an annotation says by its tensors, and the operator around it by its own.

    Args:
        name: name of the annotation, as `nccl:all_reduce`.
        inputs: its `Input Dims` and `Input type`.
        operator: those of the `c10d::` operator that encloses it: the output comes first there.
        group: the group it is on, if known.
    """
    op = operation(name)
    dims, types = inputs
    inward = _elements(dims, 0)
    dtype = types[0] if isinstance(types, list) and types else None
    outward: int | None = None
    if op == Op.ALL_TO_ALL and operator is not None:
        outward = _elements(operator[0], 0)
    if op == Op.ALL_GATHER:
        outward = inward * group.size if inward is not None and group and group.size else None
    element = element_bytes(dtype)
    size = _size(op, inward, outward, element)
    exchanged = _exchanged(op, inward, outward, element)
    return Described(op, group, None, size, _dtype_name(dtype), ANNOTATION, exchanged)


def _elements(dims: Any, position: int) -> int | None:  # noqa: ANN401
    """Returns: elements of one tensor among the dimensions that an operator recorded."""
    if not isinstance(dims, list) or len(dims) <= position:
        return None
    shape = dims[position]
    if not isinstance(shape, list):
        return None
    if all(_count(n) is not None for n in shape):
        count = 1
        for n in shape:
            count *= n
        return count
    parts = [_elements([part], 0) for part in shape]  # a list of tensors
    known = [part for part in parts if part is not None]
    return sum(known) if len(known) == len(parts) else None


_TYPE = re.compile(r"[\w: ]{1,40}")  # anything else is no type, and may be a secret
_CPP_NAMES = {
    "float": "Float", "double": "Double", "c10::half": "Half", "c10::bfloat16": "BFloat16",
    "signed char": "Char", "unsigned char": "Byte", "short": "Short", "short int": "Short",
    "int": "Int", "long": "Long", "long int": "Long", "bool": "Bool",
}  # fmt: skip


def _dtype_name(dtype: Any) -> str | None:  # noqa: ANN401
    if dtype is None:
        return None
    text = str(dtype)
    if not _TYPE.fullmatch(text):
        return None
    return _CPP_NAMES.get(text.lower(), text.removeprefix("c10::"))


def frame(described: list[Described]) -> pl.DataFrame:
    """Returns: one row per collective, in order (`COLLECTIVE_SCHEMA`)."""
    return pl.DataFrame([each.row() for each in described], schema=COLLECTIVE_SCHEMA, orient="row")


def communicators(described: list[Described]) -> list[dict[str, Any]]:
    """Returns: one row per group that was used: comm_id, name, description, group_size, ranks."""
    rows = {}
    for each in described:
        if each.group is not None:
            rows[each.group.comm_id] = {
                "comm_id": each.group.comm_id,
                "name": each.group.name,
                "description": each.group.description,
                "group_size": each.group.size,
                "ranks": list(each.group.ranks) if each.group.ranks else None,
            }
    return list(rows.values())
