"""The command line as a user meets it: real processes, their output and exit status."""

import csv
import io
import json
import os
import pty
import re
import signal
import struct
import subprocess
import sys
import time
from pathlib import Path

import click
import polars as pl
import pytest
from click.testing import CliRunner

import traceq
from tests.commands import traceq_process as run_traceq
from tests.traces.nsys import NsysExport
from traceq.cli import cli, main
from traceq.commands import COMMANDS
from traceq.queries import query_names


def output(*arguments: object) -> str:
    done = run_traceq(*arguments)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


@pytest.fixture(scope="module")
def saved(sample_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("saved") / "run.duckdb"
    output("report", sample_folder, "--save", path, "--name", "night run", "--output", os.devnull)
    return path


def test_the_report_of_a_saved_run_is_that_of_its_sources(sample_folder: Path, saved: Path) -> None:
    fresh = json.loads(output("report", sample_folder, "--name", "night run", "--format", "json"))
    kept = json.loads(output("report", saved, "--format", "json"))
    assert fresh == kept
    assert kept["name"] == "night run"
    assert kept["metrics"]["comm_fraction"] == 4000 / 8200


def test_output_goes_to_a_file_when_asked(sample_folder: Path, tmp_path: Path) -> None:
    assert output("report", sample_folder, "--output", tmp_path / "r.txt") == ""
    assert (tmp_path / "r.txt").read_text() == output("report", sample_folder)
    done = run_traceq("report", sample_folder, "--output", tmp_path / "nowhere" / "r.txt")
    assert done.returncode == 2
    assert done.stderr == "traceq: r.txt: cannot be written: No such file or directory\n"


@pytest.mark.parametrize("form", ["table", "json"])
def test_an_incomplete_source_ends_in_exit_two_unless_allowed(tmp_path: Path, form: str) -> None:
    export = NsysExport().capture().kernel("gemm<f>", 1000, 1100)
    export.row("DIAGNOSTIC_EVENT", severity=3, text="9 events dropped")
    path = export.write(tmp_path / "a.sqlite")
    done = run_traceq("report", path, "--format", form)
    assert done.returncode == 2
    assert (
        done.stderr
        == "traceq: a source is incomplete: read the notes, or pass --allow-incomplete\n"
    )
    assert output("report", path, "--format", form, "--allow-incomplete") == done.stdout


def test_options_come_from_a_file_and_the_command_line_wins(tmp_path: Path) -> None:
    export = NsysExport().capture()
    for k in range(3):
        export.range(f"phase {k}", 1000 * k, 1000 * k + 500).range(
            f"lap {k}", 1000 * k, 1000 * k + 500
        )
        export.kernel("flux_ag", 1000 * k + 600, 1000 * k + 700, launch=1000 * k + 100)
    path = export.write(tmp_path / "a.sqlite")
    config = tmp_path / "traceq.toml"
    config.write_text(
        '[steps]\npattern = "phase (\\\\d+)"\n'
        '[communication]\npatterns = ["^flux"]\n'
        "[ranks]\nnranks = 4\n"
    )
    report = json.loads(output("report", path, "--config", config, "--format", "json"))
    assert (report["run"]["steps"], report["run"]["world_size"]) == (3, 4)
    assert report["metrics"]["comm_fraction"] == 1.0
    more = ("--nranks", 2, "--step-pattern", "none")
    report = json.loads(output("report", path, "--config", config, *more, "--format", "json"))
    assert (report["run"]["steps"], report["run"]["world_size"]) == (0, 2)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "[stepz]\npattern = 'x'",
            "unknown section [stepz]; there are: steps, communication, ranks",
        ),
        ("[steps]\nregex = 'x'", "[steps] has no such setting: regex = 'x'"),
        ("[ranks]\nnranks = 'four'", "[ranks] has no such setting: nranks = 'four'"),
        ("steps = 3", "must be a section: [steps]"),
        ("[ranks]\nnranks = true", "[ranks] has no such setting: nranks = True"),
        ("[ranks]\nnranks = -5", "nranks = -5: must be from 1 to 1000000"),
        ("not toml", "cannot be read as TOML"),
        ("[steps]\npattern = '('", "'(': not a regular expression"),
        ("[steps]\npattern = '(?=a)'", "'(?=a)': not a regular expression"),
        ("[communication]\npatterns = ['a', 3]", "3: not a regular expression"),
    ],
)
def test_a_wrong_configuration_is_one_clear_line(
    sample_folder: Path, tmp_path: Path, text: str, message: str
) -> None:
    config = tmp_path / "traceq.toml"
    config.write_text(text)
    done = run_traceq("report", sample_folder, "--config", config)
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1
    assert message in done.stderr


