"""The JSON forms of nccl-tests and rccl-tests output, whole or cut short.

Only the fields named here are ever decoded: the files also hold the whole environment of the test,
which nobody wants to hand on.
"""

import re
from itertools import chain
from typing import TypeVar

import msgspec
from msgspec import UNSET, UnsetType, field

from traceq.errors import SourceError
from traceq.ingest.nccl_tests_text import (
    Device,
    Output,
    Row,
    about,
    as_integer,
    as_number,
    known,
    named_op,
    nccl_version,
)

UNDECODABLE = (msgspec.MsgspecError, RecursionError)
Scalar = int | float | str | bool | None
T = TypeVar("T")

_STRING = r'"[^"\\]*(?:\\.[^"\\]*)*(?:"|\\?\Z)'
_TOKEN = re.compile(_STRING + r"|[\[\]{}]", re.DOTALL)
_BARE = re.compile(_STRING + r"|-?\b(?:inf(?:inity)?|nan)\b|\bN/A\b", re.DOTALL | re.IGNORECASE)
_BEGUN = re.compile(r'\s*,?\s*(?:"\d+"\s*:\s*)?\{')
_START = re.compile(r"\s*(?:\[\s*)?\{")
_PRINTED_START = re.compile(r'^[ \t]*(?=\{\s*"identifier"\s*:\s*"nccl-tests)', re.MULTILINE)
_FLAT_OBJECT = re.compile(r"\{[^{}]*\}")
_VERSION = re.compile(r"\d+(?:\.\d+)+")


class _Half(msgspec.Struct):
    time: Scalar = None
    cpu_time: Scalar = None
    alg_bw: Scalar = None
    bus_bw: Scalar = None
    nwrong: Scalar = None


class _Result(msgspec.Struct):
    size: Scalar = None
    count: Scalar = None
    type: str = ""
    redop: str | None = None
    root: Scalar = None
    out_of_place: _Half | UnsetType | None = UNSET
    in_place: _Half | UnsetType | None = UNSET


class _Device(msgspec.Struct):
    rank: int
    group: int = 0
    hostname: str = ""
    device_info: str = ""


class _Config(msgspec.Struct):
    nthreads: int = 1
    ngpus: int = 1
    devices: list[_Device] = []


class _Report(msgspec.Struct):
    """What `nccl-tests -J` writes."""

    args: list[str] = []
    nccl_version: Scalar = None
    config: _Config | None = None
    results: list[_Result] = []
    average: msgspec.Raw | UnsetType = field(default=UNSET, name="average_bus_bandwidth")
    misspelt: msgspec.Raw | UnsetType = field(default=UNSET, name="average_bus_bandwidith")


class _Pair(msgspec.Struct):
    count: Scalar = None
    type: str = ""
    redop: str | None = None
    root: Scalar = None
    oop_time: Scalar = None
    oop_algbw: Scalar = None
    oop_busbw: Scalar = None
    oop_error: Scalar = None
    ip_time: Scalar = None
    ip_algbw: Scalar = None
    ip_busbw: Scalar = None
    ip_error: Scalar = None


class _Proposal(msgspec.Struct):
    """What pull request 318 of nccl-tests prints."""

    version: str = ""
    benchmark: list[dict[str, _Pair]] = []


class _Record(msgspec.Struct, rename="camel"):
    """One half of a line as rccl-tests writes it."""

    alg_bw: Scalar
    bus_bw: Scalar
    size: Scalar
    time: Scalar
    name: str = ""
    type: str = ""
    redop: str | None = None
    root: Scalar = None
    count: Scalar = None
    in_place: Scalar = None
    ranks: int | None = None
    gpus_per_rank: int = 1
    nodes: int | None = None
    wrong: Scalar = None
    hash_wrong: Scalar = field(default=None, name="#wrong")


def json_part(text: str) -> str | None:
    """Returns: an output from where its JSON begins, None when it has none."""
    found = _START.match(text) or _PRINTED_START.search(text)
    return text[found.start() :] if found else None


def read_json(text: str, name: str) -> Output:
    """Returns: what an output in JSON says.

    Raises:
        SourceError: it is damaged, or of a test without a bus factor.
    """
    text = _BARE.sub(lambda found: found[0] if found[0][0] == '"' else f'"{found[0]}"', text)
    if '"algBw"' in text and '"results"' not in text:
        return _read_records(text, name)
    if text.lstrip().startswith("["):
        return Output([])
    document, rest = _first_document(text)
    if '"benchmark"' in document and '"results"' not in document:
        output = _read_proposal(_decode(document, _Proposal, name))
    else:
        output = _read_report(_decode(document, _Report, name), name)
    output.complete = output.complete and rest is None
    output.dropped += rest is not None and _BEGUN.match(rest) is not None
    return output


