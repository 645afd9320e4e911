"""Reader of NCCL_DEBUG logs: the collective calls and the communicators of each process.

A profiler trace made beside the log lacks what the log has: message sizes, groups and ranks. A call
is logged when it is made, whether or not a kernel comes of it: one of no bytes is dropped by NCCL,
and one on a group of one rank is a plain copy.

Source: NVIDIA/nccl, `INFO(NCCL_COLL, ...)` of src/enqueue.cc (since 2.30 src/enqueue/enqueue.cc),
`Init START` and `Init COMPLETE` of src/init.cc, the prefix of src/debug.cc, the roots and peers of
src/collectives.cc; RCCL adds fields at the end and, lately, `acc`.
"""

import gzip
import io
import re
import zlib
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import polars as pl

from traceq.errors import SourceError
from traceq.ingest.detect import label
from traceq.ingest.torch_profiler.collectives import operation
from traceq.model.collectives import Op

# One row per call, in the order of the file. `payload_bytes` is the count of the API call times the
# size of an element: of one rank for an operation whose rule says `payload_is_per_rank`.
CALLS = pl.Schema(
    {
        "pid": pl.Int64(),
        "thread": pl.Int64(),
        "op": pl.String(),
        "payload_bytes": pl.Int64(),
        "dtype": pl.String(),
        "root": pl.Int64(),
        "peer": pl.Int64(),
        "comm": pl.String(),
        "group_size": pl.Int32(),
        "op_count": pl.Int64(),
    }
)

# One row per communicator, in order of creation. A pointer that is used again after its
# communicator was destroyed has a row for each that differs. A split one has no `comm_id` since
# NCCL 2.23.
COMMS = pl.Schema(
    {
        "pid": pl.Int64(),
        "comm": pl.String(),
        "comm_id": pl.String(),
        "rank": pl.Int32(),
        "group_size": pl.Int32(),
        "device": pl.Int32(),
    }
)

# By the number of ncclDataType_t: the name in a torch.profiler trace, and bytes of an element.
_TYPES = (
    ("Char", 1), ("Byte", 1), ("Int", 4), ("UInt32", 4), ("Long", 8), ("UInt64", 8), ("Half", 2),
    ("Float", 4), ("Double", 8), ("BFloat16", 2), ("Float8_e4m3fn", 1), ("Float8_e5m2", 1),
)  # fmt: skip
_ROOTED = {Op.BROADCAST, Op.REDUCE, Op.GATHER, Op.SCATTER}
_TO_A_PEER = {Op.SEND, Op.RECV}

_INFO, _CALLED, _INIT, _VERSION = b"NCCL INFO ", b": opCount ", b"- Init ", b"CCL version "
# HOST:PID:TID [DEVICE] NCCL INFO, after whatever a launcher or a timestamp puts before it
_PREFIX = rb":(\d{1,18}):(\d{1,18}) \[-?\d+\] NCCL INFO "
_POINTER = rb"(?:0x[0-9a-f]+|\(nil\))"
_ANY_LINE = re.compile(_PREFIX)
_CALL_LINE = re.compile(
    _PREFIX + rb"(\w+): opCount ([0-9a-f]{1,16}) sendbuff " + _POINTER + rb" recvbuff " + _POINTER
    + rb"(?: acc " + _POINTER + rb")? count (\d{1,19}) datatype (\d{1,9})(?: op -?\d+)?"
    rb" (?:root|peer) (-?\d{1,9}) comm (0x[0-9a-f]+)(?: \[nranks=(\d{1,9})\])? stream "
)  # fmt: skip
_COMM_LINE = re.compile(
    _PREFIX + rb"(?:\[Rank \d+\] )?(?:\w+ )?comm (0x[0-9a-f]+) rank (\d{1,9}) nranks (\d{1,9})"
    rb"(?: cudaDev (-?\d{1,9}))?([\w -]*?)- Init (START|COMPLETE)"
)
_COMM_ID = re.compile(rb" commId 0x([0-9a-f]{1,16})\b")
_VERSION_LINE = re.compile(rb"[NR]CCL version (\d+\.\d+\.\d+)")

_GZIP = b"\x1f\x8b"
_LONGEST_LINE = 1 << 16
_ROWS_AT_ONCE = 1 << 16
_MOST = 2**63 - 1
_MOST_RANKS = 10**6
_SETTINGS = "NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=INIT,COLL NCCL_DEBUG_FILE=nccl.%h.%p.log"


@dataclass(frozen=True, slots=True)
class NcclLog:
    """What one log says. No host, user or address of it is kept, but for pointers to join by.

    Attributes:
        file_name: base name of the log.
        calls: one row per call (`CALLS`).
        comms: one row per communicator (`COMMS`); empty when the log has no subsystem INIT.
        nccl_version: version of NCCL as `2.21.5`, None when the log does not say it.
        skipped: calls that are cut, mixed with another line, or impossible [1].
    """

    file_name: str
    calls: pl.DataFrame
    comms: pl.DataFrame
    nccl_version: str | None
    skipped: int


def read_nccl_log(path: Path) -> NcclLog:
    """Returns: the calls and communicators of all processes that wrote into a log, plain or gzip.

    Raises:
        SourceError: the log cannot be read, is damaged, or has no line of NCCL.
    """
    name = label(path)
    found = _Found()
    for line in _lines(path, name):
        if _INFO in line:
            found.add(line)
        elif _CALLED in line:
            found.skipped += line.count(_CALLED)
        if found.version is None and _VERSION in line:
            found.add_version(line)
    if not found.any_line:
        message = f"{name}: no NCCL INFO line in it: run again with {_SETTINGS}"
        raise SourceError(message)
    return NcclLog(name, found.calls(), found.comms(), found.version, found.skipped)


