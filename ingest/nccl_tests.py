"""Output of nccl-tests and rccl-tests as a baseline for bus bandwidth."""

import math
import re
from dataclasses import dataclass
from pathlib import Path

import polars as pl

from traceq.errors import SourceError
from traceq.ingest.detect import label
from traceq.ingest.nccl_tests_json import json_part, read_json
from traceq.ingest.nccl_tests_text import Output, Row, read_text
from traceq.model.collectives import RULES, Op, bus_factor

ROWS_SCHEMA = pl.Schema(
    {
        "size_bytes": pl.Int64(),
        "count": pl.Int64(),
        "dtype": pl.String(),
        "redop": pl.String(),
        "root": pl.Int64(),
        "in_place": pl.Boolean(),
        "time_us": pl.Float64(),
        "algbw_gbps": pl.Float64(),
        "busbw_gbps": pl.Float64(),
        "wrong": pl.Int64(),
    }
)

_HEAD_BYTES = 64 << 10
_SIGN = re.compile(
    r"\bnThread \d+ nGpus \d+\b|\bCollective test starting:|\b[nr]ccl-tests(?: v|: V)ersion "
    r"|\bsize +count +type\b.* algbw +busbw\b"
    r'|^\s*\{\s*(?:"version"\s*:\s*\d+,\s*)?"start_time"\s*:\s*"[^"]*",\s*"args"\s*:\s*\['
    r'|"nccl-tests structured output"|"algBw"\s*:'
)

# (reduces, has a root) by operation, as the tests print redop and root.
_PRINTED = {
    Op.ALL_REDUCE: (True, False),
    Op.ALL_GATHER: (False, False),
    Op.REDUCE_SCATTER: (True, False),
    Op.ALL_TO_ALL: (False, False),
    Op.BROADCAST: (False, True),
    Op.REDUCE: (True, True),
    Op.GATHER: (False, True),
    Op.SCATTER: (False, True),
    Op.SEND_RECV: (True, False),  # it reduces nothing, and prints `sum`
}
# Before 2.9 these tests left the share of the own rank out of algbw, and had a bus factor of 1.
_ONCE_WITHOUT_OWN_SHARE = {Op.ALL_GATHER, Op.REDUCE_SCATTER, Op.GATHER, Op.SCATTER}
_NO_REDUCTION = {None, "", "none"}
_NO_ROOT = {None, -1}
_ELEMENT_BYTES = {"char": 1, "half": 2, "float": 4, "double": 8}
_ROUNDING_GBPS = 0.005  # of two decimals
_ROUNDING_US = 0.005
_VISIBLE_GBPS = 0.05
_ROUNDING_SHARE = 0.03  # of the shortest form, as in 1.2e+05
_MANY = 1 << 20


@dataclass(frozen=True, slots=True)
class Baseline:
    """What one output of nccl-tests measured.

    The whole environment, the arguments and the host names that an output may hold are not kept.

    Attributes:
        file_name: base name of the file.
        op: the operation, None when the output does not say which test it is and several fit.
        candidates: operations that fit all rows.
        ranks: ranks of the communicator, None when unknown.
        nodes: distinct hosts of the communicator, None when unknown.
        gpus: distinct GPU models.
        tool_version: version of nccl-tests or rccl-tests, None when unknown.
        nccl_version: version of the library, None when unknown.
        complete: False when the output lacks its end.
        dropped: lines of results that were cut, by a log line or by the end of the file [1].
        rows: one row per size and half, columns of `ROWS_SCHEMA`, in the order of the file.
            Columns that a version does not print are null, and so are `wrong` where nothing was
            checked (or only an error was measured, as before 2.13), and `busbw_gbps` where it is
            not defined: for one rank, and where it is not finite. Times and algbw may be `inf` or
            `nan`, as printed.
    """

    file_name: str
    op: Op | None
    candidates: tuple[Op, ...]
    ranks: int | None
    nodes: int | None
    gpus: tuple[str, ...]
    tool_version: str | None
    nccl_version: str | None
    complete: bool
    dropped: int
    rows: pl.DataFrame


