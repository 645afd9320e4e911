"""The timeline: bars of every stream on a canvas, with the detail of the window in view."""

import json
from collections.abc import Mapping
from typing import Any

import numpy as np
import polars as pl
import streamlit as st

from traceq.dashboards import palette
from traceq.dashboards.components import script

_ALIGNMENT = 8
_CLASSES = ("compute", "comm", "copy")
_HTML = """
<div class="timeline">
  <div class="bar" role="toolbar" aria-label="Timeline">
    <button type="button" data-do="in" title="Zoom in (W or +)">+</button>
    <button type="button" data-do="out" title="Zoom out (S or -)">&minus;</button>
    <button type="button" data-do="left" title="Earlier (A or left)">◀</button>
    <button type="button" data-do="right" title="Later (D or right)">▶</button>
    <button type="button" data-do="all" title="Whole run (0)">Whole run</button>
    <span class="window" aria-live="polite"></span>
  </div>
  <div class="legend"></div>
  <div class="stage"><canvas tabindex="0" role="img"></canvas><div class="tip"></div></div>
  <div class="detail" aria-live="polite">Click an operation to read about it.</div>
</div>
"""
_CSS = """
.timeline { font-family: var(--st-font); color: var(--st-text-color); font-size: 0.85rem; }
.bar { display: flex; gap: 0.4rem; align-items: center; margin-bottom: 0.4rem; }
.bar button { font: inherit; color: inherit; background: var(--st-secondary-background-color);
  border: 1px solid var(--st-border-color); border-radius: 0.4rem; padding: 0.2rem 0.7rem;
  cursor: pointer; }
.bar button:focus-visible, canvas:focus-visible { outline: 2px solid var(--st-primary-color); }
.window { margin-left: 0.6rem; opacity: 0.8; }
.legend { display: flex; gap: 1rem; margin-bottom: 0.3rem; flex-wrap: wrap; }
.legend i { display: inline-block; width: 0.9rem; height: 0.9rem; margin-right: 0.35rem;
  vertical-align: -0.1rem; border-radius: 2px; }
.stage { position: relative; }
canvas { display: block; width: 100%; cursor: crosshair; touch-action: none; }
.tip { position: absolute; display: none; pointer-events: none; max-width: 26rem; z-index: 2;
  background: var(--st-background-color); border: 1px solid var(--st-border-color);
  border-radius: 0.4rem; padding: 0.3rem 0.5rem; white-space: pre-line; overflow-wrap: anywhere; }
.detail { min-height: 3.6rem; padding-top: 0.4rem; white-space: pre-line; overflow-wrap: anywhere; }
"""

_canvas = st.components.v2.component(
    "traceq_timeline", html=_HTML, css=_CSS, js=script("timeline.js")
)


def timeline_canvas(key: str, blob: bytes) -> None:
    """Shows the timeline; the window in view is then in the state of the key, see `window_of`."""
    _canvas(key=key, data=blob, default={"window": None}, on_window_change=lambda: None)


def window_of(key: str) -> Mapping[str, float] | None:
    """Returns: the window in view: from_ns, to_ns [ns], pixels [1]; None before any move."""
    state = st.session_state.get(key)
    window = state.get("window") if state is not None else None
    return window if isinstance(window, Mapping) else None


def encode(frame: pl.DataFrame, lanes: pl.DataFrame, header: Mapping[str, Any]) -> bytes:
    """Returns: the rows of the query `timeline` as one blob: header, then a column after the other.

    Args:
        frame: rows of the query.
        lanes: one row per lane from top to bottom: rank, stream, label.
        header: what else the canvas needs: run, from_ns, to_ns, first_ns, last_ns [ns].
    """
    numbered = lanes.select("rank", "stream").with_row_index("lane")
    rows = frame.join(numbered, on=["rank", "stream"], maintain_order="left").sort(
        "lane", "start_ns", maintain_order=True
    )
    names, name_ids = _numbered(rows["name"])
    ops, op_ids = _numbered(rows["op"])
    kinds = {name: number for number, name in enumerate(_CLASSES)}
    base = int(header["from_ns"])
    columns = {
        "start": (rows["start_ns"] - base).cast(pl.Float64),
        "size": rows["size_bytes"].cast(pl.Float64).fill_null(-1),
        "length": (rows["end_ns"] - rows["start_ns"]).cast(pl.Float64),
        "wait": rows["wait_ns"].cast(pl.Float64).fill_null(-1),
        "busy": rows["busy_ns"].cast(pl.Float64),
        "collective": rows["collective_id"].fill_null(-1).cast(pl.Int32),
        "step": rows["step"].fill_null(-1).cast(pl.Int32),
        "count": rows["op_count"].cast(pl.UInt32),
        "name": name_ids,
        "op": op_ids,
        "lane": rows["lane"].cast(pl.UInt32),
        "kind": rows["class"].replace_strict(kinds, default=len(_CLASSES), return_dtype=pl.UInt32),
    }
    packed = [(name, column.to_numpy()) for name, column in columns.items()]
    said = dict(header) | {
        "rows": rows.height,
        "names": names,
        "ops": ops,
        "lanes": lanes.select("rank", "label").to_dicts(),
        "columns": [[name, values.dtype.name] for name, values in packed],
        "colors": [palette.COMPUTE, palette.EXPOSED_COMM, palette.EXPOSED_COPY, palette.IDLE],
        "waiting": palette.WAITING,
    }
    text = json.dumps(said).encode()
    text += b" " * (-(len(text) + 4) % _ALIGNMENT)
    return b"".join(
        [np.uint32(len(text)).tobytes(), text, *(_padded(values.tobytes()) for _, values in packed)]
    )


def _padded(values: bytes) -> bytes:
    return values + b"\0" * (-len(values) % _ALIGNMENT)


def _numbered(texts: pl.Series) -> tuple[list[str], pl.Series]:
    """Returns: the distinct texts, and which each row has, for NULL the number after the last."""
    distinct = texts.drop_nulls().unique(maintain_order=True)
    if distinct.is_empty():
        return [], pl.zeros(texts.len(), pl.UInt32, eager=True)
    numbers = pl.Series(range(distinct.len()), dtype=pl.UInt32)
    found = texts.replace_strict(distinct, numbers, default=distinct.len(), return_dtype=pl.UInt32)
    return distinct.to_list(), found
