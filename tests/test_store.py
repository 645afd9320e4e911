"""The store: what goes in comes out, whole or not at all, whatever ends the process."""

import datetime as dt
import json
import os
import random
import shutil
import signal
import sqlite3
import threading
import time
from contextlib import closing
from pathlib import Path

import pytest
from sqlalchemy import text

from tests.processes import below
from tests.storing import Place, Starter, Waiting, tiny_source
from tests.test_catalog import begun
from tests.traces.nsys import NsysExport
from tests.traces.torch import TorchTrace
from traceq.catalog.engine import upgrade
from traceq.config import ReadOptions
from traceq.errors import SourceError, StoreError
from traceq.report import build_report
from traceq.runfile import open_run
from traceq.store import Store, StoredRun, existing_store
from traceq.storefolder import StoreFolder, default_folder


@pytest.fixture
def store(place: Place) -> Store:
    return place.open()


@pytest.fixture
def lite(tmp_path: Path) -> Place:
    """A place with a catalog of its own, where the kind of catalog makes no difference."""
    return Place(tmp_path / "store", None)


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return tiny_source(tmp_path / "a.sqlite")


def left_in(place: Place) -> list[str]:
    """What lies in the folder of a store but for run files."""
    names = [p.relative_to(place.folder).as_posix() for p in place.folder.rglob("*")]
    return sorted(name for name in names if not name.startswith("runs/"))


def empty(place: Place) -> list[str]:
    return ["building", *(["catalog.sqlite"] if place.url is None else []), "lock", "runs"]


def whole_or_none(place: Place) -> list[StoredRun]:
    """The runs of a store, once each was reported and nothing else was found."""
    runs = place.open().runs()
    assert left_in(place) == empty(place)
    assert {run.path for run in runs} == set((place.folder / "runs").iterdir())
    for run in runs:
        with open_run(run.path) as opened:
            report = build_report(opened)
        assert (report.name, report.complete) == (run.name, True)
        assert report.metrics["step_time_ms"] == (run.step_time_ns or 0) / 1e6
    return runs


