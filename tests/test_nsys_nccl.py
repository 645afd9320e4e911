"""What NCCL's ranges say of each communication operation, call by call and group by group."""

import base64
import json
import struct
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import RunMaker
from tests.traces.nsys import NsysExport, blob
from traceq.ingest.nsys.payload import Schemas, decode
from traceq.runfile import Run

ALL_REDUCE = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
ALL_GATHER = "ncclDevKernel_AllGather_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
SEND_RECV = "ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)"
GENERIC = "ncclDevKernel_Generic(ncclDevKernelArgs*)"
COMM = 0xC0FFEE
GARBAGE = b"\x77\x7f\x00\x00"


def sized(size: int, comm: int = COMM) -> bytes:
    return struct.pack("<QQ", comm, size)


def reduced(size: int, comm: int = COMM) -> bytes:
    return struct.pack("<QQi", comm, size, 0) + GARBAGE


def peered(size: int, peer: int, comm: int = COMM) -> bytes:
    return struct.pack("<QQi", comm, size, peer) + GARBAGE


def of(nranks: int, rank: int = 0, comm: int = COMM) -> bytes:
    return struct.pack("<Qiii", comm, nranks, rank, 0) + GARBAGE


def start() -> NsysExport:
    return NsysExport().capture(environment="RANK=0").nccl_domain()


def known(export: NsysExport, nranks: int = 4) -> NsysExport:
    return export.nccl("ncclCommDestroy", 2, of(nranks), 900_000)


def rows(run: Run, *columns: str) -> list[tuple[Any, ...]]:
    return run.frame(f"SELECT {', '.join(columns)} FROM nccl_kernels ORDER BY start_ns").rows()


@pytest.fixture
def read(tmp_path: Path, make_run: RunMaker) -> Any:
    return lambda export, **options: make_run(export.write(tmp_path / "a.sqlite"), **options)


class TestPayloads:
    """Headers and texts in which a payload may come."""

    BYTES = struct.pack("<QQi", COMM, 64, 4) + GARBAGE

    @pytest.mark.parametrize(
        "data",
        [
            struct.pack("<4Q", 1, 0x1000005, 24, 32) + BYTES,
            struct.pack("<4Q", 1, 0x1000005, 24, 56) + BYTES,
            struct.pack("<4Q", 1, 0x1000005, 24, 40) + b"padding!" + BYTES,
            struct.pack("<4Q", 1, 0x1000005, 24, 32) + BYTES + struct.pack("<4Q", 2, 9, 8, 32) * 2,
            (struct.pack("<4Q", 1, 0x1000005, 24, 32) + BYTES).hex().encode(),
            base64.b64encode(struct.pack("<4Q", 1, 0x1000005, 24, 32) + BYTES),
        ],
        ids=["offset", "length", "padded", "several", "hex", "base64"],
    )
    def test_every_form_tells_the_same(self, data: bytes) -> None:
        (row,) = decode([data], Schemas({})).to_dicts()
        assert (row["comm"], row["payload_bytes"], row["redop"]) == (COMM, 64, 4)

    @pytest.mark.parametrize(
        "data",
        [
            b"",
            b"short",
            b"\0" * 31,
            b"\0" * 64,
            struct.pack("<4Q", 1, 0x1000005, 2**60, 32) + BYTES,
            struct.pack("<4Q", 1, 0x1000005, 23, 32) + BYTES,
            struct.pack("<4Q", 1, 0x1000063, 24, 32) + BYTES,
            b"not hex, nor base64!",
        ],
        ids=["none", "short", "cut", "zeros", "beyond", "odd length", "unknown id", "text"],
    )
    def test_what_cannot_be_one_tells_nothing(self, data: bytes) -> None:
        (row,) = decode([data], Schemas({})).to_dicts()
        assert set(row.values()) == {None}

    def test_entries_of_the_export_come_first(self) -> None:
        entries = [
            (1, 0x1000005, 0, 22, "Message size [bytes]", None),
            (1, 0x1000005, 1, 18, "NCCL communicator ID", 8),
            (1, 0x1000005, 2, 0x1000018, "Reduction operation", 16),
        ]
        data = struct.pack("<4Q", 1, 0x1000005, 24, 32) + self.BYTES
        (row,) = decode([data], Schemas.of(entries)).to_dicts()
        assert (row["payload_bytes"], row["comm"], row["redop"]) == (COMM, 64, 4)

    def test_entries_without_places_are_not_used(self) -> None:
        entries = [
            (1, 0x1000005, 0, 18, "NCCL communicator ID", None),
            (1, 0x1000005, 1, 22, "Message size [bytes]", None),
        ]
        data = struct.pack("<4Q", 1, 0x1000005, 24, 32) + self.BYTES
        (row,) = decode([data], Schemas.of(entries)).to_dicts()
        assert (row["comm"], row["payload_bytes"]) == (COMM, 64)

    def test_a_shrunken_communicator_names_its_parent(self) -> None:
        data = blob(15, struct.pack("<Qiiii", COMM, 8, 3, 0, 2))
        (row,) = decode([data], Schemas({})).to_dicts()
        assert (row["comm"], row["parent"], row["nranks"]) == (None, COMM, 8)

    def test_old_and_new_order_of_rank_and_ranks(self) -> None:
        old, new = blob(0, struct.pack("<iii", 3, 8, 1)), blob(0, of(8, 3))
        rows = decode([old, new], Schemas({})).to_dicts()
        assert [(r["comm_rank"], r["nranks"]) for r in rows] == [(3, 8), (3, 8)]
        assert [r["comm"] for r in rows] == [None, COMM]


