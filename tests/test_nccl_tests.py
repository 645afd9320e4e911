"""Output of nccl-tests: every format, launcher and damage that is known of, in small."""

import json
import math
from pathlib import Path
from typing import Any

import pytest

from traceq.errors import SourceError
from traceq.ingest.nccl_tests import ROWS_SCHEMA, Baseline, is_nccl_tests, read_nccl_tests
from traceq.model.collectives import Op, bus_factor

CANARY = "hunter2-canary"
MIB = 1 << 20
FOOTER = "# Out of bounds values : 0 OK\n# Avg bus bandwidth    : 12.3 \n#\n"
WIDTHS = {"float": 4, "bfloat16": 2, "half": 2, "double": 8, "int8": 1, "f8e4m3": 1}


def devices(n: int, *, per_host: int = 8, groups: int = 1, gpu: str = "NVIDIA H100") -> str:
    lines = [
        f"#  Rank {rank:2} Group {rank % groups:2} Pid {900 + rank} on {CANARY}{rank // per_host} "
        f"device {rank % per_host:2} [0000:{rank:02x}:00] {gpu}\n"
        for rank in range(n)
    ]
    return "# Using devices\n" + "".join(lines) + "#\n"


def header(columns: str = "redop root", last: str = "#wrong", *, time: str = "time") -> str:
    half = f" {time} algbw busbw {last}"
    return (
        f"#         out-of-place        in-place\n#  size  count  type  {columns}{half}{half}\n"
        "#  (B)  (elements)     (us)  (GB/s)  (GB/s)     (us)  (GB/s)  (GB/s)\n"
    )


def half(size: int, time: float, factor: float, wrong: str = "0") -> str:
    rate = size / time / 1e3
    return f"  {time:7.2f}  {rate:6.2f}  {rate * factor:6.2f}  {wrong:>5}"


def line(
    op: Op, n: int, size: int, time: float, preamble: str, *, dtype: str = "float", wrong: str = "0"
) -> str:
    """One line of results, with the numbers that such an operation would have."""
    per_rank = op not in {Op.ALL_REDUCE, Op.BROADCAST, Op.REDUCE, Op.SEND_RECV}
    count = size // WIDTHS[dtype] // (n if per_rank else 1)
    factor = bus_factor(op, n) or 0
    halves = half(size, time, factor, wrong) + half(size, time * 1.25, factor, wrong)
    return f"{size:12}  {count:12}  {dtype:>8}  {preamble}{halves}\n"


def all_reduce(*sizes: int, n: int = 4) -> str:
    return "".join(line(Op.ALL_REDUCE, n, size, 9 + size / 7e4, "sum  -1") for size in sizes)


def plain(n: int = 4, *sizes: int) -> str:
    return devices(n) + header() + all_reduce(*(sizes or (MIB, 8 * MIB)), n=n) + FOOTER


@pytest.fixture
def read(tmp_path: Path) -> Any:
    def reader(text: str | bytes, op: Op | None = None, name: str = "run.txt") -> Baseline:
        path = tmp_path / name
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return read_nccl_tests(path, op)

    return reader


def refusal(read: Any, text: str | bytes, op: Op | None = None) -> str:
    with pytest.raises(SourceError) as error:
        read(text, op)
    message = str(error.value)
    assert message.startswith("run.txt: ")
    assert CANARY not in message
    assert "\n" not in message
    return message


# What every output has


def test_a_table_becomes_one_row_per_size_and_half(read: Any) -> None:
    baseline = read(plain(4, MIB, 8 * MIB))
    assert baseline.rows.schema == ROWS_SCHEMA
    first, second, third, _ = baseline.rows.to_dicts()
    assert first == {
        "size_bytes": 1048576, "count": 262144, "dtype": "float", "redop": "sum", "root": -1,
        "in_place": False, "time_us": 23.98, "algbw_gbps": 43.73, "busbw_gbps": 65.59, "wrong": 0,
    }  # fmt: skip
    assert (second["size_bytes"], second["in_place"], second["time_us"]) == (MIB, True, 29.97)
    assert (third["size_bytes"], third["in_place"]) == (8 * MIB, False)
    assert (baseline.file_name, baseline.op, baseline.candidates) == (
        "run.txt", Op.ALL_REDUCE, (Op.ALL_REDUCE,),
    )  # fmt: skip
    assert (baseline.ranks, baseline.nodes, baseline.gpus) == (4, 1, ("NVIDIA H100",))
    assert (baseline.complete, baseline.dropped) == (True, 0)