@pytest.mark.parametrize("entry", ["rank0.sqlite.gz", "=3", "rank0.sqlite.gz=x", "a=-1"])
def test_a_wrong_rank_map_is_one_clear_line(sample_folder: Path, entry: str) -> None:
    done = run_traceq("report", sample_folder, "--rank-map", entry)
    assert done.returncode == 2
    assert done.stderr.startswith(f"traceq: --rank-map {entry}: must be FILE=RANK")


def test_a_rank_map_must_name_a_source(sample_folder: Path) -> None:
    done = run_traceq("report", sample_folder, "--rank-map", "typo.sqlite=3")
    assert (done.returncode, done.stderr) == (
        2,
        "traceq: --rank-map typo.sqlite=3: no source is called that\n",
    )


def test_a_report_never_overwrites_its_source(tmp_path: Path) -> None:
    path = NsysExport().capture().kernel("gemm<f>", 1000, 1100).write(tmp_path / "a.sqlite")
    before = path.read_bytes()
    done = run_traceq("report", path, "--output", path)
    assert (done.returncode, path.read_bytes()) == (2, before)
    assert "is a source: write the report to another file" in done.stderr


def test_options_of_reading_are_not_ignored_on_a_run_file(saved: Path) -> None:
    done = run_traceq("report", saved, "--nranks", 4)
    assert done.returncode == 2
    assert "options of reading change nothing in it" in done.stderr


def test_a_run_file_is_read_alone(saved: Path, sample_folder: Path) -> None:
    done = run_traceq("report", saved, sample_folder)
    assert (done.returncode, done.stderr) == (
        2,
        "traceq: a run file is read alone and is saved already: name nothing else\n",
    )


