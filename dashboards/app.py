"""The dashboard's frame: its pages, and the choice of the run that they are about."""

from pathlib import Path

import streamlit as st

from traceq.dashboards.choice import choose
from traceq.dashboards.login import admitted, ask, show_visitor
from traceq.dashboards.panel import plain
from traceq.errors import TraceqError

VIEWS = Path(__file__).parent / "views"
PAGES = (
    ("runs", "Runs"),
    ("overview", "Overview"),
    ("ranks", "Ranks"),
    ("collectives", "Collectives"),
    ("timeline", "Timeline"),
    ("compare", "Compare"),
    ("sql", "SQL"),
)

# A page with an icon of Streamlit's would fetch it from another host, for the browser's tab.
st.set_page_config(page_title="traceq", layout="wide", menu_items={"About": None})
start = st.Page(VIEWS / "start.py", title="traceq", default=True, visibility="hidden")
pages = [st.Page(VIEWS / f"{name}.py", title=title, url_path=name) for name, title in PAGES]
page = st.navigation([start, *pages], position="sidebar" if admitted() else "hidden")
if admitted():
    show_visitor()
    try:
        choose()
        page.run()
    except TraceqError as error:
        st.error(plain(str(error)))
else:
    ask()
