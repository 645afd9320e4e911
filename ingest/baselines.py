"""The user's own measurements as the reference for bandwidths: outputs of nccl-tests as rows."""

from collections.abc import Sequence
from pathlib import Path

import msgspec
import polars as pl

from traceq.errors import SourceError
from traceq.ingest.damage import told_in_words
from traceq.ingest.nccl_tests import Baseline, read_nccl_tests
from traceq.model.collectives import Op, bus_factor

BASELINE_SCHEMA = pl.Schema(
    {
        "file_name": pl.String(),
        "op": pl.String(),
        "group_size": pl.Int32(),
        "nodes": pl.Int32(),
        "bytes": pl.Int64(),
        "algbw_gbps": pl.Float64(),
        "busbw_gbps": pl.Float64(),
    }
)


def read_baselines(wanted: Sequence[str]) -> tuple[pl.DataFrame, list[SourceError]]:
    """Returns: one row per size of each baseline (`BASELINE_SCHEMA`), and those of no use.

    Args:
        wanted: outputs of nccl-tests, each a file or OP=FILE, and benches of traceq as JSON.
    """
    parts, failures = [pl.DataFrame(schema=BASELINE_SCHEMA)], []
    for each in wanted:
        try:
            own = read_bench(Path(each))
            if own is not None:
                parts.append(own)
                continue
            baseline = read_baseline(each)
            with told_in_words(baseline.file_name):
                parts.append(reference(baseline))
        except SourceError as error:
            failures.append(error)
    return pl.concat(parts), failures


_BENCH = b'{\n "schema": "traceq.bench/'


def read_bench(path: Path) -> pl.DataFrame | None:
    """Returns: the rows of a bench of traceq as JSON (`BASELINE_SCHEMA`), None for another file.

    Raises:
        SourceError: it is one, but damaged or without a bus bandwidth.
    """
    if not path.is_file():
        return None
    with told_in_words(path.name):
        data = path.read_bytes()
        if not data.startswith(_BENCH):
            return None
        try:
            bench = msgspec.json.decode(data, type=_Bench)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            message = f"{path.name}: a damaged bench: measure again with traceq bench --format json"
            raise SourceError(message) from error
        rows = [
            (
                path.name,
                row.op,
                row.ranks,
                bench.nodes,
                row.size_bytes,
                row.algbw_gbps,
                row.busbw_gbps,
            )
            for row in bench.rows
            if row.busbw_gbps and row.algbw_gbps and not row.wrong
        ]
        if not rows:
            message = f"{path.name}: one rank alone has no bus bandwidth, so it is no reference"
            raise SourceError(message)
        return pl.DataFrame(rows, schema=BASELINE_SCHEMA, orient="row")


class _Row(msgspec.Struct):
    op: str
    ranks: int
    size_bytes: int
    algbw_gbps: float | None
    busbw_gbps: float | None
    wrong: int | None


class _Bench(msgspec.Struct):
    nodes: int
    rows: list[_Row]


def read_baseline(wanted: str) -> Baseline:
    """Returns: one output of nccl-tests.

    Args:
        wanted: a file, or OP=FILE where the output does not say which operation it is about.

    Raises:
        SourceError: it is none, or it is about another operation.
    """
    op, path = baseline_file(wanted)
    with told_in_words(path.name):
        return read_nccl_tests(path, op)


def baseline_file(wanted: str) -> tuple[Op | None, Path]:
    """Returns: the operation that a FILE or OP=FILE names, if it does, and the file."""
    name, _, file = wanted.partition("=")
    if file and name in set(Op):
        return Op(name), Path(file)
    return None, Path(wanted)


def reference(baseline: Baseline) -> pl.DataFrame:
    """Returns: the better half of each size of a baseline (`BASELINE_SCHEMA`).

    Rates follow from size and time, since those printed have two decimals. Sizes of no bytes, and
    those whose data was found wrong, are no reference.

    Raises:
        SourceError: it does not say which operation it is about, or of how many ranks.
    """
    name = baseline.file_name
    if baseline.op is None:
        fit = " or ".join(baseline.candidates) or "none that is known"
        message = (
            f"{name}: does not say which test it is ({fit}): name it, as in "
            f"--baseline {next(iter(baseline.candidates), 'all_reduce')}={name}"
        )
        raise SourceError(message)
    if baseline.ranks is None or baseline.ranks <= 1:
        fact = "one rank alone" if baseline.ranks == 1 else "how many ranks took part is unknown"
        message = f"{name}: {fact}, so its bus bandwidth is no reference: run it on all ranks"
        raise SourceError(message)
    right = (pl.col("wrong").is_null() | (pl.col("wrong") == 0)) & (pl.col("size_bytes") > 0)
    factor = bus_factor(baseline.op, baseline.ranks)
    if factor is None:
        message = f"{name}: {baseline.op} has no bus bandwidth, so it is no reference"
        raise SourceError(message)
    timed = right & pl.col("time_us").is_finite() & (pl.col("time_us") > 0)
    algbw = pl.col("size_bytes") / (pl.col("time_us") * 1e3)
    return (
        baseline.rows.filter(timed)
        .with_columns(algbw_gbps=algbw, busbw_gbps=algbw * factor)
        .sort("busbw_gbps", descending=True)
        .unique("size_bytes", keep="first", maintain_order=True)
        .sort("size_bytes")
        .select(
            pl.lit(name).alias("file_name"),
            pl.lit(baseline.op.value).alias("op"),
            pl.lit(baseline.ranks).alias("group_size"),
            pl.lit(baseline.nodes).alias("nodes"),
            pl.col("size_bytes").alias("bytes"),
            "algbw_gbps",
            "busbw_gbps",
        )
        .cast(BASELINE_SCHEMA)
    )
