"""Timeline: every stream of every rank, from the run to a single kernel."""

from hashlib import blake2b

import polars as pl
import streamlit as st

from traceq.dashboards import panel
from traceq.dashboards.choice import chosen_path
from traceq.dashboards.components.timeline import encode, timeline_canvas, window_of
from traceq.dashboards.data import opened, rows
from traceq.dashboards.data import report as report_of
from traceq.dashboards.notes import clock_note
from traceq.export import MOST_EVENTS, trace_events
from traceq.model.units import time_text
from traceq.query import run_query

_MOST_LANES = 64
_MARGIN = 0.2
_DETAIL_PX = 2
_PIXELS = (200, 2400)
_LISTED = 200


@st.cache_resource(max_entries=8, show_spinner=False)
def _window_rows(path: str, parameters: tuple[tuple[str, int], ...]) -> pl.DataFrame:
    return run_query(opened(path), "timeline", dict(parameters))


def _lanes(path: str) -> pl.DataFrame:
    """Returns: one row per stream: rank, stream, label, first_ns, last_ns [ns]."""
    streams = rows(path, "streams").group_by("rank", "stream").agg(
        pl.col("first_ns").min(), pl.col("last_ns").max(),
        pl.col("role").drop_nulls().unique().sort().str.join(" "),
    )  # fmt: skip
    label = pl.format("{} · {} {}", "rank", "stream", pl.col("role").fill_null(""))
    return streams.with_columns(label.alias("label")).sort("rank", "stream").drop("role")


def _chosen_lanes(lanes: pl.DataFrame) -> pl.DataFrame:
    """Returns: the lanes of as many ranks as fit, from the rank that is chosen."""
    if lanes.height <= _MOST_LANES:
        return lanes
    ranks = lanes["rank"].unique().sort().to_list()
    first = st.select_slider("First rank to show", ranks, value=ranks[0])
    following = lanes.filter(pl.col("rank") >= first)
    fitting = following.with_row_index("place").filter(
        (pl.col("place").max().over("rank") < _MOST_LANES) | (pl.col("rank") == first)
    )
    shown = fitting.drop("place").head(_MOST_LANES)
    last = shown["rank"].to_list()[-1]
    st.caption(f"Ranks {first} to {last} of {len(ranks)}: at most {_MOST_LANES} streams fit.")
    return shown


def _asked_window(first: int, last: int, key: str) -> tuple[int, int, int]:
    """Returns: start and end of the window in view [ns], and its pixels [1]."""
    window = window_of(key)
    if window is None:
        return first, last, 1000
    low, high = sorted((int(window["from_ns"]), int(window["to_ns"])))
    pixels = int(min(max(window["pixels"], _PIXELS[0]), _PIXELS[1]))
    return max(low, first - (last - first)), max(min(high, 2 * last), low + 1), pixels


@st.fragment
def _timeline(path: str, run: str, lanes: pl.DataFrame) -> None:
    first, last = min(lanes["first_ns"].to_list()), max(lanes["last_ns"].to_list())
    first_rank, last_rank = lanes["rank"].to_list()[0], lanes["rank"].to_list()[-1]
    # Streamlit refuses some names in a key.
    key = f"timeline-{blake2b(run.encode(), digest_size=8).hexdigest()}-{first_rank}"
    low, high, pixels = _asked_window(first, last, key)
    margin = int((high - low) * _MARGIN)
    parameters = {
        "from_ns": low - margin,
        "to_ns": high + margin,
        "pixel_ns": max(1, _DETAIL_PX * (high - low) // pixels),
        "first_rank": first_rank,
        "last_rank": last_rank,
    }
    frame = _window_rows(path, tuple(parameters.items()))
    header = {"run": key, "from_ns": low, "to_ns": high, "first_ns": first, "last_ns": last}
    timeline_canvas(key, encode(frame, lanes, header))
    st.caption(
        "The whole capture. Times on the run's axis, whose zero is the earliest device start. "
        f"{lanes.height} streams of {lanes['rank'].n_unique()} ranks; detail of "
        f"{time_text(parameters['pixel_ns'])}, and shorter operations are summed. Drag to move, "
        "Ctrl and wheel to zoom, double-click an operation to fill the view with it; click a "
        "collective to see its parts on other ranks, where they are as long as the detail."
    )
    _ways_out(path, frame, low, high)


def _trace(path: str, low: int, high: int) -> bytes:
    return b"".join(trace_events(opened(path), low, high, most=MOST_EVENTS))


def _ways_out(path: str, frame: pl.DataFrame, low: int, high: int) -> None:
    st.download_button(
        "Open in Perfetto: save this window", lambda: _trace(path, low, high),
        "window.json", "application/json", on_click="ignore", icon=":material/download:",
        help=f"Trace events for ui.perfetto.dev, at most {MOST_EVENTS:,} operations.",
    )  # fmt: skip
    seen = frame.filter((pl.col("end_ns") > low) & (pl.col("start_ns") < high))
    longest = seen.sort("busy_ns", descending=True).head(_LISTED)
    panel.behind(longest, name="timeline", label=f"The {longest.height} longest of this window")


chosen = chosen_path()
shown = report_of(chosen)
panel.head("Timeline", "What ran when, on each stream of each rank?", shown)
st.caption(panel.plain(clock_note(shown)))
streams = _lanes(chosen)
if streams.is_empty():
    panel.nothing("Nothing to draw: no device operation is in the run file", "graph_hidden")
else:
    _timeline(chosen, shown.name, _chosen_lanes(streams))
