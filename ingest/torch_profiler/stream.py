"""The events of a trace, batch by batch, whatever the layout and however damaged.

A trace is cut where one event ends and the next begins, and each piece is decoded on its own, so
that memory is bounded by a piece. Where a piece does not decode (the array ends inside it, a name
holds a raw control character, an event is cut), smaller ones are tried, and the smallest is walked
object by object: every whole event is kept, every other is counted with its place.
"""

import re
from collections.abc import Generator, Iterator
from dataclasses import dataclass, field
from typing import Any

import msgspec

from traceq.ingest.torch_profiler.blocks import Blocks, ahead

PIECE_BYTES = 8 << 20
_EVENT_BYTES = 16 << 20  # no event is longer
UNDECODABLE = (msgspec.MsgspecError, RecursionError)
_BLANK = b" \t\r\n"
_BETWEEN = b"," + _BLANK
_WALKED_BYTES = 64 << 10
_SHRINK = 4  # how much smaller the next piece is that is tried
_CANDIDATES = 4  # cut places tried before a piece is walked
_SEPARATOR = re.compile(rb"\}\s*,\s*\{")
_RESTART = re.compile(rb',\s*(?=\{\s*")')  # where an event may begin behind a damaged one
_AHEAD = re.compile(rb',\s*\{[^{}]*"ph"\s*:')  # an event, as profilers write it
# A string that does not end takes all the rest, so that no text is scanned twice.
_STRING = rb'"(?:[^"\\]++|\\.)*+(?:"|\\?\Z)'
_TOKEN = re.compile(_STRING + rb'|[{}\[\],:]|[^\s{}\[\],:"]++', re.DOTALL)
_OPENING = {b"}": b"{", b"]": b"["}
_LONE_BACKSLASH = re.compile(rb'\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4})|\\')
_CONTROL = re.compile(rb"[\x00-\x1f]")
_BARE_NUMBER = re.compile(_STRING + rb"|-?\b(?:NaN|nan|Infinity|inf)\b", re.DOTALL)
_RAW_NULL = msgspec.Raw(b"null")


