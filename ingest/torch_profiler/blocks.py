"""The bytes of a trace, decompressed block by block; a damaged end keeps what came before."""

import zlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Protocol

import zstandard

_PLAIN_BYTES = 4 << 20
_PACKED_BYTES = 256 << 10  # traces shrink some twenty times, so this is about as much
_SALVAGE_BYTES = 64
_GZIP_WINDOW = 31
_DAMAGE = (zlib.error, zstandard.ZstdError)


class _Stream(Protocol):
    @property
    def eof(self) -> bool: ...

    @property
    def unused_data(self) -> bytes: ...

    def decompress(self, data: bytes, /) -> bytes: ...


class Blocks:
    """An iterator over the plain bytes of a file.

    Attributes:
        read_bytes: bytes of the file read so far, as it lies there.
        damage: what ended the bytes early, None when they end as they should.
    """

    def __init__(self, path: Path, compression: str | None) -> None:
        self._path = path
        self._compression = compression
        self.read_bytes = 0
        self.damage: str | None = None

    def __iter__(self) -> Iterator[bytes]:
        size = _PLAIN_BYTES if self._compression is None else _PACKED_BYTES
        with self._path.open("rb") as file:
            raw = self._counted(iter(lambda: file.read(size), b""))
            yield from raw if self._compression is None else self._decompressed(raw)

    def _counted(self, raw: Iterator[bytes]) -> Iterator[bytes]:
        for block in raw:
            self.read_bytes += len(block)
            yield block

    def _decompressed(self, raw: Iterator[bytes]) -> Iterator[bytes]:
        stream = self._new()
        for block in raw:
            packed = block
            while packed:
                if stream.eof:  # several streams may follow each other, and zeros the last one
                    packed = packed.lstrip(b"\0")
                    if not packed:
                        break
                    stream = self._new()
                plain, error = _decompress(stream, packed)
                if plain:
                    yield plain
                if error is not None:
                    self.damage = f"its {self._compression} stream is damaged: {error}"
                    return
                packed = stream.unused_data if stream.eof else b""
        if not stream.eof:
            self.damage = f"its {self._compression} stream is cut short"

    def _new(self) -> _Stream:
        if self._compression == "gzip":
            return zlib.decompressobj(_GZIP_WINDOW)
        return zstandard.ZstdDecompressor().decompressobj()


def ahead(blocks: Iterator[bytes]) -> Iterator[bytes]:
    """Yields: the same blocks, the next one made on a thread while the last one is used."""
    with ThreadPoolExecutor(1) as beside:
        following = beside.submit(next, blocks, None)
        while (block := following.result()) is not None:
            following = beside.submit(next, blocks, None)
            yield block


def _decompress(stream: _Stream, packed: bytes) -> tuple[bytes, Exception | None]:
    """Returns: the plain bytes, and the damage that ended them; gzip gives all before it."""
    copy = getattr(stream, "copy", None)
    before: _Stream | None = copy() if copy is not None else None
    try:
        return stream.decompress(packed), None
    except _DAMAGE as error:
        if before is None:
            return b"", error
    plain = []
    for start in range(0, len(packed), _SALVAGE_BYTES):
        try:
            plain.append(before.decompress(packed[start : start + _SALVAGE_BYTES]))
        except zlib.error as error:
            return b"".join(plain), error
    return b"".join(plain), None
