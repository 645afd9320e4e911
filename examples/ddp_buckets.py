"""How the size of DDP's buckets changes overlap and step time: one model, four sizes.

Usage: python examples/ddp_buckets.py [FOLDER]

Trains on 2 CPU processes with gloo, records each size with traceq, and prints them side by side.
Needs `pip install 'traceq[torch]'`. On GPUs the same study is `bucket_cap_mb` in your own script
and `traceq record`.
"""

import sys
import tempfile
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import traceq
from traceq.bench.launch import run_processes

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
    """Prints one line for each size of buckets."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(sys.argv[1] if len(sys.argv) > 1 else name)
        print(
            f"{'bucket':>8} {'all_reduces':>12} {'median size':>12} {'hidden':>8} {'step time':>10}"
        )
        for bucket_mb in BUCKETS_MB:
            traces = folder / f"bucket_{bucket_mb}"
            run_processes(train, PROCESSES, str(traces), bucket_mb)
            traceq.ingest_run([traces], folder / f"bucket_{bucket_mb}.duckdb")
            with traceq.open_run(folder / f"bucket_{bucket_mb}.duckdb") as run:
                report = traceq.build_report(run)
            count = sum(row["count"] for row in report.collectives)
            largest = max(report.collectives, key=lambda row: row["count"])
            print(
                f"{bucket_mb:>5} MB {count / PROCESSES / STEPS:>8.4g}/step "
                f"{largest['bytes_p50'] / 2**20:>8.4g} MiB "
                f"{100 * report.metrics['overlap_ratio']:>6.1f} % "
                f"{report.metrics['step_time_ms']:>7.1f} ms"
            )


if __name__ == "__main__":
    main()
