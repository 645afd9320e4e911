"""JSON of every command against the schema that is shipped for it."""

import json
from importlib import resources
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from tests.commands import traceq
from tests.conftest import RunMaker
from tests.traces.nsys import NsysExport
from tests.traces.workload import Workload, late
from traceq.compare.comparison import compare_runs
from traceq.render.compared import json as as_json
from traceq.runfile import Run

SCHEMAS = sorted(
    entry.name.removesuffix(".schema.json")
    for entry in resources.files("traceq.render").iterdir()
    if entry.name.endswith(".schema.json")
)


def schema(name: str) -> dict[str, Any]:
    text = resources.files("traceq.render").joinpath(f"{name}.schema.json").read_text()
    loaded: dict[str, Any] = json.loads(text)
    return loaded


@pytest.mark.parametrize("name", SCHEMAS)
def test_every_schema_is_one_and_says_what_it_is_of(name: str) -> None:
    loaded = schema(name)
    jsonschema.Draft202012Validator.check_schema(loaded)
    assert loaded["$id"] == f"traceq.{name}/1"


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("report", ("report", "{sample}", "--fail-on", "comm_fraction > 99%")),
        ("comparison", ("compare", "{sample}", "{sample}", "--fail-on", "comm_fraction > 99%")),
        ("doctor", ("doctor", "{sample}")),
        ("rows", ("query", "busbw", "{sample}")),
        ("rows", ("sql", "{sample}/rank0.sqlite.gz", "SELECT 1 AS one, [2, 3] AS list")),
        ("baseline", ("baseline", "show", "{corpus}/nccl-tests/v2.13_a100x8.txt")),
    ],
    ids=lambda value: value if isinstance(value, str) else value[0],
)
def test_the_output_of_a_command_follows_its_schema(
    name: str, words: tuple[str, ...], sample_folder: Path, request: pytest.FixtureRequest
) -> None:
    needs = any("{corpus}" in word for word in words)
    corpus = request.getfixturevalue("corpus") if needs else ""
    done = traceq(
        *(w.format(sample=sample_folder, corpus=corpus) for w in words), "--format", "json"
    )
    assert (done.returncode, done.stderr) == (0, "")
    jsonschema.validate(json.loads(done.stdout), schema(name))


def test_comparisons_of_every_kind_follow_it(
    tmp_path: Path, make_run: RunMaker, sample_run: Run, sized_run: Run, grouped_run: Run
) -> None:
    late_run = make_run(*Workload(ranks=4, delay=late([3])).write_torch(tmp_path))
    graph = make_run(NsysExport().capture().graph(1, 2).write(tmp_path / "graph.sqlite"))
    runs = [sample_run, sized_run, grouped_run, late_run, graph]
    for base in runs:
        compared = compare_runs([base, *runs])
        jsonschema.validate(json.loads(as_json.render(compared)), schema("comparison"))
