"""Compare: runs of any size side by side, and where the difference comes from."""

import polars as pl
import streamlit as st

from traceq.compare.comparison import Comparison, Scaling
from traceq.dashboards import comparing, panel
from traceq.dashboards.choice import chosen_run
from traceq.dashboards.data import comparison, real_path, stored_runs
from traceq.errors import TraceqError
from traceq.model.units import UNKNOWN, percent_text, size_text, time_text
from traceq.render.compared.words import (
    PART_NAMES,
    cost_text,
    coverage,
    run_notes,
    signed,
    trend_notes,
    window,
)
from traceq.render.words import rate_text
from traceq.report import Row

_MOST_KINDS = 40
_SCALINGS: tuple[Scaling, ...] = ("weak", "strong")
_WITH, _SCALING, _LINKED = "compared_with", "compared_scaling", "compared_linked"


def _take_link(others: list[str]) -> None:
    """Puts what the address names into the choices, where it is not from them."""
    state, asked = st.session_state, st.query_params
    linked = (asked.get_all("with"), asked.get("scaling", _SCALINGS[0]))
    if state.get(_LINKED) != linked or _WITH not in state:
        state[_WITH] = linked[0]
        for name in set(linked[0]) - set(others):
            st.warning(panel.plain(f"{name}: no such other run in the store"))
        state[_SCALING] = linked[1] if linked[1] in _SCALINGS else _SCALINGS[0]
    state[_WITH] = [name for name in state[_WITH] if name in others]


def _ask() -> tuple[list[str], Scaling]:
    """Returns: the runs to compare with the chosen one, and how they scale."""
    base = chosen_run().name
    others = [run.name for run in stored_runs() if run.name != base]
    if not others:
        st.info("There is one run only: upload or ingest a second one to compare it with.")
        st.stop()
    _take_link(others)
    left, right = st.columns([3, 1])
    chosen = left.multiselect(
        "Compare with", others, key=_WITH, help="The run chosen at the left is the base."
    )
    scaling: Scaling = right.selectbox(
        "Scaling", _SCALINGS, key=_SCALING,
        help="Weak: work per rank stays; strong: work in all stays.",
    )  # fmt: skip
    st.query_params["with"] = chosen
    st.query_params["scaling"] = scaling
    st.session_state[_LINKED] = (chosen, scaling)
    if not chosen:
        st.info("Choose at least one run to compare with the base.")
        st.stop()
    return [base, *chosen], scaling


def _runs(compared: Comparison) -> None:
    st.subheader("Runs", anchor=False)
    panel.text_table(
        ("run", "ranks", "hosts", "window", "step time", "spread", "communication", "hidden",
         "exposed", "efficiency"),
        (
            (run["name"], coverage(run), str(run["nodes"] or UNKNOWN), window(run),
             time_text(run["step_time_ns"]), time_text(run["step_spread_ns"]),
             percent_text(run["comm_fraction"]), percent_text(run["overlap_ratio"]),
             percent_text(run["exposed_comm_fraction"]), percent_text(run["efficiency"]))
            for run in compared.runs
        ),
    )  # fmt: skip
    for line in run_notes(compared):
        st.caption(panel.plain(f"{line[:1].upper()}{line[1:]}."))
    panel.behind(pl.DataFrame(compared.runs, infer_schema_length=None), name="runs-compared")


def _settings(compared: Comparison) -> None:
    st.subheader("Not the same in all runs", anchor=False)
    if not compared.settings:
        st.caption("Nothing that the sources tell: size, devices, versions, tools and options.")
        return
    panel.text_table(
        ("setting", *(run["name"] for run in compared.runs)),
        ((row["setting"], *(v or UNKNOWN for v in row["values"])) for row in compared.settings),
    )


