"""Builds tiny Nsight Systems SQLite exports, table by table, in the column set of any version."""

import re
import sqlite3
import struct
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, Self

Column = tuple[str, str, bool]
HARDWARE = 1 << 56
MACHINE = 1 << 48


def _columns(text: str) -> list[Column]:
    """`name*` is NOT NULL; `name:TEXT` is not an integer."""
    parsed = []
    for word in text.split():
        name, _, kind = word.partition(":")
        parsed.append((name.rstrip("*"), kind or "INTEGER", name.endswith("*")))
    return parsed


# The tables a reader meets, with the columns of a 2026 export that matter to it.
MODERN: dict[str, list[Column]] = {
    "StringIds": _columns("id* value*:TEXT"),
    "META_DATA_EXPORT": _columns("name*:TEXT value:TEXT"),
    "META_DATA_CAPTURE": _columns("name*:TEXT value:TEXT"),
    "TARGET_INFO_SYSTEM_ENV": _columns(
        "globalVid devStateName*:TEXT name*:TEXT nameEnum value*:TEXT"
    ),
    "TARGET_INFO_SESSION_START_TIME": _columns("utcEpochNs utcTime:TEXT localTime:TEXT"),
    "TARGET_INFO_GPU": _columns("vmId* id* name:TEXT busLocation:TEXT uuid:TEXT cuDevice"),
    "TARGET_INFO_CUDA_DEVICE": _columns("gpuId cudaId* pid*"),
    "PROCESSES": _columns("globalPid pid name:TEXT"),
    "MPI_RANKS": _columns("globalTid* rank*"),
    "DIAGNOSTIC_EVENT": _columns(
        "timestamp* timestampType* source* severity* text*:TEXT globalPid"
    ),
    "CUPTI_ACTIVITY_KIND_KERNEL": _columns(
        "start* end* deviceId* contextId* greenContextId streamId* correlationId globalPid "
        "demangledName* shortName* mangledName launchType gridX* blockX* graphNodeId"
    ),
    "CUPTI_ACTIVITY_KIND_MEMCPY": _columns(
        "start* end* deviceId* contextId* streamId* correlationId globalPid bytes* copyKind* "
        "srcKind dstKind graphNodeId copyCount"
    ),
    "CUPTI_ACTIVITY_KIND_MEMSET": _columns(
        "start* end* deviceId* contextId* streamId* correlationId globalPid value* bytes* "
        "graphNodeId"
    ),
    "CUPTI_ACTIVITY_KIND_RUNTIME": _columns(
        "start* end* eventClass* globalTid correlationId nameId* returnValue* callchainId"
    ),
    "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION": _columns(
        "start* end* deviceId* contextId* streamId* correlationId globalPid syncType* eventId*"
    ),
    "CUPTI_ACTIVITY_KIND_GRAPH_TRACE": _columns(
        "start* end* deviceId* contextId* streamId* correlationId globalPid graphId* graphExecId*"
    ),
    "CUDA_GRAPH_NODE_EVENTS": _columns(
        "start* end* eventClass* globalTid nameId* graphNodeId* originalGraphNodeId"
    ),
    "NVTX_EVENTS": _columns(
        "start* end eventType* rangeId category color text:TEXT globalTid endGlobalTid textId "
        "domainId uint64Value jsonTextId jsonText:TEXT binaryData:TEXT eventId"
    ),
    "NVTX_PAYLOAD_SCHEMA_ENTRIES": _columns(
        "domainId* schemaId* idx* flags type name:TEXT description:TEXT arrayOrUnionDetail offset"
    ),
}

COPY_KINDS = {"HtoD": 1, "DtoH": 2, "DtoD": 8, "PtoP": 10}


def blob(number: int, payload: bytes, domain: int = 1) -> bytes:
    """A payload behind the header that an export puts before it."""
    return struct.pack("<4Q", domain, 0x1000000 + number, len(payload), 32) + payload


def global_pid(pid: int) -> int:
    return HARDWARE + MACHINE + (pid << 24)