class TestQuery:
    """Canned queries and free SQL."""

    def test_the_list_names_every_query_with_its_question(self) -> None:
        lines = output("query", "--list").splitlines()
        assert [line.split()[0] for line in lines] == list(query_names())
        assert all(line.endswith("?") for line in lines)

    def test_documentation_is_printed_from_the_header(self) -> None:
        text = output("query", "--doc", "comm_fraction")
        assert "| `scope` | VARCHAR | `'capture'` |" in text
        assert "| `comm_ns` | BIGINT | ns |" in text

    def test_rows_come_in_four_formats(self, saved: Path, tmp_path: Path) -> None:
        arguments = ("query", "streams", saved)
        rows = json.loads(output(*arguments, "--format", "json"))
        assert [(r["rank"], r["stream"], r["role"]) for r in rows] == [
            (0, 7, "compute"),
            (0, 16, "comm"),
            (1, 7, "compute"),
            (1, 16, "comm"),
        ]
        parsed = list(csv.DictReader(io.StringIO(output(*arguments, "--format", "csv"))))
        assert [row["busy_ns"] for row in parsed] == [str(r["busy_ns"]) for r in rows]
        target = tmp_path / "streams.parquet"
        output(*arguments, "--format", "parquet", "--output", target)
        assert pl.read_parquet(target).to_dicts() == rows
        table = output(*arguments).splitlines()
        assert len(table) == 1 + len(rows)
        assert "2600000" in table[1]

    def test_lists_survive_csv(self, saved: Path) -> None:
        (row, _) = csv.DictReader(io.StringIO(output("query", "overlap", saved, "--format", "csv")))
        assert (row["comm_streams"], row["shared_streams"]) == ("[16]", "[]")

    def test_parameters_are_passed(self, saved: Path) -> None:
        rows = json.loads(
            output("query", "top_kernels", saved, "--param", "k=1", "--format", "json")
        )
        assert [row["short_name"] for row in rows] == ["gemm_bf16"]

    def test_a_query_reads_sources_too(self, sample_folder: Path, saved: Path) -> None:
        assert output("query", "step_times", sample_folder) == output("query", "step_times", saved)

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            ((), "name a query, or list them with --list"),
            (("comm_fractions",), "did you mean comm_fraction?"),
            (("comm_fraction",), "name the run: traceq query comm_fraction run.duckdb"),
            (("top_kernels", "RUN", "--param", "k"), "must be NAME=VALUE"),
            (("top_kernels", "RUN", "--param", "k=x"), "'x' is not of type INTEGER"),
        ],
    )
    def test_mistakes_are_told(self, saved: Path, arguments: tuple[str, ...], message: str) -> None:
        done = run_traceq("query", *(str(saved) if a == "RUN" else a for a in arguments))
        assert done.returncode == 2
        assert message in done.stderr

    def test_free_sql_reads_and_only_reads(self, saved: Path) -> None:
        rows = output(
            "sql", saved, "SELECT count(*) AS kernels FROM device_ops", "--format", "json"
        )
        assert json.loads(rows) == [{"kernels": 28}]
        done = run_traceq("sql", saved, "DELETE FROM ranks")
        assert (done.returncode, done.stdout) == (2, "")
        assert done.stderr == "traceq: only one SELECT statement can be run on a run file\n"

    def test_rows_of_every_kind_are_valid_json(self, saved: Path) -> None:
        statement = (
            "SELECT sum(end_ns)::HUGEINT AS whole, 1.25::DECIMAL(4, 2) AS part, 'nan'::DOUBLE AS "
            "odd, {'a': [1, NULL]} AS nested FROM device_ops"
        )
        (row,) = json.loads(output("sql", saved, statement, "--format", "json"))
        assert isinstance(row.pop("whole"), int)
        assert row == {"part": 1.25, "odd": None, "nested": {"a": [1, None]}}
        (shown,) = csv.DictReader(io.StringIO(output("sql", saved, statement, "--format", "csv")))
        assert json.loads(shown["nested"]) == {"a": [1, None]}

    @pytest.mark.parametrize(
        ("statement", "message"),
        [
            ("SELECT 1 AS x, 2 AS x", "two columns are called x: tell them apart with AS"),
            ("SELECT INTERVAL 1 DAY AS x", "column x is of type INTERVAL: cast it"),
        ],
    )
    def test_columns_that_cannot_be_printed_are_told(
        self, saved: Path, statement: str, message: str
    ) -> None:
        done = run_traceq("sql", saved, statement)
        assert done.returncode == 2
        assert message in done.stderr

    def test_a_bad_source_ends_a_query_in_two(self, sample_folder: Path, tmp_path: Path) -> None:
        (tmp_path / "bad.sqlite").touch()
        done = run_traceq("query", "streams", sample_folder, tmp_path / "bad.sqlite")
        assert done.returncode == 2
        assert done.stderr == "traceq: bad.sqlite: empty: export it again\n"
        assert "comm" in done.stdout

    def test_dates_in_json_are_text(self, saved: Path) -> None:
        (row,) = json.loads(output("sql", saved, "SELECT created_at FROM run", "--format", "json"))
        assert re.match(r"20\d\d-\d\d-\d\d ", row["created_at"])


