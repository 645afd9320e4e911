"""Baselines and logs beside a run: nccl-tests outputs, and sizes from NCCL_DEBUG logs."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.commands import traceq
from tests.conftest import RunMaker
from tests.traces.nsys import NsysExport
from tests.traces.workload import KERNELS, MIB, MS, Phase, Workload
from traceq.report import Report, build_report

PHASES = (Phase("all_reduce", 64 * MIB, 4 * MS, compute_ns=8 * MS),)
BUSBW = 64 * MIB / (4 * MS) * 1.5  # of four ranks


def nccl_tests(
    folder: Path, busbw: float, *, size: int = 64 * MIB, ranks: int = 4, hosts: int = 1,
    name: str = "all_reduce.txt",
) -> Path:  # fmt: skip
    """An output of all_reduce_perf with one size, as versions since 2.17 print it."""
    algbw = busbw / (2 * (ranks - 1) / ranks) if ranks > 1 else 100.0
    us = size / algbw / 1e3
    half = f" {us:.2f} {algbw:.2f} {busbw if ranks > 1 else 0:.2f}       0"
    devices = [
        f"#  Rank {rank:2} Group  0 Pid {100 + rank} on secret-host{rank * hosts // ranks} device "
        f"{rank:2} [0000:18:00] NVIDIA H100 80GB HBM3"
        for rank in range(ranks)
    ]
    text = f"""\
