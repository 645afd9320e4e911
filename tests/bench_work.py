"""What processes of the bench tests do; they import it by name."""

import torch
import torch.distributed as dist

from traceq.bench.ring import ring_all_reduce


def ring_and_library(elements: int) -> tuple[int, bool]:
    """Returns: bytes sent around the ring, and whether its sum is that of the library."""
    dist.init_process_group("gloo")
    generator = torch.Generator().manual_seed(dist.get_rank())
    mine = torch.randint(-100, 100, (elements,), generator=generator).float()
    library = mine.clone()
    dist.all_reduce(library)
    sent = ring_all_reduce(mine)
    same = bool(torch.equal(mine, library))
    dist.destroy_process_group()
    return sent, same


def parts_of_an_all_reduce(share: int) -> tuple[bool, bool]:
    """Returns: is reduce_scatter and all_gather an all_reduce; is an all_to_all a transpose."""
    dist.init_process_group("gloo")
    rank, n = dist.get_rank(), dist.get_world_size()
    mine = torch.arange(n * share).float() * (rank + 1)
    whole, part, gathered = mine.clone(), torch.empty(share), torch.empty(n * share)
    dist.all_reduce(whole)
    dist.reduce_scatter_single(part, mine)
    dist.all_gather_single(gathered, part)
    row = torch.arange(n).float() + 100 * rank
    column = torch.empty(n)
    dist.all_to_all_single(column, row)
    transposed = torch.equal(column, 100 * torch.arange(n).float() + rank)
    dist.destroy_process_group()
    return bool(torch.equal(gathered, whole)), bool(transposed)