def test_hosts_and_gpu_models_are_counted_but_hosts_are_not_kept(read: Any) -> None:
    mixed = devices(6, per_host=2).replace("01:00] NVIDIA H100", "01:00] AMD Instinct MI300X")
    baseline = read(mixed + header() + all_reduce(MIB, n=6) + FOOTER)
    assert (baseline.ranks, baseline.nodes) == (6, 3)
    assert baseline.gpus == ("NVIDIA H100", "AMD Instinct MI300X")
    assert CANARY not in repr(baseline)
    assert CANARY not in repr(baseline.rows.to_dicts())


def test_groups_of_ranks_are_communicators_of_their_own(read: Any) -> None:
    split = devices(8, per_host=4, groups=2) + header() + all_reduce(MIB, n=4) + FOOTER
    assert (read(split).ranks, read(split).op) == (4, Op.ALL_REDUCE)


def test_a_list_of_devices_with_a_gap_leaves_the_ranks_unknown(read: Any) -> None:
    without = "".join(x for x in plain().splitlines(keepends=True) if "Rank  2" not in x)
    baseline = read(without)
    assert (baseline.ranks, baseline.nodes, baseline.op) == (None, None, Op.ALL_REDUCE)


def test_a_list_of_devices_that_the_bandwidths_contradict_is_not_believed(read: Any) -> None:
    baseline = read(devices(2) + header() + all_reduce(MIB, 4 * MIB, n=8) + FOOTER)
    assert (baseline.ranks, baseline.candidates) == (None, (Op.ALL_REDUCE,))
    stated = "# Collective test starting: all_reduce_perf\n"
    assert read(stated + devices(2) + header() + all_reduce(MIB, n=8) + FOOTER).ranks is None


def test_versions_are_those_that_the_output_names(read: Any) -> None:
    new = read("# nccl-tests version 2.18.0 nccl-headers=22910 nccl-library=22907\n" + plain())
    assert (new.tool_version, new.nccl_version) == ("2.18.0", "2.29.7")
    old = read("NCCL version 2.9.6+cuda11.2\n" + plain())
    assert (old.tool_version, old.nccl_version) == (None, "2.9.6")
    amd = read("# rccl-tests: Version develop:1a2b3c\nRCCL version : 2.27.7-HEAD:9\n" + plain())
    assert (amd.tool_version, amd.nccl_version) == ("develop:1a2b3c", "2.27.7")
    assert read(plain()).tool_version is None


# Columns of every version


def test_an_old_all_reduce_has_no_root_and_an_error_instead_of_wrong(read: Any) -> None:
    text = (
        "#   Rank  0 Pid  7 on hosta device  0 [0x18] Tesla V100\n"
        "#   Rank  1 Pid  8 on hosta device  1 [0x2a] Tesla V100\n"
        "#   Rank  2 Pid  9 on hostb device  0 [0x18] Tesla V100\n"
        + header("redop", "error")
        + line(Op.ALL_REDUCE, 3, 3 * MIB, 80.0, "sum", wrong="4e-07")
        + FOOTER
    )
    baseline = read(text)
    assert (baseline.ranks, baseline.nodes, baseline.op) == (3, 2, Op.ALL_REDUCE)
    assert baseline.rows["root"].to_list() == [None, None]
    assert baseline.rows["wrong"].to_list() == [None, None]


@pytest.mark.parametrize(
    ("op", "columns", "preamble", "redop", "root"),
    [
        (Op.BROADCAST, "root", "3", None, 3),
        (Op.REDUCE, "redop root", "max 2", "max", 2),
        (Op.BROADCAST, "redop root", "none 1", "none", 1),
    ],
)
def test_redop_and_root_are_told_apart(
    read: Any, op: Op, columns: str, preamble: str, redop: str | None, root: int
) -> None:
    baseline = read(devices(4) + header(columns) + line(op, 4, MIB, 50.0, preamble) + FOOTER)
    assert baseline.candidates == (op,)
    assert baseline.rows["redop"].to_list() == [redop] * 2
    assert baseline.rows["root"].to_list() == [root] * 2


def test_an_old_gather_prints_nothing_for_redop(read: Any) -> None:
    baseline = read(devices(4) + header() + line(Op.GATHER, 4, MIB, 50.0, "  2") + FOOTER)
    assert baseline.candidates == (Op.GATHER, Op.SCATTER)
    assert baseline.rows["root"].to_list() == [2, 2]
    assert baseline.rows["redop"].to_list() == [None, None]


