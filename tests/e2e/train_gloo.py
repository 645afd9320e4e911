"""A small real DDP training on gloo, profiled on every rank: torchrun train_gloo.py FOLDER."""

import os
import sys
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.profiler import ProfilerActivity, profile, schedule

WIDTH = 64
STEPS = 5
SKIPPED = 2  # a wait and a warm-up step come before


def main() -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    model = DistributedDataParallel(nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, 1)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    target = Path(sys.argv[1]) / f"worker-{os.environ['RANK']}.json"
    with profile(
        activities=[ProfilerActivity.CPU],
        schedule=schedule(wait=1, warmup=1, active=STEPS),
        on_trace_ready=lambda p: p.export_chrome_trace(str(target)),
        record_shapes=True,
    ) as profiler:
        for _ in range(SKIPPED + STEPS):
            optimizer.zero_grad()
            model(torch.randn(8, WIDTH)).sum().backward()
            optimizer.step()
            profiler.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
