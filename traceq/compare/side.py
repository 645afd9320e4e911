"""One run of a comparison: what is taken from it."""

import json
from collections.abc import Iterable
from dataclasses import dataclass

import polars as pl

from traceq.query import run_query
from traceq.report import Report, Row, build_report
from traceq.runfile import Run

_TOOLS = {"nsys": "nsys", "torch": "torch.profiler"}
_MOST_VALUES = 3


@dataclass(frozen=True, slots=True)
class Side:
    """One run of a comparison.

    Attributes:
        name: its name, unique in the comparison.
        report: its report.
        steps: rows of the query compare; empty where too few steps are marked.
        costs: rows of the query collective_costs, over the window of the report.
        settings: what can differ between runs, each as text; None where unknown.
    """

    name: str
    report: Report
    steps: pl.DataFrame
    costs: list[Row]
    settings: dict[str, str | None]

    @property
    def ranks(self) -> int | None:
        """Returns: ranks of the whole job [1], None when unknown."""
        size: int | None = self.report.run["world_size"]
        return size


def sides_of(runs: Iterable[Run]) -> list[Side]:
    """Returns: the runs of a comparison in order; a name that repeats is numbered.

    Raises:
        QueryError: a run file is damaged.
    """
    sides: list[Side] = []
    for run in runs:
        report = build_report(run)
        name, taken = report.name, {side.name for side in sides}
        if name in taken:
            name = next(n for k in range(2, len(taken) + 3) if (n := f"{name} ({k})") not in taken)
        in_steps = report.run["window"] == "steps"
        steps = run_query(run, "compare")
        costs = run_query(run, "collective_costs", {"scope": "step" if in_steps else "capture"})
        sides.append(
            Side(
                name=name,
                report=report,
                steps=steps if in_steps else steps.clear(),
                costs=costs.to_dicts(),
                settings=_settings(run, report),
            )
        )
    return sides


def _settings(run: Run, report: Report) -> dict[str, str | None]:
    sources = run.frame(
        """
        SELECT kind, coalesce(capture_version, tool_version) AS tool, nccl_version,
               driver_version, cuda_version
        FROM sources
        """
    )
    kinds = " and ".join(_TOOLS[kind] for kind in sorted(set(sources["kind"])))
    tools = _joined(sources["tool"])
    whole = report.run
    cpu = all(row["device_kind"] == "cpu" for row in report.ranks)
    settings = {
        "ranks": None if whole["world_size"] is None else str(whole["world_size"]),
        "ranks captured": str(len(whole["ranks_present"])),
        "hosts": None if whole["nodes"] is None else str(whole["nodes"]),
        "device": _joined(whole["gpus"]) or ("CPU" if cpu else None),
        "NCCL": _joined(sources["nccl_version"]),
        "driver": _joined(sources["driver_version"]),
        "CUDA": _joined(sources["cuda_version"]),
        "captured with": kinds if tools is None else f"{kinds} {tools}",
        "traceq": report.traceq_version,
    }
    options = json.loads(run.frame("SELECT config FROM run")["config"][0])
    return settings | {f"option {name}": json.dumps(options[name]) for name in sorted(options)}


def _joined(values: Iterable[str | None]) -> str | None:
    known = sorted({value for value in values if value is not None})
    more = len(known) - _MOST_VALUES
    text = ", ".join(known[:_MOST_VALUES])
    return (f"{text} and {more} more" if more > 0 else text) or None


def settings_that_differ(sides: list[Side]) -> list[Row]:
    """Returns: setting, values: one row per setting that is not the same in all runs.

    A setting that is unknown in some runs only is among them, as it may differ.
    """
    names = dict.fromkeys(name for side in sides for name in side.settings)
    rows = [{"setting": name, "values": [s.settings.get(name) for s in sides]} for name in names]
    return [row for row in rows if len(set(row["values"])) > 1]
