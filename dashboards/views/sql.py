"""SQL: one statement that only reads, on the chosen run."""

import altair as alt
import polars as pl
import streamlit as st

from traceq.dashboards import palette, panel
from traceq.dashboards.choice import chosen_path
from traceq.dashboards.data import SQL_LIMIT_S, SQL_ROWS, free_rows, tables
from traceq.dashboards.data import report as report_of
from traceq.errors import TraceqError
from traceq.queries import load_query, query_names

_FIRST = "SELECT rank, stream, role, ops, busy_ns FROM streams ORDER BY rank, stream"
_MOST_POINTS = 2_000
_DRAWN = (pl.String, pl.Boolean, pl.Date, pl.Datetime, pl.Enum, pl.Categorical)


def _take_query() -> None:
    name = st.session_state["canned"]
    if name:
        st.session_state["statement"] = load_query(name).sql


def _ask() -> None:
    st.session_state.setdefault("statement", _FIRST)
    st.selectbox(
        "Begin with a canned query", query_names(), index=None, key="canned",
        placeholder="Choose one to read and change it", on_change=_take_query,
    )  # fmt: skip
    st.text_area("Statement", key="statement", height=180, help="One SELECT; it can only read.")
    if st.button("Run", type="primary", icon=":material/play_arrow:"):
        st.session_state["asked"] = st.session_state["statement"]


def _show(path: str) -> None:
    asked = st.session_state.get("asked")
    if not asked:
        st.caption("Nothing was run yet.")
        return
    try:
        with st.spinner("Running"):
            frame = free_rows(path, asked)
    except TraceqError as error:
        st.error(panel.plain(str(error)))
        return
    cut = frame.height > SQL_ROWS
    frame = frame.head(SQL_ROWS)
    st.caption(
        f"{frame.height:,} rows{', the first of more: ask for less' if cut else ''}. Units: a name "
        "that ends in _ns is in nanoseconds, _bytes in bytes, _gbps in GB/s.".replace("_", r"\_")
    )
    st.dataframe(frame, hide_index=True)
    panel.download(frame, name="rows")
    _chart(frame)


def _chart(frame: pl.DataFrame) -> None:
    numbers = [name for name, kind in frame.schema.items() if kind.is_numeric()]
    plain = [name for name, kind in frame.schema.items() if kind.is_numeric() or kind in _DRAWN]
    if not numbers or frame.is_empty():
        st.caption("No chart: there is no column of numbers.")
        return
    across, up, form = st.columns(3)
    x = across.selectbox("Across", plain, index=0)
    y = up.selectbox("Up", numbers, index=len(numbers) - 1)
    shape = form.selectbox("As", ["bars", "line", "points"])
    shown = frame.head(_MOST_POINTS)
    kind = "Q" if x in numbers and shape != "bars" else "O"
    across_x = pl.col(x).cast(pl.Float64 if kind == "Q" else pl.String)
    named = shown.select(across_x.alias("x"), pl.col(y).cast(pl.Float64).alias("y"))
    chart = alt.Chart(named, height=320)
    marks = {"bars": chart.mark_bar, "line": chart.mark_line, "points": chart.mark_point}
    drawn = marks[shape](color=palette.NEUTRAL).encode(
        x=alt.X(f"x:{kind}", title=x, sort=None, axis=alt.Axis(labelOverlap=True)),
        y=alt.Y("y:Q", title=y),
        tooltip=[alt.Tooltip("x", title=x), alt.Tooltip("y", title=y)],
    )
    says = f"{y} against {x}, of the first {shown.height:,} of {frame.height:,} rows above."
    st.altair_chart(drawn, width="stretch", alt=says)
    st.caption(panel.plain(says))


chosen = chosen_path()
panel.head("SQL", "Anything else: DuckDB SQL on the tables of the run file.", report_of(chosen))
st.caption(
    f"It can only read this run: no files, no network. At most {SQL_ROWS:,} rows, "
    f"{SQL_LIMIT_S:g} s and 2 GB; `traceq sql RUN 'SELECT …'` has no such limits."
)
_ask()
_show(chosen)
with st.expander("Tables and columns"):
    st.dataframe(tables(chosen), hide_index=True)