class TestIngest:
    """Sources in, one run."""

    def test_a_run_is_kept_with_what_is_known_of_it(
        self, place: Place, store: Store, sample_folder: Path
    ) -> None:
        before = dt.datetime.now(dt.UTC)
        done = store.ingest([sample_folder], name="night run", tags=["h100", "base", "h100"])
        run = done.run
        assert (done.created, done.failures) == (True, [])
        assert before <= run.stored_at <= dt.datetime.now(dt.UTC)
        # By hand in the sample: a step of rank 1, the slower one, takes 1100 us.
        assert (run.status, run.rank_count, run.world_size, run.nodes) == ("complete", 2, 2, 1)
        assert (run.device_kind, run.step_time_ns) == ("gpu", 1_100_000)
        assert run.gpus == ("NVIDIA H100 80GB HBM3",)
        assert run.tags == ("base", "h100")
        assert [(s.file_name, s.kind, s.size_bytes) for s in run.sources] == [
            (p.name, "nsys", p.stat().st_size) for p in sorted(sample_folder.iterdir())
        ]
        assert run.path.parent == place.folder / "runs"
        assert whole_or_none(place) == [run] == [store.find("night run")]

    def test_the_step_time_is_the_lower_median_of_the_slowest_rank(
        self, lite: Place, tmp_path: Path
    ) -> None:
        paths = []
        for rank, lengths in enumerate([(50, 10, 40, 30), (20, 60, 10, 30)]):
            export = NsysExport().capture(environment=f"RANK={rank};WORLD_SIZE=2")
            for step, length in enumerate(lengths):
                start = 1000 * step + 1000
                export.range(f"step {step}", start - 200, start - 50)
                export.kernel("gemm<f>", start, start + length, launch=start - 100)
            paths.append(export.write(tmp_path / f"{rank}.sqlite"))
        # The slower of each step: 50, 60, 40, 30; of the middle two, 40 and 50, the lower.
        assert lite.open().ingest(paths, name="a").run.step_time_ns == 40

    def test_a_run_of_cpus_without_steps_is_told_to_be_one(
        self, lite: Place, tmp_path: Path
    ) -> None:
        trace = TorchTrace(gpu=None).operator("aten::mm", 1000, 2000)
        trace.annotation("gloo:all_reduce", 2000, 3000)
        run = lite.open().ingest([trace.write(tmp_path / "rank0.json")], name="cpu").run
        assert (run.device_kind, run.gpus, run.step_time_ns) == ("cpu", (), None)

    def test_the_same_sources_are_one_run_wherever_they_lie(
        self, place: Place, store: Store, source: Path, tmp_path: Path
    ) -> None:
        first = store.ingest([source], name="night", tags=["a"]).run
        copy = tmp_path / "elsewhere" / "b.sqlite"
        copy.parent.mkdir()
        shutil.copy(source, copy)
        again = store.ingest([copy], name="other", tags=["b"])
        assert (again.created, again.run.name, again.run.tags) == (False, "night", ("a", "b"))
        assert again.run.path == first.path
        assert [run.name for run in whole_or_none(place)] == ["night"]

    def test_other_options_make_another_run(
        self, lite: Place, source: Path, tmp_path: Path
    ) -> None:
        store = lite.open()
        log = tmp_path / "nccl.log"
        log.write_text("host:1:1 [0] NCCL INFO comm 0x1 rank 0 nranks 2 - Init COMPLETE\n")
        changed = [
            ReadOptions(),
            ReadOptions(nranks=4),
            ReadOptions(rank_map={"a.sqlite": 0}),
            ReadOptions(rank_map={"a.sqlite": 1}),
            ReadOptions(nccl_logs=(str(log),)),
        ]
        for position, options in enumerate(changed):
            done = store.ingest([source], name=f"{position}", options=options)
            assert done.created, position
        log.write_text(log.read_text() * 2)
        assert store.ingest([source], name="6", options=changed[-1]).created
        again = store.ingest([source], name="7", options=ReadOptions(rank_map={"a.sqlite": 1}))
        assert (again.created, again.run.name) == (False, "3")

    def test_order_of_sources_makes_no_other_run(self, lite: Place, tmp_path: Path) -> None:
        paths = [tiny_source(tmp_path / f"rank{k}.sqlite", k) for k in range(2)]
        store = lite.open()
        assert store.ingest(paths, name="a").created
        assert not store.ingest(paths[::-1], name="b").created

    def test_a_taken_name_is_told_before_anything_is_read(
        self, place: Place, store: Store, source: Path, tmp_path: Path
    ) -> None:
        store.ingest([source], name="night")
        told: list[str] = []
        with pytest.raises(StoreError) as caught:
            store.ingest(
                [tiny_source(tmp_path / "b.sqlite", 1)], name="night",
                on_progress=lambda name, _: told.append(name),
            )  # fmt: skip
        assert str(caught.value) == (
            "night: another run has that name: choose another, or remove it with traceq runs rm"
        )
        assert told == []
        assert len(whole_or_none(place)) == 1

    @pytest.mark.parametrize("name", ["", "x" * 201, "a/b", "a\nb", "a\x1b[31m", " a", "a\ud800"])
    def test_what_cannot_be_a_name_is_refused(self, lite: Place, source: Path, name: str) -> None:
        with pytest.raises(StoreError, match="a name"):
            lite.open().ingest([source], name=name)
        assert whole_or_none(lite) == []

    def test_a_name_may_be_any_words(self, lite: Place, source: Path) -> None:
        name = "ночь №1 [8 H100] *?.duckdb" + "x" * 174
        assert len(name) == 200
        assert lite.open().ingest([source], name=name).run.name == name
        assert lite.open().find(name).name == name

    @pytest.mark.parametrize("tag", ["", "a\nb", "x" * 201])
    def test_what_cannot_be_a_tag_is_refused(self, lite: Place, source: Path, tag: str) -> None:
        with pytest.raises(StoreError, match="a tag"):
            lite.open().ingest([source], name="a", tags=[tag])
        assert whole_or_none(lite) == []

    def test_without_a_name_runs_are_called_like_their_sources(
        self, lite: Place, tmp_path: Path
    ) -> None:
        store = lite.open()
        names = []
        for number in range(3):
            path = tmp_path / str(number) / "slow.rank0.sqlite"
            path.parent.mkdir()
            names.append(store.ingest([tiny_source(path, number)]).run.name)
        assert names == ["slow", "slow (2)", "slow (3)"]
        assert len(whole_or_none(lite)) == 3

    def test_a_bad_source_makes_the_run_incomplete(
        self, place: Place, store: Store, source: Path, tmp_path: Path
    ) -> None:
        bad = tmp_path / "bad.sqlite"
        bad.write_bytes(b"SQLite format 3\0 and then nothing")
        done = store.ingest([source, bad], name="night")
        assert [str(each).split(":")[0] for each in done.failures] == ["bad.sqlite"]
        assert done.run.status == "incomplete"
        assert [each.file_name for each in done.run.sources] == ["a.sqlite"]
        assert left_in(place) == empty(place)

    def test_where_nothing_can_be_read_nothing_is_kept(
        self, place: Place, store: Store, tmp_path: Path
    ) -> None:
        bad = tmp_path / "bad.sqlite"
        bad.write_bytes(b"SQLite format 3\0 and then nothing")
        with pytest.raises(SourceError, match=r"bad\.sqlite"):
            store.ingest([bad], name="night")
        with pytest.raises(SourceError, match=r"nowhere\.sqlite: cannot be read"):
            store.ingest([tmp_path / "nowhere.sqlite"], name="night")
        with pytest.raises(SourceError, match="nothing to read"):
            store.ingest([], name="night")
        assert whole_or_none(place) == []

    def test_a_source_that_changes_meanwhile_is_no_run(
        self, lite: Place, source: Path, tmp_path: Path
    ) -> None:
        store = lite.open()

        def change(name: str, share: float) -> None:
            del name, share
            tiny_source(tmp_path / "new.sqlite", 5).replace(paths[1])

        paths = [source, tiny_source(tmp_path / "b.sqlite", 1)]
        with pytest.raises(SourceError, match=r"night: its sources changed while they were read"):
            store.ingest(paths, name="night", on_progress=change)
        assert whole_or_none(lite) == []

    def test_nothing_in_the_catalog_tells_who_or_where(
        self, lite: Place, sample_folder: Path
    ) -> None:
        lite.open().ingest([sample_folder], name="night", tags=["x"])
        with closing(sqlite3.connect(lite.folder / "catalog.sqlite")) as connection:
            kept = "\n".join(connection.iterdump())
        assert "rank0.sqlite.gz" in kept
        # The sample was captured with HOME=/home/someone on a host of a name.
        for secret in (str(sample_folder), str(lite.folder), "/", "someone", os.uname().nodename):
            assert secret not in kept, secret


