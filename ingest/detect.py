"""Which files are sources, and of what format: told by their first bytes, not by their names."""

import gzip
import os
import re
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
_HEAD_BYTES = 64 << 10
_PACKED = re.compile(r"\.(?:gz|zst)$")
_LIKE_A_SOURCE = re.compile(
    r"\.(?:sqlite3?|nsys-rep|qdrep|pt\.trace\.json|trace\.json)(?:\.gz|\.zst)?$"
    r"|rank[-_.]?\d+\S*\.json(?:\.gz|\.zst)?$",
    re.IGNORECASE,
)
_SIGNS_OF_NSYS = (b"CUPTI_ACTIVITY_KIND_", b"NVTX_EVENTS", b"TARGET_INFO_", b"META_DATA_EXPORT")
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
        recognised: its content alone tells that it is a source of ours.
    """

    path: Path
    kind: str
    compression: str | None
    size: int
    recognised: bool = True

    @property
    def file_name(self) -> str:
        """Returns: the base name, which is all that is ever shown or stored of the path."""
        return label(self.path)


@dataclass(frozen=True, slots=True)
class Found:
    """The sources among some paths, and what is wrong with the rest."""

    sources: list[Source]
    failures: list[SourceError]


def find_sources(paths: Iterable[str | Path]) -> Found:
    """Returns: the sources that files, folders and glob patterns name, in order, each once.

    In a folder, at any depth but not in hidden ones, a file is a source by its content or by its
    name: what is called like a source and is none has failed, and any other file is passed over. A
    report lying beside its own export is the same capture, so the export stands for both.
    """
    found = Found([], [])
    seen: set[Path] = set()
    for path in paths:
        for file, named in _expand(str(path), found.failures):
            real = Path(os.path.realpath(file))
            if real in seen:
                continue
            seen.add(real)
            try:
                source = detect(file)
            except SourceError as error:
                if named or _LIKE_A_SOURCE.search(file.name):
                    found.failures.append(error)
            else:
                if named or source.recognised or _LIKE_A_SOURCE.search(file.name):
                    found.sources.append(source)
    return Found(_without_exported_reports(found.sources), found.failures)


def _expand(path: str, failures: list[SourceError]) -> Iterator[tuple[Path, bool]]:
    """Yields: the files that one argument names, and whether it names them itself."""
    if not path:
        failures.append(SourceError("an empty name names no source"))
    elif os.path.isdir(path):  # noqa: PTH112  # never raises, whatever the name
        yield from _in_folder(Path(path), failures)
    elif has_magic(path) and not os.path.lexists(path):
        matches = sorted(glob(path, recursive=True))  # noqa: PTH207  # may be absolute
        if not matches:
            failures.append(SourceError(f"{Path(path).name}: matches no file"))
        for match in matches:
            yield from _expand(match, failures)
    else:
        yield Path(path), True


def _in_folder(folder: Path, failures: list[SourceError]) -> Iterator[tuple[Path, bool]]:
    def unreadable(error: OSError) -> None:
        name = Path(error.filename).name
        failures.append(SourceError(f"{name}: folder cannot be read: {error.strerror}"))

    none_yet = True
    for parent, folders, files in os.walk(folder, onerror=unreadable):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in sorted(files):
            file = Path(parent, name)
            if name.startswith(".") or not file.is_file():
                continue
            none_yet = none_yet and not _may_be_source(file)
            yield file, False
    if none_yet:
        name = folder.resolve().name
        failures.append(SourceError(f"{name}: a folder without any source: export into it"))


def _may_be_source(file: Path) -> bool:
    if _LIKE_A_SOURCE.search(file.name):
        return True
    try:
        return detect(file).recognised
    except SourceError:
        return False


def _without_exported_reports(sources: list[Source]) -> list[Source]:
    exported = {
        source.path.parent / source.path.name.split(".sqlite")[0]
        for source in sources
        if source.kind == "nsys"
    }

    def capture(source: Source) -> Path:
        return source.path.with_name(_PACKED.sub("", source.path.name)).with_suffix("")

    return [s for s in sources if s.kind != "nsys-rep" or capture(s) not in exported]


def detect(path: Path) -> Source:
    """Returns: a file as a source.

    Raises:
        SourceError: the file cannot be read, is empty, or is of no known format.
    """
    name = label(path)
    try:
        if not path.is_file() and path.exists():
            message = f"{name}: not a regular file"
            raise SourceError(message)
        with path.open("rb") as file:
            head = file.read(_HEAD_BYTES)
        size = path.stat().st_size
    except OSError as error:
        message = f"{name}: cannot be read: {error.strerror}"
        raise SourceError(message) from error
    if not head:
        message = f"{name}: empty: export it again"
        raise SourceError(message)
    compression = "gzip" if head.startswith(_GZIP) else "zstd" if head.startswith(_ZSTD) else None
    if compression:
        head = _first_bytes(path, compression)
    if head.startswith(_SQLITE):
        return Source(path, "nsys", compression, size, any(sign in head for sign in _SIGNS_OF_NSYS))
    if _PACKED.sub("", path.name).endswith(REPORT_SUFFIXES):
        return Source(path, "nsys-rep", compression, size)
    if _begins_as_json(head) and any(sign in head for sign in _SIGNS_OF_TRACE):
        return Source(path, "torch", compression, size)
    message = (
        f"{name}: not an Nsight Systems SQLite export or report, nor a torch.profiler trace "
        "(by its first bytes)"
    )
    raise SourceError(message)


def label(path: Path) -> str:
    """Returns: the base name of a file as text that can be printed anywhere."""
    return path.name.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


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
    path = _decompress(source, folder / "plain.sqlite")
    return export_report(path, folder) if source.kind == "nsys-rep" else path


def _decompress(source: Source, target: Path) -> Path:
    if source.compression is None:
        return source.path
    with target.open("wb") as plain:
        for block in _plain_blocks(source):
            try:
                plain.write(block)
            except OSError as error:
                message = (
                    f"{source.file_name}: no room for its plain copy: {error.strerror}: set TMPDIR "
                    "(of an ingest, TRACEQ_STORE) to a folder with more"
                )
                raise SourceError(message) from error
    return target


def _plain_blocks(source: Source) -> Iterator[bytes]:
    compression = source.compression or ""
    try:
        with _decompressed(source.path, compression) as stream:
            while block := stream.read(1 << 20):
                yield block
    except _DAMAGE as error:
        raise _damaged(source.path, compression, error) from error


def _damaged(path: Path, compression: str, error: Exception) -> SourceError:
    return SourceError(f"{label(path)}: damaged {compression} stream: {error}: copy it again")
