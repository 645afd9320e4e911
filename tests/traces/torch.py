"""Builds tiny torch.profiler traces, event by event, in nanoseconds and as Kineto writes them."""

import json
from pathlib import Path
from typing import Any, Self

PID = 500
BASE_NS = 1_700_000_000_000_000_000


def microseconds(ns: int) -> Any:
    """A time as Kineto writes it: a number of microseconds with its exact decimals."""
    whole, rest = divmod(abs(ns), 1000)
    sign = "-" if ns < 0 else ""
    return _Exact(f"{sign}{whole}.{rest:03d}" if rest else f"{sign}{whole}")


class _Exact(float):
    """A number that is written with the digits it was made from."""

    def __new__(cls, text: str) -> Self:
        number = super().__new__(cls, text)
        number.text = text  # type: ignore[attr-defined]
        return number

    def __repr__(self) -> str:
        return self.text  # type: ignore[attr-defined, no-any-return]


class TorchTrace:
    """A trace under construction; every method returns it, so that calls chain."""

    def __init__(
        self,
        *,
        rank: int | None = 0,
        world_size: int | None = 2,
        groups: list[dict[str, Any]] | None = None,
        base_ns: int | None = BASE_NS,
        gpu: str | None = "NVIDIA H100 80GB HBM3",
        **metadata: Any,
    ) -> None:
        info = {"backend": "nccl", "rank": rank, "world_size": world_size, "pg_config": groups}
        self._head: dict[str, Any] = {"schemaVersion": 1}
        if gpu is not None:
            self._head["deviceProperties"] = [{"id": 0, "name": gpu}]
        known = {key: value for key, value in info.items() if value is not None}
        if rank is not None or groups is not None:
            self._head["distributedInfo"] = known
        self._head |= metadata
        self._tail: dict[str, Any] = {"traceName": "trace.json"}
        if base_ns is not None:
            self._tail["baseTimeNanoseconds"] = base_ns
        self.events: list[dict[str, Any]] = []
        self._correlation = 0

    def event(self, cat: str, name: str, start: int, end: int, **more: Any) -> Self:
        """Adds a complete event; further keys replace or extend what it has."""
        self.events.append(
            {
                "ph": "X",
                "cat": cat,
                "name": name,
                "pid": PID,
                "tid": 1,
                "ts": microseconds(start),
                "dur": microseconds(end - start),
            }
            | more
        )
        return self

    def kernel(
        self,
        name: str,
        start: int,
        end: int,
        *,
        stream: int = 7,
        device: int = 0,
        launch: int | None = None,
        called: bool = True,
        thread: int = 1,
        cat: str = "kernel",
        correlation: int | None = None,
        event: dict[str, Any] | None = None,
        **arguments: Any,
    ) -> Self:
        """A kernel, launched 100 ns before it starts unless said otherwise."""
        if correlation is None:
            self._correlation += 1
            correlation = self._correlation
        if called:
            moment = start - 100 if launch is None else launch
            self.call("cudaLaunchKernel", moment, correlation, thread=thread)
        placed = {"device": device, "context": 1, "stream": stream, "correlation": correlation}
        return self.event(
            cat, name, start, end,
            **{"pid": device, "tid": stream, "args": placed | arguments} | (event or {}),
        )  # fmt: skip

    def copy(self, name: str, start: int, end: int, *, size: int = 1024, **more: Any) -> Self:
        """A memory copy."""
        return self.kernel(name, start, end, cat="gpu_memcpy", bytes=size, **more)

    def memset(self, start: int, end: int, **more: Any) -> Self:
        """A memory set."""
        return self.kernel("Memset (Device)", start, end, cat="gpu_memset", bytes=4, **more)

    def call(self, name: str, start: int, correlation: int, *, thread: int = 1) -> Self:
        """An API call of 10 ns."""
        return self.event(
            "cuda_runtime", name, start, start + 10, tid=thread, args={"correlation": correlation}
        )

    def annotation(self, name: str, start: int, end: int, *, thread: int = 1, **args: Any) -> Self:
        """A range of the host."""
        return self.event("user_annotation", name, start, end, tid=thread, args=args)

    def operator(self, name: str, start: int, end: int, *, thread: int = 1, **args: Any) -> Self:
        """An operator of the host."""
        return self.event("cpu_op", name, start, end, tid=thread, args=args)

    def text(self, **layout: Any) -> str:
        """The trace as Kineto writes it: the events between what is known before and after."""
        return json.dumps(self._head | {"traceEvents": self.events} | self._tail, **layout)

    def write(self, path: Path) -> Path:
        """Writes the trace uncompressed."""
        path.write_text(self.text(), encoding="utf-8")
        return path


def collective(
    name: str,
    elements: int,
    *,
    out: int | None = None,
    dtype: str = "Float",
    group: str = "0",
    ranks: tuple[int, ...] = (0, 1),
    **more: Any,
) -> dict[str, Any]:
    """The arguments by which a record describes its collective."""
    return {
        "Collective name": name,
        "In msg nelems": elements,
        "Out msg nelems": elements if out is None else out,
        "Group size": len(ranks),
        "dtype": dtype,
        "Process Group Name": group,
        "Process Group Description": "default_pg",
        "Process Group Ranks": str(list(ranks)),
    } | more
