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
    "compute_ns": COMPUTE,
    "exposed_comm_ns": EXPOSED_COMM,
    "exposed_copy_ns": EXPOSED_COPY,
    "idle_ns": IDLE,
}

SERIES = (NEUTRAL, EXPOSED_COMM, COMPUTE, WAITING, EXPOSED_COPY, OTHER, "#B79F00", IDLE)

VERDICTS = {True: EXPOSED_COMM, False: NEUTRAL, None: IDLE}
