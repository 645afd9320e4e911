"""Which files are sources, and of what format: told by their first bytes, not by their names."""

import gzip
import shutil
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from glob import glob, has_magic
from pathlib import Path
from typing import IO

import zstandard

from traceq.errors import SourceError
from traceq.ingest.nsys.convert import REPORT_SUFFIXES, export_report

_SQLITE = b"SQLite format 3\0"
_GZIP = b"\x1f\x8b"
_ZSTD = b"\x28\xb5\x2f\xfd"
_HEAD_BYTES = 4096
_SIGNS_OF_TRACE = (b'"traceEvents"', b'"ph"', b'"schemaVersion"', b'"distributedInfo"')


@dataclass(frozen=True, slots=True)
class Source:
    """An input file and its format.

    Attributes:
        path: where it is.
        kind: `nsys` for a SQLite export, `nsys-rep` for a report that is not exported yet, `torch`
            for a torch.profiler trace.
        compression: `gzip`, `zstd` or None.
        size: of the file as it is [bytes].
    """

    path: Path
    kind: str
    compression: str | None
    size: int

    @property
    def file_name(self) -> str:
        """Returns: the base name, which is all that is ever shown or stored of the path."""
        return self.path.name


@dataclass(frozen=True, slots=True)
class Found:
    """The sources among some paths, and what is wrong with the rest."""

    sources: list[Source]
    failures: list[SourceError]


def find_sources(paths: Iterable[str | Path]) -> Found:
    """Returns: the sources that files, folders and glob patterns name, in order, each once.

    In a folder every file that looks like a source is one, at any depth, and others are passed
    over; a report lying beside its own export is the same capture, so the export stands for both.
    """
    found = Found([], [])
    seen: set[Path] = set()
    for path in paths:
        for file, explicit in _expand(Path(path), found.failures):
            if file.resolve() in seen:
                continue
            seen.add(file.resolve())
            try:
                source = detect(file)
            except SourceError as error:
                if explicit or "cannot be read" in str(error):
                    found.failures.append(error)
                continue
            found.sources.append(source)
    return Found(_without_exported_reports(found.sources), found.failures)


def _expand(path: Path, failures: list[SourceError]) -> Iterator[tuple[Path, bool]]:
    if path.is_dir():
        files = sorted(file for file in path.rglob("*") if file.is_file() and file.name[0] != ".")
        if not any(_looks_like_source(file) for file in files):
            failures.append(
                SourceError(f"{path.name or path}: a folder without any source: export into it")
            )
            return
        yield from ((file, False) for file in files)
    elif not path.exists() and has_magic(str(path)):
        matches = sorted(glob(str(path), recursive=True))  # noqa: PTH207  # may be absolute
        if not matches:
            failures.append(SourceError(f"{path}: matches no file"))
        for match in matches:
            yield from _expand(Path(match), failures)
    else:
        yield path, True


def _looks_like_source(file: Path) -> bool:
    try:
        detect(file)
    except SourceError as error:
        return "cannot be read" in str(error)
    return True


def _without_exported_reports(sources: list[Source]) -> list[Source]:
    exported = {
        source.path.parent / source.path.name.split(".sqlite")[0]
        for source in sources
        if source.kind == "nsys"
    }
    return [
        source
        for source in sources
        if source.kind != "nsys-rep" or source.path.with_suffix("") not in exported
    ]


def detect(path: Path) -> Source:
    """Returns: a file as a source.

    Raises:
        SourceError: the file cannot be read, is empty, or is of no known format.
    """
    try:
        with path.open("rb") as file:
            head = file.read(_HEAD_BYTES)
        size = path.stat().st_size
    except OSError as error:
        message = f"{path.name}: cannot be read: {error.strerror}"
        raise SourceError(message) from error
    if not head:
        message = f"{path.name}: empty: export it again"
        raise SourceError(message)
    compression = "gzip" if head.startswith(_GZIP) else "zstd" if head.startswith(_ZSTD) else None
    if compression:
        head = _first_bytes(path, compression)
    if head.startswith(_SQLITE):
        return Source(path, "nsys", compression, size)
    if path.name.removesuffix(".gz").removesuffix(".zst").endswith(REPORT_SUFFIXES):
        return Source(path, "nsys-rep", compression, size)
    if _begins_as_json(head) and any(sign in head for sign in _SIGNS_OF_TRACE):
        return Source(path, "torch", compression, size)
    message = (
        f"{path.name}: not an Nsight Systems SQLite export or report, nor a torch.profiler trace "
        "(by its first bytes)"
    )
    raise SourceError(message)


def _begins_as_json(head: bytes) -> bool:
    return head.lstrip(b"\xef\xbb\xbf \t\r\n")[:1] in {b"{", b"["}


@contextmanager
def _decompressed(path: Path, compression: str) -> Iterator[IO[bytes]]:
    with path.open("rb") as raw:
        if compression == "gzip":
            with gzip.open(raw) as stream:
                yield stream  # type: ignore[misc]
        else:
            with zstandard.ZstdDecompressor().stream_reader(raw, read_across_frames=True) as stream:
                yield stream


_DAMAGE = (OSError, EOFError, zlib.error, zstandard.ZstdError)


def _first_bytes(path: Path, compression: str) -> bytes:
    try:
        with _decompressed(path, compression) as stream:
            head = stream.read(_HEAD_BYTES)
    except _DAMAGE as error:
        raise _damaged(path, compression, error) from error
    if not head:
        raise _damaged(path, compression, EOFError("it ends before its first byte"))
    return head


def plain_file(source: Source, folder: Path) -> Path:
    """Returns: the SQLite file of a source: itself, or a copy made in a folder of ours.

    Raises:
        SourceError: the compressed stream is damaged, or a report cannot be exported.
    """
    path = _decompress(source, folder / source.path.stem)
    return export_report(path, folder) if source.kind == "nsys-rep" else path


def _decompress(source: Source, target: Path) -> Path:
    if source.compression is None:
        return source.path
    try:
        with _decompressed(source.path, source.compression) as stream, target.open("wb") as plain:
            shutil.copyfileobj(stream, plain, 1 << 20)
    except _DAMAGE as error:
        raise _damaged(source.path, source.compression, error) from error
    return target


def _damaged(path: Path, compression: str, error: Exception) -> SourceError:
    return SourceError(f"{path.name}: damaged {compression} stream: {error}: copy it again")
