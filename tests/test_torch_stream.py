"""The events of a trace in any layout, with any damage: what is whole is kept."""

import gzip
import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
import zstandard
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.traces.torch import TorchTrace, collective
from traceq.config import ReadOptions
from traceq.errors import SourceError
from traceq.ingest.torch_profiler import stream as stream_module
from traceq.ingest.torch_profiler.blocks import Blocks
from traceq.ingest.torch_profiler.columns import nanoseconds
from traceq.ingest.torch_profiler.reader import read_torch
from traceq.ingest.torch_profiler.stream import EventStream, text_of

PACK = {None: bytes, "gzip": gzip.compress, "zstd": zstandard.compress}


def trace(count: int = 40) -> TorchTrace:
    """A trace whose events have all that a cut can fall into: strings, escapes, nesting."""
    built = TorchTrace(host_name="secret-host")
    for k in range(count):
        zero = 1000 * k
        built.annotation(
            f'a "quoted" \\ range {k} \u00e9 }},{{ [', zero, zero + 500, note=[1, {"x": 2}]
        )
        built.kernel("gemm<float>", zero + 100, zero + 400, **collective("allreduce", k))
    return built


def read(data: bytes, tmp_path: Path, packing: str | None = None) -> tuple[EventStream, list[str]]:
    path = tmp_path / "trace"
    path.write_bytes(data)
    stream = EventStream(Blocks(path, packing))
    return stream, [text_of(bytes(event.name)) for batch in stream for event in batch]


def names(built: TorchTrace) -> list[str]:
    return [event["name"] for event in built.events]


@pytest.mark.parametrize("packing", PACK)
@pytest.mark.parametrize(
    "layout",
    [{}, {"separators": (",", ":")}, {"indent": 2}, {"sort_keys": True}, {"ensure_ascii": False}],
    ids=str,
)
def test_every_layout_gives_every_event(
    tmp_path: Path, layout: dict[str, Any], packing: str | None
) -> None:
    built = trace()
    stream, found = read(PACK[packing](built.text(**layout).encode()), tmp_path, packing)
    assert found == names(built)
    assert (stream.closed, stream.lost, stream.repaired) == (True, 0, 0)
    assert stream.metadata["baseTimeNanoseconds"] == 1_700_000_000_000_000_000
    assert stream.metadata["distributedInfo"]["rank"] == 0


@pytest.mark.parametrize("piece", [1, 100, 1000, 10_000])
def test_the_size_of_a_piece_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, piece: int
) -> None:
    monkeypatch.setattr(stream_module, "PIECE_BYTES", piece)
    monkeypatch.setattr("traceq.ingest.torch_profiler.blocks._PLAIN_BYTES", 97)
    built = trace()
    stream, found = read(built.text().encode(), tmp_path)
    assert found == names(built)
    assert stream.closed


@pytest.mark.parametrize("end", ["]", "", ",", " ,\n"])
def test_a_bare_array_may_stay_open(tmp_path: Path, end: str) -> None:
    built = trace(3)
    text = "[" + ",\n".join(json.dumps(e) for e in built.events) + end
    stream, found = read(text.encode(), tmp_path)
    assert found == names(built)
    assert stream.closed


def test_keys_may_come_in_any_order_around_the_events(tmp_path: Path) -> None:
    text = (
        '{"z": {"traceEvents": [1]}, "traceEvents": [{"ph": "X", "name": "e"}], "a": [1, {"b": 2}]}'
    )
    stream, found = read(text.encode(), tmp_path)
    assert found == ["e"]
    assert (stream.closed, stream.metadata) == (
        True,
        {"z": {"traceEvents": [1]}, "a": [1, {"b": 2}]},
    )


@pytest.mark.parametrize("text", ["{}", '{"traceEvents": []}', "[]", '{"a": 1}'])
def test_a_trace_without_events_is_whole(tmp_path: Path, text: str) -> None:
    stream, found = read(text.encode(), tmp_path)
    assert (found, stream.closed) == ([], True)


