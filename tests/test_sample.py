"""The bundled sample is what its recipe builds."""

import gzip
import sqlite3
from contextlib import closing
from pathlib import Path

ROOT = Path(__file__).parents[1]


def dump(packed: Path) -> list[str]:
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.deserialize(gzip.decompress(packed.read_bytes()))
        return list(connection.iterdump())


def test_the_committed_sample_is_that_of_its_recipe(sample_folder: Path) -> None:
    committed = sorted((ROOT / "examples/two_ranks").glob("*.gz"))
    built = sorted(sample_folder.glob("*.gz"))
    assert [p.name for p in committed] == [p.name for p in built]
    for mine, theirs in zip(committed, built, strict=True):
        assert dump(mine) == dump(theirs)