class TestRuns:
    """Finding, tagging, removing."""

    def test_an_unknown_name_names_the_nearest(self, store: Store, source: Path) -> None:
        store.ingest([source], name="night run")
        with pytest.raises(StoreError) as caught:
            store.find("nihgt run")
        assert str(caught.value) == (
            "nihgt run: no run of the store has that name: did you mean night run?"
        )
        for act in (store.find, store.remove, store.tag):
            with pytest.raises(StoreError, match="traceq runs list names those there are"):
                act("something else")

    def test_tags_choose_runs(self, store: Store, tmp_path: Path) -> None:
        for number in range(3):
            store.ingest([tiny_source(tmp_path / f"{number}.sqlite", number)], name=f"{number}")
        assert store.tag("1", ["b", "a"]).tags == ("a", "b")
        assert store.tag("1", ["c"], ["a"]).tags == ("b", "c")
        assert [run.name for run in store.runs(tag="b")] == ["1"]
        assert [run.name for run in store.runs()] == ["2", "1", "0"]

    def test_a_removed_run_leaves_nothing_and_can_be_stored_again(
        self, place: Place, store: Store, source: Path
    ) -> None:
        run = store.ingest([source], name="night", tags=["a"]).run
        store.remove("night")
        assert whole_or_none(place) == []
        again = store.ingest([source], name="night")
        assert (again.created, again.run.tags) == (True, ())
        assert again.run.path != run.path

    def test_a_removal_that_was_cut_short_is_ended(
        self, place: Place, store: Store, source: Path
    ) -> None:
        run = store.ingest([source], name="night").run
        assert store._catalog.retire("night")
        assert run.path.exists()
        assert whole_or_none(place) == []
        assert store._catalog.tokens() == []


