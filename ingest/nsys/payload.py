"""NVTX payloads of NCCL's ranges: communicator, bytes, root, peer, reduction, ranks.

A payload is a C struct. The export may hold its schema, whose entries name and place the fields;
else the layout follows from the schema's number and the length of the payload, which tells NCCL
before 2.25, without a communicator, from NCCL since. Padding holds garbage and is never read.

Source: NVTX schema ids and structs of NCCL 2.16 to 2.32, `src/include/nvtx_payload_schemas.h`.
"""

import base64
import binascii
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import polars as pl

FIELDS = pl.Schema(
    {
        "comm": pl.UInt64(),
        "parent": pl.UInt64(),
        "payload_bytes": pl.UInt64(),
        "redop": pl.Int64(),
        "root": pl.Int64(),
        "peer": pl.Int64(),
        "nranks": pl.Int64(),
        "comm_rank": pl.Int64(),
        "cuda_device": pl.Int64(),
        "color": pl.Int64(),
        "key": pl.Int64(),
        "count": pl.UInt64(),
        "dtype": pl.String(),
        "seq": pl.Int64(),
    }
)

# As NCCL labels the entries of its schemas, and as the JSON of an export repeats the labels.
LABELS = {
    "NCCL communicator ID": "comm",
    "Parent NCCL communicator ID": "parent",
    "Message size [bytes]": "payload_bytes",
    "Bytes": "payload_bytes",
    "Reduction operation": "redop",
    "Root": "root",
    "Peer rank": "peer",
    "No. of ranks": "nranks",
    "Rank": "comm_rank",
    "CUDA device": "cuda_device",
    "Color": "color",
    "Key": "key",
    # as the advanced NCCL trace writes them
    "count": "count",
    "dataType": "dtype",
    "datatype": "dtype",
    "seqNumber": "seq",
    "commHash": "comm",
    "root": "root",
    "peer": "peer",
    "nRanks": "nranks",
}
_REDOPS = {"Sum": 0, "Prod": 1, "Max": 2, "Min": 3, "Avg": 4}

_STATIC = 0x1000000
_U64, _I32 = "<u8", "<i4"
_HEADER = np.dtype([("domain", _U64), ("schema", _U64), ("size", _U64), ("where", _U64)])

Place = tuple[str, str, int]
Layout = tuple[Place, ...]


def _layout(*fields: tuple[str, str]) -> Layout:
    """Returns: fields one after the other, as C places them."""
    placed, offset = [], 0
    for name, kind in fields:
        placed.append((name, kind, offset))
        offset += 8 if kind == _U64 else 4
    return tuple(placed)


_COMM, _BYTES = ("comm", _U64), ("payload_bytes", _U64)
_WHO = (("nranks", _I32), ("comm_rank", _I32), ("cuda_device", _I32))
_SPLIT = (("color", _I32), ("key", _I32))
_PLAIN, _REDUCED, _ROOTED = (_BYTES,), (_BYTES, ("redop", _I32)), (_BYTES, ("root", _I32))
_BOTH, _PEERED = (*_ROOTED, ("redop", _I32)), (_BYTES, ("peer", _I32))
_OLD_INIT = (("comm_rank", _I32), ("nranks", _I32), ("cuda_device", _I32))

_COLLECTIVES = {
    4: _PLAIN, 5: _REDUCED, 6: _ROOTED, 7: _REDUCED, 8: _BOTH, 9: _PEERED, 10: _PEERED,
    16: _PLAIN, 17: _ROOTED, 18: _ROOTED,
}  # fmt: skip
# By schema number, then by the length of the payload [bytes].
_STATIC_LAYOUTS: dict[int, dict[int, Layout]] = {
    number: {
        8 if fields == _PLAIN else 16: _layout(*fields),
        16 if fields == _PLAIN else 24: _layout(_COMM, *fields),
    }
    for number, fields in _COLLECTIVES.items()
} | {
    number: {12: _layout(*_OLD_INIT), 24: _layout(_COMM, *_WHO)} for number in (0, 2, 3, 11, 12)
} | {
    13: {20: _layout(*_OLD_INIT, *_SPLIT), 40: _layout(_COMM, ("parent", _U64), *_WHO, *_SPLIT)},
    15: {24: _layout(("parent", _U64), *_WHO)},
    19: {24: _layout(_COMM, *_WHO)},
    20: {32: _layout(_COMM, ("parent", _U64), *_WHO)},
}  # fmt: skip
_SHRINK = 15


