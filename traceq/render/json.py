"""A report as JSON, by the schema `report.schema.json` beside this file."""

import json
from dataclasses import asdict

from traceq.report import SCHEMA, Report

_ORDER = (
    "schema", "traceq_version", "name", "run", "sources", "metrics", "reasons", "spread", "ranks",
    "steps", "streams", "kernels", "collectives", "stragglers", "matching", "latency_bandwidth",
    "volume", "findings", "diagnostics", "gates",
)  # fmt: skip


def render(report: Report) -> str:
    """Returns: the report as one JSON object with a fixed order of keys."""
    data = {"schema": SCHEMA, **asdict(report)}
    return json.dumps({key: data[key] for key in _ORDER}, indent=1, ensure_ascii=False)
