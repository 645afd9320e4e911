"""One collective of one size: its buffers, the call itself, and whether its result is right.

Rank r contributes the value r + 1 in every element, or values that tell where they come from, so
that every result is known without a second collective. Counts follow nccl-tests: of an operation
whose size spans all ranks each share is rounded down to 16 bytes.
"""

from abc import ABC, abstractmethod

import torch
import torch.distributed as dist

from traceq.bench.ring import ring_all_reduce
from traceq.model.collectives import RULES, Op

# Their names since torch 2.13, and before.
_all_gather = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor
_reduce_scatter = getattr(dist, "reduce_scatter_single", None) or dist.reduce_scatter_tensor

_ALIGNED_BYTES = 16
ELEMENT_BYTES = 4


class Trial(ABC):
    """A collective with its buffers on this rank.

    Attributes:
        count: elements that nccl-tests prints: of the whole buffer, or of one share [1].
        size: S [bytes].
        sent_bytes: bytes this rank sent in the last call, None where nothing counts them.
    """

    op: Op
    sent_bytes: int | None = None

    def __init__(self, size: int, device: torch.device) -> None:
        self.rank, self.ranks = dist.get_rank(), dist.get_world_size()
        self.device = device
        elements = size // ELEMENT_BYTES
        if RULES[self.op].payload_is_per_rank:
            whole = _ALIGNED_BYTES // ELEMENT_BYTES
            self.count = elements // self.ranks // whole * whole
            self.size = self.count * self.ranks * ELEMENT_BYTES
        else:
            self.count, self.size = elements, elements * ELEMENT_BYTES
        self._reset()

    def run(self) -> None:
        """Carries the collective out once, on what the buffers hold."""
        self._run()

    @abstractmethod
    def _reset(self) -> None:
        """Fills the buffers anew."""

    @abstractmethod
    def _run(self) -> None:
        """Calls the collective."""

    @abstractmethod
    def _result(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Returns: what this rank holds after one run from new buffers, and what it should hold."""

    def wrong(self) -> int:
        """Returns: elements that differ from what they should be after one run."""
        self._reset()
        self._run()
        got, expected = self._result()
        return int((got != expected).sum())

    def _full(self, value: float, elements: int | None = None) -> torch.Tensor:
        count = self.count if elements is None else elements
        return torch.full((count,), float(value), dtype=torch.float32, device=self.device)

    @property
    def _sum(self) -> float:
        return self.ranks * (self.ranks + 1) / 2

    def _by_rank(self) -> torch.Tensor:
        """Returns: a share of each rank after the other, each of its own value."""
        values = torch.arange(1, self.ranks + 1, device=self.device, dtype=torch.float32)
        return values.repeat_interleave(self.count)


class AllReduce(Trial):
    """Every rank gets the sum."""

    op = Op.ALL_REDUCE

    def _reset(self) -> None:
        self.buffer = self._full(self.rank + 1)

    def _run(self) -> None:
        dist.all_reduce(self.buffer)

    def _result(self) -> tuple[torch.Tensor, torch.Tensor]:
        return self.buffer, self._full(self._sum)


class RingAllReduce(AllReduce):
    """The same by sends and receives around a ring."""

    def _run(self) -> None:
        self.sent_bytes = ring_all_reduce(self.buffer)


class AllGather(Trial):
    """Every rank gets every share."""

    op = Op.ALL_GATHER

    def _reset(self) -> None:
        self.share = self._full(self.rank + 1)
        self.buffer = self._full(0, self.count * self.ranks)

    def _run(self) -> None:
        _all_gather(self.buffer, self.share)

    def _result(self) -> tuple[torch.Tensor, torch.Tensor]:
        return self.buffer, self._by_rank()


class ReduceScatter(Trial):
    """Every rank gets the sum of one share."""

    op = Op.REDUCE_SCATTER

    def _reset(self) -> None:
        self.buffer = self._by_rank() * (self.rank + 1)
        self.share = self._full(0)

    def _run(self) -> None:
        _reduce_scatter(self.share, self.buffer)

    def _result(self) -> tuple[torch.Tensor, torch.Tensor]:
        return self.share, self._full(self._sum * (self.rank + 1))


class AllToAll(Trial):
    """Every rank sends a share to each other: a transpose."""

    op = Op.ALL_TO_ALL

    def _reset(self) -> None:
        self.given = self._by_rank() * 1000 + self.rank
        self.taken = self._full(0, self.count * self.ranks)

    def _run(self) -> None:
        dist.all_to_all_single(self.taken, self.given)

    def _result(self) -> tuple[torch.Tensor, torch.Tensor]:
        return self.taken, self._by_rank() - 1 + 1000 * (self.rank + 1)


class Broadcast(Trial):
    """Every rank gets what rank 0 has."""

    op = Op.BROADCAST

    def _reset(self) -> None:
        self.buffer = self._full(self.rank + 1)

    def _run(self) -> None:
        dist.broadcast(self.buffer, src=0)

    def _result(self) -> tuple[torch.Tensor, torch.Tensor]:
        return self.buffer, self._full(1)


class Reduce(Trial):
    """Rank 0 gets the sum."""

    op = Op.REDUCE

    def _reset(self) -> None:
        self.buffer = self._full(self.rank + 1)

    def _run(self) -> None:
        dist.reduce(self.buffer, dst=0)

    def _result(self) -> tuple[torch.Tensor, torch.Tensor]:
        # What the others hold afterwards is not defined.
        return self.buffer, self._full(self._sum) if self.rank == 0 else self.buffer


class SendRecv(Trial):
    """Every rank sends to the next and receives from the one before."""

    op = Op.SEND_RECV

    def _reset(self) -> None:
        self.given, self.taken = self._full(self.rank + 1), self._full(0)

    def _run(self) -> None:
        if self.ranks == 1:
            self.taken.copy_(self.given)
            return
        exchange = [
            dist.P2POp(dist.isend, self.given, (self.rank + 1) % self.ranks),
            dist.P2POp(dist.irecv, self.taken, (self.rank - 1) % self.ranks),
        ]
        for work in dist.batch_isend_irecv(exchange):
            work.wait()

    def _result(self) -> tuple[torch.Tensor, torch.Tensor]:
        return self.taken, self._full((self.rank - 1) % self.ranks + 1)


TRIALS: dict[str, type[Trial]] = {
    trial.op.value: trial
    for trial in (AllReduce, AllGather, ReduceScatter, AllToAll, Broadcast, Reduce, SendRecv)
}
