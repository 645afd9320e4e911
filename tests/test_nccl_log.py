"""NCCL_DEBUG logs give the calls and communicators of each process, of every NCCL since 2.10."""

import gzip
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from traceq.errors import SourceError
from traceq.ingest.nccl_log import CALLS, COMMS, NcclLog, read_nccl_log

HOST = "canary-host.example.org"
PREFIX = f"{HOST}:100:107 [0] NCCL INFO "


def call(
    name: str = "AllReduce", count: int = 1000, datatype: int = 7, root: int = 0, n: int = 8
) -> str:
    return (
        f"{name}: opCount 1a sendbuff 0x7f00 recvbuff 0x7f10 count {count} datatype {datatype} "
        f"op 0 root {root} comm 0x5581 [nranks={n}] stream 0x5590"
    )


def read(tmp_path: Path, *lines: str, end: str = "\n") -> NcclLog:
    path = tmp_path / "nccl.log"
    path.write_bytes("".join(line + end for line in lines).encode("utf-8", "surrogateescape"))
    return read_nccl_log(path)


def only(frame: pl.DataFrame) -> dict[str, Any]:
    assert frame.height == 1
    return frame.row(0, named=True)


def test_a_call_is_read_whole(tmp_path: Path) -> None:
    log = read(tmp_path, PREFIX + call())
    assert only(log.calls) == {
        "pid": 100,
        "thread": 107,
        "op": "all_reduce",
        "payload_bytes": 4000,
        "dtype": "Float",
        "root": None,
        "peer": None,
        "comm": "0x5581",
        "group_size": 8,
        "op_count": 26,
    }
    assert (log.calls.schema, log.comms.schema) == (CALLS, COMMS)
    assert (log.file_name, log.skipped, log.nccl_version, log.comms.height) == (
        "nccl.log", 0, None, 0,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("number", "dtype", "size"),
    [
        (0, "Char", 1),
        (1, "Byte", 1),
        (2, "Int", 4),
        (3, "UInt32", 4),
        (4, "Long", 8),
        (5, "UInt64", 8),
        (6, "Half", 2),
        (7, "Float", 4),
        (8, "Double", 8),
        (9, "BFloat16", 2),
        (10, "Float8_e4m3fn", 1),
        (11, "Float8_e5m2", 1),
    ],
)
def test_every_element_type_has_its_name_and_size(
    tmp_path: Path, number: int, dtype: str, size: int
) -> None:
    row = only(read(tmp_path, PREFIX + call(datatype=number)).calls)
    assert (row["dtype"], row["payload_bytes"]) == (dtype, 1000 * size)


def test_an_unknown_element_type_leaves_the_size_unknown(tmp_path: Path) -> None:
    log = read(tmp_path, PREFIX + call(datatype=12))
    row = only(log.calls)
    assert (row["dtype"], row["payload_bytes"], log.skipped) == (None, None, 0)


@pytest.mark.parametrize(
    ("name", "op", "root", "peer"),
    [
        ("AllReduce", "all_reduce", None, None),
        ("AllGather", "all_gather", None, None),
        ("ReduceScatter", "reduce_scatter", None, None),
        ("AlltoAll", "all_to_all", None, None),
        ("AllToAll", "all_to_all", None, None),
        ("Broadcast", "broadcast", 3, None),
        ("Reduce", "reduce", 3, None),
        ("Gather", "gather", 3, None),
        ("Scatter", "scatter", 3, None),
        ("Send", "send", None, 3),
        ("Recv", "recv", None, 3),
        ("PutSignal", "unknown", None, None),
    ],
)
def test_a_root_is_a_peer_for_send_and_recv_and_nothing_where_there_is_none(
    tmp_path: Path, name: str, op: str, root: int | None, peer: int | None
) -> None:
    row = only(read(tmp_path, PREFIX + call(name, root=3)).calls)
    assert (row["op"], row["root"], row["peer"]) == (op, root, peer)


def test_the_count_of_an_all_gather_stays_that_of_one_rank(tmp_path: Path) -> None:
    assert only(read(tmp_path, PREFIX + call("AllGather")).calls)["payload_bytes"] == 4000


def test_a_call_of_no_bytes_has_size_zero(tmp_path: Path) -> None:
    assert only(read(tmp_path, PREFIX + call(count=0)).calls)["payload_bytes"] == 0


