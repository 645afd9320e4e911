"""The table that nccl-tests prints, as it comes out of launchers and log files."""

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

from traceq.errors import SourceError
from traceq.model.collectives import Op

T = TypeVar("T", int, float)

# What launchers put before a line, or before every piece of it: Open MPI, Hydra, Ray, srun, pdsh.
_PREFIX = re.compile(
    r"\x1b\[[0-9;]*m"
    r"|\[[^\[\]\s]*\d,\d+\]<std\w+>:"
    r"|\[\d+\]"
    r"|\([^()]*\bpid=\d+[^()]*\)"
    r"|(?<!\S)\d+:(?=\s)"
    r"|^\s*[\w.-]+:(?=\s)"
)
_TIMESTAMP = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d")
_INTEGER = re.compile(r"-?[0-9]{1,19}")
_NUMBER = re.compile(r"[-+]?(?:[0-9]+\.?[0-9]*(?:e[-+]?[0-9]+)?|inf|nan)", re.IGNORECASE)
_DTYPE = re.compile(r"(?:u?int|b?float|bf|fp?[0-9]|half|double|char)\w*")
_DEVICE = re.compile(
    r"\bRank\s+(\d+)\s+(?:Group\s+(-?\d+)\s+)?Pid\s+\d+\s+on\s+(\S+)\s+device\s+\d+\s+"
    r"\[[^\]]*\]\s*(.*)"
)
_TEST = re.compile(r"Collective test starting:\s*(\S+)")
_TOOL = re.compile(r"nccl-tests version (\d[\w.]*)|rccl-tests: Version ([\w.:-]+)")
_LIBRARY = re.compile(r"\bnccl-library=(\d+)|\b[NR]CCL version\s*:?\s*(\d+\.\d+(?:\.\d+)?)")
_LARGEST = (1 << 63) - 1
_HALF = 4
_WIDE_HALF = 8  # -I adds i_min, i_max, i_p99 and i_cv% to each half
_LENGTHS = {11, 12, 13, 21}
_NEW_LENGTH = 13  # older tables lack redop, root or both, and have errors instead of #wrong
_NEW_VERSION_CODES = 10_000  # from NCCL 2.9 on, a code has two digits for the minor version

# In the order in which a name is searched for them: some names hold others.
_NAMES = {
    "allreduce": Op.ALL_REDUCE,
    "allgather": Op.ALL_GATHER,
    "reducescatter": Op.REDUCE_SCATTER,
    "alltoall": Op.ALL_TO_ALL,
    "broadcast": Op.BROADCAST,
    "sendrecv": Op.SEND_RECV,
    "gather": Op.GATHER,
    "scatter": Op.SCATTER,
    "reduce": Op.REDUCE,
}


class Row(NamedTuple):
    """One half of a line of results, in the order of `ROWS_SCHEMA`."""

    size_bytes: int
    elements: int | None
    dtype: str
    redop: str | None
    root: int | None
    in_place: bool
    time_us: float
    algbw_gbps: float
    busbw_gbps: float | None
    wrong: int | None


class Device(NamedTuple):
    """One line of the list of devices."""

    rank: int
    group: int
    host: str
    gpu: str


@dataclass(slots=True)
class Output:
    """What one output says, before anything is concluded from it.

    Attributes:
        rows: halves of lines in the order of the file.
        op: operation that the output states, None when it states none.
        ranks: ranks of the communicator, None when unknown.
        nodes: distinct hosts, None when unknown.
        gpus: distinct GPU models.
        tool_version: version of nccl-tests or rccl-tests.
        nccl_version: version of the library.
        complete: the output came to its end.
        dropped: lines of results that were cut.
    """

    rows: list[Row]
    op: Op | None = None
    ranks: int | None = None
    nodes: int | None = None
    gpus: tuple[str, ...] = ()
    tool_version: str | None = None
    nccl_version: str | None = None
    complete: bool = False
    dropped: int = 0


