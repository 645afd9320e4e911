"""Real outputs of nccl-tests: every file, every row, against a plain split of what was printed."""

import json
import re
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from traceq.errors import SourceError
from traceq.ingest.nccl_tests import ROWS_SCHEMA, Baseline, is_nccl_tests, read_nccl_tests
from traceq.model.collectives import Op, bus_factor

AR, AG, A2A = Op.ALL_REDUCE, Op.ALL_GATHER, Op.ALL_TO_ALL
SR, BC = Op.SEND_RECV, Op.BROADCAST


class Expected(NamedTuple):
    lines: int
    candidates: tuple[Op, ...]
    ranks: int | None
    nodes: int | None
    peak: float | None
    dropped: int = 0
    complete: bool = True


A100X8 = Expected(5, (AR,), 8, 1, 234.80)
H20 = Expected(3, (A2A,), 8, 1, 61.96)
A40 = Expected(5, (SR,), 2, 2, 0.13)
H100 = Expected(1, (AR,), 8, 1, 480.14)
ZERO = Expected(7, (A2A,), 8, 1, 0.17)
PER_ITERATION = Expected(1, (AR,), 4, 1, 156.39)
ONE_RANK = Expected(1, (AG,), 1, 1, None)
FILES = {
    "v2.0_v100x256_allreduce_c0.txt": Expected(6, (AR,), 256, 16, 74.36),
    "v2.10_h20x16_allreduce_error.txt": Expected(4, (AR,), 16, 2, 0.02),
    "v2.13_a100x8.txt": A100X8,
    "v2.13_ag_bf16_2gpu.txt": Expected(7, (AG, A2A), 2, 1, 144.59),
    "v2.13_h20_alltoall_inplaceNA.txt": Expected(3, (AG, A2A), 8, 1, 61.96),
    "v2.13_headers_hash_stripped.txt": Expected(5, (AR, SR), 2, 2, 0.13),
    "v2.13_openmpi_tag_prefix.txt": A100X8,
    "v2.13_prefix_per_printf.txt": Expected(3, (AR,), None, None, 29.50, 1, complete=False),
    "v2.13_rtx4090_1rank_busbw0.txt": Expected(1, (AG, A2A), 1, 1, None),
    "v2.13_truncated_midrow.txt": Expected(2, (AR,), 8, 1, 232.11, 1, complete=False),
    "v2.17.6_gb200_nvl72.txt": Expected(5, (AR,), 72, 18, 846.82),
    "v2.17.6_h20_alltoall.json": H20,
    "v2.17.6_h20_alltoall.txt": H20,
    "v2.17.8_a100x8.json": A100X8,
    "v2.17.8_a100x8.txt": A100X8,
    "v2.19.6_a40_sendrecv.json": A40,
    "v2.19.6_a40_sendrecv.txt": A40,
    "v2.19.6_h100x8_nvls.json": H100,
    "v2.19.6_h100x8_nvls.txt": H100,
    "v2.19.6_h20_zero_rows.json": ZERO,
    "v2.19.6_h20_zero_rows.txt": ZERO,
    "v2.19.6_periter.json": PER_ITERATION,
    "v2.19.6_periter.txt": PER_ITERATION,
    "v2.19.6_rtx4090_1rank.json": ONE_RANK,
    "v2.19.6_rtx4090_1rank.txt": ONE_RANK,
    "v2.9_v100pcie_broadcast_c0.txt": Expected(1, (BC,), 2, 2, 0.0),
}
REFUSED = "v2.13_interleaved_two_processes.txt"
# The one file without a list of devices: only 24 ranks give all its busbw.
RANKS_BY_HAND = {"v2.13_prefix_per_printf.txt": 24}
TWINS = sorted(name.removesuffix(".json") for name in FILES if name.endswith(".json"))
# The digits of (size, time, algbw, busbw) of each half, as printed.
Printed = list[tuple[str, str, str, str]]


@pytest.fixture
def folder(corpus: Path) -> Path:
    return corpus / "nccl-tests"


