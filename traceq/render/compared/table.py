"""A comparison as a table for people: why, then what it is made of, then every collective."""

from collections.abc import Iterable

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from traceq.compare.comparison import Comparison
from traceq.compare.waterfall import Verdict
from traceq.model.units import UNKNOWN, percent_text, size_text, time_text
from traceq.render.compared.words import (
    PART_NAMES,
    cost_text,
    coverage,
    labels,
    run_notes,
    signed,
    titles,
    trend_notes,
    window,
)
from traceq.render.gates import gates
from traceq.render.layout import MOST_ROWS, clean, more, printed, section, shorten, table_of
from traceq.render.words import chance_text, rate_text
from traceq.report import Row

_STYLES = {Verdict.MORE: "red", Verdict.LESS: "green", Verdict.NOISE: "yellow"}
_AT_ONCE = 3  # runs beside the base in one table
_NAME = 14


def render(comparison: Comparison, *, color: bool = False) -> str:
    """Returns: the comparison as text of at most 100 columns.

    Args:
        comparison: the comparison.
        color: use terminal colours.
    """
    return printed(Group(*_sections(comparison)), color=color)


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
    base, *others = (shorten(title, 80) for title in titles(comparison, _NAME))
    lines = [
        Text.assemble(
            (title, "bold"), ": ", (clean(cause["text"]), _STYLES.get(cause["verdict"], ""))
        )
        for title, cause in zip(others, comparison.causes, strict=True)
    ]
    against = Text.assemble(("traceq compare", "bold"), f"  against {base}")
    return Padding(Group(against, "", *lines), (0, 0, 1, 0))


def _runs(comparison: Comparison) -> RenderableType:
    table = table_of(
        *("<run", "ranks", "<window", "step time", "spread", "efficiency"),
        *("comm", "exposed", "hidden"),
    )
    for run, label in zip(comparison.runs, labels(comparison, _NAME), strict=True):
        table.add_row(
            Text(label),
            coverage(run),
            window(run),
            time_text(run["step_time_ns"]),
            time_text(run["step_spread_ns"]),
            percent_text(run["efficiency"]),
            percent_text(run["comm_fraction"]),
            percent_text(run["exposed_comm_fraction"]),
            percent_text(run["overlap_ratio"]),
        )
    notes = run_notes(comparison)
    return section("Runs (exposed is a share of the window, hidden of comm)", table, *notes)


def _settings(comparison: Comparison) -> Iterable[RenderableType]:
    names = labels(comparison, _NAME)
    for chosen in _chunks(len(names)):
        table = table_of("<", *(f"<{names[k]}" for k in chosen))
        for row in comparison.settings:
            values = (row["values"][k] or UNKNOWN for k in chosen)
            table.add_row(row["setting"], *(Text(shorten(value, 22)) for value in values))
        yield section("Not the same in all runs", table)


def _chunks(count: int) -> list[list[int]]:
    """Returns: positions of runs for each table, the base first in all of them."""
    others = list(range(1, count))
    return [[0, *others[k : k + _AT_ONCE]] for k in range(0, len(others), _AT_ONCE)]


def _waterfalls(comparison: Comparison) -> Iterable[RenderableType]:
    base, *others = labels(comparison, _NAME)
    falls = [
        (name, fall)
        for name, fall in zip(others, comparison.waterfalls, strict=True)
        if fall["difference_ns"] is not None
    ]
    for k in range(0, len(falls), _AT_ONCE):
        chosen = falls[k : k + _AT_ONCE]
        if len({tuple(part["part"] for part in fall["parts"]) for _, fall in chosen}) == 1:
            yield _waterfall(base, chosen)
        else:
            yield from (_waterfall(base, [each]) for each in chosen)


def _waterfall(base: str, named: list[tuple[str, Row]]) -> RenderableType:
    table = table_of("<", base)
    falls = [fall for _, fall in named]
    for name, _ in named:
        table.add_column(name, justify="right", no_wrap=True)
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
    names = labels(comparison, _NAME)
    for row in comparison.collectives[:MOST_ROWS]:
        head = (row["op"], size_text(row["bucket_bytes"]))
        for label, entry in zip(names, row["runs"], strict=True):
            table.add_row(*head, Text(label), *_entry(entry))
            head = ("", "")
    title = "Collectives (most grown first)"
    return section(title, table, cost_text(comparison), more(len(comparison.collectives), "kinds"))


def _entry(entry: Row | None) -> Iterable[str | Text]:
    if entry is None:
        return [Text("-", style="dim"), *[""] * 6]
    return (
        UNKNOWN if entry["group_size"] is None else str(entry["group_size"]),
        UNKNOWN if entry["window_calls"] is None else f"{entry['window_calls']:.4g}",
        Text(time_text(entry["transfer_ns_p50"]), style=_STYLES.get(entry["verdict"], "")),
        time_text(entry["wait_ns_mean"]),
        rate_text(entry),
        percent_text(entry["efficiency"]),
        time_text(entry["window_exposed_ns"]),
    )


def _stragglers(comparison: Comparison) -> RenderableType:
    table = table_of("<run", "rank", "late", "of window", "imposed", "p", "<cause")
    names = [run["name"] for run in comparison.runs]
    short = dict(zip(names, labels(comparison, _NAME), strict=True))
    for row in comparison.stragglers[:MOST_ROWS]:
        table.add_row(
            Text(short[row["run"]]),
            str(row["rank"]),
            time_text(row["lateness_ns"]),
            percent_text(row["straggler_fraction"]),
            time_text(row["imposed_wait_ns"]),
            chance_text(row["p_value"]),
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