def _trend(compared: Comparison) -> None:
    if not compared.trend:
        return
    st.subheader("Exposed transfer over the number of ranks", anchor=False)
    sizes = sorted({point["ranks"] for row in compared.trend for point in row["points"]})
    lines = []
    for row in compared.trend:
        exposed = {point["ranks"]: time_text(point["exposed_ns"]) for point in row["points"]}
        lines.append(
            (row["op"], *(exposed.get(size, "-") for size in sizes), time_text(row["expected_ns"]),
             signed(row["excess_ns"]),
             f"{time_text(row['predicted_ns'])} on {row['predicted_ranks']} ranks")
        )  # fmt: skip
    panel.text_table(
        ("operation", *(f"{size} ranks" for size in sizes), "expected", "beyond", "predicted"),
        lines,
    )
    for note in trend_notes(compared):
        st.caption(panel.plain(f"{note[:1].upper()}{note[1:]}."))


def _curve(compared: Comparison) -> None:
    st.subheader("Over the size of the cluster", anchor=False)
    frame = comparing.scaling_rows(compared.runs)
    if frame["ranks"].n_unique() <= 1:
        st.info("No curve: it takes runs of different numbers of ranks, with steps marked.")
        return
    says = (
        f"Step time in ms against ranks; dashed: as if no efficiency were lost "
        f"({compared.scaling} scaling). Median step of the slowest rank, {frame.height} runs."
    )
    panel.chart(comparing.scaling_of_runs(frame), frame, name="scaling", says=says)


def _waterfall(fall: Row, cause: Row) -> None:
    st.markdown(f"**{panel.plain(fall['run'])}** against {panel.plain(fall['base'])}: "
                f"{panel.plain(cause['text'])}.")  # fmt: skip
    if not fall["parts"]:
        if fall["reason"]:
            panel.unknown({"Step time": fall["reason"]})
        return
    frame = comparing.waterfall_rows(fall, PART_NAMES)
    says = (
        "Difference in ms of the median step time by its parts, which add up to it. Pale: not more "
        "than steps differ among themselves."
    )
    panel.chart(
        comparing.waterfall_of_parts(frame), frame, name=f"waterfall-{fall['run']}", says=says
    )
    panel.text_table(
        ("part", "base", "run", "difference", "noise", "verdict"),
        (
            (PART_NAMES[part["part"]], time_text(part["base_ns"]), time_text(part["run_ns"]),
             signed(part["difference_ns"]), time_text(part["noise_ns"]), part["verdict"])
            for part in fall["parts"]
        ),
    )  # fmt: skip


def _collectives(compared: Comparison) -> None:
    st.subheader("Collectives", anchor=False)
    if not compared.collectives:
        panel.nothing("None to compare", "no_comm")
        return
    lines = []
    for kind in compared.collectives[:_MOST_KINDS]:
        for run, entry in zip(compared.runs, kind["runs"], strict=True):
            size = "any" if kind["bucket_bytes"] is None else f"{size_text(kind['bucket_bytes'])}+"
            if entry is None:
                lines.append((kind["op"], size, run["name"], *["-"] * 5))
                continue
            lines.append(
                (kind["op"], size, run["name"], str(entry["group_size"] or UNKNOWN),
                 time_text(entry["transfer_ns_p50"]),
                 rate_text(entry), percent_text(entry["efficiency"]),
                 signed(entry["growth_ns"]))
            )  # fmt: skip
    panel.text_table(
        ("operation", "size", "run", "ranks", "transfer", "busbw [GB/s]", "of peak",
         "exposed, grown"),
        lines,
    )  # fmt: skip
    if len(compared.collectives) > _MOST_KINDS:
        st.caption(f"The first {_MOST_KINDS} of {len(compared.collectives):,} kinds.")
    st.caption(panel.plain(f"{cost_text(compared)}."))


panel.head("Compare", "Why is one run slower than another, and how does it scale?")
names, kind_of_scaling = _ask()
by_name = {run.name: run for run in stored_runs()}
try:
    result = comparison(tuple(real_path(by_name[name]) for name in names), kind_of_scaling)
except TraceqError as error:
    st.error(panel.plain(str(error)))
    st.stop()
_runs(result)
_settings(result)
st.subheader("Where the difference comes from", anchor=False)
for each, why in zip(result.waterfalls, result.causes, strict=True):
    _waterfall(each, why)
_curve(result)
_trend(result)
_collectives(result)