class NsysExport:
    """An export under construction; every method returns it, so that calls chain."""

    def __init__(self, tables: Mapping[str, Sequence[Sequence[Any]]] | None = None) -> None:
        self._columns = {
            name: [(c[0], c[1], bool(c[2])) for c in columns]
            for name, columns in (tables or MODERN).items()
        }
        self._rows: dict[str, list[dict[str, Any]]] = {}
        self._strings: dict[str, int] = {}
        self._correlation = 0
        self._without: set[str] = set()

    def row(self, table: str, **values: Any) -> Self:
        """Adds a row as it is."""
        self._rows.setdefault(table, []).append(values)
        return self

    def string(self, text: str) -> int:
        """Registers a string, and returns its id."""
        return self._strings.setdefault(text, len(self._strings) + 1)

    def without(self, *tables: str) -> Self:
        """Leaves tables out of the file."""
        self._without.update(tables)
        return self

    def kernel(
        self,
        name: str,
        start: int,
        end: int | None,
        *,
        pid: int = 10,
        device: int = 0,
        stream: int = 7,
        context: int = 1,
        launch: int | None = None,
        called: bool = True,
        thread: int = 1,
        correlation: int | None = None,
        **more: Any,
    ) -> Self:
        """A kernel, launched 100 ns before it starts unless said otherwise."""
        correlation = self._launch(
            "cudaLaunchKernel_v7000", start, launch, called, pid, thread, correlation
        )
        return self.row(
            "CUPTI_ACTIVITY_KIND_KERNEL",
            **{
                "start": start,
                "end": end,
                "deviceId": device,
                "contextId": context,
                "streamId": stream,
                "correlationId": correlation,
                "globalPid": global_pid(pid),
                "demangledName": self.string(name),
                "shortName": self.string(re.split(r"[<(]", name)[0].split(" ")[-1].split("::")[-1]),
            }
            | more,
        )

    def copy(
        self,
        kind: str,
        start: int,
        end: int,
        *,
        pid: int = 10,
        device: int = 0,
        stream: int = 7,
        launch: int | None = None,
        called: bool = True,
        thread: int = 1,
        size: int = 1024,
        **more: Any,
    ) -> Self:
        """A memory copy."""
        correlation = self._launch(
            "cudaMemcpyAsync_v3020", start, launch, called, pid, thread, None
        )
        return self.row(
            "CUPTI_ACTIVITY_KIND_MEMCPY",
            **{
                "start": start,
                "end": end,
                "deviceId": device,
                "contextId": 1,
                "streamId": stream,
                "correlationId": correlation,
                "globalPid": global_pid(pid),
                "bytes": size,
                "copyKind": COPY_KINDS[kind],
            }
            | more,
        )

    def memset(self, start: int, end: int, *, pid: int = 10, stream: int = 7) -> Self:
        """A memory set."""
        correlation = self._launch("cudaMemsetAsync_v3020", start, None, True, pid, 1, None)
        return self.row(
            "CUPTI_ACTIVITY_KIND_MEMSET",
            start=start,
            end=end,
            deviceId=0,
            contextId=1,
            streamId=stream,
            correlationId=correlation,
            globalPid=global_pid(pid),
            bytes=4,
        )

    def call(
        self, name: str, start: int, correlation: int, *, pid: int = 10, thread: int = 1
    ) -> Self:
        """An API call of 10 ns."""
        return self.row(
            "CUPTI_ACTIVITY_KIND_RUNTIME",
            start=start,
            end=start + 10,
            globalTid=global_pid(pid) + thread,
            correlationId=correlation,
            nameId=self.string(name),
        )

    def range(
        self,
        name: str,
        start: int,
        end: int | None,
        *,
        pid: int = 10,
        thread: int = 1,
        domain: int = 0,
        registered: bool = False,
        kind: int = 59,
        **more: Any,
    ) -> Self:
        """An NVTX range; a registered name is in StringIds, another in the row itself."""
        naming = {"textId": self.string(name)} if registered else {"text": name}
        return self.row(
            "NVTX_EVENTS",
            start=start,
            end=end,
            eventType=kind,
            globalTid=global_pid(pid) + thread,
            domainId=domain,
            **naming | more,
        )

    def nccl_domain(self, *, pid: int = 10, domain: int = 1) -> Self:
        """The row that names NCCL's domain; it comes before the capture, at a negative time."""
        return self.range("NCCL", -4_000_000, None, pid=pid, domain=domain, kind=75)

    def nccl(
        self, name: str, number: int, payload: bytes, start: int, *, pid: int = 10, thread: int = 1,
        length: int = 200, **more: Any,
    ) -> Self:  # fmt: skip
        """A range of NCCL's domain with its binary payload, as `--include-blobs=true` writes it."""
        return self.range(
            name, start, start + length, pid=pid, thread=thread, domain=1, registered=True,
            **{"binaryData": blob(number, payload)} | more,
        )  # fmt: skip

    def graph(self, start: int, end: int, *, pid: int = 10, launch: int | None = None) -> Self:
        """A CUDA graph traced as a whole."""
        correlation = self._launch("cudaGraphLaunch_v10000", start, launch, True, pid, 1, None)
        return self.row(
            "CUPTI_ACTIVITY_KIND_GRAPH_TRACE",
            start=start,
            end=end,
            deviceId=0,
            contextId=1,
            streamId=7,
            correlationId=correlation,
            globalPid=global_pid(pid),
            graphId=1,
            graphExecId=2,
        )

    def capture(
        self,
        *,
        host: str | None = "host-a",
        utc_ns: int | None = 1_700_000_000_000_000_000,
        gpu: str | None = "NVIDIA H100 80GB HBM3",
        environment: str = "HOME=/home/someone;PATH=/usr/bin",
        version: str = "2026.3.1.157",
        schema: str = "3.27.0",
        **export: str,
    ) -> Self:
        """What the export says about the capture."""
        about = {"EXPORT_PRODUCT_VERSION": version, "EXPORT_SCHEMA_VERSION": schema} | export
        table = "META_DATA_EXPORT" if "META_DATA_EXPORT" in self._columns else "EXPORT_META_DATA"
        for name, value in about.items():
            self.row(table, name=name, value=value)
        system = {
            "Hostname": host,
            "DeviceEnvironment": environment,
            "TargetInstallDir": "/opt/nvidia/nsight-systems/2025.1.3/target-linux-x64",
        }
        for name, value in system.items():
            if value is not None:
                self.row("TARGET_INFO_SYSTEM_ENV", name=name, value=value, devStateName="x")
        if utc_ns is not None:
            self.row("TARGET_INFO_SESSION_START_TIME", utcEpochNs=utc_ns)
        if gpu is not None:
            number = "id" if self._has("TARGET_INFO_GPU", "id") else "deviceId"
            self.row("TARGET_INFO_GPU", name=gpu, cuDevice=0, vmId=1, **{number: 0})
        return self

    def write(self, path: Path) -> Path:
        """Writes the file: the tables that have rows, as a lazy export does."""
        self._rows["StringIds"] = [
            {"id": id_, "value": text} for text, id_ in self._strings.items()
        ]
        with closing(sqlite3.connect(path)) as connection:
            for table, rows in self._rows.items():
                if rows and table in self._columns and table not in self._without:
                    self._write_table(connection, table, rows)
            connection.commit()
        return path

    def _write_table(
        self, connection: sqlite3.Connection, table: str, rows: Iterable[dict[str, Any]]
    ) -> None:
        columns = self._columns[table]
        # A NULL in a column declared NOT NULL is damage that some exports have; the declaration
        # is dropped, so that a test can write it.
        declared = ", ".join(f'"{name}" {kind}' for name, kind, _ in columns)
        quoted = table.replace('"', '""')
        connection.execute(f'CREATE TABLE "{quoted}" ({declared})')
        defaults = {name: 0 for name, _, required in columns if required}
        names = [name for name, _, _ in columns]
        connection.executemany(
            f'INSERT INTO "{quoted}" VALUES ({", ".join("?" * len(names))})',
            [[{**defaults, **row}.get(name) for name in names] for row in rows],
        )

    def _launch(
        self,
        api: str,
        start: int,
        launch: int | None,
        called: bool,
        pid: int,
        thread: int,
        correlation: int | None,
    ) -> int:
        if correlation is None:
            self._correlation += 1
            correlation = self._correlation
        if called:
            moment = start - 100 if launch is None else launch
            self.call(api, moment, correlation, pid=pid, thread=thread)
        return correlation

    def _has(self, table: str, column: str) -> bool:
        return any(name == column for name, _, _ in self._columns.get(table, []))
