"""Numbers for people: time, size, share and rate, each with its unit."""

_TIME_UNITS = ((1_000_000_000, "s"), (1_000_000, "ms"), (1_000, "µs"))
_SIZE_UNITS = ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"))

UNKNOWN = "unknown"


def time_text(ns: float | None) -> str:
    """Returns: a duration with the unit that keeps it between 1 and 1000.

    >>> time_text(19_113_166), time_text(640), time_text(None)
    ('19.1 ms', '640 ns', 'unknown')
    """
    if ns is None:
        return UNKNOWN
    for factor, unit in _TIME_UNITS:
        if abs(ns) >= factor:
            return (
                f"{ns / factor:.4g} {unit}"
                if abs(ns) >= 1000 * factor
                else _digits(ns, factor, unit)
            )
    return f"{ns:g} ns"


def _digits(value: float, factor: int, unit: str) -> str:
    scaled = value / factor
    decimals = 2 if abs(scaled) < 10 else 1 if abs(scaled) < 100 else 0  # noqa: PLR2004
    return f"{scaled:.{decimals}f} {unit}"


def size_text(size: int | None) -> str:
    """Returns: a size in bytes with its binary unit.

    >>> size_text(2_097_152), size_text(100)
    ('2.00 MiB', '100 B')
    """
    if size is None:
        return UNKNOWN
    for factor, unit in _SIZE_UNITS:
        if size >= factor:
            return _digits(size, factor, unit)
    return f"{size} B"


def percent_text(fraction: float | None) -> str:
    """Returns: a fraction of 1 as percent.

    >>> percent_text(0.0334), percent_text(None)
    ('3.3 %', 'unknown')
    """
    return UNKNOWN if fraction is None else f"{100 * fraction:.1f} %"
