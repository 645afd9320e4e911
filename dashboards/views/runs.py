"""Runs: what the store holds, and the upload of a further run."""

import polars as pl
import streamlit as st
from streamlit.runtime.scriptrunner import get_script_run_ctx

from traceq.dashboards import panel
from traceq.dashboards.components.upload import upload_field
from traceq.dashboards.data import store_folder, stored_runs, uploads_allowed
from traceq.dashboards.inbox import Batch, Inbox, inbox_of
from traceq.dashboards.job import Job
from traceq.model.units import UNKNOWN, size_text, time_text
from traceq.store import StoredRun

_MOST_RUNS = 200
_EVERY_S = 0.5


def _batch(inbox: Inbox) -> Batch:
    """Returns: the batch of this browser."""
    context = get_script_run_ctx()
    batch = inbox.batch(st.session_state.get("batch", ""))
    if batch is None:
        batch = inbox.open_batch(context.session_id if context else "")
        st.session_state["batch"] = batch.key
    return batch


def _upload(inbox: Inbox) -> None:
    st.subheader("Add a run", anchor=False)
    _said_before()
    if not uploads_allowed():
        st.info("Uploads are off because others can reach this dashboard: use `traceq ingest`.")
        return
    batch = _batch(inbox)
    if batch.job is not None:
        _reading(inbox, batch, batch.job)
        return
    limit_mb = int(st.get_option("server.maxUploadSize"))
    going = upload_field(token=inbox.token, batch=batch.key, limit_mb=limit_mb)
    if going.failed:
        st.warning(f"{going.failed} of the files did not arrive: the list above says why.")
    if not batch.files and not going.on_the_way:
        st.caption(f"Files on the server need no upload: {panel.INGEST}.")
        return
    _start(inbox, batch, busy=going.on_the_way > 0)


def _start(inbox: Inbox, batch: Batch, *, busy: bool) -> None:
    """Shows the form that starts the reading of what was uploaded."""
    total = size_text(sum(upload.size_bytes for upload in batch.files.values()))
    st.markdown(f"**{len(batch.files)} files uploaded**, {total}" + (" so far" if busy else ""))
    with st.form("read"):  # a name is sent together with the wish to read
        _order(inbox, batch, busy=busy)


def _order(inbox: Inbox, batch: Batch, *, busy: bool) -> None:
    """Shows the fields of the form, and acts when it is sent."""
    name = st.text_input("Name of the run", placeholder="from the files", max_chars=120)
    with st.expander("Options, as of `traceq ingest`"):
        nranks = st.number_input(
            "Ranks of the whole job, if no file says", 1, 1_000_000, value=None, step=1
        )
        pattern = st.text_input("Name of a step's range (regular expression)")
        peak = st.number_input(
            "Peak of the link per GPU and direction [GB/s], if known", 0.001, value=None
        )
    left, right, _ = st.columns([2, 2, 6])
    label = f"Read {len(batch.files)} files"
    if left.form_submit_button(
        label, type="primary", disabled=busy or not batch.files, width="stretch"
    ):
        options = {
            "nranks": nranks,
            "step_pattern": pattern or None,
            "link_peak": {"any": peak} if peak else {},
        }
        paths = [batch.files[number].path for number in sorted(batch.files)]
        batch.job = Job(
            store_folder(), paths, name=name.strip() or None, options=options,
        )  # fmt: skip
        st.rerun()
    if right.form_submit_button("Remove the files", width="stretch"):
        inbox.drop(batch)
        st.rerun()


@st.fragment(run_every=_EVERY_S)
def _reading(inbox: Inbox, batch: Batch, job: Job) -> None:
    """Shows how far the reading is, until it ends."""
    if job.outcome is not None:
        st.session_state["outcome"] = job.outcome
        if job.outcome.again:
            batch.job = None
        else:
            inbox.drop(batch)
        st.rerun()
    text = f"Reading {job.file_name}" if job.file_name else "Reading"
    st.progress(min(1.0, job.share), text=panel.plain(text))
    if job.share >= 1:
        st.caption("All files are read; adding them up.")
    if st.button("Cancel", icon=":material/close:"):
        inbox.drop(batch)
        st.session_state["outcome"] = job.outcome
        st.rerun()


def _said_before() -> None:
    """Shows what became of the last reading."""
    outcome = st.session_state.get("outcome")
    if outcome is None:
        return
    for line in outcome.errors:
        st.error(panel.plain(line))
    if outcome.run is None:
        return
    if outcome.created:
        st.success(f"Read: {panel.plain(outcome.run)}")
    else:
        st.info(f"These files are in the store already: {panel.plain(outcome.run)}")
    st.page_link(
        "views/overview.py", label="Open its overview", icon=":material/monitoring:",
        query_params={"run": outcome.run},
    )  # fmt: skip


def _gpus(run: StoredRun) -> str:
    if run.device_kind == "cpu":
        return "CPUs"
    return ", ".join(run.gpus) or UNKNOWN


def _listing(runs: list[StoredRun]) -> None:
    st.subheader("Stored runs", anchor=False)
    if not runs:
        st.info("The store is empty. Upload the files of a run above, or read them with "
                f"{panel.INGEST}.", icon=":material/inbox:")  # fmt: skip
        return
    lines = [
        {
            "name": run.name,
            "status": run.status,
            "ranks": f"{run.rank_count} of {run.world_size or UNKNOWN}",
            "hosts": UNKNOWN if run.nodes is None else str(run.nodes),
            "devices": _gpus(run),
            "step time": time_text(run.step_time_ns),
            "files": len(run.sources),
            "stored [UTC]": f"{run.stored_at:%Y-%m-%d %H:%M}",
            "tags": ", ".join(run.tags),
        }
        for run in runs
    ]
    frame = pl.DataFrame(lines)
    shown = frame.head(_MOST_RUNS)
    panel.text_table(shown.columns, [tuple(map(str, line)) for line in shown.iter_rows()])
    cut = f", of which the first {_MOST_RUNS} are listed" if len(runs) > _MOST_RUNS else ""
    st.caption(
        f"{len(runs):,} runs, newest first{cut}. Step time: the median step of the slowest rank; "
        "unknown where no steps are marked. Choose a run at the left."
    )
    panel.download(frame, name="runs")


panel.head("Runs", "What the store holds. Upload a run, and see where its time goes.")
_upload(inbox_of(store_folder()))
_listing(stored_runs())
