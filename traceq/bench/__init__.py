"""Measures collectives with torch.distributed, by the conventions of nccl-tests. Needs torch."""
