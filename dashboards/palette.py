"""Colours that people who see colours differently can tell apart, on light and dark.

Each meaning has one colour everywhere. Source: Okabe and Ito, Color Universal Design (2008).
"""

COMPUTE = "#009E73"
EXPOSED_COMM = "#D55E00"
EXPOSED_COPY = "#E69F00"
IDLE = "#8A949E"
WAITING = "#CC79A7"
NEUTRAL = "#0072B2"
OTHER = "#56B4E9"

PARTS = {
    "compute_ns": ("compute", COMPUTE),
    "exposed_comm_ns": ("exposed communication", EXPOSED_COMM),
    "exposed_copy_ns": ("exposed copies", EXPOSED_COPY),
    "idle_ns": ("idle", IDLE),
}

SERIES = (NEUTRAL, EXPOSED_COMM, COMPUTE, WAITING, EXPOSED_COPY, OTHER, "#B79F00", IDLE)

VERDICTS = {"straggler": EXPOSED_COMM, "not significant": NEUTRAL, "unknown": IDLE}