def test_columns_are_counted_where_the_header_is_missing(read: Any) -> None:
    assert read(devices(4) + all_reduce(MIB)).rows.height == 2
    old = devices(4) + line(Op.ALL_GATHER, 4, MIB, 50.0, "") * 2
    cut = " ".join(all_reduce(MIB).split()[:12]) + "\n"
    assert (read(old + cut).rows.height, read(old + cut).dropped) == (4, 1)


def test_a_line_that_lost_its_last_column_is_not_taken_for_an_older_one(read: Any) -> None:
    short = all_reduce(8 * MIB).rstrip()[:-1].rstrip()
    assert len(short.split()) == 12
    baseline = read(devices(4) + header() + all_reduce(MIB) + short)
    assert (baseline.rows.height, baseline.dropped, baseline.complete) == (2, 1, False)


def test_timestamps_are_no_columns(read: Any) -> None:
    stamped = all_reduce(MIB).rstrip() + "  2026-02-03 04:05:06\n"
    baseline = read(devices(4) + header() + stamped + FOOTER)
    assert (baseline.rows.height, baseline.dropped) == (2, 0)
    assert baseline.rows["busbw_gbps"][0] == 65.59


def test_columns_per_iteration_are_passed_over(read: Any) -> None:
    wide = "  i_min i_max i_p99 i_cv%"
    columns = f"#  size count type redop root {('time algbw busbw #wrong' + wide + ' ') * 2}\n"
    extra = "  20.10  21.20  21.10  0.31"
    halves = half(MIB, 20.5, 1.5) + extra + half(MIB, 21.0, 1.5) + extra
    row = f"{MIB} {MIB // 4} float sum -1 {halves}\n"
    for text in (devices(4) + columns + row + FOOTER, devices(4) + row + FOOTER):
        baseline = read(text)
        assert baseline.rows["time_us"].to_list() == [20.5, 21.0]
        assert baseline.rows["busbw_gbps"].to_list() == [76.73, 74.90]
        assert baseline.candidates == (Op.ALL_REDUCE,)


def test_times_of_the_cpu_are_times(read: Any) -> None:
    baseline = read(devices(4) + header(time="cputime") + all_reduce(MIB) + FOOTER)
    assert baseline.rows["time_us"][0] == 23.98


def test_version_1_is_refused_because_of_its_milliseconds(read: Any) -> None:
    text = (
        "#  bytes   N  type  op  root   time  algbw  busbw  res   time  algbw  busbw  res\n"
        "  8388608  2097152 float sum -1   0.123 68.2 102.3 0e+00   0.125 67.1 100.7 0e+00\n"
    )
    message = refusal(read, text)
    assert "milliseconds" in message
    assert "nccl-tests 2" in message


def test_short_forms_of_numbers_are_read(read: Any) -> None:
    row = f"{1 << 40} {1 << 38} float sum -1  1.2e+06  9.2e+02  1374.4  1.2e+07 1.2e+06 916 1374 0"
    first, second = read(devices(4) + header() + row + "\n" + FOOTER).rows.to_dicts()
    assert (first["time_us"], first["algbw_gbps"], first["wrong"]) == (1.2e6, 920.0, 12_000_000)
    assert (second["busbw_gbps"], second["wrong"]) == (1374.0, 0)


def test_what_is_not_finite_is_no_bus_bandwidth(read: Any) -> None:
    row = "0 0 float sum -1  0.00 -nan nan N/A  0.00 inf inf 0\n"
    baseline = read(devices(4) + header() + row + all_reduce(MIB) + FOOTER)
    first, second, *_ = baseline.rows.to_dicts()
    assert math.isnan(first["algbw_gbps"])
    assert math.isinf(second["algbw_gbps"])
    assert (first["busbw_gbps"], second["busbw_gbps"]) == (None, None)
    assert (first["wrong"], second["wrong"]) == (None, 0)
    assert baseline.rows["busbw_gbps"].max() == 65.59
    assert baseline.op is Op.ALL_REDUCE


def test_rows_of_size_zero_are_kept(read: Any) -> None:
    zero = "0 0 float none -1  3.10 0.00 0.00 0  3.20 0.00 0.00 0\n"
    rows = zero + line(Op.ALL_TO_ALL, 4, MIB, 50.0, "none -1")
    baseline = read(devices(4) + header() + rows + FOOTER)
    assert baseline.rows["size_bytes"].to_list() == [0, 0, MIB, MIB]
    assert baseline.candidates == (Op.ALL_GATHER, Op.ALL_TO_ALL)