class TestRescan:
    """The catalog made right by the files."""

    def test_a_lost_catalog_is_made_again_from_the_files(
        self, lite: Place, sample_folder: Path, source: Path
    ) -> None:
        store = lite.open()
        options = ReadOptions(nranks=4, rank_map={"a.sqlite": 2})
        store.ingest([sample_folder], name="night run 1.5", tags=["lost"])
        store.ingest([source], name="mapped", options=options)
        before = {run.name: run for run in store.runs()}
        (lite.folder / "catalog.sqlite").unlink()
        store = lite.open()
        assert store.runs() == []
        done = store.rescan()
        assert (sorted(done.added), done.dropped, done.failures) == (
            ["mapped", "night run 1.5"], [], [],
        )  # fmt: skip
        for run in whole_or_none(lite):
            old = before[run.name]
            assert (run.path, run.sources, run.gpus) == (old.path, old.sources, old.gpus)
            assert (run.rank_count, run.step_time_ns) == (old.rank_count, old.step_time_ns)
            assert abs(run.stored_at - old.stored_at) < dt.timedelta(minutes=1)
        # And it still knows what was read, options included.
        assert not store.ingest([source], name="x", options=options).created
        assert not store.ingest([sample_folder], name="x").created
        assert store.ingest([source], name="x").created

    def test_a_run_whose_file_is_gone_is_dropped(
        self, place: Place, store: Store, source: Path
    ) -> None:
        store.ingest([source], name="night").run.path.unlink()
        done = store.rescan()
        assert (done.added, done.dropped, done.failures) == ([], ["night"], [])
        assert whole_or_none(place) == []

    def test_nothing_changes_where_all_is_right(
        self, place: Place, store: Store, source: Path
    ) -> None:
        store.ingest([source], name="night")
        before = store.runs()
        done = store.rescan()
        assert (done.added, done.dropped, done.failures) == ([], [], [])
        assert whole_or_none(place) == before

    def test_a_run_file_from_elsewhere_is_adopted_once(
        self, place: Place, store: Store, source: Path
    ) -> None:
        run = store.ingest([source], name="night").run
        shutil.copy(run.path, place.folder / "runs" / "from a friend.duckdb")
        shutil.copy(run.path, place.folder / "runs" / ".hidden.duckdb")
        (place.folder / "runs" / "text.duckdb").write_text("not a run file")
        store.remove("night")
        done = store.rescan()
        assert (done.added, done.dropped) == (["night"], [])
        assert [str(each).split(":")[0] for each in done.failures] == ["text.duckdb"]
        assert store.find("night").path.name == "from a friend.duckdb"
        shutil.copy(store.find("night").path, place.folder / "runs" / "twice.duckdb")
        (told, _) = sorted(map(str, store.rescan().failures), reverse=True)
        assert told == ("twice.duckdb: its sources are stored already as night: remove the file")
        assert not store.ingest([source], name="other").created

    def test_a_rescan_leaves_a_run_that_is_being_stored(
        self, place: Place, store: Store, source: Path
    ) -> None:
        run = store.ingest([source], name="night").run
        token = run.path.stem
        with StoreFolder(place.folder).building(token):
            store._catalog.forget(token)  # as between the move of the file and the commit
            done = place.open().rescan()
            assert (done.added, done.dropped, done.failures) == ([], [], [])
            assert run.path.exists()