@dataclass(frozen=True, slots=True)
class Schemas:
    """The payload schemas that an export holds, by (domain, schema id)."""

    layouts: Mapping[tuple[int, int], Layout]

    @classmethod
    def of(cls, entries: list[tuple[int | None, ...]]) -> "Schemas":
        """Returns: the schemas from their entries: domain, schema, index, type, label, offset.

        A schema with an entry of a type that is not known, or without an offset although it is not
        the first, is not used.
        """
        found: dict[tuple[int, int], dict[str, Place] | None] = {}
        for domain, schema, index, kind, label, offset in entries:
            if domain is None or schema is None:
                continue
            fields = found.setdefault((domain, schema), {})
            format_ = _format(kind)
            if fields is None or format_ is None or (offset is None and index != 0):
                found[domain, schema] = None
                continue
            name = LABELS.get(str(label))
            if name is not None:
                fields[name] = (name, format_, offset or 0)
        return cls({key: tuple(f.values()) for key, f in found.items() if f})

    def layout(self, domain: int, schema: int, length: int) -> Layout | None:
        """Returns: where the fields of a payload lie, None when nothing tells it."""
        known = self.layouts.get((domain, schema))
        if known is None or any(at + int(kind[-1]) > length for _, kind, at in known):
            known = _STATIC_LAYOUTS.get(schema - _STATIC, {}).get(length)
        if known is not None and schema - _STATIC == _SHRINK:
            # What is labelled as the new communicator here is its parent.
            return tuple(("parent" if name == "comm" else name, *at) for name, *at in known)  # type: ignore[misc]
        return known


def _format(kind: int | None) -> str | None:
    """Returns: how an entry of an NVTX type is stored; an enumeration is an int."""
    if kind in {18, 22}:
        return _U64
    return _I32 if kind == 5 or (kind is not None and kind >= _STATIC) else None  # noqa: PLR2004


def decode(blobs: list[bytes], schemas: Schemas) -> pl.DataFrame:
    """Returns: one row per blob, in order (`FIELDS`); NULL where a field is not there or not known.

    Args:
        blobs: `binaryData` of events: a header of four numbers (domain, schema, size, and the
            offset or the whole length), then the payload; as bytes, or as hex or base64 of them.
        schemas: the schemas of the export.
    """
    columns = {
        name: np.zeros(len(blobs), dtype=np.uint64 if kind == pl.UInt64 else np.int64)
        for name, kind in FIELDS.items()
        if kind != pl.String
    }
    known = {name: np.zeros(len(blobs), dtype=np.bool_) for name in columns}
    for (domain, schema, length), rows, payloads in _alike(blobs):
        layout = schemas.layout(domain, schema, length)
        if layout is None:
            continue
        names, kinds, offsets = zip(*layout, strict=True)
        dtype = np.dtype({"names": names, "formats": kinds, "offsets": offsets, "itemsize": length})
        table = np.frombuffer(b"".join(payloads), dtype=dtype)
        for name in names:
            columns[name][rows] = table[name]
            known[name][rows] = True
    return pl.DataFrame(
        {
            name: pl.Series(values).set(pl.Series(~known[name]), None)
            for name, values in columns.items()
        }
        | {"dtype": pl.Series([None] * len(blobs), dtype=pl.String)},
        schema=FIELDS,
    )


def _alike(
    blobs: list[bytes],
) -> list[tuple[tuple[int, int, int], list[int], list[bytes]]]:
    """Returns: payloads of one (domain, schema, length) together, with their rows."""
    groups: dict[tuple[int, int, int], tuple[list[int], list[bytes]]] = {}
    for row, blob in enumerate(blobs):
        data = blob if b"\0" in blob[:8] else _from_text(blob)
        if len(data) < _HEADER.itemsize:
            continue
        domain, schema, size, where = (int(n) for n in np.frombuffer(data, _HEADER, 1)[0])
        if not 0 < size <= len(data) - _HEADER.itemsize:
            continue
        begin = _HEADER.itemsize
        if where not in {begin, begin + size}:
            begin = where if begin < where and where + size <= len(data) else len(data) - size
        rows, payloads = groups.setdefault((domain, schema, size), ([], []))
        rows.append(row)
        payloads.append(data[begin : begin + size])
    return [(key, rows, payloads) for key, (rows, payloads) in groups.items()]


def _from_text(blob: bytes) -> bytes:
    try:
        return bytes.fromhex(blob.decode("ascii"))
    except ValueError:
        pass
    try:
        return base64.b64decode(blob, validate=True)
    except binascii.Error:
        return b""


def from_labels(values: Mapping[str, object]) -> dict[str, object]:
    """Returns: fields by their name from values by their label, as JSON and decoded tables hold."""
    fields: dict[str, object] = {}
    for label, value in values.items():
        name = LABELS.get(label)
        if name is None or value is None:
            continue
        read = str(value) if name == "dtype" else _number(value)
        if isinstance(read, int) and read < 0 and FIELDS[name] == pl.UInt64:
            read += 1 << 64  # SQLite keeps 64 bits with a sign
        if read is not None:
            fields[name] = read
    return fields


def _number(value: object) -> int | None:
    if isinstance(value, bool):
        return None
    if isinstance(value, int):
        return value
    text = str(value).strip()
    if text in _REDOPS:
        return _REDOPS[text]
    try:
        return int(text, 0)
    except ValueError:
        return None
