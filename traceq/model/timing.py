"""The columns of time accounting, by the one name each has in tables, queries and reports.

Source: docs/metrics.md, time accounting.
"""

PARTS = (
    "window_ns",
    "compute_ns",
    "comm_ns",
    "overlap_ns",
    "exposed_comm_ns",
    "copy_ns",
    "exposed_copy_ns",
    "idle_ns",
)
RATIOS = ("comm_fraction", "exposed_comm_fraction", "overlap_ratio")
