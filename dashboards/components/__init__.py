"""Parts of pages that Streamlit does not have: the streaming upload and the timeline.

Their scripts are ours; everything from traces reaches them as data, and is shown as text.
"""

from importlib import resources


def script(name: str) -> str:
    """Returns: the text of a script beside this module."""
    return resources.files("traceq.dashboards.components").joinpath(name).read_text("utf-8")
