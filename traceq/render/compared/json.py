"""A comparison as JSON, by the schema `comparison.schema.json` in the folder above."""

import json

from traceq.compare.comparison import Comparison

_ORDER = (
    "schema", "traceq_version", "base", "scaling", "runs", "settings", "causes", "waterfalls",
    "collectives", "stragglers", "trend", "gates",
)  # fmt: skip


def render(comparison: Comparison) -> str:
    """Returns: the comparison as one JSON object with a fixed order of keys."""
    data = comparison.as_json()
    return json.dumps({key: data[key] for key in _ORDER}, indent=1, ensure_ascii=False)
