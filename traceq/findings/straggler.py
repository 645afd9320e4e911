"""A rank that others wait for, with what kept it."""

from collections.abc import Iterator

from traceq.findings.facts import Facts, Finding
from traceq.model.units import percent_text, time_text

_ADVICE = {
    "compute": "the same kernels take longer there: compare clocks, power and temperature of its "
    "GPU (nvidia-smi -q -d CLOCK,PERFORMANCE,TEMPERATURE), and look for other work on it",
    "imbalance": "it runs more or other kernels than its peers: balance batches, sequence lengths, "
    "experts or pipeline stages",
    "launch": "its device waits for the host: look at its data loader, the GIL, garbage collection "
    "and synchronising calls, and at what else runs on its cores",
    "copy": "copies keep it: use pinned memory and non-blocking copies, and check its PCIe link",
    "upstream": "another communicator keeps it: look for the late rank there first",
    "unknown": "no single cause explains half of it: compare its timeline with a peer's between "
    "two collectives",
}

_ON_CPUS = {
    "compute": "the same operations take longer there: compare clocks and load of its cores, and "
    "how many threads it may use",
    "launch": "nothing runs while it is late: look at its data loader, the GIL and garbage "
    "collection",
}


def find(facts: Facts) -> Iterator[Finding]:
    """Yields: one finding for each straggler."""
    for row in facts.stragglers:
        if row["straggler"]:
            cause = row["cause"] or "unknown"
            among = " among the ranks that are there" if row["partial"] else ""
            yield Finding(
                id="straggler",
                severity="warning",
                title=(
                    f"rank {row['rank']} is a straggler{among}: {time_text(row['lateness_ns'])} "
                    f"late in sum, {percent_text(row['straggler_fraction'])} of its window; others "
                    f"waited {time_text(row['imposed_wait_ns'])} for it; cause: {cause}"
                ),
                evidence={
                    key: row[key]
                    for key in (
                        *("rank", "lateness_ns", "straggler_fraction", "imposed_wait_ns"),
                        *(
                            "removable_ns",
                            "times_last",
                            "collectives",
                            "p_value",
                            "cause",
                            "partial",
                        ),
                    )
                },
                advice=_ON_CPUS.get(cause, _ADVICE[cause]) if facts.on_cpus else _ADVICE[cause],
                lost_ns=row["imposed_wait_ns"],
            )
