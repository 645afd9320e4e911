"""Collectives: which run below their link, and which are bound by latency."""

import polars as pl
import streamlit as st

from traceq.dashboards import charts, panel
from traceq.dashboards.choice import chosen_path
from traceq.dashboards.data import report as report_of
from traceq.dashboards.data import rows
from traceq.model.units import UNKNOWN, percent_text, size_text, time_text
from traceq.render.words import BOUNDS, peak_text, rate_text
from traceq.report import Report, Row, reason_text

_MOST_KINDS = 60


def _line(row: Row) -> tuple[str, ...]:
    return (
        row["op"],
        str(row["group_size"] or UNKNOWN),
        row["link"],
        f"{row['count']:,}",
        size_text(row["bytes_p50"]),
        *(time_text(row[name]) for name in ("duration_ns_p50", "transfer_ns_p50", "wait_ns")),
        *(rate_text(row, name) for name in ("algbw_gbps", "busbw_gbps")),
        peak_text(row),
    )


def _bandwidth(report: Report) -> None:
    st.subheader("Bus bandwidth against size", anchor=False)
    frame = charts.bandwidth_rows(report.collectives)
    if frame.is_empty():
        why = report.collectives[0]["quality"] if report.collectives else "no_comm"
        panel.nothing("No bandwidth to show", why)
        return
    model = charts.model_rows(report.latency_bandwidth)
    curve = "Curves: fitted latency and bandwidth." if not model.is_empty() else (
        "No curve: latency and bandwidth cannot be fitted without sizes a factor of four apart."
    )  # fmt: skip
    known = frame["peak_gbps"].is_not_null().any()
    peak = "Dashed: peak of the link." if known else "No line of the peak: it is not known."
    if (frame["quality"] != "measured").any():
        peak += " Pale: a bound only."
    says = (
        "Bus bandwidth in GB/s (1e9 bytes) of the transfer, without waiting, against size S. "
        f"{peak} {curve} Whole capture; {len(report.ranks)} ranks."
    )
    panel.chart(charts.bandwidth_of_sizes(frame, model), frame, name="bandwidth", says=says)


def _kinds(report: Report) -> None:
    st.subheader("Kinds of communication", anchor=False)
    if not report.collectives:
        panel.nothing("None to list", "no_comm")
        return
    panel.text_table(
        ("operation", "ranks", "link", "count", "size", "median", "transfer", "waiting",
         "algbw [GB/s]", "busbw [GB/s]", "of peak"),
        map(_line, report.collectives[:_MOST_KINDS]),
    )  # fmt: skip
    panel.cut(_MOST_KINDS, len(report.collectives), "kinds")
    st.caption(
        "Whole capture. Medians; transfer is without waiting; waiting is in sum over ranks and "
        "calls. ≥ is a lower bound, ≤ an upper one. Above 100 %: reduction in the switch sends "
        "less than a ring."
    )
    codes = {row["quality"] for row in report.collectives} - {"measured"}
    if any(row["peak_gbps"] is None for row in report.collectives):
        codes.add("peak_unknown")
    for code in sorted(codes):
        if code in BOUNDS:
            st.caption(panel.plain(f"{BOUNDS[code]}: {reason_text(code)}"))
        else:
            panel.unknown({"Some bandwidth or share of the peak": code})
    panel.behind(pl.DataFrame(report.collectives, infer_schema_length=None), name="collectives")


def _latency(report: Report) -> None:
    st.subheader("Latency or bandwidth?", anchor=False)
    fitted = [row for row in report.latency_bandwidth if row["model_ns"] is not None]
    if not fitted:
        st.info("Nothing could be fitted: it takes one operation at sizes a factor of four apart.",
                icon=":material/info:")  # fmt: skip
        return
    panel.text_table(
        ("operation", "ranks", "size", "count", "transfer", "model", "latency", "alpha", "beta"),
        (
            (row["op"], str(row["group_size"]), f"{size_text(row['bucket_bytes'])}+",
             f"{row['collective_count']:,}", time_text(row["transfer_ns"]),
             time_text(round(row["model_ns"])), percent_text(row["latency_fraction"]),
             UNKNOWN if row["alpha_us"] is None else time_text(row["alpha_us"] * 1e3),
             UNKNOWN if row["beta_gbps"] is None else f"{row['beta_gbps']:.4g} GB/s")
            for row in fitted[:_MOST_KINDS]
        ),
    )  # fmt: skip
    st.caption("T = alpha · steps + bytes sent / beta; latency is its share. Whole capture.")
    panel.behind(pl.DataFrame(fitted, infer_schema_length=None), name="latency")


def _exposed(path: str) -> None:
    st.subheader("Most exposed operations", anchor=False)
    frame = rows(path, "top_exposed", (("k", 20),))
    if frame.is_empty():
        panel.nothing("None to list", "no_comm")
        return
    panel.text_table(
        ("rank", "operation", "size", "step", "length", "exposed", "waiting", "after", "before"),
        (
            (str(row["rank"]), row["op"], size_text(row["size_bytes"]),
             "-" if row["step"] is None else str(row["step"]), time_text(row["duration_ns"]),
             time_text(row["exposed_ns"]), time_text(row["wait_ns"]),
             (row["before_name"] or "-")[:40], (row["after_name"] or "-")[:40])
            for row in frame.head(8).iter_rows(named=True)
        ),
    )  # fmt: skip
    st.caption(
        f"Whole capture; the {min(8, frame.height)} most exposed. Exposed: no compute ran on the "
        "rank. After and before: the compute around."
    )
    panel.behind(frame, name="exposed")


chosen = chosen_path()
shown = report_of(chosen)
panel.head("Collectives", "Which communication runs below its link, and why?", shown)
_bandwidth(shown)
_kinds(shown)
_latency(shown)
_exposed(chosen)