@pytest.mark.parametrize(("op", "preamble"), [(Op.ALL_GATHER, ""), (Op.REDUCE_SCATTER, "sum")])
def test_the_algbw_of_2_0_is_brought_to_the_convention_of_now(
    read: Any, op: Op, preamble: str
) -> None:
    size, time = 64 * MIB, 4000.0
    share = size / time / 1e3 * 3 / 4
    halves = f" {time} {share:.2f} {share:.2f} 0e+00" * 2
    row = f"{size} {size // 16} float {preamble} {halves}\n"
    columns = "redop" if preamble else ""
    baseline = read(devices(4) + header(columns, "error") + row + FOOTER)
    assert baseline.candidates == (op,)
    assert baseline.rows["algbw_gbps"][0] == pytest.approx(size / time / 1e3, rel=1e-12)
    assert baseline.rows["busbw_gbps"][0] == float(f"{share:.2f}")


def test_the_algbw_of_now_stays_as_it_is_printed(read: Any) -> None:
    text = "# Collective test starting: all_gather_perf\n" + devices(4) + header()
    baseline = read(text + line(Op.ALL_GATHER, 4, MIB, 3.0, "none -1") + FOOTER)
    assert baseline.rows["algbw_gbps"].to_list() == [349.53, 279.62]
    # So small that both columns print the same digits.
    equal = f"{4096} {256} float none -1  400.0 0.01 0.01 0  410.0 0.01 0.01 0\n"
    assert read(text + equal + FOOTER).rows["algbw_gbps"].to_list() == [0.01, 0.01]


# Launchers and damage


@pytest.mark.parametrize(
    "prefix",
    [
        "[0] ", "[1,0]<stdout>:", "[1,0]<stdout>: ", "[prterun-login-77@1,0]<stdout>: ", " 0: ",
        "12: ", "(Worker pid=331) ", "(Worker pid=331, ip=10.0.0.9) ",
        "\x1b[36m(Worker pid=331)\x1b[0m ", "gpu-node.7: ",
    ],
)  # fmt: skip
@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_prefixes_of_launchers_are_stripped(read: Any, prefix: str, newline: str) -> None:
    lines = plain().splitlines()
    prefixed = read(newline.join(prefix + each for each in lines))
    bare = read(plain())
    assert prefixed.rows.equals(bare.rows)
    assert (prefixed.ranks, prefixed.op, prefixed.complete) == (4, Op.ALL_REDUCE, True)
    assert prefixed.dropped == 0


def test_prefixes_inside_of_lines_are_stripped(read: Any) -> None:
    inside = all_reduce(MIB).replace("sum  -1", "sum  -1[0]").replace("      0  ", "      0[0]  ")
    assert inside.count("[0]") == 2
    assert read(devices(4) + header() + inside + FOOTER).rows.equals(read(plain(4, MIB)).rows)


def test_headers_may_have_lost_their_hash(read: Any) -> None:
    baseline = read(plain().replace("# ", "  ").replace("#\n", "\n"))
    assert baseline.rows.equals(read(plain()).rows)
    assert (baseline.ranks, baseline.complete) == (4, True)


def test_a_row_cut_by_a_log_line_is_dropped_and_counted(read: Any) -> None:
    whole = all_reduce(8 * MIB)
    log = f"{CANARY}:55:56 [0] NCCL INFO 8388608 Bytes -> Algo 1 proto 2 time 43.1\n"
    cut = whole[:50] + log + whole[50:]
    baseline = read(devices(4) + header() + all_reduce(MIB) + cut + all_reduce(16 * MIB) + FOOTER)
    assert baseline.rows["size_bytes"].to_list() == [MIB, MIB, 16 * MIB, 16 * MIB]
    assert (baseline.dropped, baseline.complete) == (1, True)
    assert CANARY not in repr(baseline)


def test_lines_of_logs_are_no_rows(read: Any) -> None:
    noise = "17 4 NCCL INFO Channel 00\n128 12 warmups done\n99999999999999999999999 1 float sum\n"
    assert read(noise + plain()).rows.equals(read(plain()).rows)


def test_text_cut_anywhere_gives_whole_rows_or_is_refused(tmp_path: Path) -> None:
    text = plain()
    path = tmp_path / "cut.txt"
    path.write_text(text)
    rows = read_nccl_tests(path).rows
    start = text.index(str(MIB))
    for end in range(start, len(text) - len(FOOTER)):
        path.write_text(text[:end])
        try:
            baseline = read_nccl_tests(path)
        except SourceError:
            assert end < text.index(str(8 * MIB))
            continue
        assert not baseline.complete
        assert baseline.rows.equals(rows.head(baseline.rows.height))
        assert baseline.rows.height % 2 == 0


