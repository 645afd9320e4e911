"""Findings and notes of a report, in words."""

import streamlit as st

from traceq.dashboards.panel import plain
from traceq.model.units import time_text
from traceq.render.words import sentence
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
