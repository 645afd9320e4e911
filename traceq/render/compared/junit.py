"""A comparison as JUnit XML."""

from traceq.compare.comparison import Comparison
from traceq.render.junit import suite


def render(comparison: Comparison) -> str:
    """Returns: the gates of a comparison as JUnit XML."""
    return suite(comparison.runs[0]["name"], comparison.gates, complete=comparison.complete)