def read_text(text: str, name: str) -> Output:
    """Returns: what a printed output says.

    Raises:
        SourceError: it is of version 1, of several processes, or of a test without a bus factor.
    """
    lines = [_PREFIX.sub(" ", line) for line in text.splitlines()]
    devices = [Device(int(m[1]), int(m[2] or 0), m[3], m[4].strip()) for m in _all(_DEVICE, lines)]
    tests = [m[1] for m in _all(_TEST, lines)]
    _refuse_several(devices, len(tests), name)
    header = _header(lines, name)
    output = _results(lines, header)
    output.op = named_op(tests[0], name) if tests else None
    output.ranks, output.nodes, output.gpus = about(devices)
    output.tool_version = next((m[1] or m[2] for m in _all(_TOOL, lines)), None)
    library = next(iter(_all(_LIBRARY, lines)), None)
    if library:
        output.nccl_version = library[2] or nccl_version(int(library[1]))
    output.complete = any("Avg bus bandwidth" in line for line in lines)
    return output


def _all(pattern: re.Pattern[str], lines: Iterable[str]) -> list[re.Match[str]]:
    return [found for line in lines if (found := pattern.search(line))]


def _refuse_several(devices: list[Device], tests: int, name: str) -> None:
    firsts = sum(device.rank == 0 for device in devices)
    if firsts > 1 and all(device.rank == 0 for device in devices):
        message = (
            f"{name}: the output of {firsts} processes of one rank each, mixed together, so no "
            "bandwidth between GPUs was measured: nccl-tests was built or launched without MPI: "
            "build it with MPI=1 and start it with mpirun, or with srun --mpi=pmix"
        )
        raise SourceError(message)
    if max(firsts, tests) > 1:
        message = (
            f"{name}: the output of {max(firsts, tests)} tests, in a row or mixed together: give "
            "each a file of its own (and if they were meant to be one test, build nccl-tests with "
            "MPI=1)"
        )
        raise SourceError(message)


def _header(lines: list[str], name: str) -> list[str] | None:
    """Returns: the names of the columns, None when the header is missing."""
    for line in lines:
        columns = line.lstrip(" \t#").split()
        if columns[:3] == ["size", "count", "type"]:
            return columns
        if columns[:3] == ["bytes", "N", "type"]:
            message = (
                f"{name}: printed by nccl-tests 1, whose times are rounded milliseconds: measure "
                "again with nccl-tests 2"
            )
            raise SourceError(message)
    return None


def _results(lines: list[str], header: list[str] | None) -> Output:
    found = []
    for line in lines:
        tokens = _TIMESTAMP.sub(" ", line).split()
        if (
            len(tokens) > 2  # noqa: PLR2004  # size, count, type
            and all(_INTEGER.fullmatch(token) for token in tokens[:2])
            and _DTYPE.fullmatch(tokens[2])
        ):
            found.append(tokens)
    if header:
        known = {"redop", "root"} & set(header)
        wide = any(column.startswith("i_min") for column in header)
        length = 3 + len(known) + 2 * (_WIDE_HALF if wide else _HALF)
        counts_errors = "error" not in header
    else:
        lengths = Counter(len(tokens) for tokens in found if len(tokens) in _LENGTHS)
        length = max(lengths, key=lambda each: (lengths[each], each), default=0)
        counts_errors = length >= _NEW_LENGTH
    output = Output([])
    for tokens in found:
        try:
            output.rows += _row(tokens, length, counts_errors=counts_errors)
        except ValueError:
            output.dropped += 1
    return output


