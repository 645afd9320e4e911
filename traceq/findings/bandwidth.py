"""Bus bandwidth below its reference, or fine while communication still takes much of the time."""

from collections.abc import Iterator

from traceq.findings.facts import Facts, Finding, Row
from traceq.model.units import percent_text, size_text

_FINE = 0.8
_FAR_BELOW_PEAK = 0.5
_LARGE = 64 << 20  # bytes from which a collective can be expected to fill its link
_HEAVY = 0.3


def find(facts: Facts) -> Iterator[Finding]:
    """Yields: a finding for each kind of collective far below its reference, or one for all."""
    rated = [row for row in facts.collectives if row["efficiency"] is not None]
    low = [row for row in rated if _is_low(row)]
    for row in low:
        yield _below(row)
    share = facts.metrics["comm_fraction"]
    by_baseline = [row for row in rated if row["peak_source"] == "baseline"]
    if by_baseline and not low and share is not None and share > _HEAVY:
        yield Finding(
            id="comm_heavy",
            severity="info",
            title=(
                f"communication takes {percent_text(share)} of the time although its bandwidth is "
                "that of the baseline"
            ),
            evidence={
                "comm_fraction": share,
                "efficiency_min": min(row["efficiency"] for row in by_baseline),
            },
            advice="the network does what it can: send less or less often (gradient accumulation, "
            "lower precision, another parallel layout), or hide more of it",
        )


def _is_low(row: Row) -> bool:
    if row["quality"] != "measured":
        return False  # a lower bound cannot be called too low
    efficiency: float = row["efficiency"]
    if row["peak_source"] == "baseline":
        return efficiency < _FINE and row["link"] != "unknown"
    return bool(efficiency < _FAR_BELOW_PEAK and row["bytes_p50"] >= _LARGE)


def _below(row: Row) -> Finding:
    efficiency, size = row["efficiency"], row["bytes_p50"]
    measured = row["peak_source"] == "baseline"
    reference = "your baseline" if measured else f"the link's peak ({row['peak_source']})"
    advice = (
        "the hardware or network changed, not the training code: check PCIe width and speed, RoCE "
        "GID and congestion, which NICs NCCL chose (NCCL_DEBUG=INFO), and that ranks follow the "
        "order of GPUs"
        if measured
        else "measure what this system can reach with nccl-tests on the same ranks, and compare "
        "with --baseline"
    )
    return Finding(
        id="below_baseline" if measured else "below_peak",
        severity="warning",
        title=(
            f"{row['op']} of {size_text(size)} on {row['group_size']} ranks reaches "
            f"{row['busbw_gbps']:.4g} GB/s, {percent_text(efficiency)} of {reference}"
        ),
        evidence={
            key: row[key]
            for key in ("op", "group_size", "link", "bytes_p50", "busbw_gbps", "peak_gbps",
                        "peak_source", "efficiency", "count")
        },
        advice=advice,
        lost_ns=round((1 - efficiency) * row["transfer_ns_p50"] * row["count"]),
    )  # fmt: skip
