"""Overview: the headline numbers, and where each step's time goes."""

import streamlit as st

from traceq.dashboards import charts, panel
from traceq.dashboards.choice import chosen_path
from traceq.dashboards.data import report as report_of
from traceq.dashboards.notes import show_findings, show_notes
from traceq.model.units import UNKNOWN, percent_text, time_text
from traceq.render.words import answer_text, clock_text, coverage_text, window_text
from traceq.report import Report


def _headline(report: Report) -> None:
    metrics, reasons = report.metrics, report.reasons
    step_ms = metrics["step_time_ms"]
    texts = {
        "Step time": (UNKNOWN if step_ms is None else time_text(step_ms * 1e6), "step_time_ms"),
        "Communication": (percent_text(metrics["comm_fraction"]), "comm_fraction"),
        "of it hidden": (percent_text(metrics["overlap_ratio"]), "overlap_ratio"),
        "Exposed": (percent_text(metrics["exposed_comm_fraction"]), "exposed_comm_fraction"),
        "Straggler late by": (percent_text(metrics["straggler_fraction"]), "straggler_fraction"),
    }
    st.markdown(f"#### {panel.plain(answer_text(report))}")
    panel.tiles(
        {
            label: (text, reasons.get(name) if text == UNKNOWN else None)
            for label, (text, name) in texts.items()
        }
    )
    clocks = clock_text(report)
    if clocks:
        st.caption(f"Clocks: {panel.plain(clocks)}")


def _parts(report: Report) -> None:
    st.subheader("Where each rank's time goes", anchor=False)
    frame = charts.part_rows(report.ranks)
    if frame.is_empty():
        panel.nothing("No parts to show", report.reasons.get("comm_fraction"))
        return
    says = (
        f"Share of each rank's window, in percent; the parts add up to it. "
        f"{panel.of(frame['rank'].n_unique(), len(report.ranks), 'ranks, most exposed first')}. "
        f"Window: {window_text(report)}. Coverage: {coverage_text(report)}."
    )
    panel.chart(charts.parts_of_ranks(frame), frame, name="parts", says=says)


def _steps(report: Report) -> None:
    st.subheader("Where each step's time goes", anchor=False)
    if not report.steps:
        panel.nothing("No steps to show", "no_steps")
        return
    frame = charts.step_rows(report.steps)
    if frame.is_empty():
        panel.nothing("No parts of steps to show", report.reasons.get("comm_fraction"))
        return
    says = (
        "Time of each step in ms, mean over ranks. "
        f"{panel.of(frame['step'].n_unique(), report.run['steps'], 'steps')}, "
        f"{len(report.ranks)} ranks. Line: the slowest rank of the step."
    )
    panel.chart(charts.parts_of_steps(frame), frame, name="steps", says=says)


shown = report_of(chosen_path())
panel.head("Overview", "How much of the time is communication, and where does the rest go?", shown)
_headline(shown)
show_findings(shown)
_parts(shown)
_steps(shown)
show_notes(shown)
