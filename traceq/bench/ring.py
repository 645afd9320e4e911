"""A ring all-reduce made of sends and receives: reduce-scatter, then all-gather.

Source: P. Patarasuk and X. Yuan, Bandwidth optimal all-reduce algorithms, 2009.
"""

from itertools import accumulate

import torch
import torch.distributed as dist


def ring_all_reduce(tensor: torch.Tensor) -> int:
    """Sums a tensor over all ranks in place.

    Each rank passes one of n chunks on in each of n - 1 steps until every rank holds the sum of one
    chunk, and then in n - 1 steps until every rank holds all.

    Returns: bytes that this rank sent; with n equal chunks 2 (n - 1) / n of the tensor's.
    """
    rank, n = dist.get_rank(), dist.get_world_size()
    chunks = _chunks(tensor.view(-1), n)
    sent = 0
    for step in range(n - 1):
        given, taken = chunks[(rank - step) % n], chunks[(rank - step - 1) % n]
        received = torch.empty_like(taken)
        sent += _pass_on(given, received)
        taken += received
    for step in range(n - 1):
        given, taken = chunks[(rank - step + 1) % n], chunks[(rank - step) % n]
        received = torch.empty_like(taken)
        sent += _pass_on(given, received)
        taken.copy_(received)
    return sent


def _chunks(flat: torch.Tensor, n: int) -> list[torch.Tensor]:
    """Returns: n parts of a tensor whose sizes differ by one element at most."""
    base, more = divmod(flat.numel(), n)
    sizes = [base + (part < more) for part in range(n)]
    ends = list(accumulate(sizes))
    return [flat[end - size : end] for size, end in zip(sizes, ends, strict=True)]


def _pass_on(given: torch.Tensor, received: torch.Tensor) -> int:
    """Sends to the next rank while receiving from the one before; returns the bytes sent."""
    rank, n = dist.get_rank(), dist.get_world_size()
    exchange = []
    if given.numel():
        exchange.append(dist.P2POp(dist.isend, given.contiguous(), (rank + 1) % n))
    if received.numel():
        exchange.append(dist.P2POp(dist.irecv, received, (rank - 1) % n))
    for work in dist.batch_isend_irecv(exchange) if exchange else []:
        work.wait()
    return given.numel() * given.element_size()
