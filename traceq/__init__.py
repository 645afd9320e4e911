"""traceq: where the time of a multi-GPU training run goes.

>>> import traceq
>>> with traceq.open_run("run.duckdb") as run:  # doctest: +SKIP
...     print(traceq.build_report(run).metrics["comm_fraction"])
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    __version__: str
    from traceq.compare.comparison import compare_runs
    from traceq.ingest.pipeline import ingest_run
    from traceq.recorder import record
    from traceq.report import build_report
    from traceq.runfile import open_run

__all__ = ["__version__", "build_report", "compare_runs", "ingest_run", "open_run", "record"]

# Loaded on first use, so that the command line starts without its libraries.
_LAZY = {
    "build_report": "traceq.report",
    "compare_runs": "traceq.compare.comparison",
    "ingest_run": "traceq.ingest.pipeline",
    "open_run": "traceq.runfile",
    "record": "traceq.recorder",
}


def __getattr__(name: str) -> Any:  # noqa: ANN401
    if name == "__version__":
        return import_module("importlib.metadata").version("traceq")
    if name in _LAZY:
        return getattr(import_module(_LAZY[name]), name)
    message = f"module 'traceq' has no attribute {name!r}"
    raise AttributeError(message)