class TestOpening:
    """Where a store is, and what opening one cleans."""

    @pytest.mark.parametrize(
        ("environment", "folder"),
        [
            ({"TRACEQ_STORE": "/a/b", "XDG_DATA_HOME": "/data"}, "/a/b"),
            ({"TRACEQ_STORE": "", "XDG_DATA_HOME": "/data"}, "/data/traceq"),
            ({"XDG_DATA_HOME": "not/absolute"}, "/home/x/.local/share/traceq"),
            ({}, "/home/x/.local/share/traceq"),
        ],
    )
    def test_the_environment_says_where(
        self, monkeypatch: pytest.MonkeyPatch, environment: dict[str, str], folder: str
    ) -> None:
        monkeypatch.setenv("HOME", "/home/x")
        for name in ("TRACEQ_STORE", "XDG_DATA_HOME"):
            monkeypatch.delenv(name, raising=False)
            if name in environment:
                monkeypatch.setenv(name, environment[name])
        assert default_folder() == Path(folder)

    def test_looking_makes_no_store(
        self, monkeypatch: pytest.MonkeyPatch, place: Place, source: Path
    ) -> None:
        for name in ("TRACEQ_STORE", "TRACEQ_CATALOG"):
            if name in place.environment:
                monkeypatch.setenv(name, place.environment[name])
        assert existing_store() is None
        assert not place.folder.exists()
        place.open().ingest([source], name="night")
        found = existing_store()
        assert found is not None
        assert [run.name for run in found.runs()] == ["night"]

    def test_what_a_dead_ingest_left_is_cleaned(
        self, place: Place, store: Store, source: Path
    ) -> None:
        run = store.ingest([source], name="night").run
        building, files = place.folder / "building", place.folder / "runs"
        for token in ("early", "later", "moved", run.path.stem):
            (building / token / "traceq-x").mkdir(parents=True)
            (building / token / "traceq-x" / "ops.parquet").write_text("half")
        for token in ("later", "moved", run.path.stem):
            (building / token / "lock").touch()
        shutil.copy(run.path, files / "moved.duckdb")  # moved, but its row was never committed
        shutil.copy(run.path, files / "kept.duckdb")  # of no row and of no ingest: not ours to lose
        place.open()
        assert left_in(place) == empty(place)
        assert sorted(path.stem for path in files.iterdir()) == sorted([run.path.stem, "kept"])
        assert [each.name for each in store.runs()] == ["night"]

    def test_a_live_ingest_is_left_alone(self, place: Place, store: Store) -> None:
        with StoreFolder(place.folder).building("live") as folder:
            (folder / "half").touch()
            place.open()
            assert (folder / "half").exists()
        place.open()
        assert not folder.exists()

    def test_rows_from_before_a_migration_get_what_lists_show(
        self, place: Place, source: Path, tmp_path: Path
    ) -> None:
        made = Place(tmp_path / "other", None)
        path = made.open().ingest([source], name="night").run.path
        for each in ("runs", "building"):
            (place.folder / each).mkdir(parents=True)
        shutil.copy(path, place.folder / "runs")
        with begun(place.url or place.folder / "catalog.sqlite") as connection:
            upgrade(connection, "0001")
            connection.execute(
                text(
                    "INSERT INTO runs (token, fingerprint, name, status, stored_at, rank_count,"
                    " gpus) VALUES (:token, 'f', 'night', 'complete', '2026-01-02 03:04:05', 1,"
                    " '[]'), ('gone', 'g', 'gone', 'complete', '2026-01-01 03:04:05', 1, '[]')"
                ),
                {"token": path.stem},
            )
        night, gone = place.open().runs()
        assert (night.step_time_ns, night.device_kind) == (100, "gpu")
        assert (gone.step_time_ns, gone.device_kind) == (None, "cpu")

    def test_a_store_that_is_a_file_is_one_line(self, tmp_path: Path) -> None:
        (tmp_path / "store").touch()
        with pytest.raises(StoreError, match=r"^store: the store cannot be used: .*TRACEQ_STORE"):
            Store(tmp_path / "store")