def is_nccl_tests(path: Path) -> bool:
    """Returns: whether a file looks like output of nccl-tests, by its first bytes."""
    try:
        with path.open("rb") as file:
            head = file.read(_HEAD_BYTES)
    except OSError:
        return False
    return _SIGN.search(head.decode("utf-8-sig", "replace")) is not None


def read_nccl_tests(path: Path, op: Op | None = None) -> Baseline:
    """Returns: what an output of nccl-tests measured, text or JSON, of any launcher.

    Which operation it was is what the output states; where it states none, it is found by
    elimination, over the reduction, the root, the sizes and the bandwidths of all rows.

    The algbw of versions before 2.9 for all_gather and reduce_scatter leaves out what a rank keeps
    of its own; it is computed again as size / time, as nccl-tests has it now. The busbw is the same
    under both conventions.

    Args:
        path: the file.
        op: which operation it was, where the output leaves several.

    Raises:
        SourceError: it cannot be read, holds no results, mixes several tests, is of version 1 or
            of a hypercube test, or is of another operation than `op`.
    """
    name = label(path)
    text = _text(path, name)
    document = json_part(text)
    output = read_text(text, name) if document is None else read_json(document, name)
    if not output.rows:
        cut = f" ({output.dropped} were cut)" if output.dropped else ""
        message = (
            f"{name}: no row of nccl-tests results{cut}: give the whole output of a test that ran, "
            "as it printed it or as its -J option wrote it"
        )
        raise SourceError(message)
    ranks, candidates = _candidates(output)
    chosen = _chosen(op, candidates, output.op, name)
    ops = candidates if chosen is None else (chosen,)
    rows = [_stored(row, ops, ranks) for row in _as_now(output.rows, ops, ranks)]
    return Baseline(
        name, chosen, candidates, ranks, output.nodes, output.gpus, output.tool_version,
        output.nccl_version, output.complete, output.dropped,
        pl.DataFrame(rows, ROWS_SCHEMA, orient="row"),
    )  # fmt: skip


def _text(path: Path, name: str) -> str:
    try:
        if path.exists() and not path.is_file():
            message = f"{name}: not a regular file: give the output of one test"
            raise SourceError(message)
        return path.read_bytes().decode("utf-8-sig", "replace")
    except OSError as error:
        message = f"{name}: cannot be read: {error.strerror}"
        raise SourceError(message) from error


def _chosen(op: Op | None, candidates: tuple[Op, ...], stated: Op | None, name: str) -> Op | None:
    if op is None:
        return candidates[0] if len(candidates) == 1 else None
    if op not in candidates:
        fact = (
            f"states that it is of {stated}"
            if stated
            else f"its rows fit {', '.join(candidates) or 'no operation'}"
        )
        message = f"{name}: {fact}, not of {op}: name another operation or give another file"
        raise SourceError(message)
    return op


def _candidates(output: Output) -> tuple[int | None, tuple[Op, ...]]:
    """Returns: the ranks and the operations that fit all rows.

    A number of ranks that no operation fits comes from a list of devices that lacks some.
    """
    rows, ranks = output.rows, output.ranks
    if ranks is None and _is_of_one_rank(rows):
        ranks = 1
    for n in dict.fromkeys((ranks, None)):
        shaped = [output.op] if output.op else [op for op in _PRINTED if _has_shape(op, rows, n)]
        if fitting := tuple(op for op in shaped if _has_bandwidth(op, rows, n)):
            return n, fitting
    return None, (output.op,) if output.op else ()


def _is_of_one_rank(rows: list[Row]) -> bool:
    """Returns: whether a bus factor of 0 shows, which only one rank has."""
    measured = _finite(rows)
    return all(busbw == 0 for _, busbw in measured) and any(a > _VISIBLE_GBPS for a, _ in measured)


def _finite(rows: list[Row]) -> list[tuple[float, float]]:
    return [
        (row.algbw_gbps, row.busbw_gbps)
        for row in rows
        if row.busbw_gbps is not None and math.isfinite(row.algbw_gbps + row.busbw_gbps)
    ]