@pytest.mark.parametrize(
    "text",
    [
        call().replace("sendbuff 0x7f00", "sendbuff (nil)"),
        call().replace("recvbuff 0x7f10", "recvbuff (nil)"),
        call().replace(" count", " acc (nil) count"),
        call() + " task 0 globalrank 0",
        call() + "\x1b[0m",
        call().replace(" op 0", " op -7"),
        call().replace("root 0", "peer 0"),
    ],
)
def test_a_call_may_have_null_buffers_and_the_fields_of_rccl(tmp_path: Path, text: str) -> None:
    log = read(tmp_path, PREFIX + text)
    assert (only(log.calls)["payload_bytes"], log.skipped) == (4000, 0)


def test_a_call_without_the_size_of_its_group_leaves_that_unknown(tmp_path: Path) -> None:
    log = read(tmp_path, PREFIX + call().replace(" [nranks=8]", ""))
    assert (only(log.calls)["group_size"], log.skipped) == (None, 0)


@pytest.mark.parametrize(
    "before",
    [
        "[0] ",
        "0: ",
        "[1,0]<stdout>:",
        "[rank0]:",
        "worker-0: ",
        "(RayTrainWorker pid=9, ip=10.0.0.1) ",
        "\x1b[36m(Worker pid=9)\x1b[0m ",
        "[2026-01-02 03:04:05] ",
        "03:04:05.678 ",
        "step 5 loss 0.25",
        " 10%|#  | 1/10\r 20%|## | 2/10",
        "\udcff\udcfe caf\u00e9 ",
    ],
)
def test_what_a_launcher_or_a_clock_puts_before_a_line_is_passed_over(
    tmp_path: Path, before: str
) -> None:
    log = read(tmp_path, before + PREFIX + call())
    row = only(log.calls)
    assert (row["pid"], row["thread"], log.skipped) == (100, 107, 0)


def test_processes_in_one_file_keep_their_own_calls_in_order(tmp_path: Path) -> None:
    other = PREFIX.replace(":100:107 [0]", ":200:207 [1]")
    log = read(
        tmp_path,
        PREFIX + call(count=1),
        other + call(count=2),
        PREFIX + call(count=3),
        other + call(count=4),
    )
    rows = log.calls.select("pid", "thread", "payload_bytes").rows()
    assert rows == [(100, 107, 4), (200, 207, 8), (100, 107, 12), (200, 207, 16)]


def test_lines_that_end_as_windows_writes_them_read_the_same(tmp_path: Path) -> None:
    log = read(tmp_path, PREFIX + call(), PREFIX + init(), end="\r\n")
    assert (log.calls.height, log.comms.height) == (1, 1)


def test_more_calls_than_are_packed_at_once_keep_their_order(tmp_path: Path) -> None:
    log = read(tmp_path, *(PREFIX + call(count=n) for n in range(70_000)))
    assert log.calls["payload_bytes"].to_list() == [4 * n for n in range(70_000)]


def init(
    before: str = "", after: str = "cudaDev 1 busId 1a000", what: str = "Init COMPLETE"
) -> str:
    return f"{before}comm 0x5581 rank 2 nranks 4 {after} - {what}"


@pytest.mark.parametrize(
    ("text", "comm_id"),
    [
        (init(after="cudaDev 1"), None),
        (init(), None),
        (init(after="cudaDev 1 busId 1a000 commId 0xab"), "0x00000000000000ab"),
        (
            init(after="cudaDev 1 nvmlDev 1 busId 1a000 commId 0x9ad9b5e4ab2566da"),
            "0x9ad9b5e4ab2566da",
        ),
        (
            init("ncclCommInitRankConfig ", "cudaDev 1 nvmlDev 1 busId 1 commId 0xab"),
            "0x00000000000000ab",
        ),
        (
            init("ncclCommSplit ", "cudaDev 1 busId 1 parent 0x12 color -5 key 2 commId 0xab"),
            "0x00000000000000ab",
        ),
        (
            init("ncclCommSplit ", "cudaDev 1 busId 1 parent 0x12 splitCount 1 color 5 key 2"),
            None,
        ),
        (
            init("[Rank 2] ncclCommInitRank ", "cudaDev 1 busId 1 commId 0xab", "Init START"),
            "0x00000000000000ab",
        ),
        (
            init(
                "ncclCommSplit ",
                "cudaDev 1 nvmlDev 1 busId 1 parent 0x12 childCount 1 color 5 key 2",
                "Init START",
            ).replace("2 - Init", "2- Init"),
            None,
        ),
    ],
)
def test_a_communicator_is_read_in_every_shape(
    tmp_path: Path, text: str, comm_id: str | None
) -> None:
    assert only(read(tmp_path, PREFIX + text).comms) == {
        "pid": 100,
        "comm": "0x5581",
        "comm_id": comm_id,
        "rank": 2,
        "group_size": 4,
        "device": 1,
    }