def test_one_rank_has_no_bus_bandwidth(read: Any) -> None:
    row = f"{MIB} {MIB // 4} float none -1  4.00 262.14 0.00 0  0.05 20971.52 0.00 0\n"
    listed = read(devices(1) + header() + row + FOOTER)
    assert listed.ranks == 1
    assert listed.candidates == (Op.ALL_GATHER, Op.ALL_TO_ALL)
    assert listed.rows["busbw_gbps"].to_list() == [None, None]
    assert listed.rows["algbw_gbps"].to_list() == [262.14, 20971.52]
    # No other number of ranks has a busbw of 0 beside such an algbw.
    assert read(header() + row).ranks == 1
    tiny = "8 2 float sum -1  40.00 0.00 0.00 0  40.00 0.00 0.00 0\n"
    assert read(header() + tiny).ranks is None


def test_processes_of_one_rank_mixed_together_are_refused(read: Any) -> None:
    both = "".join(each * 2 for each in plain(1).splitlines(keepends=True))
    message = refusal(read, both)
    assert "2 processes of one rank each" in message
    assert "without MPI" in message
    assert "MPI=1" in message


def test_several_tests_in_one_file_are_refused(read: Any) -> None:
    assert "the output of 2 tests" in refusal(read, plain() + plain())
    starts = "# Collective test starting: all_reduce_perf\n" + header() + all_reduce(MIB)
    assert "the output of 3 tests" in refusal(read, starts * 3)


@pytest.mark.parametrize(
    "text", ["", "hello\n", devices(4) + header() + FOOTER, "{}", '{"results": []}', "[{}]"]
)
def test_nothing_measured_is_refused(read: Any, text: str) -> None:
    assert "no row of nccl-tests results" in refusal(read, text)


def test_what_was_cut_is_told_when_nothing_is_left(read: Any) -> None:
    assert "(1 were cut)" in refusal(read, header() + all_reduce(MIB)[:60])


def test_a_file_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match=r"^gone\.txt: cannot be read: No such file"):
        read_nccl_tests(tmp_path / "gone.txt")
    with pytest.raises(SourceError, match="not a regular file"):
        read_nccl_tests(tmp_path)


# Which operation it was


@pytest.mark.parametrize(
    ("test", "op"),
    [
        ("all_reduce_perf", Op.ALL_REDUCE),
        ("all_gather_perf", Op.ALL_GATHER),
        ("reduce_scatter_perf", Op.REDUCE_SCATTER),
        ("alltoall_perf", Op.ALL_TO_ALL),
        ("alltoallv_perf", Op.ALL_TO_ALL),
        ("broadcast_perf", Op.BROADCAST),
        ("reduce_perf", Op.REDUCE),
        ("gather_perf", Op.GATHER),
        ("scatter_perf", Op.SCATTER),
        ("sendrecv_perf", Op.SEND_RECV),
        ("nccl_all_reduce_perf_mpi", Op.ALL_REDUCE),
    ],
)
def test_the_operation_is_the_one_that_is_stated(read: Any, test: str, op: Op) -> None:
    start = f"# Collective test starting: {test}\n"
    row = line(op, 2, MIB, 50.0, "sum -1")
    baseline = read(start + devices(2) + header() + row + FOOTER)
    assert (baseline.op, baseline.candidates, baseline.ranks) == (op, (op,), 2)
    assert read(report(test)).op is op


def test_a_hypercube_is_refused(read: Any) -> None:
    start = "# Collective test starting: hypercube_perf\n"
    assert "hypercube" in refusal(read, start + plain())
    assert "hypercube" in refusal(read, report(f"/home/{CANARY}/hypercube_perf"))


