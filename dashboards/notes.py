"""Findings and notes of a report, in words."""

import streamlit as st

from traceq.dashboards.panel import plain
from traceq.model.units import time_text
from traceq.render.words import clock_text, sentence
from traceq.report import Report

_ICONS = {
    "error": ":material/error:",
    "warning": ":material/warning:",
    "info": ":material/info:",
}
_MOST = 12


def show_findings(report: Report) -> None:
    """Shows what costs time and what to do about it, most first."""
    st.subheader("Findings", anchor=False)
    if not report.findings:
        st.caption("No rule found anything that costs time.")
    for row in report.findings[:_MOST]:
        lost = row["evidence"]["lost_ns"]
        cost = f" Costs {plain(time_text(lost))} in sum over ranks." if lost else ""
        st.markdown(f"{_ICONS[row['severity']]} **{plain(sentence(row['title']))}**{cost}")
        st.caption(plain(sentence(row["advice"])))


def show_notes(report: Report) -> None:
    """Shows what the capture cannot tell, and what to do about it."""
    st.subheader("Notes, and what this capture cannot tell", anchor=False)
    if not report.diagnostics:
        st.caption("Nothing was noticed about the sources.")
    told: dict[tuple[str, str], list[str]] = {}
    hints = {}
    for row in report.diagnostics:
        files = told.setdefault((row["severity"], row["message"]), [])
        hints[row["severity"], row["message"]] = row["hint"]
        if row["source"]:
            files.append(row["source"])
    for (severity, message), files in told.items():
        where = f" ({', '.join(files[:3])}{', …' if files[3:] else ''})" if files else ""
        st.markdown(f"{_ICONS[severity]} {plain(message + where)}")
        hint = hints[severity, message]
        if hint:
            st.caption(f"→ {plain(hint)}")


def clock_note(report: Report) -> str:
    """Returns: whether times of different ranks can be compared, and how far."""
    told = clock_text(report)
    if told:
        return f"Clocks: {told}."
    hosts = {source["host"] for source in report.sources}
    if len(report.sources) == 1 or (len(hosts) == 1 and None not in hosts):
        return f"Clocks: one {'source' if len(report.sources) == 1 else 'host'}, nothing to align."
    aligned = [s for s in report.sources if s["clock_residual_p95_ns"] is not None]
    if aligned:
        residual = max(source["clock_residual_p95_ns"] for source in aligned)
        return f"Clocks: none had to be shifted; 95 % of ends lie within {time_text(residual)}."
    return "Clocks are not aligned: order between ranks of different sources means nothing."
