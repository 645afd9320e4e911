"""Which run a page is about: the one that its address names, else the one chosen last."""

import streamlit as st

from traceq.dashboards.data import real_path, stored_runs
from traceq.dashboards.panel import INGEST, plain
from traceq.errors import TraceqError
from traceq.store import StoredRun

_CHOSEN = "chosen_run"
_LINKED = "linked_run"


def choose() -> None:
    """Shows the choice of runs beside the page, and puts it into the address."""
    names = [run.name for run in stored_runs()]
    linked = st.query_params.get("run")
    if linked is not None and linked != st.session_state.get(_LINKED):
        st.session_state[_LINKED] = linked
        st.session_state[_CHOSEN] = linked if linked in names else None
    if st.session_state.get(_CHOSEN) not in names:
        unknown = linked is not None and linked not in names
        st.session_state[_CHOSEN] = names[0] if names and not unknown else None
    if not names:
        return
    chosen = st.sidebar.selectbox(
        "Run", names, key=_CHOSEN, placeholder="Choose a run", help="Newest first."
    )
    if chosen is not None:
        st.session_state[_LINKED] = chosen
        st.query_params["run"] = chosen


def chosen_run() -> StoredRun:
    """Returns: the run that the page is about; without one, the page ends and says why."""
    runs = stored_runs()
    if not runs:
        st.info(
            "The store is empty. Upload the files of a run on the page Runs, or read them with "
            f"{INGEST}.",
            icon=":material/inbox:",
        )
        st.stop()
    name = st.session_state.get(_CHOSEN)
    found = next((run for run in runs if run.name == name), None)
    if found is None:
        linked = st.session_state.get(_LINKED) or ""
        st.error(f"{plain(linked)}: no such run in the store: choose one at the left")
        st.stop()
    return found


def chosen_path() -> str:
    """Returns: the real path of the chosen run's file; the page ends where it is gone."""
    run = chosen_run()
    try:
        path = real_path(run)
    except TraceqError as error:
        st.error(plain(str(error)))
        st.stop()
    return path


def go_to_runs() -> None:
    """Opens the page Runs, with the run that the address names."""
    st.switch_page("views/runs.py", query_params=st.query_params.to_dict())