def printed(path: Path) -> Printed:
    """Returns: the digits of every whole row, by no more than a split of the text.

    Samples of 2.17 and later are published numbers, printed again by the real code of a newer
    version, which adds zeros to times that had been rounded before.
    """
    reprinted = path.name.startswith(("v2.17", "v2.19"))
    if path.suffix == ".json":
        results = json.loads(path.read_text(), parse_float=str)["results"]
        return [
            (str(r["size"]), *(shortened(r[half][key]) for key in ("time", "alg_bw", "bus_bw")))
            for r in results
            for half in ("out_of_place", "in_place")
        ]
    digits: Printed = []
    for line in path.read_text().splitlines():
        tokens = line.replace("[0]", " ").replace("[1,0]<stdout>:", " ").split()
        if not tokens or not tokens[0].isdigit() or len(tokens) < 11:
            continue
        if "INFO" in tokens:
            continue
        half = 8 if len(tokens) > 20 else 4
        for at in (-2 * half, -half):
            time, algbw, busbw = tokens[at : at + 3]
            digits.append((tokens[0], shortened(time) if reprinted else time, algbw, busbw))
    return digits


def shortened(number: str) -> str:
    """Returns: a number without the zeros behind its point."""
    return number.rstrip("0").rstrip(".") if "." in number else number


def bounds(number: str) -> tuple[Decimal, Decimal]:
    """Returns: between what a number lies that was rounded to these digits."""
    value = Decimal(number)
    exponent = value.as_tuple().exponent
    assert isinstance(exponent, int)
    half = Decimal(5).scaleb(exponent - 1)
    return value - half, value + half


def agrees(size: int, time: str, factor: float, rate: str) -> bool:
    """Returns: whether some time that prints so gives some rate that prints so."""
    (shortest, longest), (low, high) = bounds(time), bounds(rate)
    moved = Decimal(size) / 1000 * Decimal(factor)
    return moved / longest <= high and moved / shortest >= low


def test_every_file_of_the_corpus_is_tested(folder: Path) -> None:
    assert {path.name for path in folder.iterdir()} == {*FILES, REFUSED}
    assert all(is_nccl_tests(path) for path in folder.iterdir())


@pytest.mark.parametrize("name", FILES)
def test_every_file_says_what_was_measured(folder: Path, name: str) -> None:
    expected = FILES[name]
    baseline = read_nccl_tests(folder / name)
    assert baseline.file_name == name
    assert baseline.candidates == expected.candidates
    assert baseline.op == (expected.candidates[0] if len(expected.candidates) == 1 else None)
    assert (baseline.ranks, baseline.nodes) == (expected.ranks, expected.nodes)
    assert (baseline.complete, baseline.dropped) == (expected.complete, expected.dropped)
    assert baseline.rows.schema == ROWS_SCHEMA
    assert baseline.rows.height == 2 * expected.lines
    assert baseline.rows["in_place"].to_list() == [False, True] * expected.lines
    assert baseline.rows["busbw_gbps"].max() == expected.peak


@pytest.mark.parametrize("name", FILES)
def test_every_row_is_as_printed_and_its_rates_follow_from_size_and_time(
    folder: Path, name: str
) -> None:
    baseline = read_nccl_tests(folder / name)
    ranks = baseline.ranks or RANKS_BY_HAND[name]
    rows, digits = baseline.rows.to_dicts(), printed(folder / name)
    assert len(rows) == len(digits) > 0
    for row, (size, time, algbw, busbw) in zip(rows, digits, strict=True):
        assert (row["size_bytes"], row["time_us"]) == (int(size), float(time))
        assert row["algbw_gbps"] == float(algbw)
        assert agrees(row["size_bytes"], time, 1, algbw), row
        if ranks == 1:
            assert row["busbw_gbps"] is None
            continue
        assert row["busbw_gbps"] == float(busbw)
        for op in baseline.candidates:
            factor = bus_factor(op, ranks)
            assert factor is not None
            assert agrees(row["size_bytes"], time, factor, busbw), row


