"""The packages as declared, built and installed."""

import importlib
import os
import subprocess
import sys
import tomllib
import venv
import zipfile
from pathlib import Path

import pytest

import traceq

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())


def test_the_declared_packages_are_the_folders_with_code() -> None:
    folders = {"traceq": ROOT / "traceq"}
    folders |= {f"traceq.{name}": ROOT / name for name in ("ingest", "queries", "dashboards")}
    found = set()
    for package, folder in folders.items():
        for file in folder.rglob("__init__.py"):
            below = file.parent.relative_to(folder).parts
            if not (
                package == "traceq" and below and below[0] in ("ingest", "queries", "dashboards")
            ):
                found.add(".".join((package, *below)))
    assert set(PROJECT["tool"]["setuptools"]["packages"]) == found


@pytest.mark.parametrize("name", ["ingest", "queries", "dashboards"])
def test_a_short_name_is_refused(name: str) -> None:
    assert (ROOT / "traceq" / name).resolve() == ROOT / name
    with pytest.raises(ImportError, match=f"import traceq.{name}"):
        importlib.import_module(name)


def test_the_core_needs_neither_torch_nor_streamlit() -> None:
    core = " ".join(PROJECT["project"]["dependencies"])
    assert not [name for name in ("torch", "streamlit", "pyarrow") if name in core]
    extras = PROJECT["project"]["optional-dependencies"]
    assert {"dashboard", "login", "torch", "dask", "postgres", "dev"} <= set(extras)


def test_the_public_names_are_there_and_others_are_not() -> None:
    assert all(callable(getattr(traceq, name)) for name in traceq.__all__ if name != "__version__")
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = traceq.nothing


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The sdist, and the wheel that is built from it."""
    out = tmp_path_factory.mktemp("dist")
    subprocess.run(
        [sys.executable, "-m", "build", "--outdir", out, ROOT], check=True, capture_output=True
    )
    return out


def test_the_wheel_holds_code_and_data_once(built: Path) -> None:
    (wheel,) = built.glob("*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    assert len(names) == len(set(names))
    for name in (
        "traceq/cli.py",
        "traceq/py.typed",
        "traceq/model/schema.sql",
        "traceq/model/links.toml",
        "traceq/queries/comm_fraction.sql",
        "traceq/ingest/nsys/reader.py",
        "traceq/render/report.schema.json",
        "traceq/render/runs.schema.json",
        "traceq/render/ingest.schema.json",
        "traceq/migrations/env.py",
        "traceq/migrations/versions/rev_0001_tables.py",
    ):
        assert name in names
    assert not [name for name in names if name.startswith(("ingest/", "queries/", "tests/"))]


def test_the_installed_wheel_reports_the_bundled_sample(built: Path, tmp_path: Path) -> None:
    venv.create(tmp_path / "venv", with_pip=True)
    python = tmp_path / "venv" / "bin" / "python"
    (wheel,) = built.glob("*.whl")
    subprocess.run([python, "-m", "pip", "install", "-q", wheel], check=True, capture_output=True)
    done = subprocess.run(
        [tmp_path / "venv/bin/traceq", "report", ROOT / "examples" / "two_ranks"],
        capture_output=True,
        text=True,
        check=True,
        cwd=tmp_path,
        env={"PATH": os.environ["PATH"], "HOME": str(tmp_path)},
    )
    assert "48.8 % of the time is communication" in done.stdout
    stored = [tmp_path / "venv/bin/traceq", "runs", "list", "--store", tmp_path / "store"]
    subprocess.run(stored, check=True, capture_output=True, cwd=tmp_path)  # its migrations ran
    installed = subprocess.run(
        [python, "-m", "pip", "list"], capture_output=True, text=True, check=True
    ).stdout.lower()
    assert not [name for name in ("torch", "streamlit", "pyarrow") if name in installed.split()]
