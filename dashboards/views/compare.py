"""Compare: runs side by side."""

import streamlit as st

from traceq.dashboards import panel
from traceq.dashboards.choice import chosen_path

panel.head("Compare", "How does this run compare with others?")
chosen_path()
st.info("Compare runs with `traceq compare RUN RUN`.")