class TestCalls:
    """One call, one kernel."""

    def test_the_size_follows_the_conventions(self, read: Any) -> None:
        export = known(start())
        export.nccl("ncclAllReduce", 5, reduced(64), 800).kernel(ALL_REDUCE, 1000, 1100)
        export.nccl("ncclAllGather", 4, sized(64), 1800).kernel(ALL_GATHER, 2000, 2100)
        run = read(export)
        assert rows(run, "op", "bytes", "wire_bytes", "group_size", "comm_id", "size_source") == [
            ("all_reduce", 64, 96, 4, "0x0000000000c0ffee", "nsys_binary"),
            ("all_gather", 256, 192, 4, "0x0000000000c0ffee", "nsys_binary"),
        ]

    def test_an_unknown_group_gives_no_size_where_it_needs_one(self, read: Any) -> None:
        export = start()
        export.nccl("ncclAllReduce", 5, reduced(64), 800).kernel(ALL_REDUCE, 1000, 1100)
        export.nccl("ncclAllGather", 4, sized(64), 1800).kernel(ALL_GATHER, 2000, 2100)
        run = read(export)
        assert rows(run, "bytes", "size_source") == [(64, "nsys_binary"), (None, None)]
        ((note,),) = run.frame(
            "SELECT hint FROM diagnostics WHERE code = 'group_size_unknown'"
        ).rows()
        assert "--nranks" in note

    def test_the_call_tells_what_a_generic_kernel_is(self, read: Any) -> None:
        export = known(start()).nccl("ncclReduce", 8, struct.pack("<QQii", COMM, 64, 1, 2), 800)
        assert rows(read(export.kernel(GENERIC, 1000, 1100)), "op", "bytes") == [("reduce", 64)]

    def test_the_rank_is_that_of_the_largest_communicator(self, read: Any) -> None:
        export = start().nccl("ncclCommDestroy", 2, of(2, 1, comm=7), 100)
        export.nccl("ncclCommDestroy", 2, of(16, 11, comm=8), 200).kernel(ALL_REDUCE, 1000, 1100)
        run = read(export)
        assert run.frame("SELECT rank, rank_source FROM ranks").rows() == [(11, "nccl_init")]
        assert run.frame("SELECT world_size FROM run").item() == 16

    def test_a_part_of_the_job_does_not_number_ranks(
        self, tmp_path: Path, make_run: RunMaker
    ) -> None:
        paths = []
        for rank in range(4):
            export = NsysExport().capture(environment=f"RANK={rank}").nccl_domain()
            export.nccl("ncclCommDestroy", 2, of(2, rank % 2, comm=rank // 2 + 1), 100)
            paths.append(export.kernel(ALL_REDUCE, 1000, 1100).write(tmp_path / f"{rank}.sqlite"))
        run = make_run(*paths)
        pids = run.frame("SELECT rank, file_name FROM ranks JOIN sources USING (source_id)")
        assert sorted(pids.rows()) == [(rank, f"{rank}.sqlite") for rank in range(4)]

    def test_json_of_the_advanced_trace(self, read: Any) -> None:
        export = known(start())
        said = {"count": 16, "dataType": "ncclBfloat16", "rank": 0, "seqNumber": 7}
        place = {"domain": 1, "registered": True}
        export.range("API Group", 700, 950, **place)
        export.range("AllGather", 750, 800, jsonText=json.dumps(said | {"commHash": COMM}), **place)
        export.kernel(ALL_GATHER, 1000, 1100, launch=900)
        (row,) = rows(read(export), "op", "bytes", "seq", "size_source", "dtype")
        assert row == ("all_gather", 16 * 2 * 4, 7, "nsys_json", "ncclBfloat16")


class TestGroups:
    """Calls of a group launch in its outermost end."""

    def group(self, export: NsysExport, calls: list[tuple[str, int, bytes]], at: int) -> NsysExport:
        export.range("ncclGroupStart", at, at + 1, domain=1)
        for k, (name, number, payload) in enumerate(calls):
            export.nccl(name, number, payload, at + 2 + 2 * k, length=1)
        return export.range("ncclGroupEnd", at + 40, at + 60, domain=1)

    def test_one_kernel_of_several_calls_has_their_sum(self, read: Any) -> None:
        calls = [("ncclAllReduce", 5, reduced(64)), ("ncclAllReduce", 5, reduced(100))]
        export = self.group(known(start()), calls, 800)
        run = read(export.kernel(ALL_REDUCE, 1000, 1100, launch=850))
        assert rows(run, "op", "bytes") == [("all_reduce", 164)]

    def test_several_kernels_of_as_many_calls_are_paired(self, read: Any) -> None:
        calls = [("ncclAllReduce", 5, reduced(64)), ("ncclAllGather", 4, sized(8))]
        export = self.group(known(start()), calls, 800)
        export.kernel(ALL_GATHER, 1000, 1100, launch=851).kernel(ALL_REDUCE, 1200, 1300, launch=852)
        assert rows(read(export), "op", "bytes") == [("all_gather", 32), ("all_reduce", 64)]

    def test_calls_of_different_communicators_in_one_kernel_have_no_size(self, read: Any) -> None:
        calls = [("ncclAllReduce", 5, reduced(64)), ("ncclAllReduce", 5, reduced(100, comm=9))]
        export = self.group(known(start()), calls, 800)
        run = read(export.kernel(ALL_REDUCE, 1000, 1100, launch=850))
        assert rows(run, "op", "bytes", "comm_id") == [("all_reduce", None, None)]

    def test_three_calls_and_two_kernels_have_no_sizes(self, read: Any) -> None:
        calls = [("ncclAllReduce", 5, reduced(64))] * 3
        export = self.group(known(start()), calls, 800)
        for at in (1000, 1200):
            export.kernel(ALL_REDUCE, at, at + 100, launch=850)
        found = rows(read(export), "op", "bytes", "comm_id")
        assert found == [("all_reduce", None, "0x0000000000c0ffee")] * 2

    def test_sends_to_all_ranks_are_an_exchange(self, read: Any) -> None:
        calls = [
            ("ncclSend", 9, peered(100 + p, p)) for p in range(4)
        ] + [("ncclRecv", 10, peered(50, p)) for p in range(4)]  # fmt: skip
        export = self.group(known(start()), calls, 800)
        run = read(export.kernel(SEND_RECV, 1000, 1100, launch=850))
        assert rows(run, "op", "bytes", "send_bytes", "recv_bytes") == [
            ("all_to_all", 406, 406, 200)
        ]

    def test_sends_to_some_are_not(self, read: Any) -> None:
        calls = [("ncclSend", 9, peered(100, 1)), ("ncclRecv", 10, peered(50, 3))]
        export = self.group(known(start()), calls, 800)
        run = read(export.kernel(SEND_RECV, 1000, 1100, launch=850))
        assert rows(run, "op", "bytes", "send_bytes", "recv_bytes") == [("send_recv", 100, 100, 50)]

    def test_groups_inside_groups_end_with_the_outermost(self, read: Any) -> None:
        export = known(start()).range("ncclGroupStart", 700, 701, domain=1)
        self.group(export, [("ncclAllReduce", 5, reduced(64))], 800)
        export.nccl("ncclAllReduce", 5, reduced(36), 870, length=1)
        export.range("ncclGroupEnd", 880, 900, domain=1)
        run = read(export.kernel(ALL_REDUCE, 1000, 1100, launch=890))
        assert rows(run, "op", "bytes") == [("all_reduce", 100)]

    def test_a_group_that_began_before_the_capture_is_not_guessed(self, read: Any) -> None:
        export = known(start()).nccl("ncclAllReduce", 5, reduced(64), 800, length=1)
        export.range("ncclGroupEnd", 840, 860, domain=1)
        export.kernel(ALL_REDUCE, 1000, 1100, launch=850)
        export.nccl("ncclAllReduce", 5, reduced(32), 1300).kernel(ALL_REDUCE, 1500, 1600)
        assert rows(read(export), "bytes") == [(None,), (32,)]

    def test_a_lost_kernel_does_not_double_the_other(self, read: Any) -> None:
        export = known(start())
        for k in range(3):
            at = 10_000 * (k + 1)
            self.group(export, [("ncclAllReduce", 5, reduced(64))] * 2, at)
            for kernel in range(2 if k < 2 else 1):
                export.kernel(ALL_REDUCE, at + 200 + 200 * kernel, at + 300 + 200 * kernel,
                              launch=at + 50 + kernel)  # fmt: skip
        assert rows(read(export), "bytes") == [(64,)] * 4 + [(None,)]


class TestDamage:
    """Values that cannot be are unknown, and nothing else suffers."""

    @pytest.mark.parametrize("size", [1 << 62, (1 << 63) - 1, (1 << 64) - 1])
    def test_sizes_beyond_belief(self, read: Any, size: int) -> None:
        export = known(start()).nccl("ncclAllGather", 4, sized(size), 800)
        export.kernel(ALL_GATHER, 1000, 1100)
        export.nccl("ncclAllReduce", 5, reduced(64), 1800).kernel(ALL_REDUCE, 2000, 2100)
        assert rows(read(export), "bytes") == [(None,), (64,)]

    @pytest.mark.parametrize("nranks", [-5, 0, 2 * 10**8, 2**31 - 1])
    def test_ranks_beyond_belief(self, read: Any, nranks: int) -> None:
        export = known(start(), nranks).nccl("ncclAllGather", 4, sized(64), 800)
        run = read(export.kernel(ALL_GATHER, 1000, 1100))
        assert rows(run, "bytes", "group_size") == [(None, None)]

    def test_numbers_in_json_beyond_belief(self, read: Any) -> None:
        said = {"No. of ranks": 99_999_999_999, "Rank": 0, "NCCL communicator ID": 10**30}
        export = start().range("ncclCommInitRank", 700, 710, domain=1, jsonText=json.dumps(said))
        run = read(export.kernel(ALL_REDUCE, 1000, 1100))
        assert rows(run, "group_size") == [(None,)]

    def test_a_type_is_a_word(self, read: Any) -> None:
        said = {"count": 16, "dataType": "/home/someone/x"}
        export = start().range("AllReduce", 850, 950, domain=1, jsonText=json.dumps(said))
        assert rows(read(export.kernel(ALL_REDUCE, 1000, 1100)), "dtype") == [(None,)]


class TestLaunches:
    """Where kernels come from another place than the call's own range."""

    def test_another_thread_launches_in_order(self, read: Any) -> None:
        export = known(start())
        for k, size in enumerate((64, 32)):
            export.nccl("ncclAllReduce", 5, reduced(size), 800 + 10 * k, length=5)
            export.kernel(ALL_REDUCE, 1000 + 200 * k, 1100 + 200 * k, launch=900 + k, thread=2)
        assert rows(read(export), "bytes") == [(64,), (32,)]

    def test_but_not_where_their_numbers_differ(self, read: Any) -> None:
        export = known(start()).nccl("ncclAllReduce", 5, reduced(64), 800, length=5)
        for k in range(2):
            export.kernel(ALL_REDUCE, 1000 + 200 * k, 1100 + 200 * k, launch=900 + k, thread=2)
        assert rows(read(export), "op", "bytes") == [("all_reduce", None)] * 2

    def test_copies_of_one_call_are_one_collective(self, read: Any) -> None:
        export = known(start()).nccl("ncclAllGather", 4, sized(64), 800)
        for k in range(3):
            export.copy("PtoP", 1000 + 10 * k, 1100 + 50 * k, launch=810 + k)
        run = read(export)
        assert rows(run, "op", "bytes", "start_ns", "end_ns") == [("all_gather", 256, 0, 200)]
        classes = run.frame("SELECT DISTINCT class FROM device_ops").rows()
        assert classes == [("comm",)]

    def test_every_replay_of_a_graph_has_the_size_of_the_captured_call(self, read: Any) -> None:
        export = known(start()).nccl("ncclAllReduce", 5, reduced(64), 800)
        export.row(
            "CUDA_GRAPH_NODE_EVENTS", start=850, end=851, globalTid=(1 << 56) + (1 << 48)
            + (10 << 24) + 1, graphNodeId=5, originalGraphNodeId=None,
        )  # fmt: skip
        for k in range(3):
            at = 10_000 * (k + 1)
            export.kernel(ALL_REDUCE, at, at + 100, graphNodeId=5, correlation=50 + k)
        assert rows(read(export), "op", "bytes") == [("all_reduce", 64)] * 3

    def test_kernels_without_a_call_are_counted(self, read: Any) -> None:
        export = known(start()).kernel(ALL_REDUCE, 500, 600, called=False)
        export.nccl("ncclAllReduce", 5, reduced(64), 800).kernel(ALL_REDUCE, 1000, 1100)
        run = read(export)
        assert rows(run, "bytes") == [(None,), (64,)]
        found = run.frame("SELECT message, count FROM diagnostics WHERE code = 'call_unknown'")
        assert found["count"].to_list() == [1]
        assert found["message"][0].startswith("1 of 2 communication operations")
