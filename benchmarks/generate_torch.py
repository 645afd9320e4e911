"""Generates a large torch.profiler trace: python benchmarks/generate_torch.py PATH EVENTS."""

import gzip
import sys
from collections.abc import Iterator
from pathlib import Path

_HEAD = """{
  "schemaVersion": 1,
  "deviceProperties": [{"id": 0, "name": "NVIDIA H100 80GB HBM3"}],
  "distributedInfo": {"backend": "nccl", "rank": 0, "world_size": 8},
  "traceEvents": [
"""
_TAIL = """
  ],
  "traceName": "trace.json",
  "displayTimeUnit": "ms",
  "baseTimeNanoseconds": 1790857026000000000
}
"""
_OPERATOR = """  {
    "ph": "X", "cat": "cpu_op", "name": "aten::op_%(op)d", "pid": 500, "tid": 500,
    "ts": %(host).3f, "dur": 6.125,
    "args": {
      "External id": %(id)d,"Record function id": 0, "Input Dims": [[4, 512, 768], [768, 768]], \
"Input type": ["c10::BFloat16", "c10::BFloat16", ""], "Ev Idx": %(id)d
    }
  }"""
_CALL = """  {
    "ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 500, "tid": 500,
    "ts": %(call).3f, "dur": 2.250,
    "args": {
      "External id": %(id)d, "cbid": 211, "correlation": %(id)d
    }
  }"""
_FLOW = """  {
    "ph": "%(ph)s", "id": %(id)d, "pid": %(pid)d, "tid": %(tid)d, "ts": %(call).3f,
    "cat": "ac2g", "name": "ac2g", "bp": "e"
  }"""
_KERNEL = """  {
    "ph": "X", "cat": "kernel", "name": "void kernel_%(op)d<float, %(op)d>(float*)", "pid": 0, \
"tid": 7,
    "ts": %(device).3f, "dur": 7.375,
    "args": {
      "External id": %(id)d, "queued": 0, "device": 0, "context": 1, "stream": 7, \
"correlation": %(id)d, "registers per thread": 64, "shared memory": 16384, "blocks per SM": 4.0, \
"warps per SM": 32.0, "grid": [528, 1, 1], "block": [256, 1, 1], "est. achieved occupancy %%": 50
    }
  }"""
_COLLECTIVE = """  {
    "ph": "X", "cat": "kernel", "name": "ncclDevKernel_AllReduce_Sum_bf16_RING_LL", "pid": 0, \
"tid": 16,
    "ts": %(device).3f, "dur": 61.625,
    "args": {
      "External id": %(id)d, "queued": 0, "device": 0, "context": 1, "stream": 16, \
"correlation": %(id)d, "Collective name": "allreduce", "In msg nelems": 1048576, \
"Out msg nelems": 1048576, "Group size": 8, "dtype": "BFloat16", "In split size": "[]", \
"Out split size": "[]", "Process Group Name": "0", "Process Group Description": "default_pg", \
"Process Group Ranks": "[0, 1, 2, 3, 4, 5, 6, 7]"
    }
  }"""
_PER_LAUNCH = 5
_EVERY = 50  # each 50th launch is an all_reduce


def generate(path: Path, events: int) -> int:
    """Writes a gzip compressed trace of that many events, and returns its plain size [bytes]."""
    size = 0
    with gzip.open(path, "wt", compresslevel=1, encoding="ascii") as file:
        for number, text in enumerate(_events(events // _PER_LAUNCH)):
            part = (_HEAD if number == 0 else ",\n") + text
            size += file.write(part)
        size += file.write(_TAIL)
    return size


def _events(launches: int) -> Iterator[str]:
    for k in range(launches):
        host = 4_458_677_009_000 + 10 * k
        values = {
            "id": k + 1,
            "op": k % 300,
            "host": host + 0.128,
            "call": host + 2.512,
            "device": host + 30.064,
        }
        yield _OPERATOR % values
        yield _CALL % values
        yield _FLOW % (values | {"ph": "s", "pid": 500, "tid": 500})
        yield _FLOW % (values | {"ph": "f", "pid": 0, "tid": 7})
        yield (_KERNEL if k % _EVERY else _COLLECTIVE) % values


if __name__ == "__main__":
    print(f"{generate(Path(sys.argv[1]), int(sys.argv[2])) / 1e6:.0f} MB plain")
