"""The events of a trace, batch by batch, whatever the layout and however damaged.

A trace is cut where one event ends and the next begins, and each piece is decoded on its own, so
that memory is bounded by a piece. Where a piece does not decode (the array ends inside it, a name
holds a raw control character, an event is cut), it is walked object by object: every whole event
is kept, every other is counted with its place.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import msgspec

from traceq.ingest.torch_profiler.blocks import Blocks, ahead

PIECE_BYTES = 8 << 20
_EVENT_BYTES = 1 << 20  # no event is longer
_CANDIDATES = 4  # cut places tried before a piece is walked
_SEPARATOR = re.compile(rb"\}\s*,\s*\{")
_RESTART = re.compile(rb',\s*(?=\{\s*")')  # where an event may begin behind a damaged one
_STRING = rb'"(?:[^"\\]|\\.)*"'
_TOKEN = re.compile(_STRING + rb'|[{}\[\]]|"', re.DOTALL)
_TOP_TOKEN = re.compile(_STRING + rb'|[{}\[\],:]|[^\s{}\[\],:"]+|"', re.DOTALL)
_LONE_BACKSLASH = re.compile(rb'\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4})|\\')
_CONTROL = re.compile(rb"[\x00-\x1f]")
_BARE_NUMBER = re.compile(_STRING + rb"|-?\b(?:NaN|nan|Infinity|inf)\b", re.DOTALL)
_RAW_NULL = msgspec.Raw(b"null")


class Event(msgspec.Struct, gc=False):
    """One event; all but its kind is kept raw until it is known to be wanted."""

    ph: str = ""
    cat: str = ""
    name: msgspec.Raw = _RAW_NULL
    pid: msgspec.Raw = _RAW_NULL
    tid: msgspec.Raw = _RAW_NULL
    ts: msgspec.Raw = _RAW_NULL
    dur: msgspec.Raw = _RAW_NULL
    args: msgspec.Raw = _RAW_NULL


_EVENTS = msgspec.json.Decoder(list[Event])
_EVENT = msgspec.json.Decoder(Event)


@dataclass(slots=True)
class EventStream:
    """The events of one trace; what is not an event is known once all of them were read.

    Attributes:
        blocks: the bytes.
        metadata: top-level values other than the events, by key.
        repaired: events that decoded only after a repair [1].
        lost: events that did not decode [1].
        first_loss: where the first of them begins [bytes into the plain trace].
        closed: whether the trace ends where its format says it does.
    """

    blocks: Blocks
    metadata: dict[str, Any] = field(default_factory=dict)
    repaired: int = 0
    lost: int = 0
    first_loss: int | None = None
    closed: bool = False
    found_events: bool = False
    _buffer: bytes = b""
    _offset: int = 0

    def __iter__(self) -> Iterator[list[Event]]:
        source = ahead(iter(self.blocks))
        bare = self._read_header(source)
        if not self.found_events:
            return
        ended = False
        for block in source:
            self._buffer += block
            if len(self._buffer) < PIECE_BYTES:
                continue
            batch, ended = self._next_batch()
            if batch:
                yield batch
            if ended:
                break
        for rest in (self._next_batch, partial(self._walk, final=True)):
            if not ended:
                batch, ended = rest()
                if batch:
                    yield batch
        if ended:
            self._buffer += b"".join(source)
        self._read_tail(bare=bare, ended=ended)

    def _take(self, count: int) -> None:
        self._buffer = self._buffer[count:]
        self._offset += count

    def _read_header(self, source: Iterator[bytes]) -> bool:
        """Reads up to the array of events; returns whether the trace is nothing but that array."""
        wanted = 0
        for block in source:
            self._buffer += block
            if len(self._buffer) < wanted:
                continue
            wanted = 2 * len(self._buffer)
            if self._enter_array():
                return self._buffer_was_bare
        if not self.found_events:
            self._enter_array()
        return self._buffer_was_bare

    _buffer_was_bare: bool = False

    def _enter_array(self) -> bool:
        start = len(self._buffer) - len(self._buffer.lstrip(b"\xef\xbb\xbf \t\r\n"))
        first = self._buffer[start : start + 1]
        if first == b"[":
            self.found_events = self._buffer_was_bare = True
            self._take(start + 1)
        elif first == b"{":
            pairs, stop, at = _top_level(self._buffer, start + 1)
            if stop == "events":
                self.found_events = True
                self._keep(pairs)
                self._take(at)
            elif stop == "end":
                self._keep(pairs)
                self.closed = True
        return self.found_events

    def _next_batch(self) -> tuple[list[Event], bool]:
        """Returns: the events of the buffer up to its last whole one; whether the array ended."""
        for end in _last_separators(self._buffer):
            try:
                batch = _EVENTS.decode(b"[" + self._buffer[:end] + b"]")
            except msgspec.MsgspecError:
                continue
            comma = self._buffer.index(b",", end)
            self._take(comma + 1)
            return batch, False
        return self._walk(final=False)

    def _walk(self, *, final: bool) -> tuple[list[Event], bool]:
        """Returns: the whole events of the buffer, one by one, and whether the array ended.

        What remains is the begin of an event that a later block may end. At the end of the trace,
        or when it is too long to be one, it is lost, and the walk goes on at the next event.
        """
        batch: list[Event] = []
        while True:
            outcome = self._walk_objects(batch)
            if outcome == "again":
                continue
            if outcome == "ended" or not (final or outcome == "stuck"):
                return batch, outcome == "ended"
            if not self._buffer.strip(b", \t\r\n"):
                return batch, False
            restart = _RESTART.search(self._buffer, 1)
            if restart is None and not final:
                return batch, False
            self._lose(0)
            self._take(restart.end() if restart else len(self._buffer))

    def _walk_objects(self, batch: list[Event]) -> str:
        """Takes whole objects from the buffer and returns what stopped it.

        `ended` is the end of the array, `again` a damaged object behind which the walk can go on,
        `stuck` an object too long to be an event, and `more` the end of the buffer.
        """
        depth, begin, done = 0, 0, 0
        for token in _TOKEN.finditer(self._buffer):
            mark = token.group()[:1]
            if mark == b"{":
                begin = token.start() if depth == 0 else begin
                depth += 1
            elif mark == b"}" and depth:
                depth -= 1
                if depth == 0 and not self._add(batch, self._buffer[begin : token.end()]):
                    self._lose(begin)
                    restart = _RESTART.search(self._buffer, begin + 1, token.end())
                    self._take(restart.end() if restart else token.end())
                    return "again"
                done = token.end() if depth == 0 else done
            elif mark == b"]" and depth == 0:
                self._take(token.end())
                return "ended"
            elif depth and token.start() - begin > _EVENT_BYTES:
                break
        self._take(done)
        return "stuck" if len(self._buffer) > _EVENT_BYTES else "more"

    def _add(self, batch: list[Event], text: bytes) -> bool:
        for mended in (False, True):
            try:
                batch.append(_EVENT.decode(repair(text) if mended else text))
            except msgspec.MsgspecError:
                continue
            self.repaired += mended
            return True
        return False

    def _lose(self, at: int) -> None:
        self.lost += 1
        if self.first_loss is None:
            self.first_loss = self._offset + at

    def _read_tail(self, *, bare: bool, ended: bool) -> None:
        if self.blocks.damage is not None:
            return
        if bare:
            self.closed = ended or not self.lost  # an array that is never closed is legal
        elif ended:
            pairs, stop, _ = _top_level(self._buffer, 0)
            self._keep(pairs)
            self.closed = stop == "end"

    def _keep(self, pairs: list[tuple[bytes, bytes]]) -> None:
        for key, value in pairs:
            name = text_of(key)
            try:
                self.metadata[name] = msgspec.json.decode(value)
            except msgspec.MsgspecError:
                try:
                    self.metadata[name] = msgspec.json.decode(repair(value))
                except msgspec.MsgspecError:
                    continue


def _last_separators(buffer: bytes) -> Iterator[int]:
    """Yields: ends of events before a separator, the last ones first, a few of them."""
    window: list[int] = []
    size = 1 << 16
    while not window and size < 4 * len(buffer):
        start = max(0, len(buffer) - size)
        window = [start + m.start() + 1 for m in _SEPARATOR.finditer(buffer[start:])]
        size *= 16
    yield from reversed(window[-_CANDIDATES:])


def _top_level(buffer: bytes, start: int) -> tuple[list[tuple[bytes, bytes]], str, int]:
    """Returns: whole (key, value) pairs of an object, what stopped the walk, and where.

    It stops at `events` (the array of events begins there), `end` (the object is closed), or `cut`.
    """
    pairs: list[tuple[bytes, bytes]] = []
    key, value_at, depth = None, None, 0
    last = b""
    for token in _TOP_TOKEN.finditer(buffer, start):
        mark = token.group()
        if mark == b'"':
            break
        if depth == 0 and mark in {b",", b"}"}:
            if key is not None and value_at is not None:
                pairs.append((key, buffer[value_at : token.start()]))
            key = value_at = None
            if mark == b"}":
                return pairs, "end", token.end()
        elif depth == 0 and mark == b":" and value_at is None:
            key, value_at = last, token.end()
        elif mark in {b"{", b"["}:
            if depth == 0 and mark == b"[" and key == b'"traceEvents"':
                return pairs, "events", token.end()
            depth += 1
        elif mark in {b"}", b"]"}:
            depth -= 1
        last = mark
    return pairs, "cut", len(buffer)


def repair(text: bytes) -> bytes:
    r"""Returns: JSON text with the known damage of traces mended, as far as that is safe.

    Bytes that are not UTF-8 become U+FFFD, a backslash that escapes nothing is kept as one, raw
    control characters are escaped, and NaN and Infinity become null.

    >>> repair(b'{"name": "C:\\Users\\q", "dur": NaN}')
    b'{"name": "C:\\\\Users\\\\q", "dur": null}'
    """
    text = text.decode("utf-8", "replace").encode()
    text = _LONE_BACKSLASH.sub(lambda m: m.group() if len(m.group()) > 1 else b"\\\\", text)
    return _BARE_NUMBER.sub(_mend_token, text)


def _mend_token(match: re.Match[bytes]) -> bytes:
    token = match.group()
    if not token.startswith(b'"'):
        return b"null"
    return _CONTROL.sub(lambda m: b"\\u%04x" % m.group()[0], token)


def text_of(raw: bytes) -> str:
    """Returns: the text of a raw JSON string; another value, or a damaged string, as it stands."""
    try:
        value = msgspec.json.decode(raw)
    except msgspec.MsgspecError:
        try:
            value = msgspec.json.decode(repair(raw))
        except msgspec.MsgspecError:
            value = None
    return value if isinstance(value, str) else raw.decode("utf-8", "replace").strip('"')