class TestAtOnce:
    """Several processes, and several threads."""

    def test_eight_processes_lose_nothing(self, place: Place, tmp_path: Path) -> None:
        sources = [tiny_source(tmp_path / f"{k}.sqlite", k) for k in range(8)]
        ended = at_once(
            [Waiting(place, "ingest", path, "--name", path.stem, "--tag", "t") for path in sources]
        )
        assert [(status, errors) for status, _, errors in ended] == [(0, "")] * 8
        runs = whole_or_none(place)
        assert sorted(run.name for run in runs) == list("01234567")
        assert all(run.tags == ("t",) for run in runs)
        assert {run.step_time_ns for run in runs} == set(range(100, 108))

    def test_eight_processes_with_the_same_sources_make_one_run(
        self, place: Place, source: Path
    ) -> None:
        words = ("ingest", source, "--format", "json", "--name")
        ended = at_once([Waiting(place, *words, f"run {k}") for k in range(8)])
        assert [(status, errors) for status, _, errors in ended] == [(0, "")] * 8
        results = [json.loads(out) for _, out, _ in ended]
        assert sum(each["created"] for each in results) == 1
        (run,) = whole_or_none(place)
        assert {each["run"]["name"] for each in results} == {run.name}

    def test_eight_processes_with_one_name_make_one_run(self, place: Place, tmp_path: Path) -> None:
        sources = [tiny_source(tmp_path / f"{k}.sqlite", k) for k in range(8)]
        ended = at_once([Waiting(place, "ingest", path, "--name", "night") for path in sources])
        assert sorted(status for status, *_ in ended) == [0] + [2] * 7
        for status, out, errors in ended:
            line = "" if status == 0 else (
                "traceq: night: another run has that name: choose another, or remove it with "
                "traceq runs rm\n"
            )  # fmt: skip
            assert (errors, bool(out)) == (line, status == 0)
        assert [run.name for run in whole_or_none(place)] == ["night"]

    def test_threads_share_a_store(self, place: Place, store: Store, tmp_path: Path) -> None:
        sources = [tiny_source(tmp_path / f"{k}.sqlite", k) for k in range(4)]
        threads = [
            threading.Thread(target=store.ingest, args=([path],), kwargs={"name": path.stem})
            for path in sources
        ]
        for thread in threads:
            thread.start()
        while any(thread.is_alive() for thread in threads):
            store.runs()
            place.open()
        assert sorted(run.name for run in whole_or_none(place)) == list("0123")


def at_once(processes: list[Waiting]) -> list[tuple[int, str, str]]:
    for process in processes:
        process.ready()
    for process in processes:
        process.go()
    return [process.end() for process in processes]


KILL_AT = """
import os, signal, sys
seen, at = 0, {at}
def hook(event, arguments):
    global seen
    if event == "fcntl.flock" or (event in {events} and {folder!r} in str(arguments[0])):
        seen += 1
        if seen == at:
            os.kill(os.getpid(), signal.SIGKILL)
sys.addaudithook(hook)
"""
EVENTS = (
    "open", "os.mkdir", "os.rename", "os.remove", "os.rmdir", "shutil.rmtree", "sqlite3.connect",
)  # fmt: skip
KILLED = -signal.SIGKILL