class TestDamage:
    """Reported faults A: malformed JSON."""

    def mended(
        self, tmp_path: Path, name: bytes, extra: bytes = b""
    ) -> tuple[EventStream, list[str]]:
        event = b'{"ph": "X", "cat": "kernel", "name": "' + name + b'", "ts": 1' + extra + b"}"
        good = b'{"ph": "X", "cat": "kernel", "name": "good", "ts": 2, "dur": 1}'
        return read(b'{"traceEvents": [' + event + b", " + good + b"]}", tmp_path)

    @pytest.mark.parametrize(
        ("name", "shown"),
        [
            (rb"C:\Users\q", "C:\\Users\\q"),  # P1
            (b"bad \x91 byte", "bad \ufffd byte"),  # P2
            (b"a\x01b", "a\x01b"),  # P3
            (b"tab\there", "tab\there"),
        ],
    )
    def test_a_damaged_name_is_mended_and_nothing_is_lost(
        self, tmp_path: Path, name: bytes, shown: str
    ) -> None:
        stream, found = self.mended(tmp_path, name, b', "dur": 1')
        assert found == [shown, "good"]
        assert (stream.closed, stream.lost) == (True, 0)

    @pytest.mark.parametrize("literal", [b"NaN", b"Infinity", b"-Infinity", b"nan"])  # P8
    def test_a_number_that_is_none_leaves_the_event(self, tmp_path: Path, literal: bytes) -> None:
        stream, found = self.mended(tmp_path, b"odd", b', "dur": ' + literal)
        assert found == ["odd", "good"]
        assert (stream.closed, stream.lost, stream.repaired) == (True, 0, 1)

    def test_nan_inside_a_name_is_text(self, tmp_path: Path) -> None:
        _, found = self.mended(tmp_path, b"is NaN: NaN", b', "dur": NaN')
        assert found == ["is NaN: NaN", "good"]

    def test_missing_commas_lose_nothing(self, tmp_path: Path) -> None:  # P7
        built = trace(5)
        text = built.text().replace('}, {"ph"', '} {"ph"')
        stream, found = read(text.encode(), tmp_path)
        assert found == names(built)
        assert stream.closed

    def test_a_missing_end_keeps_the_whole_events(self, tmp_path: Path) -> None:  # P6, P7
        built = trace(5)
        stream, found = read(built.text().split("]", 1)[0].encode()[:-30], tmp_path)
        assert found == names(built)[: len(found)]
        assert not stream.closed

    def test_half_an_event_in_the_middle_is_counted_with_its_place(self, tmp_path: Path) -> None:
        built = trace(3)
        parts = [json.dumps(e) for e in built.events]
        parts[2] = '{"ph": "X", "name": "half'
        head = '{"traceEvents": ['
        stream, found = read((head + ", ".join(parts) + "]}").encode(), tmp_path)
        kept = names(built)
        assert found == kept[:2] + kept[3:]
        assert stream.lost == 1
        assert stream.first_loss == len(head) + len(parts[0]) + 2 + len(parts[1]) + 2

    def test_an_event_of_the_wrong_shape_is_lost_alone(self, tmp_path: Path) -> None:
        stream, found = read(b'{"traceEvents": [{"ph": 7}, {"ph": "X", "name": "ok"}]}', tmp_path)
        assert (found, stream.lost, stream.closed) == (["ok"], 1, True)

    @pytest.mark.parametrize(
        ("between", "lost"),
        [
            (b"7", 1),
            (b'"text"', 1),
            (b"{}", 1),
            (b'{"name": "no kind"}', 1),
            (b'{"ph": null, "name": "no kind"}', 1),
            (b'{"ph": "X", "args": ' + b"[" * 100_000 + b"]" * 100_000 + b"}", 1),
            (b"7, {}, 8", 1),
        ],
        ids=["number", "text", "empty", "kindless", "null kind", "deep", "several"],
    )
    def test_what_is_no_event_is_lost_between_the_others(
        self, tmp_path: Path, between: bytes, lost: int
    ) -> None:
        first, last = b'{"ph": "X", "name": "a"}', b'{"ph": "X", "name": "b"}'
        stream, found = read(
            b'{"traceEvents": [' + b", ".join([first, between, last]) + b"]}", tmp_path
        )
        assert (found, stream.lost, stream.closed) == (["a", "b"], lost, True)

    def test_a_list_among_the_events_is_no_event(self, tmp_path: Path) -> None:
        text = b'{"traceEvents": [{"ph": "X", "name": "a"}, [1, 2], {"ph": "X", "name": "b"}]}'
        stream, found = read(text, tmp_path)
        assert (found, stream.lost, stream.closed) == (["a", "b"], 1, True)

    @pytest.mark.parametrize("text", [b'{"traceEvents": []}', b"[]"])
    def test_what_stands_behind_the_end_is_noticed(self, tmp_path: Path, text: bytes) -> None:
        for behind, followed in ((b"\n \0\0", False), (b' {"traceEvents": []}', True)):
            stream, _ = read(text + behind, tmp_path)
            assert (stream.followed, stream.closed) == (followed, not followed)

    def test_every_second_event_may_be_half(self, tmp_path: Path) -> None:
        whole = b'{"ph": "X", "name": "e", "args": {"l": [{"a": 1}, {"b": "c"}]}}'
        halves = [whole[:end] for end in range(1, len(whole))]
        events = [each for half in 50 * halves for each in (whole, half)]
        stream, found = read(b'{"traceEvents": [' + b", ".join([*events, whole]) + b"]}", tmp_path)
        assert len(found) == 50 * len(halves) + 1
        assert (stream.lost, stream.closed) == (50 * len(halves), True)

    def test_an_escaped_key_names_the_events(self, tmp_path: Path) -> None:
        _, found = read(rb'{"trace\u0045vents": [{"ph": "X", "name": "e"}]}', tmp_path)
        assert found == ["e"]

    def test_a_missing_category_is_no_damage(self, tmp_path: Path) -> None:
        stream, found = read(b'[{"ph": "X", "cat": null, "name": "e"}]', tmp_path)
        assert (found, stream.lost) == (["e"], 0)