def _row(tokens: list[str], length: int, *, counts_errors: bool) -> list[Row]:
    """Returns: the halves of a line of results that were measured; ValueError when it was cut."""
    half = _WIDE_HALF if length > 2 * _WIDE_HALF else _HALF
    if len(tokens) == length - 1 >= _NEW_LENGTH - 1 and _INTEGER.fullmatch(tokens[3]):
        tokens = [*tokens[:3], "", *tokens[3:]]  # old gather and scatter print no redop at all
    if len(tokens) != length:
        raise ValueError
    size, elements = known(as_integer(tokens[0])), known(as_integer(tokens[1]))
    redop, root = _redop_and_root(tokens[3 : length - 2 * half])

    def part(start: int, *, in_place: bool) -> Row:
        time_us, algbw, busbw = (known(as_number(token)) for token in tokens[start : start + 3])
        written = tokens[start + 3]
        wrong = None if written == "N/A" else known(as_number(written))
        return Row(
            size, elements, tokens[2], redop, root, in_place,
            time_us, algbw, busbw, as_integer(wrong) if counts_errors else None,
        )  # fmt: skip

    halves = {False: length - 2 * half, True: length - half}
    return [
        part(start, in_place=in_place)
        for in_place, start in halves.items()
        if tokens[start] != "N/A"
    ]


def _redop_and_root(preamble: list[str]) -> tuple[str | None, int | None]:
    """Returns: the reduction and the root of a line, None where the table has no such column."""
    if not preamble:
        return None, None
    if len(preamble) > 1:
        return preamble[0] or None, known(as_integer(preamble[1]))
    root = as_integer(preamble[0])
    return (preamble[0] if root is None else None), root


def named_op(test: str, name: str) -> Op | None:
    """Returns: the operation of a test by its name (`all_reduce_perf`), None when none is known.

    Raises:
        SourceError: its bandwidth cannot be compared with that of any operation.
    """
    letters = re.sub(r"[^a-z]", "", re.split(r"[/\\]", test)[-1].lower())
    if "hypercube" in letters:
        message = (
            f"{name}: a hypercube test, which measures no operation of NCCL, so its bandwidth "
            "compares with none: give the output of another test"
        )
        raise SourceError(message)
    return next((op for key, op in _NAMES.items() if key in letters), None)


def about(devices: list[Device]) -> tuple[int | None, int | None, tuple[str, ...]]:
    """Returns: ranks, hosts and GPU models of the communicator of rank 0.

    Ranks may be split into groups that run next to each other, each a communicator of its own.
    Numbers are None when the list is not whole.
    """
    if not devices:
        return None, None, ()
    group = min(devices).group
    mine = [device for device in devices if device.group == group]
    gpus = tuple(dict.fromkeys(device.gpu for device in mine if device.gpu))
    if {device.rank for device in devices} != set(range(len(devices))):
        return None, None, gpus
    return len(mine), len({device.host for device in mine}), gpus


def nccl_version(code: int) -> str:
    """Returns: a version from its code.

    >>> nccl_version(22803), nccl_version(2804)
    ('2.28.3', '2.8.4')
    """
    major, rest = divmod(code, 10_000 if code >= _NEW_VERSION_CODES else 1000)
    return f"{major}.{rest // 100}.{rest % 100}"


def as_integer(value: float | str | None) -> int | None:
    """Returns: a whole number of 64 bits, however it is written, or None.

    >>> as_integer("    -1"), as_integer(3.0), as_integer("N/A"), as_integer(2**70)
    (-1, 3, None, None)
    """
    number: float | None
    if isinstance(value, str):
        written = value.strip()
        number = int(written) if _INTEGER.fullmatch(written) else as_number(written)
    else:
        number = value
    if number is None or not -_LARGEST <= number <= _LARGEST or number != int(number):
        return None
    return int(number)


def as_number(value: float | str | None) -> float | None:
    """Returns: a number, `inf` and `nan` among them, however it is written, or None.

    >>> as_number("1.2e+05"), as_number("nan"), as_number("N/A")
    (120000.0, nan, None)
    """
    if isinstance(value, str):
        return float(value) if _NUMBER.fullmatch(value.strip()) else None
    return None if value is None else float(value)


def known(number: T | None) -> T:
    """Returns: a number that must be there; ValueError when it is not."""
    if number is None:
        raise ValueError
    return number