def _lines(path: Path, name: str) -> Iterator[bytes]:
    """Yields: the lines of a log; one without end, which no log has, comes in pieces."""
    compressed = False
    try:
        if not path.is_file() and path.exists():
            message = f"{name}: not a regular file"
            raise SourceError(message)
        with ExitStack() as stack:
            stream = stack.enter_context(path.open("rb"))
            compressed = stream.peek(len(_GZIP)).startswith(_GZIP)
            if compressed:
                unpacked = stack.enter_context(gzip.open(stream))
                stream = io.BufferedReader(cast("io.RawIOBase", unpacked), 1 << 20)
            while line := stream.readline(_LONGEST_LINE):
                yield line
    except (OSError, EOFError, zlib.error) as error:
        if compressed:
            message = f"{name}: damaged gzip stream: {error}: copy it again"
        else:
            message = f"{name}: cannot be read: {getattr(error, 'strerror', None) or error}"
        raise SourceError(message) from error


class _Found:
    """What the lines so far have told."""

    def __init__(self) -> None:
        self.any_line = False
        self.version: str | None = None
        self.skipped = 0
        self._rows: list[tuple[Any, ...]] = []
        self._frames: list[pl.DataFrame] = []
        self._comms: list[_Comm] = []
        self._newest: dict[tuple[int, str], int] = {}

    def add(self, line: bytes) -> None:
        """Takes a line with NCCL's mark; of two that run into each other neither is trusted."""
        self.any_line = self.any_line or _ANY_LINE.search(line) is not None
        whole = line.count(_INFO) == 1
        if _CALLED in line:
            row = _call(line) if whole else None
            if row is None:
                self.skipped += line.count(_CALLED)
                return
            self._rows.append(row)
            if len(self._rows) >= _ROWS_AT_ONCE:
                self._pack()
        elif whole and _INIT in line:
            match = _COMM_LINE.search(line)
            comm = None if match is None else _comm(match)
            if match is not None and comm is not None:
                self._add_comm(comm, starts=match[8] == b"START")

    def add_version(self, line: bytes) -> None:
        """Takes the version of NCCL, if the line states it whole."""
        match = _VERSION_LINE.search(line)
        self.version = match[1].decode() if match else None

    def calls(self) -> pl.DataFrame:
        """Returns: all calls (`CALLS`)."""
        self._pack()
        return pl.concat(self._frames)

    def comms(self) -> pl.DataFrame:
        """Returns: all communicators (`COMMS`)."""
        return pl.DataFrame([each.row() for each in self._comms], schema=COMMS, orient="row")

    def _pack(self) -> None:
        self._frames.append(pl.DataFrame(self._rows, schema=CALLS, orient="row"))
        self._rows = []

    def _add_comm(self, comm: "_Comm", *, starts: bool) -> None:
        key = comm.pid, comm.pointer
        index = self._newest.get(key)
        merged = None if index is None else self._comms[index].with_more(comm, starts=starts)
        if index is None or merged is None:
            self._newest[key] = len(self._comms)
            self._comms.append(comm)
        else:
            self._comms[index] = merged


@dataclass(frozen=True, slots=True)
class _Comm:
    """A communicator as one line states it, or both of its lines."""

    pid: int
    pointer: str
    comm_id: str | None
    rank: int
    size: int
    device: int | None

    def row(self) -> tuple[Any, ...]:
        """Returns: the values of `COMMS`."""
        return self.pid, self.pointer, self.comm_id, self.rank, self.size, self.device

    def with_more(self, other: "_Comm", *, starts: bool) -> "_Comm | None":
        """Returns: both lines as one, None when they tell of different communicators."""
        if (self.rank, self.size) != (other.rank, other.size) or (starts and self != other):
            return None
        if None not in {self.comm_id, other.comm_id} and self.comm_id != other.comm_id:
            return None
        device = self.device if other.device is None else other.device
        comm_id = self.comm_id or other.comm_id
        return _Comm(self.pid, self.pointer, comm_id, self.rank, self.size, device)


def _call(line: bytes) -> tuple[Any, ...] | None:
    """Returns: the values of `CALLS`, None when the line is not a whole call."""
    match = _CALL_LINE.search(line)
    if match is None:
        return None
    pid, thread, name, op_count, count, datatype, root, comm, ranks = match.groups()
    op = operation(name.decode("ascii", "replace"))
    dtype, element = _TYPES[int(datatype)] if int(datatype) < len(_TYPES) else (None, None)
    payload = None if element is None else int(count) * element
    made = int(op_count, 16)
    size = None if ranks is None else int(ranks)
    if made > _MOST or (payload or 0) > _MOST or not (size is None or 1 <= size <= _MOST_RANKS):
        return None
    return (
        int(pid),
        int(thread),
        op.value,
        payload,
        dtype,
        int(root) if op in _ROOTED else None,
        int(root) if op in _TO_A_PEER else None,
        comm.decode(),
        size,
        made,
    )


def _comm(match: re.Match[bytes]) -> _Comm | None:
    """Returns: the communicator that a line of INIT tells of, None when it cannot be one."""
    pid, _, pointer, rank, ranks, device, more, _ = match.groups()
    if not int(rank) < int(ranks) <= _MOST_RANKS:
        return None
    comm_id = _COMM_ID.search(more)
    return _Comm(
        int(pid),
        pointer.decode(),
        f"0x{comm_id[1].decode():0>16}" if comm_id else None,
        int(rank),
        int(ranks),
        int(device) if device is not None else None,
    )
