"""The dashboard's frame: its pages, and the choice of the run that they are about."""

from pathlib import Path

import streamlit as st

from traceq.dashboards.choice import choose

VIEWS = Path(__file__).parent / "views"
PAGES = (
    ("runs", "Runs", ":material/inventory_2:"),
    ("overview", "Overview", ":material/monitoring:"),
    ("ranks", "Ranks", ":material/groups:"),
    ("collectives", "Collectives", ":material/lan:"),
    ("timeline", "Timeline", ":material/view_timeline:"),
    ("compare", "Compare", ":material/compare_arrows:"),
    ("sql", "SQL", ":material/table:"),
)

st.set_page_config(page_title="traceq", layout="wide", menu_items={"About": None})
start = st.Page(VIEWS / "start.py", title="traceq", default=True, visibility="hidden")
pages = [
    st.Page(VIEWS / f"{name}.py", title=title, icon=icon, url_path=name)
    for name, title, icon in PAGES
]
page = st.navigation([start, *pages])
choose()
page.run()