class TestKilled:
    """A process that is killed leaves a whole run or none, no lock, and nothing to clean."""

    @pytest.mark.parametrize(
        ("place", "trials"), [("sqlite", 50), ("postgresql", 10)], indirect=["place"]
    )
    def test_at_random_moments(
        self, place: Place, source: Path, tmp_path: Path, trials: int
    ) -> None:
        chance = random.Random(20261130)
        scratch = tmp_path / "scratch"
        outcomes = []
        with Starter(place, scratch) as starter:
            words = ("ingest", source, "--name", "night")
            for _ in range(2):  # the first makes the store, and loads what is loaded once
                assert starter.run(*words)[0] == 0
                undisturbed_s = starter.took_s
                place.open().remove("night")
            for _ in range(trials):
                delay_s = chance.uniform(0, 1.1 * undisturbed_s)
                status, _ = starter.run(*words, kill_after_s=delay_s)
                assert status in {0, KILLED}
                left = self.settled(place, source, scratch)
                assert left or status == KILLED
                outcomes.append(left)
        # How late a kill comes is up to the machine; the next test kills on both sides of a commit.
        assert False in outcomes

    def test_before_each_thing_it_does_to_the_store(
        self, lite: Place, source: Path, tmp_path: Path
    ) -> None:
        scratch = tmp_path / "scratch"
        outcomes = []
        with Starter(lite, scratch) as starter:
            words = ("ingest", source, "--name", "night")
            lite.open()
            status, seen = starter.run(
                *words, more=KILL_AT.format(at=0, events=EVENTS, folder=str(lite.folder))
            )
            assert status == 0
            lite.open().remove("night")
            assert int(seen) > 10
            for at in range(1, int(seen) + 1):
                more = KILL_AT.format(at=at, events=EVENTS, folder=str(lite.folder))
                assert starter.run(*words, more=more)[0] == KILLED, at
                outcomes.append(self.settled(lite, source, scratch))
        # Nothing until the commit, the whole run from then on.
        assert outcomes == sorted(outcomes)
        assert set(outcomes) == {False, True}

    def settled(self, place: Place, source: Path, scratch: Path) -> bool:
        """Whether a killed ingest left its run, once all is right and the store is empty again."""
        runs = whole_or_none(place)
        assert [run.name for run in runs] in ([], ["night"])
        assert list(scratch.iterdir()) == []
        store = place.open()
        assert store.ingest([source], name="night").created == (not runs)
        store.remove("night")
        return bool(runs)

    def test_a_killed_removal_removes(self, place: Place, source: Path, tmp_path: Path) -> None:
        run = place.open().ingest([source], name="night").run
        with Starter(place, tmp_path / "scratch") as starter:
            more = KILL_AT.format(at=1, events=("os.remove",), folder=str(run.path))
            more = more.replace("fcntl.flock", "none")
            assert starter.run("runs", "rm", "night", more=more)[0] == KILLED
        assert run.path.exists()  # killed after the commit that it is being removed
        assert whole_or_none(place) == []

    def test_its_other_processes_end_too(self, lite: Place, tmp_path: Path) -> None:
        paths = [tiny_source(tmp_path / f"rank{k}.sqlite", k, kernels=30_000) for k in range(2)]
        process = Waiting(lite, "ingest", *paths, "--name", "night", "--jobs", "2").ready()
        process.go()
        while not list(lite.folder.glob("building/*/traceq-*/*")):
            time.sleep(0.01)
        others = below(process.pid)
        assert len(others) >= 2
        process.kill_after(0)
        deadline = time.monotonic() + 20
        while any(Path(f"/proc/{pid}").exists() for pid in others):
            assert time.monotonic() < deadline, "processes are left"
            time.sleep(0.05)
        assert whole_or_none(lite) == []