def test_a_communicator_without_a_device_leaves_that_unknown(tmp_path: Path) -> None:
    log = read(tmp_path, PREFIX + "comm 0x5581 rank 2 nranks 4 - Init COMPLETE")
    assert only(log.comms)["device"] is None


def test_start_and_completion_are_one_communicator(tmp_path: Path) -> None:
    text = "cudaDev 1 nvmlDev 1 busId 1a000 commId 0xab"
    lines = PREFIX + init(after=text, what="Init START"), PREFIX + init(after=text)
    assert read(tmp_path, *lines).comms.height == 1
    assert read(tmp_path, *lines, *lines).comms.height == 1


def test_what_only_one_of_the_two_lines_says_is_kept(tmp_path: Path) -> None:
    log = read(
        tmp_path,
        PREFIX + "comm 0x5581 rank 2 nranks 4 commId 0xab - Init START",
        PREFIX + init(),
    )
    row = only(log.comms)
    assert (row["comm_id"], row["device"]) == ("0x00000000000000ab", 1)


@pytest.mark.parametrize(
    "second",
    [
        init(after="cudaDev 1 busId 1 commId 0xcd"),
        init(after="cudaDev 1 busId 1 parent 0x12 color 5 key 2", what="Init START"),
        init(after="cudaDev 1 busId 1 commId 0xab").replace("rank 2", "rank 1"),
    ],
)
def test_a_pointer_that_is_used_again_is_another_communicator(tmp_path: Path, second: str) -> None:
    first = init(after="cudaDev 1 busId 1 commId 0xab")
    log = read(tmp_path, PREFIX + first, PREFIX + second)
    assert log.comms.height == 2


def test_the_same_pointer_in_two_processes_is_two_communicators(tmp_path: Path) -> None:
    other = PREFIX.replace(":100:107", ":200:207")
    assert read(tmp_path, PREFIX + init(), other + init()).comms["pid"].to_list() == [100, 200]


@pytest.mark.parametrize(
    "text",
    [
        init(what="Destroy COMPLETE"),
        "comm 0x5581 rank 2 nRanks 4 nNodes 1 localRanks 4 localRank 2 MNNVL 0",
        init().replace("rank 2", "rank 4"),
        init().replace("nranks 4", "nranks 2000000"),
        "Init timings - ncclCommInitRank: rank 2 nranks 4 total 0.50",
        "AllGather: 37756928 Bytes -> Algo 1 proto 2 time 2860.208008",
    ],
)
def test_a_line_of_another_kind_tells_of_nothing(tmp_path: Path, text: str) -> None:
    log = read(tmp_path, PREFIX + text)
    assert (log.calls.height, log.comms.height, log.skipped) == (0, 0, 0)


@pytest.mark.parametrize(
    "text",
    [
        "NCCL version 2.21.5+cuda12.4",
        PREFIX + "NCCL version 2.21.5+cuda12.4",
        "[1,0]<stdout>:NCCL version 2.21.5",
        "RCCL version 2.21.5+hip6.3",
    ],
)
def test_the_version_is_the_first_one_stated(tmp_path: Path, text: str) -> None:
    log = read(tmp_path, "NCCL version 2.2", text, PREFIX + "NCCL version 2.30.1+cuda13.0")
    assert log.nccl_version == "2.21.5"


