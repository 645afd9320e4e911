"""Who may come in: anybody, or with a login those that an OpenID Connect provider knows."""

import os

import streamlit as st

from traceq.dashboards.panel import plain

REQUIRED = "TRACEQ_LOGIN"


def login_required() -> bool:
    """Returns: whether pages are shown only after a login."""
    return os.environ.get(REQUIRED) == "1"


def admitted() -> bool:
    """Returns: whether the visitor may see the runs."""
    return not login_required() or st.user.get("is_logged_in") is True


def ask() -> None:
    """Shows nothing but a button to log in."""
    st.header("traceq", anchor=False)
    st.write("The runs of this dashboard are shown after a login.")
    st.button("Log in", on_click=st.login, type="primary", icon=":material/login:")


def show_visitor() -> None:
    """Shows at the left who is logged in, with a button to log out."""
    if login_required():
        st.sidebar.caption(plain(str(st.user.get("email") or st.user.get("name") or "Logged in")))
        st.sidebar.button("Log out", on_click=st.logout, icon=":material/logout:")
