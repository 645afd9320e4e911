"""The same timeline as an nsys export and as a torch trace gives the same tables."""

from pathlib import Path

from tests.conftest import RunMaker
from tests.traces.nsys import NsysExport
from tests.traces.torch import BASE_NS, PID, TorchTrace
from traceq.runfile import Run

GEMM = "void gemm<float>(int)"
ALL_REDUCE = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
ELEMENTWISE = "void at::native::vectorized_elementwise_kernel<4, at::F<float>>(int, at::F)"

# What both formats can know. Correlation ids and names of sources are each format's own.
TABLES = {
    "ranks": "rank, pid, device, device_kind, gpu_name, node",
    "streams": "*",
    "kernel_names": "name, short_name, class, family, op",
    "device_ops": "rank, stream, start_ns, end_ns, class, step, launch_ns, bytes",
    "nccl_kernels": "rank, stream, step, start_ns, end_ns, op, link, match",
    "rank_timings": "*",
}


def nsys_twin() -> NsysExport:
    export = NsysExport().capture(utc_ns=BASE_NS, environment="RANK=1;WORLD_SIZE=2")
    for step in range(4):
        zero = 100_000 + 10_000 * step
        place = {"pid": PID}
        export.range(f"ProfilerStep#{step}", zero, zero + 4000, **place)
        export.kernel(GEMM, zero + 1000, zero + 3000, launch=zero + 100, **place)
        export.kernel(ELEMENTWISE, zero + 3000, zero + 3500, launch=zero + 200, **place)
        export.kernel(ALL_REDUCE, zero + 2500, zero + 5000, launch=zero + 300, stream=16, **place)
        export.copy("HtoD", zero + 5200, zero + 5300, launch=zero + 400, stream=20, **place)
    return export.kernel(GEMM, 200_000, 200_100, called=False, pid=PID)


def torch_twin() -> TorchTrace:
    trace = TorchTrace(rank=1, world_size=2, host_name="host-a")
    for step in range(4):
        zero = 100_000 + 10_000 * step
        trace.annotation(f"ProfilerStep#{step}", zero, zero + 4000)
        trace.kernel(GEMM, zero + 1000, zero + 3000, launch=zero + 100)
        trace.kernel(ELEMENTWISE, zero + 3000, zero + 3500, launch=zero + 200)
        trace.kernel(ALL_REDUCE, zero + 2500, zero + 5000, launch=zero + 300, stream=16)
        trace.copy(
            "Memcpy HtoD (Pinned -> Device)", zero + 5200, zero + 5300, launch=zero + 400, stream=20
        )
    return trace.kernel(GEMM, 200_000, 200_100, called=False)


def tables(run: Run) -> dict[str, list[dict[str, object]]]:
    return {
        table: run.frame(f"SELECT {columns} FROM {table} ORDER BY ALL").to_dicts()
        for table, columns in TABLES.items()
    }


def test_both_formats_give_the_same_tables(tmp_path: Path, make_run: RunMaker) -> None:
    by_nsys = tables(make_run(nsys_twin().write(tmp_path / "a.sqlite")))
    by_torch = tables(make_run(torch_twin().write(tmp_path / "a.json")))
    assert by_nsys == by_torch
    assert len(by_nsys["device_ops"]) == 17


def test_both_formats_make_one_run(tmp_path: Path, make_run: RunMaker) -> None:
    export = NsysExport().capture(utc_ns=BASE_NS, environment="RANK=0;WORLD_SIZE=2")
    export.kernel(GEMM, 90_000, 90_500)
    run = make_run(export.write(tmp_path / "a.sqlite"), torch_twin().write(tmp_path / "b.json"))
    assert run.frame(
        "SELECT rank, kind FROM ranks JOIN sources USING (source_id) ORDER BY rank"
    ).rows() == [
        (0, "nsys"),
        (1, "torch"),
    ]
    starts = run.frame(
        "SELECT rank, min(start_ns) FROM device_ops GROUP BY rank ORDER BY rank"
    ).rows()
    assert starts == [(0, 0), (1, 11_000)]
    assert run.frame("SELECT nodes, world_size FROM run").rows() == [(1, 2)]