def test_a_packed_file_may_hold_several_streams_and_end_in_zeros(tmp_path: Path) -> None:
    built = trace(5)
    text = built.text().encode()
    for packing in ("gzip", "zstd"):
        halves = PACK[packing](text[:500]) + PACK[packing](text[500:])
        stream, found = read(halves, tmp_path, packing)
        assert (found, stream.closed) == (names(built), True)
    stream, found = read(gzip.compress(text) + bytes(1000), tmp_path, "gzip")
    assert (found, stream.closed) == (names(built), True)


def boundaries(built: TorchTrace, text: str) -> list[int]:
    """Where each event of a trace ends in its text."""
    ends, at = [], text.index("[", text.index('"traceEvents"'))
    for event in built.events:
        at = text.index(json.dumps(event), at) + len(json.dumps(event))
        ends.append(at)
    return ends


@pytest.mark.parametrize("place", range(200))
def test_a_trace_cut_anywhere_keeps_every_whole_event(tmp_path: Path, place: int) -> None:
    built = trace(6)
    text = built.text(ensure_ascii=True)
    assert text.isascii()
    ends = boundaries(built, text)
    start = text.index('"traceEvents"')
    cut = start + 20 + (len(text) - start - 21) * place // 199
    stream, found = read(text[:cut].encode(), tmp_path)
    assert found == names(built)[: sum(end <= cut for end in ends)]
    assert not stream.closed


@pytest.mark.parametrize("packing", ["gzip", "zstd"])
def test_a_compressed_trace_cut_anywhere_never_claims_to_be_whole(
    tmp_path: Path, packing: str
) -> None:
    built = trace(300)
    packed = PACK[packing](built.text().encode())
    whole = names(built)
    counts = []
    for place in range(1, 100):
        cut = len(packed) * place // 100
        stream, found = read(packed[:cut], tmp_path, packing)
        assert found == whole[: len(found)]
        assert not stream.closed
        counts.append(len(found))
    assert counts == sorted(counts)
    for end in range(1, 9):  # the trailer of gzip: all events are there, but nothing vouches for it
        stream, found = read(packed[:-end], tmp_path, packing)
        assert not stream.closed
        if packing == "gzip":
            assert found == whole


def test_gzip_keeps_what_comes_before_a_damaged_place(tmp_path: Path) -> None:
    built = trace(2000)
    packed = bytearray(gzip.compress(built.text().encode()))
    packed[len(packed) // 2] ^= 0xFF
    stream, found = read(bytes(packed), tmp_path, "gzip")
    assert found[: len(found) - 1] == names(built)[: len(found) - 1]
    assert len(found) > 1000
    assert not stream.closed


FUZZED = trace(8).text().encode()


@settings(
    max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(flips=st.lists(st.tuples(st.integers(0, len(FUZZED) - 1), st.integers(0, 255)), max_size=6))
def test_flipped_bytes_never_end_in_a_traceback(
    tmp_path: Path, flips: list[tuple[int, int]]
) -> None:
    data = bytearray(FUZZED)
    for place, value in flips:
        data[place] = value
    path = tmp_path / "fuzz.json"
    path.write_bytes(data)
    part = tmp_path / "ops.parquet"
    try:
        tables = read_torch(
            path, label="fuzz.json", compression=None, part=part, options=ReadOptions()
        )
    except SourceError as error:
        refusal = str(error)
    else:
        refusal = ""
        assert tables.facts.events_read > 0
    assert not refusal or refusal.startswith("fuzz.json: ")
    assert "\n" not in refusal


@given(st.integers(-(10**18), 10**18), st.integers(0, 3))
def test_microseconds_become_nanoseconds_exactly(ns: int, zeros: int) -> None:
    sign, digits = ("-", -ns) if ns < 0 else ("", ns)
    text = f"{sign}{digits // 1000}.{digits % 1000:03d}" + "0" * zeros
    assert nanoseconds([msgspec.Raw(text.encode())]).to_list() == [ns]