class TestDoctor:
    """What a capture can answer, and how to make it answer more."""

    def test_a_default_export_gets_the_exact_commands(self, tmp_path: Path) -> None:
        export = NsysExport().capture(EXPORT_PARAM_INCLUDE_BLOBS="false")
        export.range("ncclAllReduce", 1, 2, domain=1).kernel("gemm<f>", 1000, 1100)
        answers = self.answers(export.write(tmp_path / "a.sqlite"))
        sizes = answers["How large are NCCL's messages?"]
        assert sizes["verdict"] == "no"
        assert "--include-blobs=false" in sizes["evidence"]
        assert (
            "nsys export --type sqlite --include-blobs=true --include-json=true" in sizes["remedy"]
        )
        assert answers["Where are the training steps?"]["verdict"] == "no"
        assert answers["Which rank is it?"]["verdict"] == "no"
        assert "rank%q{RANK}" in answers["Which rank is it?"]["remedy"]

    def test_a_good_capture_is_told_to_be_one(self, tmp_path: Path) -> None:
        export = NsysExport().capture(environment="RANK=3")
        export.range("step 1", 1, 2).kernel("gemm<f>", 1000, 1100)
        export.nccl("ncclAllReduce", 5, struct.pack("<QQi4x", 7, 64, 0), 1)
        export.nccl("ncclCommInitRank", 0, struct.pack("<Qiii4x", 7, 8, 3, 0), 0)
        verdicts = {
            q: a["verdict"] for q, a in self.answers(export.write(tmp_path / "a.sqlite")).items()
        }
        assert set(verdicts.values()) == {"yes", "partly"}
        assert [q for q, v in verdicts.items() if v == "partly"] == ["Which rank is it?"]

    def test_hidden_graphs_losses_and_gaps_are_told(self, tmp_path: Path) -> None:
        export = NsysExport().capture(gpu=None, utc_ns=None).graph(1000, 1100)
        export.row(
            "DIAGNOSTIC_EVENT", severity=2, text="Not all NVTX events might have been collected."
        )
        export.row("MPI_RANKS", globalTid=1 << 30, rank=6)
        answers = self.answers(
            export.without("CUPTI_ACTIVITY_KIND_RUNTIME").write(tmp_path / "a.sqlite")
        )
        assert {q: a["verdict"] for q, a in answers.items()} == {
            "Which nsys made it?": "yes",
            "What ran on the GPU?": "no",
            "Are kernels inside CUDA graphs visible?": "no",
            "Which call launched an operation, and in which step?": "no",
            "Where are the training steps?": "no",
            "How large are NCCL's messages?": "no",
            "Which rank is it?": "yes",
            "Which GPU model?": "no",
            "Can it be laid beside other files in time?": "no",
            "Is anything missing?": "partly",
        }
        graphs = answers["Are kernels inside CUDA graphs visible?"]
        assert "--cuda-graph-trace=node" in graphs["remedy"]

    def test_the_graph_mode_of_the_capture_is_known(self, tmp_path: Path) -> None:
        export = NsysExport().capture().kernel("gemm<f>", 1000, 1100)
        export.row("META_DATA_CAPTURE", name="CUDA_GRAPH_TRACE_OPTIONS:MODE", value="Graph")
        answers = self.answers(export.write(tmp_path / "a.sqlite"))
        assert "would have hidden" in answers["Are kernels inside CUDA graphs visible?"]["evidence"]

    def test_several_sources_and_one_bad_one(self, sample_folder: Path, tmp_path: Path) -> None:
        (tmp_path / "bad.sqlite").touch()
        done = run_traceq("doctor", sample_folder, tmp_path / "bad.sqlite")
        assert done.returncode == 2
        assert "rank0.sqlite.gz" in done.stdout
        assert "rank1.sqlite.gz" in done.stdout
        assert done.stderr == "traceq: bad.sqlite: empty: export it again\n"

    def test_a_source_that_breaks_while_it_is_examined(self, tmp_path: Path) -> None:
        path = NsysExport().capture().kernel("gemm<f>", 1, 2).write(tmp_path / "a.sqlite")
        path.write_bytes(path.read_bytes()[:6000])
        done = run_traceq("doctor", path)
        assert done.returncode == 2
        assert done.stderr.startswith("traceq: a.sqlite: cut short")

    @staticmethod
    def answers(path: Path) -> dict[str, dict[str, str]]:
        (source,) = json.loads(output("doctor", path, "--format", "json"))
        return {answer["question"]: answer for answer in source["answers"]}


