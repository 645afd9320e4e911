"""Runs of the store, as tables for people and as JSON by the schemas beside this file."""

import json
from collections.abc import Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from traceq.model.units import size_text, time_text
from traceq.render.layout import WIDTH, counted, listed, printed, shorten, table_of
from traceq.store import Stored, StoredRun

RUNS_SCHEMA = "traceq.runs/1"
INGEST_SCHEMA = "traceq.ingest/1"
_GPU_CELLS, _FILE_CELLS, _DIGITS = 16, 60, 12
_GAP = "  "


def list_table(runs: Sequence[StoredRun], *, color: bool = False) -> str:
    """Returns: one line per run of at most 100 columns, newest first."""
    heads = ("<name", "<stored (UTC)", "ranks", "nodes", "<device", "step", "<tags")
    table = table_of(*heads)
    rows = [_cells(run) for run in runs]
    widths = [max(map(len, column)) for column in zip(heads, *rows, strict=True)]
    spare = WIDTH - sum(widths[1:-1]) - len(_GAP) * len(widths)
    tags = min(widths[-1], max(spare // 3, spare - widths[0]))
    for name, *cells, tagged in rows:
        table.add_row(
            Text(shorten(name, spare - tags), style="bold"), *cells, Text(shorten(tagged, tags))
        )
    marked = any(run.status != "complete" for run in runs)
    note = Text("* not every source was read whole", style="dim")
    return printed(Group(table, note) if marked else table, color=color)


def _cells(run: StoredRun) -> tuple[str, ...]:
    return (
        ("* " if run.status != "complete" else "") + run.name,
        f"{run.stored_at:%Y-%m-%d %H:%M}",
        _ranks(run, "/"),
        "?" if run.nodes is None else str(run.nodes),
        shorten(listed(list(run.gpus), 1).removeprefix("NVIDIA ") or run.device_kind, _GPU_CELLS),
        "-" if run.step_time_ns is None else time_text(run.step_time_ns),
        ", ".join(run.tags),
    )


def show_table(run: StoredRun, *, color: bool = False) -> str:
    """Returns: all that the store knows of one run, in lines of at most 100 columns."""
    facts = Table.grid(padding=(0, 2, 0, 0))
    facts.add_column(style="dim")
    facts.add_column(overflow="fold")
    step = "no steps" if run.step_time_ns is None else time_text(run.step_time_ns)
    for name, value in (
        ("stored", f"{run.stored_at:%Y-%m-%d %H:%M:%S} UTC"),
        ("status", run.status),
        ("ranks", _ranks(run)),
        ("nodes", "unknown" if run.nodes is None else str(run.nodes)),
        ("device", listed(list(run.gpus)) or run.device_kind),
        ("step time", step),
        ("tags", ", ".join(run.tags) or "none"),
        ("run file", run.path.name),
    ):
        facts.add_row(name, Text(value))
    sources = table_of("<source", "<kind", "size", "<SHA-256")
    for each in run.sources:
        name = shorten(each.file_name, _FILE_CELLS)
        sources.add_row(Text(name), each.kind, size_text(each.size_bytes), each.sha256[:_DIGITS])
    parts: list[RenderableType] = [Text(shorten(run.name, WIDTH), style="bold"), facts, "", sources]
    return printed(Group(*parts), color=color)


def stored_line(stored: Stored) -> str:
    """Returns: what became of an ingest, in one line."""
    run = stored.run
    if not stored.created:
        return f"{run.name}: these sources are stored already under this name; nothing was read\n"
    step = "" if run.step_time_ns is None else f", a step takes {time_text(run.step_time_ns)}"
    read = f"{counted(len(run.sources), 'source')}, {counted(run.rank_count, 'rank')}{step}"
    return f"{run.name}: stored: {read}\n"


def runs_json(runs: Sequence[StoredRun]) -> str:
    """Returns: runs as one JSON object by `runs.schema.json`."""
    return _dumped({"schema": RUNS_SCHEMA, "runs": [_as_data(run) for run in runs]})


def ingest_json(stored: Stored) -> str:
    """Returns: what became of an ingest as one JSON object by `ingest.schema.json`."""
    return _dumped(
        {
            "schema": INGEST_SCHEMA,
            "created": stored.created,
            "run": _as_data(stored.run),
            "failures": [str(failure) for failure in stored.failures],
        }
    )


def _as_data(run: StoredRun) -> dict[str, Any]:
    return {
        "name": run.name,
        "file_name": run.path.name,
        "status": run.status,
        "stored_at": run.stored_at.isoformat(timespec="seconds").replace("+00:00", "Z"),
        "world_size": run.world_size,
        "rank_count": run.rank_count,
        "nodes": run.nodes,
        "gpus": list(run.gpus),
        "device_kind": run.device_kind,
        "step_time_ns": run.step_time_ns,
        "tags": list(run.tags),
        "sources": [
            {
                "file_name": each.file_name,
                "kind": each.kind,
                "sha256": each.sha256,
                "size_bytes": each.size_bytes,
            }
            for each in run.sources
        ],
    }


def _dumped(data: dict[str, Any]) -> str:
    return json.dumps(data, indent=1, ensure_ascii=False) + "\n"


def _ranks(run: StoredRun, of: str = " of ") -> str:
    if run.world_size is None or run.world_size == run.rank_count:
        return str(run.rank_count)
    return f"{run.rank_count}{of}{run.world_size}"
