"""The dashboard: pages over the run files of a store, for a browser.

`app.py` is what Streamlit runs, page by page from `views/`; `asgi.py` serves it together with the
route that takes uploads. Numbers come from the report and the canned queries.
"""

if __name__ != "traceq.dashboards":
    _MESSAGE = "import traceq.dashboards: the folder at the top is the same package under one name"
    raise ImportError(_MESSAGE)