def _has_shape(op: Op, rows: list[Row], n: int | None) -> bool:
    """Returns: whether reductions, roots and sizes are those of an operation on n ranks."""
    reduces, rooted = _PRINTED[op]
    if any(
        (row.redop in _NO_REDUCTION) == reduces or (row.root in _NO_ROOT) == rooted for row in rows
    ):
        return False
    multiples = _multiples(rows)
    if not RULES[op].payload_is_per_rank:
        return multiples <= {1}
    return len(multiples) <= 1 if n is None else multiples <= {n}


def _multiples(rows: list[Row]) -> set[float]:
    """Returns: by how much sizes are larger than their counts of elements."""
    return {
        row.size_bytes / (row.elements * width)
        for row in rows
        if row.elements and (width := _element_bytes(row.dtype))
    }


def _element_bytes(dtype: str) -> int | None:
    """Returns: the size of an element.

    >>> [_element_bytes(dtype) for dtype in ("float", "bfloat16", "uint64", "f8e4m3", "fp8_e5m2")]
    [4, 2, 8, 1, 1]
    """
    if dtype in _ELEMENT_BYTES:
        return _ELEMENT_BYTES[dtype]
    bits = re.match(r"[a-z]+(\d+)", dtype)
    return int(bits[1]) // 8 or None if bits else None


def _ranks_by_size(op: Op, rows: list[Row]) -> int | None:
    """Returns: the ranks that sizes show, None where they show none."""
    multiples = _multiples(rows) if RULES[op].payload_is_per_rank else set()
    return int(multiples.pop()) if len(multiples) == 1 else None


def _has_bandwidth(op: Op, rows: list[Row], n: int | None) -> bool:
    """Returns: whether rates are, up to rounding, size / time and that times the bus factor."""
    if n == 1:
        return True
    n = n or _ranks_by_size(op, rows)
    least, most = bus_factor(op, n or 2) or 0, bus_factor(op, n or _MANY) or 0
    lowest = least if op in _ONCE_WITHOUT_OWN_SHARE else 1
    for row in rows:
        if row.busbw_gbps is None or not row.time_us > 0:
            continue
        rate = row.size_bytes / row.time_us / 1e3
        share = _ROUNDING_SHARE + _ROUNDING_US / row.time_us
        for printed, low, high in ((row.busbw_gbps, least, most), (row.algbw_gbps, lowest, 1)):
            low_gbps = low * rate * (1 - share) - _ROUNDING_GBPS
            high_gbps = high * rate * (1 + share) + _ROUNDING_GBPS
            if math.isfinite(printed) and not low_gbps <= printed <= high_gbps:
                return False
    return True


def _as_now(rows: list[Row], ops: tuple[Op, ...], n: int | None) -> list[Row]:
    """Returns: rows with algbw as nccl-tests computes it now."""
    if n == 1 or not ops or not _ONCE_WITHOUT_OWN_SHARE.issuperset(ops):
        return rows
    n = n or _ranks_by_size(ops[0], rows)
    measured = _finite(rows)
    # Now they would differ by the n-th part of algbw, if it is large enough to show.
    seen = n is not None and any(algbw / n > _VISIBLE_GBPS for algbw, _ in measured)
    if not seen or any(algbw != busbw for algbw, busbw in measured):
        return rows
    return [
        row._replace(algbw_gbps=row.size_bytes / row.time_us / 1e3) if row.time_us > 0 else row
        for row in rows
    ]


def _stored(row: Row, ops: tuple[Op, ...], n: int | None) -> Row:
    """Returns: a row without what is not defined, and with its count where it was not printed."""
    if n == 1 or (row.busbw_gbps is not None and not math.isfinite(row.busbw_gbps)):
        row = row._replace(busbw_gbps=None)
    width = _element_bytes(row.dtype)
    if row.elements is None and n and width and len(ops) == 1:
        share = n if RULES[ops[0]].payload_is_per_rank else 1
        row = row._replace(elements=row.size_bytes // (width * share))
    return row
