"""A comparison as a table for people: why, then what it is made of, then every collective."""

import io
from collections.abc import Iterable

from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from traceq.compare.comparison import Comparison
from traceq.compare.waterfall import Verdict
from traceq.model.units import UNKNOWN, percent_text, size_text, time_text
from traceq.render.compared.words import (
    PART_NAMES,
    coverage,
    missing_efficiency,
    scaling_text,
    signed,
    trend_notes,
    window,
)
from traceq.render.gates import gates
from traceq.render.layout import MOST_ROWS, WIDTH, more, section, shorten, table_of
from traceq.report import Row

_STYLES = {Verdict.MORE: "red", Verdict.LESS: "green", Verdict.NOISE: "yellow"}
_AT_ONCE = 3  # runs beside the base in one table
_NAME = 16


def render(comparison: Comparison, *, color: bool = False) -> str:
    """Returns: the comparison as text of at most 100 columns.

    Args:
        comparison: the comparison.
        color: use terminal colours.
    """
    out = io.StringIO()
    console = Console(
        file=out,
        width=WIDTH,
        force_terminal=color,
        color_system="standard" if color else None,
        highlight=False,
    )
    console.print(Group(*_sections(comparison)))
    return "\n".join(line.rstrip() for line in out.getvalue().splitlines()) + "\n"


def _sections(comparison: Comparison) -> Iterable[RenderableType]:
    yield _headline(comparison)
    if comparison.gates:
        yield gates(comparison.gates)
    yield _runs(comparison)
    if comparison.settings:
        yield from _settings(comparison)
    yield from _waterfalls(comparison)
    if comparison.collectives:
        yield _collectives(comparison)
    if comparison.stragglers:
        yield _stragglers(comparison)
    if comparison.trend:
        yield _trend(comparison)


def _headline(comparison: Comparison) -> RenderableType:
    lines = [
        Text.assemble(
            (shorten(cause["run"], 40), "bold"), ": ",
            (cause["text"], _STYLES.get(cause["verdict"], "")),
        )
        for cause in comparison.causes
    ]  # fmt: skip
    against = Text.assemble(("traceq compare", "bold"), f"  against {comparison.runs[0]['name']}")
    return Padding(Group(against, "", *lines), (0, 0, 1, 0))


def _runs(comparison: Comparison) -> RenderableType:
    table = table_of(
        *("<run", "ranks", "hosts", "<window", "step time", "spread", "efficiency"),
        *("comm", "exposed", "hidden"),
    )
    for run in comparison.runs:
        table.add_row(
            Text(shorten(run["name"], _NAME)),
            coverage(run),
            UNKNOWN if run["nodes"] is None else str(run["nodes"]),
            window(run),
            time_text(run["step_time_ns"]),
            time_text(run["step_spread_ns"]),
            percent_text(run["efficiency"]),
            percent_text(run["comm_fraction"]),
            percent_text(run["exposed_comm_fraction"]),
            percent_text(run["overlap_ratio"]),
        )
    notes = [f"efficiency: {scaling_text(comparison)}", *missing_efficiency(comparison)]
    return section("Runs (exposed is a share of the window, hidden of comm)", table, *notes)


def _settings(comparison: Comparison) -> Iterable[RenderableType]:
    names = [run["name"] for run in comparison.runs]
    for chosen in _chunks(len(names)):
        table = table_of("<", *(f"<{shorten(names[k], _NAME)}" for k in chosen))
        for row in comparison.settings:
            values = (row["values"][k] or UNKNOWN for k in chosen)
            table.add_row(row["setting"], *(Text(shorten(value, 22)) for value in values))
        yield section("Not the same in all runs", table)


def _chunks(count: int) -> list[list[int]]:
    """Returns: positions of runs for each table, the base first in all of them."""
    others = list(range(1, count))
    return [[0, *others[k : k + _AT_ONCE]] for k in range(0, len(others), _AT_ONCE)]


def _waterfalls(comparison: Comparison) -> Iterable[RenderableType]:
    falls = [fall for fall in comparison.waterfalls if fall["difference_ns"] is not None]
    for k in range(0, len(falls), _AT_ONCE):
        chosen = falls[k : k + _AT_ONCE]
        if len({tuple(part["part"] for part in fall["parts"]) for fall in chosen}) == 1:
            yield _waterfall(chosen)
        else:
            yield from (_waterfall([fall]) for fall in chosen)


