"""Link peaks per direction, each with the source of its figure."""

import pytest

from traceq.model.links import link_peak, link_table


@pytest.mark.parametrize(
    ("gpu", "peak"),
    [
        ("Tesla V100-SXM2-16GB", 150.0),
        ("NVIDIA A100-SXM4-80GB", 300.0),
        ("NVIDIA A100 80GB PCIe", 31.5),
        ("NVIDIA H100 80GB HBM3", 450.0),
        ("NVIDIA H100 PCIe", 63.0),
        ("NVIDIA H800", 200.0),
        ("NVIDIA H200", 450.0),
        ("NVIDIA H20", 450.0),
        ("NVIDIA B200", 900.0),
        ("NVIDIA GB200", 900.0),
        ("AMD Instinct MI300X", 448.0),
        ("NVIDIA L40S", 31.5),
        ("NVIDIA GeForce RTX 4090", 31.5),
        ("Tesla T4", 15.75),
    ],
)
def test_peaks_are_per_direction(gpu: str, peak: float) -> None:
    row = link_peak(gpu)
    assert row is not None
    assert row.peak_gbps == peak


@pytest.mark.parametrize("gpu", [None, "", "NVIDIA GeForce GTX 1080", "Some future GPU"])
def test_an_unknown_gpu_has_no_peak(gpu: str | None) -> None:
    assert link_peak(gpu) is None


def test_every_figure_names_its_source() -> None:
    assert all(row.source and row.kind for row in link_table())
