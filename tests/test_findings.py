"""Each rule on facts made by hand: what it finds, with which numbers, and when it is silent."""

from dataclasses import replace
from typing import Any

import pytest

from traceq.findings import RULES, find_all
from traceq.findings.facts import Facts

QUIET = Facts(
    metrics={
        "overlap_ratio": 0.9, "exposed_comm_fraction": 0.02, "comm_fraction": 0.2,
        "transfer_overlap_ratio": 0.9, "exposed_comm_ns": 20, "compute_ns": 800,
    },
    transfer_exposed_ns=10, collectives=[], stragglers=[], latency=[], imbalance=[], slow_links=[],
    streams=[], diagnostics=[],
)  # fmt: skip


def kind(**more: Any) -> dict[str, Any]:
    return {
        "op": "all_reduce", "group_size": 8, "link": "intra", "bytes_p50": 128 << 20, "count": 80,
        "busbw_gbps": 100.0, "peak_gbps": 450.0, "peak_source": "NVLink 4", "efficiency": 0.22,
        "quality": "measured", "transfer_ns_p50": 1000, "exposed_ns": 50,
    } | more  # fmt: skip


def ids(facts: Facts) -> list[str]:
    return [finding.id for finding in find_all(facts)]


def test_a_quiet_run_has_no_finding() -> None:
    assert ids(QUIET) == []


def test_low_overlap_and_its_limits() -> None:
    low = QUIET.metrics | {"overlap_ratio": 0.3, "exposed_comm_fraction": 0.2}
    (finding,) = find_all(replace(QUIET, metrics=low))
    assert (finding.id, finding.lost_ns) == ("low_overlap", 10)
    assert finding.evidence["overlap_ratio"] == 0.3
    assert "bucket_cap_mb" in finding.advice
    assert ids(replace(QUIET, metrics=low | {"exposed_comm_fraction": 0.04})) == []
    assert ids(replace(QUIET, metrics=low | {"compute_ns": 0})) == []
    assert ids(replace(QUIET, metrics=low | {"overlap_ratio": None})) == []


def test_a_shared_stream_is_the_cause_of_low_overlap() -> None:
    low = QUIET.metrics | {"overlap_ratio": 0.0, "exposed_comm_fraction": 0.2}
    (finding,) = find_all(replace(QUIET, metrics=low, streams=[{"role": "mixed"}]))
    assert "a stream of their own" in finding.advice


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        (kind(), ["below_peak"]),
        (kind(efficiency=0.6), []),
        (kind(bytes_p50=1 << 20), []),
        (kind(quality="partial_ranks"), []),
        (kind(quality="rooted"), []),
        (kind(peak_source="baseline", efficiency=0.7), ["below_baseline"]),
        (kind(peak_source="baseline", efficiency=0.85), []),
        (kind(peak_source="baseline", efficiency=0.5, link="unknown"), []),
        (kind(efficiency=None, peak_gbps=None), []),
    ],
)
def test_bandwidth_below_its_reference(row: dict[str, Any], expected: list[str]) -> None:
    assert ids(replace(QUIET, collectives=[row])) == expected


def test_what_is_lost_below_a_baseline() -> None:
    row = kind(peak_source="baseline", efficiency=0.75)
    (finding,) = find_all(replace(QUIET, collectives=[row]))
    assert finding.lost_ns == 0.25 * 1000 * 80


def test_heavy_communication_at_the_baseline_is_no_fault_of_the_network() -> None:
    row = kind(peak_source="baseline", efficiency=0.95)
    facts = replace(QUIET, collectives=[row], metrics=QUIET.metrics | {"comm_fraction": 0.5})
    assert ids(facts) == ["comm_heavy"]


def test_latency_bound_messages_are_counted() -> None:
    row = {"op": "all_reduce", "group_size": 4, "link": "intra", "bucket_bytes": 1024,
           "collective_count": 10, "latency_fraction": 0.9, "alpha_us": 5.0, "model_ns": 1000.0,
           "transfer_ns": 900}  # fmt: skip
    (finding,) = find_all(replace(QUIET, latency=[row]))
    assert (finding.id, finding.lost_ns) == ("latency_bound", 10 * 1000 * 0.9 * 4)
    assert finding.evidence["collective_count"] == 10
    assert ids(replace(QUIET, latency=[row | {"collective_count": 7}])) == []
    assert ids(replace(QUIET, latency=[row | {"latency_fraction": 0.4}])) == []
    (finding,) = find_all(replace(QUIET, latency=[row | {"model_ns": None}]))
    assert finding.lost_ns == 10 * 900 * 0.9 * 4


def test_barriers_cost_what_they_expose() -> None:
    (finding,) = find_all(replace(QUIET, collectives=[kind(op="barrier", efficiency=None)]))
    assert (finding.id, finding.lost_ns, finding.evidence["count"]) == ("barrier", 50, 80)


def test_most_of_the_transfer_between_nodes() -> None:
    near, far = kind(efficiency=None), kind(efficiency=None, link="inter", transfer_ns_p50=3000)
    (finding,) = find_all(replace(QUIET, collectives=[near, far]))
    assert (finding.id, finding.evidence["inter_fraction"]) == ("cross_node", 0.75)
    assert ids(replace(QUIET, collectives=[near, far | {"link": "unknown"}])) == []


def test_what_hides_numbers_is_a_finding() -> None:
    note = {"code": "graph_hidden", "message": "3 graphs", "hint": "capture nodes", "count": 3}
    (finding,) = find_all(replace(QUIET, diagnostics=[note, note]))
    assert (finding.id, finding.evidence["count"]) == ("capture_graph_hidden", 6)
    assert finding.advice == "capture nodes"


def test_most_time_lost_comes_first() -> None:
    low = QUIET.metrics | {"overlap_ratio": 0.3, "exposed_comm_fraction": 0.2}
    facts = replace(
        QUIET,
        metrics=low,
        transfer_exposed_ns=60,
        collectives=[kind(op="barrier", efficiency=None)],
    )
    assert ids(facts) == ["low_overlap", "barrier"]
    assert ids(replace(facts, transfer_exposed_ns=40)) == ["barrier", "low_overlap"]


def test_every_finding_has_its_numbers_as_json() -> None:
    row = kind(peak_source="baseline", efficiency=0.75)
    for finding in find_all(replace(QUIET, collectives=[row, kind(op="barrier")])):
        data = finding.as_json()
        assert set(data) == {"id", "severity", "title", "evidence", "advice"}
        assert data["evidence"]["lost_ns"] == finding.lost_ns
        assert len(data["evidence"]) > 1


def test_every_rule_is_listed_once() -> None:
    assert len({rule.__module__ for rule in RULES}) == len(RULES) == 9
