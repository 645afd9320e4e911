"""The field that takes many files at once and streams each to the upload route."""

from dataclasses import dataclass

import streamlit as st

from traceq.dashboards.components import script

_HTML = """
<div class="upload">
  <label class="drop" tabindex="0">
    <span class="say">Drop the files of one run here, or choose them</span>
    <span class="hint"></span>
    <input type="file" multiple aria-label="Files of one run">
  </label>
  <ul class="files" aria-live="polite"></ul>
</div>
"""
_CSS = """
.upload { font-family: var(--st-font); color: var(--st-text-color); font-size: 0.9rem; }
.drop { display: flex; flex-direction: column; gap: 0.2rem; padding: 1.1rem; cursor: pointer;
  border: 1.5px dashed var(--st-primary-color); border-radius: 0.5rem;
  background: var(--st-secondary-background-color); }
.drop:focus-visible, .drop.over { outline: 3px solid var(--st-primary-color); }
.drop input { position: absolute; opacity: 0; width: 1px; height: 1px; }
.say { font-weight: 600; }
.hint { opacity: 0.75; }
.files { list-style: none; margin: 0.5rem 0 0; padding: 0; }
.files li { display: grid; grid-template-columns: minmax(0, 1fr) 7rem 8rem; gap: 0.6rem;
  align-items: center; padding: 0.15rem 0; }
.files .name { overflow: hidden; text-overflow: ellipsis; white-space: nowrap; }
.files .state { text-align: right; }
.files li.failed { grid-template-columns: minmax(0, 1fr) minmax(0, 2fr); }
.files li.failed .state { color: var(--st-red-text-color, #c0392b); text-align: left; }
.files li.failed progress { display: none; }
progress { width: 100%; accent-color: var(--st-primary-color); }
"""

_field = st.components.v2.component("traceq_upload", html=_HTML, css=_CSS, js=script("upload.js"))


@dataclass(frozen=True, slots=True)
class Uploading:
    """What the field says: how many files are on their way, and failed [1]."""

    on_the_way: int = 0
    failed: int = 0


def upload_field(*, token: str, batch: str, limit_mb: int) -> Uploading:
    """Returns: how the uploads into a batch are going.

    Args:
        token: what proves to the upload route that a page of ours asks.
        batch: the batch that the files are for.
        limit_mb: largest file that is taken [MiB].
    """
    said = _field(
        key=f"upload-{batch}",
        data={"token": token, "batch": batch, "limit_bytes": limit_mb << 20},
        default={"progress": None},
        on_progress_change=lambda: None,
    )
    return Uploading(**(said.get("progress") or {}))