class TestManners:
    """Help, pipes, terminals, interrupts."""

    @pytest.mark.parametrize("command", COMMANDS, ids=lambda c: c.name)
    def test_every_command_shows_an_example_that_parses(self, command: click.Command) -> None:
        text = output(command.name, "--help")
        examples = re.findall(r"^ +traceq (.+)$", text, re.MULTILINE)
        assert examples
        for example in examples:
            words = [w.strip("'") for w in re.findall(r"'[^']*'|\S+", example)]
            command, arguments = cli.commands[words[0]], words[1:]
            if isinstance(command, click.Group):
                command, arguments = command.commands[arguments[0]], arguments[1:]
            parsed = command.make_context(words[0], arguments, resilient_parsing=False)
            assert parsed.params

    def test_help_lists_every_command(self) -> None:
        text = output("--help")
        assert all(f"\n  {command.name} " in text for command in COMMANDS)

    def test_the_version_is_that_of_the_package(self) -> None:
        assert output("--version") == f"traceq, version {traceq.__version__}\n"

    @pytest.mark.parametrize("arguments", [["--help"], ["report", "--help"]])
    def test_help_loads_no_library_of_the_work(self, arguments: list[str]) -> None:
        code = (
            "import sys\n"
            f"sys.argv = ['traceq', *{arguments!r}]\n"
            "from traceq.cli import main\n"
            "try:\n    main()\nexcept SystemExit:\n    pass\n"
            "heavy = {'polars', 'duckdb', 'numpy', 'rich', 'adbc_driver_sqlite', 'torch'}\n"
            "print(sorted(heavy & set(sys.modules)), file=sys.stderr)\n"
        )
        done = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True
        )
        assert done.stderr == "[]\n"

    def test_an_unknown_option_is_a_usage_error(self) -> None:
        done = run_traceq("report", "x", "--formt", "json")
        assert done.returncode == 2
        assert "--format" in done.stderr

    def test_a_reader_that_goes_away_is_no_error_of_ours(self, saved: Path) -> None:
        done = subprocess.run(
            f"{sys.executable} -m traceq sql '{saved}' "
            "'SELECT r.*, s.* FROM range(200000) r, range(1) s' | head -n 1",
            shell=True,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0
        assert done.stderr == ""

    def test_an_interrupt_ends_in_one_word(
        self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        def interrupted(**_: object) -> None:
            raise KeyboardInterrupt

        monkeypatch.setattr(cli, "main", interrupted)
        monkeypatch.setattr("traceq.cli.cli", interrupted)
        with pytest.raises(SystemExit) as ended:
            main()
        assert ended.value.code == 130
        assert capsys.readouterr().err == "traceq: interrupted\n"

    def test_a_terminal_sees_colour_and_progress(self, sample_folder: Path) -> None:
        status, shown = self.at_a_terminal("report", str(sample_folder))
        assert status == 0
        assert b"reading" in shown
        assert b"\x1b[1m" in shown

    @staticmethod
    def at_a_terminal(*words: str) -> tuple[int, bytes]:
        """The exit status of a command at a terminal, and all that it shows there."""
        parent, child = pty.openpty()
        with subprocess.Popen(
            [sys.executable, "-m", "traceq", *words],
            stdout=child,
            stderr=child,
            env=os.environ | {"TERM": "xterm-256color"},
        ) as process:
            os.close(child)
            shown = b""
            while True:
                try:
                    piece = os.read(parent, 4096)
                except OSError:
                    break
                if not piece:
                    break
                shown += piece
        os.close(parent)
        return process.returncode, shown

    def test_binary_rows_go_to_a_pipe(self, saved: Path) -> None:
        result = CliRunner().invoke(cli, ["query", "streams", str(saved), "--format", "parquet"])
        assert result.exit_code == 0
        assert result.stdout_bytes.startswith(b"PAR1")

    def test_binary_rows_are_not_thrown_at_a_terminal(self, saved: Path) -> None:
        status, shown = self.at_a_terminal("query", "streams", str(saved), "--format", "parquet")
        assert status == 2
        assert b"parquet is binary" in shown

    @pytest.mark.parametrize("command", [("sql", "SELECT 1 AS x"), ("query", "streams")])
    def test_a_full_disk_is_one_line(self, saved: Path, command: tuple[str, str]) -> None:
        name, what = command
        words = [name, str(saved), what] if name == "sql" else [name, what, str(saved)]
        with Path("/dev/full").open("w") as full:
            done = subprocess.run(
                [sys.executable, "-m", "traceq", *words],
                stdout=full,
                stderr=subprocess.PIPE,
                text=True,
                check=False,
            )
        assert done.returncode == 2
        assert done.stderr == "traceq: cannot write: No space left on device\n"

    @pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
    def test_a_request_to_end_leaves_nothing_behind(
        self, tmp_path: Path, number: signal.Signals
    ) -> None:
        paths = []
        for rank in range(2):
            export = NsysExport().capture(environment=f"RANK={rank}")
            for k in range(20_000):
                export.kernel("gemm<f>", 1000 * k + 1000, 1000 * k + 1500)
            paths.append(export.write(tmp_path / f"{rank}.sqlite"))
        scratch, out = tmp_path / "scratch", tmp_path / "out"
        scratch.mkdir()
        out.mkdir()
        with subprocess.Popen(
            [
                sys.executable,
                "-m",
                "traceq",
                "report",
                *paths,
                "--jobs",
                "2",
                "--save",
                out / "run.duckdb",
            ],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            env=os.environ | {"TMPDIR": str(scratch)},
        ) as process:
            while not list(scratch.glob("traceq-*/*")) and process.poll() is None:
                time.sleep(0.01)
            process.send_signal(number)
            _, told = process.communicate(timeout=60)
        assert process.returncode == (130 if number == signal.SIGINT else 128 + number)
        assert "Traceback" not in told
        assert list(out.iterdir()) == []
        assert [p.name for p in scratch.iterdir() if p.name.startswith("traceq-")] == []