@pytest.mark.parametrize(
    ("op", "n", "preamble", "candidates"),
    [
        (Op.ALL_REDUCE, 2, "sum -1", (Op.ALL_REDUCE, Op.SEND_RECV)),
        (Op.ALL_REDUCE, 3, "sum -1", (Op.ALL_REDUCE,)),
        (Op.SEND_RECV, 3, "sum -1", (Op.SEND_RECV,)),
        (Op.REDUCE_SCATTER, 3, "max -1", (Op.REDUCE_SCATTER,)),
        (Op.ALL_GATHER, 3, "none -1", (Op.ALL_GATHER, Op.ALL_TO_ALL)),
        (Op.BROADCAST, 3, "none 0", (Op.BROADCAST,)),
        (Op.REDUCE, 3, "sum 0", (Op.REDUCE,)),
        (Op.SCATTER, 3, "none 0", (Op.GATHER, Op.SCATTER)),
    ],
)
@pytest.mark.parametrize("dtype", WIDTHS)
@pytest.mark.parametrize("listed", [True, False])
def test_an_operation_that_is_not_stated_is_found_by_elimination(
    read: Any, op: Op, n: int, preamble: str, candidates: tuple[Op, ...], dtype: str, listed: bool
) -> None:
    rows = "".join(line(op, n, s, s / 7e4, preamble, dtype=dtype) for s in (3 * MIB, 48 * MIB))
    text = (devices(n) if listed else "") + header() + rows + FOOTER
    baseline = read(text)
    if op is Op.SEND_RECV and not listed:  # two ranks would have such bandwidths in all_reduce too
        candidates = (Op.ALL_REDUCE, Op.SEND_RECV)
    assert baseline.candidates == candidates
    assert baseline.op == (candidates[0] if len(candidates) == 1 else None)
    assert baseline.ranks == (n if listed else None)
    for each in candidates:
        assert read(text, each).op is each


def test_numbers_that_no_operation_has_leave_none(read: Any) -> None:
    row = f"{MIB} {MIB // 4} float sum -1  50.00 20.97 99.00 0  50.00 20.97 99.00 0\n"
    baseline = read(devices(4) + header() + row + FOOTER)
    assert (baseline.op, baseline.candidates, baseline.ranks) == (None, (), None)


def test_another_operation_than_the_stated_one_is_refused(read: Any) -> None:
    stated = "# Collective test starting: all_reduce_perf\n" + plain()
    assert read(stated, Op.ALL_REDUCE).op is Op.ALL_REDUCE
    message = refusal(read, stated, Op.ALL_GATHER)
    assert "states that it is of all_reduce, not of all_gather" in message
    assert "its rows fit all_reduce, not of all_gather" in refusal(read, plain(), Op.ALL_GATHER)


# JSON


def result(size: int, **more: Any) -> dict[str, Any]:
    rate = size / 40.0 / 1e3
    each = {"time": 40.0, "alg_bw": rate, "bus_bw": rate * 1.5, "nwrong": 0.0}
    return {
        "size": size, "count": size // 4, "type": "float", "redop": "sum", "root": "    -1",
        "out_of_place": each, "in_place": each | {"nwrong": None}, "actual_iterations": 20,
        "experiment_name": "", **more,
    }  # fmt: skip


def report(
    test: str = "all_reduce_perf", results: list[dict[str, Any]] | None = None, *,
    n: int = 4, typo: bool = False, **config: Any,
) -> str:  # fmt: skip
    listed = [
        {"rank": rank, "group": 0, "pid": 5, "hostname": CANARY, "device": rank,
         "device_hex": "0000:18:00", "device_info": "NVIDIA H100"}
        for rank in range(n)
    ]  # fmt: skip
    bandwidth = "bandwidith" if typo else "bandwidth"
    document = {
        "version": 3, "start_time": "2026-01-02 03:04:05",
        "args": [test, "-J", f"/home/{CANARY}/x.json"],
        "env": [f"AWS_SECRET={CANARY}", 'PS1="[\\u]{" inf nan', f"TOKEN={CANARY}"],
        "nccl_version": 22803,
        "config": {"nthreads": 1, "ngpus": 1, "blocking_collectives": "false", "devices": listed}
        | config,
        "results": [result(MIB), result(8 * MIB)] if results is None else results,
        "out_of_bounds": {"count": 0, "okay": "true"},
        f"average_bus_{bandwidth}": {bandwidth: 39.3, "okay": "unchecked"},
        "errors": [""], "end_time": "2026-01-02 03:04:06",
    }  # fmt: skip
    return json.dumps(document).replace("/", "\\/")


