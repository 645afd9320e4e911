"""Communication that compute does not hide."""

from collections.abc import Iterator

from traceq.findings.facts import Facts, Finding
from traceq.model.units import percent_text

_HIDDEN_ENOUGH = 0.5
_WORTH_IT = 0.05


def find(facts: Facts) -> Iterator[Finding]:
    """Yields: a finding where less than half of the communication is hidden, if that matters."""
    metrics = facts.metrics
    ratio, exposed = metrics["overlap_ratio"], metrics["exposed_comm_fraction"]
    if ratio is None or exposed is None or ratio >= _HIDDEN_ENOUGH or exposed < _WORTH_IT:
        return
    if not metrics["compute_ns"]:
        return  # nothing could have hidden it
    shared = sum(stream["role"] == "mixed" for stream in facts.streams)
    earlier = (
        "start collectives earlier: smaller DDP buckets (bucket_cap_mb) or prefetching in FSDP; "
    )
    on_gpus = (
        "check that CUDA_DEVICE_MAX_CONNECTIONS is not 1 unless the framework asks for it, and "
    )
    advice = (
        "communication and compute share streams, so they run one after the other: give "
        "collectives a stream of their own"
        if shared
        else f"{earlier}{'' if facts.on_cpus else on_gpus}"
        "check that no call waits for the collective right after it"
    )
    yield Finding(
        id="low_overlap",
        severity="warning",
        title=(
            f"only {percent_text(ratio)} of the communication is hidden behind compute: "
            f"{percent_text(exposed)} of the time is exposed"
        ),
        evidence={
            "overlap_ratio": ratio,
            "transfer_overlap_ratio": metrics["transfer_overlap_ratio"],
            "exposed_comm_fraction": exposed,
            "exposed_comm_ns": metrics["exposed_comm_ns"],
            "shared_streams": shared,
        },
        advice=advice,
        lost_ns=(
            metrics["exposed_comm_ns"]
            if facts.transfer_exposed_ns is None
            else facts.transfer_exposed_ns
        ),
    )
