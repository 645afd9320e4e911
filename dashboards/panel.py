"""What every page is made of: its head, tiles, charts with their table, and what is unknown."""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

import polars as pl
import streamlit as st

from traceq.model.reasons import WAYS_OUT
from traceq.model.units import UNKNOWN
from traceq.render.words import coverage_text, window_text
from traceq.report import Report, reason_text

if TYPE_CHECKING:
    from traceq.dashboards.charts import Drawing

_MARKS = re.compile(r"([\\`*_{}\[\]()<>#+\-.!|~$:^&])")


INGEST = "`traceq ingest SOURCES --name NAME --store STORE`"


def plain(text: str) -> str:
    r"""Returns: a text that Markdown shows as it is.

    >>> plain("<b>*x*</b>")
    '\\<b\\>\\*x\\*\\</b\\>'
    """
    return _MARKS.sub(r"\\\1", text.replace("\n", " "))


def head(title: str, question: str, report: Report | None = None) -> None:
    """Shows what a page is about and, of a run, what its numbers cover."""
    st.header(title, anchor=False)
    st.caption(question)
    if report is not None:
        st.markdown(f"**{plain(report.name)}**")
        covers(window_text(report), coverage_text(report))
        if not report.complete:
            st.warning(
                "A source is incomplete or could not be read: the numbers are what could be read. "
                "The notes on the page Overview say which.",
                icon=":material/warning:",
            )


def covers(window: str, coverage: str) -> None:
    """Shows the window and coverage of what follows."""
    st.caption(f"Window: {plain(window)}  \nCoverage: {plain(coverage)}")


def tiles(values: Mapping[str, tuple[str, str | None]]) -> None:
    """Shows numbers side by side; by label: text, and the reason code of an unknown one."""
    for column, (label, (text, code)) in zip(st.columns(len(values)), values.items(), strict=True):
        column.metric(label, text, help=_why(code) if code else None, border=True)
    unknown({label: code for label, (text, code) in values.items() if text == UNKNOWN})


def unknown(codes: Mapping[str, str | None]) -> None:
    """Shows why numbers are unknown, and what would make them known; by label: reason code."""
    for label, code in codes.items():
        st.markdown(f":gray[{label}: **unknown**.] {_why(code)}")


def _why(code: str | None) -> str:
    text = plain(reason_text(code) or "nothing in the capture tells it")
    way = WAYS_OUT.get(code or "")
    return f"{text[:1].upper()}{text[1:]}." + (f" To know it: `{way}`." if way else "")


def nothing(what: str, code: str | None) -> None:
    """Shows in the place of a chart why there is none."""
    st.info(f"{what}: {_why(code)}", icon=":material/info:")


def chart(drawn: "Drawing", frame: pl.DataFrame, *, name: str, says: str) -> None:
    """Shows a chart, what it says with unit and coverage, and the rows behind it.

    Args:
        drawn: the chart.
        frame: its rows.
        name: name of the rows' file.
        says: unit, window and coverage in words.
    """
    st.altair_chart(drawn, width="stretch", alt=says)
    st.caption(plain(says))
    behind(frame, name=name)


def of(shown: int, count: int, what: str) -> str:
    """Returns: how many of how many things are shown.

    >>> of(8, 8, "ranks"), of(64, 1000, "ranks, latest first")
    ('8 ranks', '64 of 1,000 ranks, latest first')
    """
    kind = what.partition(",")[0]
    return f"{count:,} {kind}" if shown == count else f"{shown:,} of {count:,} {what}"


def cut(shown: int, count: int, what: str) -> None:
    """Says that a table shows only the first of its rows, where it does."""
    if count > shown:
        st.caption(f"The first {shown:,} of {count:,} {what}; all are in the download.")


def behind(frame: pl.DataFrame, *, name: str, label: str = "Table and download") -> None:
    """Shows rows on demand, with their download."""
    with st.expander(label):
        st.dataframe(frame, hide_index=True, height="auto")
        download(frame, name=name)


def download(frame: pl.DataFrame, *, name: str) -> None:
    """Shows a button that saves rows as CSV."""
    st.download_button(
        f"Save {frame.height:,} rows as CSV", lambda: as_csv(frame), f"{name}.csv", "text/csv",
        key=f"save-{name}", on_click="ignore", icon=":material/download:",
    )  # fmt: skip


def as_csv(frame: pl.DataFrame) -> str:
    r"""Returns: rows as CSV; a nested value is JSON.

    >>> as_csv(pl.DataFrame({"a": [1], "b": [[2, 3]]}))
    'a,b\n1,"[2, 3]"\n'
    """
    odd = [name for name, kind in frame.schema.items() if kind.is_nested() or kind == pl.Binary]
    flat = frame.with_columns(
        pl.Series(name, [_json(value) for value in frame[name].to_list()], dtype=pl.String)
        for name in odd
    )
    return flat.write_csv()


def _json(value: object) -> str | None:
    return None if value is None else json.dumps(value, default=str)


def text_table(columns: Sequence[str], lines: Iterable[Sequence[str]]) -> None:
    """Shows a small table of texts, which readers of a screen can read."""
    rows = [[plain(cell) for cell in line] for line in lines]
    # Spaces at its end tell a column from another of its name, and are not seen.
    names = [plain(name) + " " * columns[:place].count(name) for place, name in enumerate(columns)]
    frame = pl.DataFrame(rows, schema=[(name, pl.String) for name in names], orient="row")
    st.table(frame, hide_index=True)