def test_the_comparison_of_digits_can_fail() -> None:
    assert agrees(8589934592, "31308", 1.75, "480.14")
    assert not agrees(8589934592, "31308", 1.75, "480.17")
    assert not agrees(8589934592, "31308", 0.875, "480.14")
    assert not agrees(8589934592, "31310", 1.75, "480.14")


@pytest.mark.parametrize("twin", TWINS)
def test_text_and_json_of_one_run_are_equal(folder: Path, twin: str) -> None:
    text, structured = (read_nccl_tests(folder / f"{twin}.{end}") for end in ("txt", "json"))

    def facts(baseline: Baseline) -> tuple[Any, ...]:
        return (
            baseline.op, baseline.candidates, baseline.ranks, baseline.nodes, baseline.gpus,
            baseline.nccl_version, baseline.complete, baseline.dropped,
        )  # fmt: skip

    assert facts(text) == facts(structured)
    exact = ["size_bytes", "count", "dtype", "redop", "root", "in_place", "wrong"]
    assert text.rows.select(exact).equals(structured.rows.select(exact))
    digits = printed(folder / f"{twin}.txt")
    for row, (_, *rates) in zip(structured.rows.to_dicts(), digits, strict=True):
        for column, number in zip(("time_us", "algbw_gbps", "busbw_gbps"), rates, strict=True):
            low, high = bounds(number)
            if row[column] is None:
                assert structured.ranks == 1
            else:
                assert low <= Decimal(repr(row[column])) <= high


def test_versions_and_gpus_are_those_printed(folder: Path) -> None:
    new = read_nccl_tests(folder / "v2.17.6_gb200_nvl72.txt")
    assert (new.tool_version, new.nccl_version, new.gpus) == ("2.17.6", "2.28.3", ("NVIDIA GB200",))
    old = read_nccl_tests(folder / "v2.0_v100x256_allreduce_c0.txt")
    assert (old.tool_version, old.nccl_version) == (None, None)
    assert old.gpus == ("Tesla V100-SXM3-32GB",)


def test_what_was_not_checked_has_no_number_of_wrong_elements(folder: Path) -> None:
    checked = read_nccl_tests(folder / "v2.17.6_h20_alltoall.txt").rows
    assert checked["wrong"].to_list() == [0, None] * 3
    for name in ("v2.0_v100x256_allreduce_c0.txt", "v2.10_h20x16_allreduce_error.txt"):
        rows = read_nccl_tests(folder / name).rows
        assert rows["wrong"].null_count() == rows.height


def test_single_rank_processes_mixed_together_are_refused(folder: Path) -> None:
    with pytest.raises(SourceError) as refusal:
        read_nccl_tests(folder / REFUSED)
    message = str(refusal.value)
    assert message.startswith(f"{REFUSED}: the output of 2 processes of one rank each")
    assert "without MPI" in message
    assert "MPI=1" in message
    assert "node0" not in message


@pytest.mark.parametrize("name", FILES)
def test_no_host_argument_or_environment_is_kept(folder: Path, name: str) -> None:
    kept = repr(read_nccl_tests(folder / name))
    assert "NCCL_DEBUG" not in kept
    assert "/home/user" not in kept
    assert not re.search(r"\bnode-?\d", kept.replace(name, ""))


@pytest.mark.parametrize("name", [f"{twin}.json" for twin in TWINS])
def test_json_cut_anywhere_gives_its_whole_rows_or_is_refused(
    folder: Path, tmp_path: Path, name: str
) -> None:
    whole = (folder / name).read_bytes()
    rows = read_nccl_tests(folder / name).rows
    path = tmp_path / name
    read = 0
    for end in range(0, len(whole), 7):
        path.write_bytes(whole[:end])
        try:
            baseline = read_nccl_tests(path)
        except SourceError as refusal:
            assert "NCCL_DEBUG" not in str(refusal)  # noqa: PT017
            continue
        read += 1
        assert not baseline.complete
        assert baseline.rows.equals(rows.head(baseline.rows.height))
    assert read