@pytest.mark.parametrize("typo", [True, False])
def test_a_report_in_json_says_what_the_text_says(read: Any, typo: bool) -> None:
    baseline = read(report(typo=typo))
    assert baseline.rows.schema == ROWS_SCHEMA
    assert baseline.rows.row(1, named=True) == {
        "size_bytes": MIB, "count": MIB // 4, "dtype": "float", "redop": "sum", "root": -1,
        "in_place": True, "time_us": 40.0, "algbw_gbps": MIB / 4e4, "busbw_gbps": MIB / 4e4 * 1.5,
        "wrong": None,
    }  # fmt: skip
    assert baseline.rows["wrong"].to_list() == [0, None, 0, None]
    assert (baseline.op, baseline.ranks, baseline.nodes) == (Op.ALL_REDUCE, 4, 1)
    assert (baseline.nccl_version, baseline.complete, baseline.dropped) == ("2.28.3", True, 0)


def test_environment_arguments_and_hosts_are_never_kept_or_echoed(read: Any) -> None:
    text = report()
    assert text.count(CANARY) == 7
    baseline = read(text)
    assert CANARY not in repr(baseline)
    assert CANARY not in repr(baseline.rows.to_dicts())
    spoilt = [
        text.replace('"results"', f'"results": {CANARY}, "results"'),
        text.replace('"count": 262144', f'"count": ["{CANARY}"]'),
        text.replace("[{", "[{]", 1),
        text.replace('"type": "float"', '"type": 7'),
        text[: text.index('"nccl_version"')],
        report(results=[]),
    ]
    for each in spoilt:
        with pytest.raises(SourceError) as error:
            read(each)
        chain: BaseException | None = error.value
        while chain is not None:
            assert CANARY not in f"{chain!r} {vars(chain)}"
            chain = chain.__cause__ or chain.__context__


def test_several_gpus_for_each_process_leave_the_ranks_unknown(read: Any) -> None:
    for config in ({"ngpus": 4}, {"nthreads": 2}):
        baseline = read(report(n=2, **config))
        assert (baseline.ranks, baseline.nodes) == (None, 1)
        assert (baseline.op, baseline.gpus) == (Op.ALL_REDUCE, ("NVIDIA H100",))


def test_numbers_that_json_does_not_know_are_read(read: Any) -> None:
    text = report(results=[result(0), result(MIB)])
    text = text.replace('"alg_bw": 0.0, "bus_bw": 0.0', '"alg_bw": inf, "bus_bw": "nan"', 1)
    text = text.replace('"alg_bw": 0.0, "bus_bw": 0.0', '"alg_bw": -nan, "bus_bw": -inf', 1)
    first, second, *_ = read(text).rows.to_dicts()
    assert math.isinf(first["algbw_gbps"])
    assert math.isnan(second["algbw_gbps"])
    assert (first["busbw_gbps"], second["busbw_gbps"]) == (None, None)
    assert CANARY not in repr(read(text))


def test_times_of_the_cpu_in_json_are_times(read: Any) -> None:
    assert read(report().replace('"time"', '"cpu_time"')).rows["time_us"].to_list() == [40.0] * 4


def test_a_half_that_was_not_measured_gives_no_row(read: Any) -> None:
    baseline = read(report(results=[result(MIB, out_of_place=None)]))
    assert baseline.rows["in_place"].to_list() == [True]
    assert (baseline.complete, baseline.dropped) == (True, 0)


def test_json_cut_by_a_crash_gives_its_whole_rows(read: Any) -> None:
    text = report()
    for mark, kept, dropped in (
        ('"out_of_bounds"', 4, 0),
        (f'"size": {8 * MIB}', 2, 1),
        ('"in_place"', 0, 1),
        ('"actual_iterations"', 2, 0),
        ('"errors"', 4, 0),
    ):
        cut = text[: text.index(mark) + len(mark)]
        if not kept:
            assert "(1 were cut)" in refusal(read, cut)
            continue
        baseline = read(cut)
        assert (baseline.rows.height, baseline.dropped, baseline.complete) == (kept, dropped, False)
    half_way = text[: text.rindex('"in_place"') + 12]
    assert (read(half_way).rows.height, read(half_way).dropped) == (2, 1)


def record(size: int, in_place: int, **more: Any) -> dict[str, Any]:
    rate = size / 40.0 / 1e3
    return {
        "#wrong": "0", "algBw": rate, "busBw": rate * 1.5, "gpusPerRank": 1, "inPlace": in_place,
        "name": "AllReduce", "nodes": 2, "ranks": 4, "ranksPerNode": 2, "redop": "sum",
        "size": size, "time": 40.0, "type": "float", **more,
    }  # fmt: skip


