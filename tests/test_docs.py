"""The documentation says what is true."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.commands import traceq
from traceq.commands import COMMANDS
from traceq.ingest.pipeline import ingest_run
from traceq.model.reasons import REASONS
from traceq.queries import load_query, query_names

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]


def anchors(page: Path) -> set[str]:
    headings = re.findall(r"^#+ (.+)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^a-z0-9 -]", "", h.lower()).replace(" ", "-") for h in headings}


def test_generated_pages_are_up_to_date() -> None:
    done = subprocess.run(
        [sys.executable, ROOT / "docs/generate.py", "--check"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, "up to date\n")


def test_the_readme_shows_what_the_demo_prints() -> None:
    done = traceq("report", "examples/two_ranks", cwd=ROOT)
    shown = re.search(
        r"`make demo` prints:\n\n```text\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL
    )
    assert shown is not None
    assert shown.group(1) == done.stdout


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_links_between_pages_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\((?!https?:)([^)]+)\)", page.read_text()):
        name, _, anchor = target.partition("#")
        file = page.parent / name if name else page
        assert file.exists(), target
        assert not anchor or anchor in anchors(file), target


@pytest.mark.parametrize("name", query_names())
def test_a_query_points_at_a_definition_that_exists(name: str) -> None:
    file, _, anchor = load_query(name).source.partition("#")
    assert anchor in anchors(ROOT / file)


def test_every_reason_code_is_explained() -> None:
    text = (ROOT / "docs/metrics.md").read_text()
    assert all(f"| `{code}` |" in text for code in REASONS)


def test_every_command_and_option_is_documented() -> None:
    text = (ROOT / "docs/cli.md").read_text()
    for command in COMMANDS:
        assert f"## traceq {command.name}" in text
        for parameter in command.params:
            assert all(option in text for option in parameter.opts if option.startswith("--"))


def test_the_commands_of_the_readme_exist() -> None:
    names = {command.name for command in COMMANDS}
    used = set(re.findall(r"^traceq (\w+)", (ROOT / "README.md").read_text(), re.MULTILINE))
    assert used == names


def test_the_python_example_of_the_readme_runs(tmp_path: Path, sample_folder: Path) -> None:
    code = re.search(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    assert code is not None
    (tmp_path / "traces").symlink_to(sample_folder)
    ingest_run([sample_folder], tmp_path / "base.duckdb")
    done = subprocess.run(
        [sys.executable, "-c", code.group(1)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    share = "0.24390243902439024"  # 2000 of 8200 us, by hand in the sample
    assert done.stdout == f"{share}\nno difference in step time\n"
