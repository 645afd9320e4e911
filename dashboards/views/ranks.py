"""Ranks: who waited, who was late, and what kept it."""

import polars as pl
import streamlit as st

from traceq.dashboards import charts, panel
from traceq.dashboards.choice import chosen_path
from traceq.dashboards.data import report as report_of
from traceq.dashboards.data import rows
from traceq.model.units import percent_text, time_text
from traceq.render.words import VERDICTS, chance_text, last_text
from traceq.report import Report

_MOST_OPERATIONS = 20_000
_CAUSES = {
    "compute": "as many and the same kernels take longer: clocks, heat, another job on the device",
    "imbalance": "it runs more or other kernels than its peers",
    "launch": "its device idles while the host is late: data loader, GIL, synchronisation",
    "copy": "copies keep it",
    "upstream": "it waits in another communicator: look for the late rank there",
    "unknown": "nothing explains half of it",
}


def _why_nobody(report: Report) -> str | None:
    return report.reasons.get("straggler_fraction")


def _verdict(report: Report) -> None:
    late = [row for row in report.stragglers if row["straggler"]]
    for row in late:
        cause = row["cause"] or "unknown"
        text = (
            f"Rank {row['rank']} is a straggler: late by {time_text(row['lateness_ns'])} in sum, "
            f"{percent_text(row['straggler_fraction'])} of its window; the others waited "
            f"{time_text(row['imposed_wait_ns'])} for it. Cause: {cause} ({_CAUSES[cause]})."
        )
        st.error(panel.plain(text), icon=":material/person_alert:")
    if not late and _why_nobody(report):
        panel.nothing("Whether a rank is a straggler is unknown", _why_nobody(report))
    elif not late:
        st.success(
            "No rank is a straggler: none is late by at least 1 % of its window and more than "
            "chance explains."
        )


def _stragglers(report: Report) -> None:
    st.subheader("Who arrived late", anchor=False)
    _verdict(report)
    if not report.stragglers:
        return
    frame = charts.lateness_rows(report.stragglers)
    says = (
        "Time in ms by which each rank arrived behind its median peer, in sum over its matched "
        f"collectives. {panel.of(frame.height, len(report.stragglers), 'ranks, latest first')}; "
        "window as above."
    )
    panel.chart(charts.lateness_of_ranks(frame), frame, name="lateness", says=says)
    panel.text_table(
        ("rank", "verdict", "last", "late", "of window", "imposed", "removable", "p", "unit",
         "cause"),
        (
            (str(row["rank"]), VERDICTS[row["straggler"]],
             last_text(row), time_text(row["lateness_ns"]),
             percent_text(row["straggler_fraction"]), time_text(row["imposed_wait_ns"]),
             time_text(row["removable_ns"]), chance_text(row["p_value"]), row["unit"],
             row["cause"] or "-")
            for row in report.stragglers[: charts.MOST_RANKS]
        ),
    )  # fmt: skip
    st.caption(
        "Last: how often it arrived last; ties are shared. Late: behind its median peer, in sum. "
        "Imposed: others waited for it, in sum. Removable: gained, had it arrived with the next. "
        "p: chance of being later than the median peer in as many of the unit."
    )
    panel.cut(charts.MOST_RANKS, len(report.stragglers), "ranks")
    if any(row["partial"] for row in report.stragglers):
        st.caption("Ranks are missing: a straggler among the others is unknown.")
    panel.behind(pl.DataFrame(report.stragglers, infer_schema_length=None), name="stragglers")


def _waiting(report: Report, path: str) -> None:
    st.subheader("Who waited, in which collective", anchor=False)
    collectives = rows(path, "collectives", (("k", _MOST_OPERATIONS),))
    frame = charts.waiting_rows(collectives)
    if frame.is_empty():
        panel.nothing("No waiting to show", _waiting_reason(report))
        return
    shown, all_ = frame["collective_id"].n_unique(), collectives["collective_id"].n_unique()
    most = f"those in which most was waited, of {all_:,} read" if shown < all_ else "whole capture"
    says = (
        "Time in ms that each rank waited for the last to arrive. "
        f"{shown:,} collectives, {most}; {len(report.ranks)} ranks."
    )
    panel.chart(charts.waiting_of_ranks(frame), frame, name="waiting", says=says)


def _waiting_reason(report: Report) -> str:
    if report.metrics["comm_ns"] == 0:
        return "no_comm"
    return "unmatched" if len(report.ranks) > 1 else "single_rank"


chosen = chosen_path()
shown_report = report_of(chosen)
panel.head("Ranks", "Who is late, who waits for it, and what keeps it?", shown_report)
_stragglers(shown_report)
_waiting(shown_report, chosen)