@pytest.mark.parametrize("form", ["lines", "array", "one line"])
def test_records_of_rccl_tests_are_read(read: Any, form: str) -> None:
    records = [json.dumps(record(size, part)) for size in (MIB, 8 * MIB) for part in (0, 1)]
    text = {
        "lines": "\n".join(records),
        "array": "[\n" + ",\n".join(records) + "\n]\n",
        "one line": "[" + ",".join(records) + "]",
    }[form]
    baseline = read(text)
    assert baseline.rows["in_place"].to_list() == [False, True] * 2
    assert baseline.rows["count"].to_list() == [MIB // 4] * 2 + [2 * MIB] * 2
    assert baseline.rows["wrong"].to_list() == [0] * 4
    assert (baseline.op, baseline.ranks, baseline.nodes) == (Op.ALL_REDUCE, 4, 2)
    assert (baseline.complete, baseline.dropped) == (True, 0)


def test_damaged_records_of_rccl_tests_are_counted(read: Any) -> None:
    good, other = json.dumps(record(MIB, 0)), json.dumps(record(MIB, 1, wrong="N/A"))
    bare = other.replace('"#wrong": "0"', '"#wrong": N/A')
    text = f'{good}\n{{"algBw":1.0,"busBw":,"size":8}}\n{bare}\n{good[: len(good) // 2]}'
    baseline = read(text)
    assert (baseline.rows.height, baseline.dropped, baseline.complete) == (2, 2, False)
    assert baseline.rows["wrong"].to_list() == [0, None]


def test_records_of_rccl_tests_say_no_ranks_where_a_rank_has_several_gpus(read: Any) -> None:
    assert read(json.dumps(record(MIB, 0, gpusPerRank=2))).ranks is None
    two = json.dumps(record(MIB, 0)) + json.dumps(record(MIB, 0, name="AllGather"))
    assert "2 tests" in refusal(read, two)


def test_the_form_of_pull_request_318_is_read_behind_what_was_printed(read: Any) -> None:
    rate = 32 * MIB / 1500.0 / 1e3
    pair = {
        "count": MIB, "type": "float", "redop": "none", "root": "-1", "oop_time": 1500.0,
        "oop_algbw": rate, "oop_busbw": rate * 7 / 8, "oop_error": 0.0, "ip_time": 1500.0,
        "ip_algbw": rate, "ip_busbw": rate * 7 / 8, "ip_error": "N/A",
    }  # fmt: skip
    rates = ("oop_algbw", "oop_busbw", "ip_algbw", "ip_busbw")
    nothing = {"count": 0} | dict.fromkeys(rates, 0.0)
    benchmark = [{str(32 * MIB): pair, "0": pair | nothing}]
    document = {"identifier": "nccl-tests structured output", "version": "2.26.6"}
    text = json.dumps(document | {"benchmark": benchmark})
    logs = f"[{CANARY}][[3,1],0] error\nNCCL version 2.26.6\n"
    baseline = read(logs + text + "\ndone\n")
    assert baseline.rows["size_bytes"].to_list() == [32 * MIB] * 2 + [0] * 2
    assert baseline.rows["wrong"].to_list() == [0, None] * 2
    assert baseline.rows["busbw_gbps"][0] == pytest.approx(19.573, abs=1e-3)
    assert (baseline.ranks, baseline.nccl_version, baseline.complete) == (None, "2.26.6", True)
    assert baseline.candidates == (Op.ALL_GATHER, Op.ALL_TO_ALL)
    cut = read(logs + text[:-30])
    assert (cut.rows.height, cut.dropped, cut.complete) == (2, 1, False)


# Sniffing


@pytest.mark.parametrize(
    "text",
    [
        plain(), header() + all_reduce(MIB), "[1,0]<stdout>:" + header().splitlines()[1],
        "# nThread 1 nGpus 1 minBytes 8\n", "# Collective test starting: x\n", report(),
        report().replace('"version": 3, ', ""), json.dumps(record(MIB, 0)),
        'NCCL version 2.26.6\n{"identifier": "nccl-tests structured output", ',
    ],
)  # fmt: skip
def test_output_of_nccl_tests_is_recognised(tmp_path: Path, text: str) -> None:
    path = tmp_path / "output"
    path.write_text(text)
    assert is_nccl_tests(path)


@pytest.mark.parametrize(
    "content", [b"", b"SQLite format 3\0", b'{"traceEvents": []}', b"\x1f\x8b\x00", b"size count\n"]
)
def test_other_files_are_not_recognised(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "other"
    path.write_bytes(content)
    assert not is_nccl_tests(path)
    assert not is_nccl_tests(tmp_path / "gone")
    assert not is_nccl_tests(tmp_path)