def _waterfall(falls: list[Row]) -> RenderableType:
    table = table_of("<", shorten(falls[0]["base"], _NAME))
    for fall in falls:
        table.add_column(shorten(fall["run"], _NAME), justify="right", no_wrap=True)
        table.add_column("difference", justify="right", no_wrap=True)
    for position, part in enumerate(falls[0]["parts"]):
        parts = [fall["parts"][position] for fall in falls]
        _add(table, PART_NAMES[part["part"]], parts)
    _add(table, "step time", falls)
    note = "* within what steps of one run differ among themselves"
    marked = any(_noise(row) for fall in falls for row in (fall, *fall["parts"]))
    title = "Where a step goes (medians over steps of the mean rank; parts add up to the step time)"
    return section(title, table, note if marked else None)


def _add(table: Table, name: str, rows: list[Row]) -> None:
    cells: list[str | Text] = [time_text(rows[0]["base_ns"])]
    for row in rows:
        mark = " *" if _noise(row) else "  "
        style = _STYLES.get(row["verdict"], "")
        cells += [time_text(row["run_ns"]), Text(signed(row["difference_ns"]) + mark, style=style)]
    table.add_row(name, *cells)


def _noise(row: Row) -> bool:
    return bool(row["verdict"] == Verdict.NOISE)


def _collectives(comparison: Comparison) -> RenderableType:
    table = table_of(
        *("<operation", "size", "<run", "group", "calls", "transfer", "waiting"),
        *("busbw", "of peak", "exposed"),
    )
    for row in comparison.collectives[:MOST_ROWS]:
        head = (row["op"], size_text(row["bucket_bytes"]))
        for run, entry in zip(comparison.runs, row["runs"], strict=True):
            table.add_row(*head, Text(shorten(run["name"], _NAME)), *_entry(entry))
            head = ("", "")
    note = (
        "medians; calls and exposed time of a rank in a step, waiting of a rank in a call; busbw "
        "in GB/s; of peak: the peak of each run's own link"
    )
    title = "Collectives (most grown first)"
    return section(title, table, note, more(len(comparison.collectives), "kinds"))


def _entry(entry: Row | None) -> Iterable[str | Text]:
    if entry is None:
        return [Text("-", style="dim"), *[""] * 6]
    busbw = UNKNOWN if entry["busbw_gbps"] is None else f"{entry['busbw_gbps']:.4g}"
    bound = {"partial_ranks": ">=", "rooted": "<="}.get(entry["quality"], "")
    return (
        UNKNOWN if entry["group_size"] is None else str(entry["group_size"]),
        UNKNOWN if entry["window_calls"] is None else f"{entry['window_calls']:.4g}",
        Text(time_text(entry["transfer_ns_p50"]), style=_STYLES.get(entry["verdict"], "")),
        time_text(entry["wait_ns_mean"]),
        f"{bound}{busbw}",
        percent_text(entry["efficiency"]),
        time_text(entry["window_exposed_ns"]),
    )


def _stragglers(comparison: Comparison) -> RenderableType:
    table = table_of("<run", "rank", "late", "of window", "imposed", "p", "<cause")
    for row in comparison.stragglers[:MOST_ROWS]:
        table.add_row(
            Text(shorten(row["run"], _NAME)),
            str(row["rank"]),
            time_text(row["lateness_ns"]),
            percent_text(row["straggler_fraction"]),
            time_text(row["imposed_wait_ns"]),
            f"{row['p_value']:.2g}",
            row["cause"] or UNKNOWN,
        )
    return section("Stragglers", table, more(len(comparison.stragglers), "stragglers"))


def _trend(comparison: Comparison) -> RenderableType:
    sizes = [point["ranks"] for point in comparison.trend[0]["points"]]
    table = table_of("<operation", "exposed at ranks", "fit", "expected", "beyond", "predicted")
    for row in comparison.trend[:MOST_ROWS]:
        last = row["points"][-1]
        told = ", ".join(f"{p['ranks']}: {time_text(p['exposed_ns'])}" for p in row["points"][-3:])
        beyond = Text(signed(row["excess_ns"]), style="bold red" if row["breaks"] else "")
        table.add_row(
            row["op"], told, time_text(last["fit_ns"]), time_text(row["expected_ns"]), beyond,
            time_text(row["predicted_ns"]),
        )  # fmt: skip
    notes = trend_notes(comparison)
    ranks = ", ".join(map(str, sizes))
    title = f"Scaling (exposed transfer of a rank in a step, on {ranks} ranks)"
    return section(title, table, *notes)
