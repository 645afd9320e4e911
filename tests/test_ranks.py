"""Which rank is whose: the order of evidence, and refusing two claims to one rank."""

from pathlib import Path

import pytest

from tests.conftest import RunMaker
from tests.traces.nsys import NsysExport
from traceq.errors import ConfigError, SourceError
from traceq.runfile import Run


def source(tmp_path: Path, name: str, *, rank: int | None = None, devices: int = 1) -> Path:
    environment = "" if rank is None else f"RANK={rank}"
    export = NsysExport().capture(environment=environment)
    for device in range(devices):
        export.kernel("gemm<float>", 1000, 1100, device=device)
    path = tmp_path / name
    path.parent.mkdir(exist_ok=True)
    return export.write(path)


def ranks(run: Run) -> list[tuple[int, str, str]]:
    return run.frame(
        "SELECT rank, rank_source, file_name FROM ranks JOIN sources USING (source_id) "
        "ORDER BY rank"
    ).rows()


def notes(run: Run) -> list[str]:
    return run.frame("SELECT code FROM diagnostics WHERE code LIKE 'rank%' ORDER BY code")[
        "code"
    ].to_list()


def test_what_a_source_states_beats_its_file_name(tmp_path: Path, make_run: RunMaker) -> None:
    run = make_run(source(tmp_path, "rank9.sqlite", rank=3))
    assert ranks(run) == [(3, "env", "rank9.sqlite")]


def test_the_user_beats_everything(tmp_path: Path, make_run: RunMaker) -> None:
    run = make_run(source(tmp_path, "rank9.sqlite", rank=3), rank_map={"rank9.sqlite": 5})
    assert ranks(run) == [(5, "user", "rank9.sqlite")]


@pytest.mark.parametrize("name", ["rank4.sqlite", "run_rank_04.sqlite", "a.rank-4.b.sqlite"])
def test_a_rank_in_the_file_name_is_taken_and_said(
    tmp_path: Path, make_run: RunMaker, name: str
) -> None:
    run = make_run(source(tmp_path, name))
    assert ranks(run) == [(4, "file_name", name)]
    assert notes(run) == ["rank_from_file_name"]


def test_a_word_that_ends_in_rank_is_no_rank(tmp_path: Path, make_run: RunMaker) -> None:
    run = make_run(source(tmp_path, "crank4.sqlite"), source(tmp_path, "frank2.sqlite"))
    assert [r[:2] for r in ranks(run)] == [(0, "order"), (1, "order")]
    assert notes(run) == ["rank_from_order"]


def test_ranks_that_nothing_states_fill_the_free_numbers(
    tmp_path: Path, make_run: RunMaker
) -> None:
    run = make_run(
        source(tmp_path, "x.sqlite"),
        source(tmp_path, "b.sqlite", rank=0),
        source(tmp_path, "y.sqlite"),
    )
    assert ranks(run) == [
        (0, "env", "b.sqlite"),
        (1, "order", "x.sqlite"),
        (2, "order", "y.sqlite"),
    ]


def test_a_file_name_speaks_for_no_rank_when_the_file_holds_several(
    tmp_path: Path, make_run: RunMaker
) -> None:
    run = make_run(source(tmp_path, "rank4.sqlite", devices=2))
    assert [r[:2] for r in ranks(run)] == [(0, "order"), (1, "order")]


def test_two_sources_that_claim_one_rank_are_named(tmp_path: Path, make_run: RunMaker) -> None:
    pair = source(tmp_path, "a.sqlite", rank=2), source(tmp_path, "b.sqlite", rank=2)
    with pytest.raises(
        SourceError, match=r"a\.sqlite and b\.sqlite: both claim rank 2 .*--rank-map"
    ):
        make_run(*pair)
    assert [r[0] for r in ranks(make_run(*pair, rank_map={"b.sqlite": 3}))] == [2, 3]


def test_files_of_one_name_are_told_apart_by_their_folder(
    tmp_path: Path, make_run: RunMaker
) -> None:
    pair = [source(tmp_path, f"{node}/rank0.sqlite") for node in ("node0", "node1")]
    mapped = make_run(*pair, rank_map={"node0/rank0.sqlite": 4, "node1/rank0.sqlite": 5})
    assert [r[:2] for r in ranks(mapped)] == [(4, "user"), (5, "user")]
    with pytest.raises(ConfigError, match=r"rank0\.sqlite=4: 2 sources are called that"):
        make_run(*pair, rank_map={"rank0.sqlite": 4})


def test_no_rank_map_is_stored_since_it_may_hold_paths(tmp_path: Path, make_run: RunMaker) -> None:
    path = source(tmp_path, "someone/a.sqlite")
    run = make_run(path, rank_map={"someone/a.sqlite": 1})
    assert "someone" not in run.frame("SELECT config FROM run").item()


def test_a_number_too_large_for_a_rank_is_none(tmp_path: Path, make_run: RunMaker) -> None:
    run = make_run(source(tmp_path, "rank99999999999.sqlite", rank=99_999_999_999))
    assert ranks(run) == [(0, "order", "rank99999999999.sqlite")]


def test_a_source_of_several_ranks_cannot_be_given_one(tmp_path: Path, make_run: RunMaker) -> None:
    path = source(tmp_path, "node.sqlite", devices=2)
    with pytest.raises(SourceError, match=r"node\.sqlite: holds 2 ranks"):
        make_run(path, rank_map={"node.sqlite": 1})


def test_hosts_are_counted_but_never_named(tmp_path: Path, make_run: RunMaker) -> None:
    paths = []
    for name, host in (("a", "gpu-17.cluster"), ("b", "gpu-18.cluster"), ("c", "gpu-17.cluster")):
        export = NsysExport().capture(host=host).kernel("gemm<float>", 1000, 1100)
        paths.append(export.write(tmp_path / f"{name}.sqlite"))
    run = make_run(*paths)
    assert run.frame("SELECT host, node FROM ranks ORDER BY rank").rows() == [
        ("node0", 0),
        ("node1", 1),
        ("node0", 0),
    ]
    assert run.frame("SELECT nodes, gpus_per_node FROM run").rows() == [(2, None)]