class Event(msgspec.Struct, gc=False):
    """One event; all but its kind is kept raw until it is known to be wanted."""

    ph: str
    cat: str | None = None
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
        lost: places where something stands that is no whole event [1].
        first_loss: where the first of them begins [bytes into the plain trace].
        closed: whether the trace ends where its format says it does.
        followed: whether something stands behind that end.
    """

    blocks: Blocks
    metadata: dict[str, Any] = field(default_factory=dict)
    repaired: int = 0
    lost: int = 0
    first_loss: int | None = None
    closed: bool = False
    followed: bool = False
    found_events: bool = False
    _buffer: bytes = b""
    _offset: int = 0
    _buffer_was_bare: bool = False
    _losing: bool = False
    _piece_bytes: int = PIECE_BYTES

    def __iter__(self) -> Iterator[list[Event]]:
        source = ahead(iter(self.blocks))
        bare = self._read_header(source)
        if not self.found_events:
            return
        ended = False
        for block in source:
            self._buffer += block
            ended = yield from self._batches(PIECE_BYTES)
            if ended:
                break
        if not ended:
            ended = yield from self._batches(1)
        if not ended:
            batch, ended = self._walk(final=True)
            if batch:
                yield batch
        if ended:
            self._buffer += b"".join(source)
        self._read_tail(bare=bare, ended=ended)

    def _batches(self, at_least: int) -> Generator[list[Event], None, bool]:
        """Yields: batches, while so many bytes are left; returns whether the array ended."""
        before, ended = -1, False
        while not ended and len(self._buffer) >= at_least and self._offset > before:
            before = self._offset
            batch, ended = self._next_batch()
            if batch:
                yield batch
        return ended

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
        """Returns: the events of the buffer as far as they decode; whether the array ended."""
        while True:
            piece = self._buffer[: self._piece_bytes]
            for end in _last_separators(piece):
                try:
                    batch = _EVENTS.decode(b"[" + piece[:end] + b"]")
                except UNDECODABLE:
                    continue
                self._take(piece.index(b",", end) + 1)
                self._losing = False
                self._piece_bytes = len(piece) * _SHRINK
                return batch, False
            if len(piece) <= _WALKED_BYTES:
                break
            self._piece_bytes = len(piece) // _SHRINK
        before = self._offset
        batch, ended = self._walk(final=False, until=len(piece))
        if ended or self._offset > before:
            return batch, ended
        return self._walk(final=False)

    def _walk(self, *, final: bool, until: int | None = None) -> tuple[list[Event], bool]:
        """Returns: the whole events of the buffer, one by one, and whether the array ended.

        What remains is the begin of an event that a later block may end. At the end of the trace,
        or when it is too long to be one, it is lost, and the walk goes on at the next event.
        """
        batch: list[Event] = []
        at, outcome = 0, "again"
        while outcome == "again":
            outcome, at = self._walk_objects(batch, at, until, final=final)
            left = (until or len(self._buffer)) - at
            if outcome == "more" and (final or left > _EVENT_BYTES):
                if self._buffer[at:].strip(_BETWEEN):
                    self._lose(at)
                at = self._restart(at)
                outcome = "again" if at < len(self._buffer) else "more"
        self._take(at)
        return batch, outcome == "ended"

    def _walk_objects(
        self, batch: list[Event], at: int, until: int | None, *, final: bool
    ) -> tuple[str, int]:
        """Returns: what stopped the walk from `at` up to `until`, and where to go on.

        `ended` is the end of the array, `again` a place behind something damaged, and `more` the
        begin of an event that does not end in the buffer.
        """
        tokens = _TOKEN.finditer(self._buffer, at, len(self._buffer) if until is None else until)
        for token in tokens:
            mark = token.group()[:1]
            if mark == b"]" and not (self._losing and _AHEAD.search(self._buffer, token.end())):
                # Behind damage it may be of a list inside an event, until no event follows.
                certain = final or not self._losing
                return ("ended", token.end()) if certain else ("more", token.start())
            if mark == b"{":
                at = token.start()
                whole, end = _rest_of_object(tokens)
                if whole is None:
                    break
                if not (whole and self._add(batch, self._buffer[at:end])):
                    self._lose(at)
                    return "again", self._restart(at, end if whole else None)
                at = end
            else:
                at = token.end()
                if mark != b",":
                    self._lose(token.start())
        return "more", at

    def _restart(self, at: int, until: int | None = None) -> int:
        """Returns: where the next event may begin behind the one that begins at `at`."""
        until = len(self._buffer) if until is None else until
        restart = _RESTART.search(self._buffer, at + 1, until)
        return restart.end() if restart else until

    def _add(self, batch: list[Event], text: bytes) -> bool:
        for mended in (False, True):
            try:
                batch.append(_EVENT.decode(repair(text) if mended else text))
            except UNDECODABLE:
                continue
            self.repaired += mended
            self._losing = False
            return True
        return False

    def _lose(self, at: int) -> None:
        self.lost += not self._losing  # what lies between two whole events is one loss
        self._losing = True
        if self.first_loss is None:
            self.first_loss = self._offset + at

    def _read_tail(self, *, bare: bool, ended: bool) -> None:
        if self.blocks.damage is not None:
            return
        at = 0
        if ended and not bare:
            pairs, stop, at = _top_level(self._buffer, 0)
            self._keep(pairs)
            ended = stop == "end"
        self.followed = ended and bool(self._buffer[at:].strip(_BLANK + b"\0"))
        # An array that is never closed is legal.
        self.closed = (ended and not self.followed) or (bare and not ended and not self.lost)

    def _keep(self, pairs: list[tuple[bytes, bytes]]) -> None:
        for key, value in pairs:
            name = text_of(key)
            try:
                self.metadata[name] = msgspec.json.decode(value)
            except UNDECODABLE:
                try:
                    self.metadata[name] = msgspec.json.decode(repair(value))
                except UNDECODABLE:
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
    for token in _TOKEN.finditer(buffer, start):
        mark = token.group()
        if depth == 0 and mark in {b",", b"}"}:
            if key is not None and value_at is not None:
                pairs.append((key, buffer[value_at : token.start()]))
            key = value_at = None
            if mark == b"}":
                return pairs, "end", token.end()
        elif depth == 0 and mark == b":" and value_at is None:
            key, value_at = last, token.end()
        elif mark in {b"{", b"["}:
            if depth == 0 and mark == b"[" and key and text_of(key) == "traceEvents":
                return pairs, "events", token.end()
            depth += 1
        elif mark in {b"}", b"]"}:
            depth -= 1
        last = mark
    return pairs, "cut", len(buffer)


def _rest_of_object(tokens: Iterator[re.Match[bytes]]) -> tuple[bool | None, int]:
    """Returns: whether an object, read up to its `{`, is whole, and where it ends.

    It is not where a token stands that cannot stand there, and None is where the text ends first.
    """
    opened, last = [b"{"], b"{"
    for token in tokens:
        mark = token.group()[:1]
        if not _may_follow(mark, last, opened[-1]):
            return False, token.start()
        if mark in {b"{", b"["}:
            opened.append(mark)
        elif mark in _OPENING:
            opened.pop()
        if not opened:
            return True, token.end()
        last = mark
    return None, 0


def _may_follow(mark: bytes, last: bytes, opened: bytes) -> bool:
    """Returns: whether a token may come behind another one in JSON, each by its first byte."""
    if mark in {b"{", b"["}:
        return last == b":" or (opened == b"[" and last in {b",", b"["})
    if mark in _OPENING:
        return _OPENING[mark] == opened
    if mark == b":":
        return last == b'"'
    return (last in {b"{", b"[", b",", b":"}) != (mark == b",")


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
    except UNDECODABLE:
        try:
            value = msgspec.json.decode(repair(raw))
        except UNDECODABLE:
            value = None
    return value if isinstance(value, str) else raw.decode("utf-8", "replace").strip('"')