# nccl-tests version 2.17.6 nccl-headers=22803 nccl-library=22803
# Collective test starting: all_reduce_perf
# Using devices
{chr(10).join(devices)}
#  size  count  type  redop  root  time  algbw  busbw  #wrong  time  algbw  busbw  #wrong
{size:>12} {size // 4:>13}     float     sum      -1{half}{half}
# Out of bounds values : 0 OK
# Avg bus bandwidth    : {busbw:.2f}
# Collective test concluded: all_reduce_perf
"""
    path = folder / name
    path.write_text(text)
    return path


def read(folder: Path, make_run: RunMaker, *, per_node: int = 4, **options: Any) -> Report:
    work = Workload(ranks=4, per_node=per_node, steps=3, phases=PHASES)
    return build_report(make_run(*work.write_torch(folder), **options))


class TestBaseline:
    """The reference is that of the same operation, ranks, hosts, and about the same size."""

    def test_it_is_the_peak_that_counts(self, tmp_path: Path, make_run: RunMaker) -> None:
        file = nccl_tests(tmp_path, 60.0)
        report = read(tmp_path, make_run, baselines=(str(file),))
        (row,) = report.collectives
        assert row["busbw_gbps"] == pytest.approx(BUSBW)
        assert (row["peak_gbps"], row["peak_source"]) == (pytest.approx(60, 1e-4), "baseline")
        assert row["efficiency"] == pytest.approx(BUSBW / 60, 1e-4)
        (finding,) = (f for f in report.findings if f["id"] == "below_baseline")
        assert finding["evidence"]["peak_gbps"] == row["peak_gbps"]

    @pytest.mark.parametrize(
        "other",
        [{"ranks": 8}, {"hosts": 2}, {"size": 512 * MIB}, {"size": 8 * MIB}],
        ids=["other ranks", "other hosts", "far larger", "far smaller"],
    )
    def test_another_measurement_is_no_reference(
        self, tmp_path: Path, make_run: RunMaker, other: dict[str, int]
    ) -> None:
        file = nccl_tests(tmp_path, 60.0, **other)
        (row,) = read(tmp_path, make_run, baselines=(str(file),)).collectives
        assert row["peak_source"] == "NVLink 4"

    def test_between_two_sizes_the_time_is_interpolated(
        self, tmp_path: Path, make_run: RunMaker
    ) -> None:
        # 32 MiB in 2 ms and 96 MiB in 6 ms: 64 MiB take 4 ms, as they do here.
        files = [
            nccl_tests(tmp_path, n * MIB / (n / 16 * MS) * 1.5, size=n * MIB, name=f"{n}.txt")
            for n in (32, 96)
        ]
        report = read(tmp_path, make_run, baselines=tuple(map(str, files)))
        assert report.collectives[0]["efficiency"] == pytest.approx(1, 1e-4)

    def test_a_rounded_bandwidth_of_nothing_is_taken_from_its_time(
        self, tmp_path: Path, make_run: RunMaker
    ) -> None:
        file = nccl_tests(tmp_path, 60.0)
        text = file.read_text()
        small = (
            "           8             2     float     sum      -1" + "  30.00  0.00  0.00   0" * 2
        )
        lines = text.splitlines()
        lines.insert(-3, small)
        file.write_text("\n".join(lines) + "\n")
        phases = (Phase("all_reduce", 8, 30_000),)
        work = Workload(ranks=4, steps=3, phases=phases)
        report = build_report(make_run(*work.write_torch(tmp_path), baselines=(str(file),)))
        assert report.collectives[0]["efficiency"] == pytest.approx(1, 1e-4)

    def test_between_hosts_as_many_hosts_count(self, tmp_path: Path, make_run: RunMaker) -> None:
        file = nccl_tests(tmp_path, 30.0, hosts=2)
        (row,) = read(tmp_path, make_run, per_node=2, baselines=(str(file),)).collectives
        assert (row["link"], row["peak_gbps"]) == ("inter", pytest.approx(30, 1e-4))

    def test_a_good_bandwidth_with_much_communication_says_so(
        self, tmp_path: Path, make_run: RunMaker
    ) -> None:
        file = nccl_tests(tmp_path, 26.0)
        report = read(tmp_path, make_run, baselines=(str(file),))
        assert [f["id"] for f in report.findings if f["id"].startswith(("below", "comm"))] == [
            "comm_heavy"
        ]

    def test_one_that_cannot_be_read_does_not_stop_the_report(
        self, tmp_path: Path, make_run: RunMaker
    ) -> None:
        alone = nccl_tests(tmp_path, 1.0, ranks=1)
        report = read(tmp_path, make_run, baselines=(str(alone), str(tmp_path / "none.txt")))
        messages = [d["message"] for d in report.diagnostics if d["severity"] == "error"]
        assert any(m.startswith("all_reduce.txt: one rank alone") for m in messages)
        assert any(m.startswith("none.txt: cannot be read") for m in messages)
        assert report.collectives[0]["peak_source"] == "NVLink 4"

    def test_the_operation_can_be_named(self, tmp_path: Path) -> None:
        file = nccl_tests(tmp_path, 60.0)
        done = traceq("baseline", "show", f"all_gather={file}")
        assert done.returncode == 2
        assert "all_reduce" in done.stderr

    def test_show_prints_every_row(self, tmp_path: Path) -> None:
        done = traceq("baseline", "show", nccl_tests(tmp_path, 60.0), "--format", "json")
        rows = json.loads(done.stdout)
        assert [(r["op"], r["size_bytes"], r["busbw_gbps"], r["in_place"]) for r in rows] == [
            ("all_reduce", 64 * MIB, 60.0, False), ("all_reduce", 64 * MIB, 60.0, True),
        ]  # fmt: skip
        assert "secret-host" not in done.stdout + done.stderr

    def test_show_of_one_rank_has_no_bandwidth(self, tmp_path: Path) -> None:
        done = traceq("baseline", "show", nccl_tests(tmp_path, 1.0, ranks=1), "--format", "json")
        assert {row["busbw_gbps"] for row in json.loads(done.stdout)} == {None}
        assert "one rank alone" in done.stderr


def logged(pid: int, calls: list[tuple[str, int]], ranks: int = 2, rank: int = 0) -> str:
    prefix = f"secret-host:{pid}:{pid} [0] NCCL INFO "
    made = f"ncclCommInitRank comm 0x55aa rank {rank} nranks {ranks} cudaDev 0 nvmlDev 0 "
    lines = [f"{prefix}{made}busId 18000 commId 0xabcdef0123456789 - Init COMPLETE"]
    lines += [
        f"{prefix}{name}: opCount {k:x} sendbuff 0x7f00 recvbuff 0x7f01 count {count} datatype 7 "
        f"op 0 root 0 comm 0x55aa [nranks={ranks}] stream 0x1"
        for k, (name, count) in enumerate(calls)
    ]
    return "\n".join(lines) + "\n"


class TestLog:
    """A default export has no sizes; the log of the same processes has."""

    def export(self, folder: Path, rank: int, calls: int) -> Path:
        export = NsysExport().capture(utc_ns=None, environment=f"RANK={rank};WORLD_SIZE=2")
        for k in range(calls):
            at = 10_000 * (k + 1)
            export.kernel(KERNELS["all_reduce"], at, at + 1000 + 100 * rank, pid=50 + rank)
        return export.write(folder / f"{rank}.sqlite")

    def of(self, folder: Path, make_run: RunMaker, logged_calls: int) -> Report:
        logs = []
        for rank in range(2):
            file = folder / f"nccl{rank}.log"
            calls = [("AllReduce", 1000 * (k + 1)) for k in range(logged_calls)]
            file.write_text(logged(50 + rank, calls, rank=rank))
            logs.append(str(file))
        files = [self.export(folder, rank, 3) for rank in range(2)]
        return build_report(make_run(*files, nccl_logs=tuple(logs)))

    def test_sizes_and_groups_come_from_it(self, tmp_path: Path, make_run: RunMaker) -> None:
        report = self.of(tmp_path, make_run, 3)
        assert report.matching["matched"] == 6
        sizes = {row["bytes_p50"]: row["busbw_gbps"] for row in report.collectives}
        assert sizes == {4000: 4.0, 8000: 8.0, 12_000: 12.0}
        assert "size_unknown" not in {row["quality"] for row in report.collectives}

    def test_more_calls_than_kernels_are_not_placed(
        self, tmp_path: Path, make_run: RunMaker
    ) -> None:
        report = self.of(tmp_path, make_run, 4)
        assert {row["bytes_p50"] for row in report.collectives} == {None}
        (note,) = (d for d in report.diagnostics if d["code"] == "log_unplaced")
        assert note["count"] == 6

    def test_no_host_of_a_log_gets_into_a_run(self, tmp_path: Path, make_run: RunMaker) -> None:
        self.of(tmp_path, make_run, 3)
        assert all(b"secret-host" not in f.read_bytes() for f in tmp_path.glob("*.duckdb"))

    def test_a_file_that_is_no_log_is_told(self, tmp_path: Path, make_run: RunMaker) -> None:
        odd = tmp_path / "odd.log"
        odd.write_text("nothing of NCCL\n")
        run = make_run(self.export(tmp_path, 0, 1), nccl_logs=(str(odd),))
        errors = run.frame("SELECT message FROM diagnostics WHERE severity = 'error'")
        assert "NCCL_DEBUG=INFO" in errors["message"][0]


class TestOptions:
    """What the command line says of links and models."""

    def test_peaks_by_link(self, tmp_path: Path) -> None:
        files = Workload(ranks=2, per_node=1, steps=3).write_torch(tmp_path)
        peaks = ("--link-peak", "inter=50", "--link-peak", "450")
        layout = ("--params", "1e6", "--param-dtype", "float32")
        done = traceq("report", *files, "--format", "json", *peaks, *layout)
        report = json.loads(done.stdout)
        assert {row["peak_gbps"] for row in report["collectives"]} == {50.0}
        assert report["volume"]["expected_bytes"] == 4_000_000

    @pytest.mark.parametrize(
        ("flags", "fact"),
        [
            (("--link-peak", "fast"), "must be a number of GB/s"),
            (("--link-peak", "wan=3"), "must be GB/s above 0 for intra, inter, any"),
            (("--link-peak", "-5"), "must be GB/s above 0"),
            (("--link-peak", "nan"), "must be GB/s above 0"),
            (("--params", "1e9", "--param-dtype", "int3"), "not an element type"),
        ],
    )
    def test_mistakes_are_told(self, tmp_path: Path, flags: tuple[str, ...], fact: str) -> None:
        files = Workload(ranks=1, steps=1).write_torch(tmp_path)
        done = traceq("report", *files, *flags)
        assert (done.returncode, fact in done.stderr) == (2, True)

    def test_a_gpu_model_gives_the_peak_where_none_is_known(
        self, tmp_path: Path, make_run: RunMaker
    ) -> None:
        for known, peak in ((None, 300.0), ("NVIDIA H100 80GB HBM3", 450.0)):
            files = Workload(ranks=2, per_node=2, steps=3, gpu=known).write_torch(tmp_path)
            report = build_report(make_run(*files, gpu="A100-SXM4-80GB"))
            assert {row["peak_gbps"] for row in report.collectives} == {peak}

    def test_the_configuration_file_knows_them_too(self, tmp_path: Path) -> None:
        config = tmp_path / "traceq.toml"
        config.write_text('[links]\ngpu = "V100-SXM2"\n[links.peak_gbps]\ninter = 12.5\n'
                          "[stragglers]\nfraction = 0.5\n")  # fmt: skip
        files = Workload(ranks=2, per_node=1, steps=3).write_torch(tmp_path)
        done = traceq("report", *files, "--format", "json", "--config", config)
        assert {r["peak_gbps"] for r in json.loads(done.stdout)["collectives"]} == {12.5}
