"""How the size of DDP's buckets changes overlap and step time: one model, four sizes.

Usage: python examples/ddp_buckets.py [FOLDER]

Trains on 2 CPU processes with gloo, records each size with traceq, and compares them. Needs
`pip install 'traceq[torch]'`. On GPUs the same study is `bucket_cap_mb` in your own script,
`traceq record`, and `traceq compare`.
"""

import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import traceq
from traceq.bench.launch import run_processes
from traceq.render.compared import table

BUCKETS_MB = (1, 5, 25, 100)
PROCESSES, STEPS, WIDTH, LAYERS, BATCH = 2, 8, 1024, 8, 64


def train(folder: str, bucket_mb: int) -> None:
    """Trains a stack of linear layers of 4 MiB each, and records it."""
    dist.init_process_group("gloo")
    torch.set_num_threads(1)
    stack = nn.Sequential(*(nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(LAYERS)))
    model = DistributedDataParallel(stack, bucket_cap_mb=bucket_mb)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    with traceq.record(folder, wait=2, warmup=1, active=STEPS) as recorder:
        for _ in range(3 + STEPS):
            model(torch.randn(BATCH, WIDTH)).square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()
            recorder.step()
    dist.destroy_process_group()


def main() -> None:
    """Prints the comparison of all sizes with the first."""
    with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
        folder = Path(sys.argv[1] if len(sys.argv) > 1 else name)
        runs = []
        for bucket_mb in BUCKETS_MB:
            traces = folder / f"{bucket_mb} MB"
            run_processes(train, PROCESSES, str(traces), bucket_mb)
            kept = traces.with_suffix(".duckdb")
            traceq.ingest_run([traces], kept, name=traces.name)
            runs.append(stack.enter_context(traceq.open_run(kept)))
        print(table.render(traceq.compare_runs(runs)))


if __name__ == "__main__":
    main()
