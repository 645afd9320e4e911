"""The same timeline in the columns of twenty nsys versions gives the same numbers."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import RunMaker
from tests.traces.nsys import NsysExport, global_pid
from traceq.report import build_report

VERSIONS = (
    "2020.3(nvtx-ex)", "2020.4.3", "2021?(cardiac)", "2022.2.1", "2022.4.2", "2023.2.3", "2023.3.1",
    "2023.4.4", "2024.2.3", "2024.5.1", "2024.6.2", "2025.1.1", "2025.3.1", "2025.5.1", "2025.5.2",
    "2025.6.1", "2026.1.1", "2026.2.1", "2026.3.1", "2026.4.1",
)  # fmt: skip
NEEDED = (
    "StringIds", "NVTX_EVENTS", "CUPTI_ACTIVITY_KIND_KERNEL", "CUPTI_ACTIVITY_KIND_MEMCPY",
    "CUPTI_ACTIVITY_KIND_RUNTIME", "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION",
)  # fmt: skip
ALL_REDUCE = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)"


@pytest.fixture
def columns(corpus: Path) -> dict[str, dict[str, list[list[Any]]]]:
    return json.loads((corpus / "nsys/schema/columns_by_version.json").read_text())


def tables_of(
    version: str, columns: dict[str, dict[str, list[list[Any]]]]
) -> dict[str, list[list[Any]]]:
    """The tables of a version; one that was empty in its sample is that of the version before."""
    tables: dict[str, list[list[Any]]] = {}
    for each in VERSIONS:
        older = {k: v for k, v in tables.items() if k in NEEDED}
        tables = older | columns[each]
        if each == version:
            return tables
    raise KeyError(version)


def timeline(tables: dict[str, list[list[Any]]]) -> NsysExport:
    """Three steps of 1000 ns: compute 0-600, all_reduce 400-900, copy 900-1000."""
    export = NsysExport(tables).capture(environment="RANK=1;WORLD_SIZE=2")
    for step in range(3):
        zero = 10_000 + 2_000 * step
        export.range(f"step {step}", zero - 500, zero - 100, registered=step == 1)
        export.kernel("gemm<float>(int)", zero, zero + 600, launch=zero - 400)
        export.kernel(ALL_REDUCE, zero + 400, zero + 900, launch=zero - 300, stream=16)
        export.copy("HtoD", zero + 900, zero + 1000, launch=zero - 200)
    return export.row(
        "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION",
        start=0, end=90_000, streamId=7, globalPid=global_pid(10), syncType=3,
    )  # fmt: skip


def test_the_matrix_has_every_version(columns: dict[str, Any]) -> None:
    assert tuple(columns) == VERSIONS


@pytest.mark.parametrize("version", VERSIONS)
def test_every_version_gives_the_same_report(
    columns: dict[str, dict[str, list[list[Any]]]], tmp_path: Path, make_run: RunMaker, version: str
) -> None:
    tables = tables_of(version, columns)
    assert set(NEEDED) <= set(tables)
    report = build_report(make_run(timeline(tables).write(tmp_path / "a.sqlite")))
    assert {name: report.metrics[name] for name in report.metrics if name.endswith("_ns")} == {
        "window_ns": 3000,
        "compute_ns": 1800,
        "comm_ns": 1500,
        "overlap_ns": 600,
        "exposed_comm_ns": 900,
        "copy_ns": 300,
        "exposed_copy_ns": 300,
        "idle_ns": 0,
    }
    assert report.metrics["overlap_ratio"] == 0.4
    assert [row["step"] for row in report.steps] == [0, 1, 2]
    assert [(row["stream"], row["role"]) for row in report.streams] == [
        (7, "compute"),
        (16, "comm"),
    ]
    states_its_environment = "TARGET_INFO_SYSTEM_ENV" in tables
    expected = (1, "env") if states_its_environment else (0, "order")
    assert [(row["rank"], row["rank_source"]) for row in report.ranks] == [expected]