def _first_document(text: str) -> tuple[str, str | None]:
    """Returns: a document, closed behind its last whole part if it was cut, and what it lost."""
    closers: list[str] = []
    end, missing = 0, ""
    for token in _TOKEN.finditer(text):
        if token[0] in "{[":
            closers.append("}" if token[0] == "{" else "]")
        elif token[0] in "}]":
            if not closers or closers.pop() != token[0]:
                break
            end, missing = token.end(), "".join(reversed(closers))
            if not closers:
                return text[:end], None
    return text[:end] + missing, text[end:]


def _decode(document: str, form: type[T], name: str) -> T:
    try:
        return msgspec.json.decode(document, type=form)
    except UNDECODABLE as error:
        message = f"{name}: damaged JSON: {error}: copy it again, or measure again"
        raise SourceError(message) from None


def _read_report(report: _Report, name: str) -> Output:
    config = report.config or _Config()
    output = Output([], op=named_op(report.args[0], name) if report.args else None)
    for result in report.results:
        try:
            output.rows += _halves(result)
        except ValueError:
            output.dropped += 1
    devices = [Device(d.rank, d.group, d.hostname, d.device_info) for d in config.devices]
    output.ranks, output.nodes, output.gpus = about(devices)
    if config.nthreads * config.ngpus > 1:  # then only the first GPU of each process is listed
        output.ranks = None
        output.nodes = len({device.host for device in devices}) or None
    version = as_integer(report.nccl_version)
    output.nccl_version = None if version is None else nccl_version(version)
    output.complete = report.average is not UNSET or report.misspelt is not UNSET
    return output


def _halves(result: _Result) -> list[Row]:
    """Returns: the halves of a result; ValueError when it was cut."""
    if result.out_of_place is UNSET or result.in_place is UNSET:
        raise ValueError
    return [
        _row(
            result,
            size=result.size,
            in_place=in_place,
            time=half.time if half.cpu_time is None else half.cpu_time,
            algbw=half.alg_bw,
            busbw=half.bus_bw,
            wrong=half.nwrong,
        )
        for half, in_place in ((result.out_of_place, False), (result.in_place, True))
        if half is not None
    ]


def _row(
    each: _Result | _Pair | _Record,
    *,
    size: Scalar,
    in_place: bool,
    time: Scalar,
    algbw: Scalar,
    busbw: Scalar,
    wrong: Scalar,
) -> Row:
    return Row(
        known(as_integer(size)),
        as_integer(each.count),
        each.type,
        each.redop,
        as_integer(each.root),
        in_place,
        known(as_number(time)),
        known(as_number(algbw)),
        as_number(busbw),
        as_integer(wrong),
    )


def _read_proposal(proposal: _Proposal) -> Output:
    output = Output([], complete=True)
    output.nccl_version = next(iter(_VERSION.findall(proposal.version)), None)
    for size, pair in chain.from_iterable(each.items() for each in proposal.benchmark):
        try:
            output.rows += [
                _row(
                    pair, size=size, in_place=False, time=pair.oop_time, algbw=pair.oop_algbw,
                    busbw=pair.oop_busbw, wrong=pair.oop_error,
                ),
                _row(
                    pair, size=size, in_place=True, time=pair.ip_time, algbw=pair.ip_algbw,
                    busbw=pair.ip_busbw, wrong=pair.ip_error,
                ),
            ]  # fmt: skip
        except ValueError:
            output.dropped += 1
    return output


def _read_records(text: str, name: str) -> Output:
    """Returns: what lines of rccl-tests say; they have no end that could be missed."""
    output = Output([])
    records = []
    for fragment in _FLAT_OBJECT.findall(text):
        try:
            record = msgspec.json.decode(fragment, type=_Record)
            output.rows.append(_record_row(record))
        except (*UNDECODABLE, ValueError):
            output.dropped += 1
        else:
            records.append(record)
    rest = _FLAT_OBJECT.sub("\n", text)
    output.dropped += sum(bool(part.strip(" \t\r,[]")) for part in rest.splitlines())
    output.complete = output.dropped == 0
    tests = {record.name for record in records}
    if len(tests) > 1:
        message = f"{name}: the output of {len(tests)} tests: give each a file of its own"
        raise SourceError(message)
    output.op = next((named_op(test, name) for test in tests), None)
    sizes = {(record.ranks, record.gpus_per_rank, record.nodes) for record in records}
    if len(sizes) == 1:
        ranks, gpus_per_rank, output.nodes = sizes.pop()
        output.ranks = ranks if gpus_per_rank == 1 else None
    return output


def _record_row(record: _Record) -> Row:
    return _row(
        record,
        size=record.size,
        in_place=bool(known(as_integer(record.in_place))),
        time=record.time,
        algbw=record.alg_bw,
        busbw=record.bus_bw,
        wrong=record.wrong if record.hash_wrong is None else record.hash_wrong,
    )
