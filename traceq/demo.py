"""A real, small data-parallel training on CPUs, with one rank made slow on purpose. Needs torch.

It is quiet by design: light compute, and a wait of some 20 ms per step as for data, so that its
processes do not fight for two cores and make stragglers of their own.
"""

import time
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from traceq.recorder import record

STEPS = 25
_WAIT, _WARMUP = 3, 2
_LOAD_S = 0.02
_WORK_NS = 300_000
_WIDTH = 256
_LAYERS = 2
_BATCH = 8


@dataclass(frozen=True, slots=True)
class Slowness:
    """Which rank is slow, by how much per step [ns], and by what: `compute` or `launch`."""

    rank: int | None
    ns: int
    cause: str


@torch.library.custom_op("traceq::work", mutates_args=())
def work(rows: torch.Tensor, ns: int) -> torch.Tensor:
    """Returns: the rows, after so much time of one operation, in which others have the cores."""
    time.sleep(ns / 1e9)
    return rows.clone()


def train(folder: str, slowness: Slowness) -> int:
    """Returns: the steps that were recorded; what each process of the demo does.

    Args:
        folder: where the trace of this rank goes.
        slowness: which rank is slow, and how.
    """
    dist.init_process_group("gloo")
    torch.set_num_threads(1)
    torch.manual_seed(dist.get_rank())
    mine = slowness.ns if slowness.rank == dist.get_rank() else 0
    layers = [layer for _ in range(_LAYERS) for layer in (nn.Linear(_WIDTH, _WIDTH), nn.ReLU())]
    model = DistributedDataParallel(nn.Sequential(*layers))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    with record(folder, wait=_WAIT, warmup=_WARMUP, active=STEPS) as recorder:
        for _ in range(_WAIT + _WARMUP + STEPS):
            time.sleep(_LOAD_S)
            outputs = model(torch.randn(_BATCH, _WIDTH))
            if slowness.cause == "launch" and mine:
                time.sleep(mine / 1e9)
            extra = mine if slowness.cause == "compute" else 0
            loss = work(outputs.detach(), _WORK_NS + extra).mean() + outputs.square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            recorder.step()
    dist.destroy_process_group()
    return STEPS


def run_demo(folder: Path, slowness: Slowness, *, processes: int) -> None:
    """Trains on this machine's CPUs, and leaves a trace of each rank in a folder.

    Raises:
        TraceqError: a process failed or was killed.
    """
    from traceq.bench.launch import run_processes  # noqa: PLC0415  # starts a rendezvous library

    run_processes(train, processes, str(folder), slowness)