@pytest.mark.parametrize(
    "damaged",
    [
        *(PREFIX + call()[:at] for at in (len("AllReduce: opCount "), 40, 60, 75, 90, 105, 115)),
        call(),
        call()[4:],
        PREFIX + PREFIX + call(),
        PREFIX + call()[:50] + PREFIX + "Connected all rings",
        PREFIX + "Connected all" + PREFIX + call(),
        PREFIX + call().replace("nranks=8", "nranks=0"),
        PREFIX + call().replace("count 1000", "count -1"),
        PREFIX + call().replace("count 1000", "count 9223372036854775807"),
        PREFIX + call().replace("1a", "ffffffffffffffff"),
    ],
)
def test_a_call_that_is_cut_mixed_or_impossible_is_skipped_and_counted(
    tmp_path: Path, damaged: str
) -> None:
    log = read(tmp_path, PREFIX + call(), damaged, PREFIX + call())
    assert (log.calls.height, log.skipped) == (2, 1)


def test_two_calls_in_one_line_are_both_skipped(tmp_path: Path) -> None:
    log = read(tmp_path, PREFIX + call()[:90] + PREFIX + call())
    assert (log.calls.height, log.skipped) == (0, 2)


def test_the_last_line_may_be_cut_by_the_end_of_the_file(tmp_path: Path) -> None:
    log = read(tmp_path, PREFIX + call() + "\n" + PREFIX + call()[:70], end="")
    assert (log.calls.height, log.skipped) == (1, 1)


def test_a_line_without_end_is_read_in_pieces(tmp_path: Path) -> None:
    log = read(tmp_path, "x" * 1_000_000, PREFIX + call())
    assert log.calls.height == 1


def test_lines_that_are_there_twice_stay_twice(tmp_path: Path) -> None:
    assert read(tmp_path, PREFIX + call(), PREFIX + call()).calls.height == 2


@pytest.mark.parametrize("name", ["a.log.gz", "a.log"])
def test_a_packed_log_reads_like_a_plain_one(tmp_path: Path, name: str) -> None:
    plain = read(tmp_path, PREFIX + call(), PREFIX + init())
    packed = tmp_path / name
    packed.write_bytes(gzip.compress((tmp_path / "nccl.log").read_bytes()))
    log = read_nccl_log(packed)
    assert log.calls.equals(plain.calls)
    assert log.comms.equals(plain.comms)


@pytest.mark.parametrize("cut", [12, 60, -4])
def test_a_damaged_packed_log_fails_in_one_line(tmp_path: Path, cut: int) -> None:
    path = tmp_path / "a.log.gz"
    path.write_bytes(gzip.compress((PREFIX + call() + "\n").encode())[:cut])
    with pytest.raises(SourceError, match=r"^a\.log\.gz: damaged gzip stream: .*: copy it again$"):
        read_nccl_log(path)


@pytest.mark.parametrize("text", ["", "step 1\n", "NCCL version 2.21.5+cuda12.4\n", "NCCL INFO \n"])
def test_a_file_without_a_line_of_nccl_says_what_to_set(tmp_path: Path, text: str) -> None:
    path = tmp_path / "train.log"
    path.write_text(text)
    with pytest.raises(SourceError) as caught:
        read_nccl_log(path)
    assert str(caught.value) == (
        "train.log: no NCCL INFO line in it: run again with NCCL_DEBUG=INFO "
        "NCCL_DEBUG_SUBSYS=INIT,COLL NCCL_DEBUG_FILE=nccl.%h.%p.log"
    )


def test_a_missing_file_and_a_folder_fail_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match=r"^none\.log: cannot be read: No such file"):
        read_nccl_log(tmp_path / "none.log")
    with pytest.raises(SourceError, match=r": not a regular file$"):
        read_nccl_log(tmp_path)


def test_no_host_user_address_or_folder_is_kept(tmp_path: Path) -> None:
    log = read(
        tmp_path,
        PREFIX + "Bootstrap : Using eth0:192.0.2.17<0>",
        PREFIX + "NCCL_TOPO_FILE set by environment to /home/canary-user/topo.xml",
        "NCCL version 2.21.5+cuda12.4",
        PREFIX + init(),
        PREFIX + call(),
        PREFIX + PREFIX + call(),
    )
    told = repr(log) + log.calls.write_csv() + log.comms.write_csv()
    for secret in ("canary", "192.0.2.17", "eth0", "/home", str(tmp_path), "0x7f00", "0x5590"):
        assert secret not in told
