"""The one table of communication kernel families: is a kernel communication, and which operation?

A name is matched without case, up to its template arguments and parameters, and only where a
family's own prefix or namespace begins, so that ``reduce_kernel`` or ``vectorized_gather_kernel``
stay compute. From NCCL 2.19 a kernel name does
not tell the algorithm or the protocol that ran, so neither is read from a name of any version.

Source: kernel lists generated from the NCCL tags 2.16 to 2.32; the projects named beside each row.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

from traceq.model.collectives import Op

_START = r"(?:^|[\s:*&])"  # a name begins at the start, after a return type, or in a namespace


@dataclass(frozen=True, slots=True)
class Family:
    """One communication library: its name, where its kernels begin, and how they name the op."""

    name: str
    pattern: str
    op: Op | None = None

    def regex(self) -> re.Pattern[str]:
        """Returns: the compiled pattern, matched without case."""
        return _compiled(self.pattern)


@cache
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern, re.IGNORECASE)


FAMILIES: tuple[Family, ...] = (
    Family("nccl", _START + r"nccl(?:Dev|Sym|Symk|SymDev|SymkDev)?Kernel(?:_|\b)"),
    Family(
        "nccl",
        _START + r"nccl(?:AllReduce|AllGather|AllToAll|Broadcast|ReduceScatter|Reduce|SendRecv)"
        r"\w*Kernel",
    ),
    Family("nccl", _START + r"oneRankReduce\b"),
    Family("rccl", _START + r"rccl\w*Kernel"),
    Family("msccl", _START + r"msccl(?:pp)?(?:Kernel|::)"),
    Family("nvshmem", _START + r"nvshmem\w*"),
    Family("rocshmem", _START + r"rocshmem\w*"),
    Family("deep_ep", r"\bdeep_ep::\w+::(?:\w*dispatch|\w*combine)", Op.ALL_TO_ALL),
    Family("deep_ep", r"\bdeep_ep::"),
    Family("symm_mem", _START + r"multimem_(?:one_shot_|two_shot_)?(?:all_|reduce_|broadcast)\w*"),
    Family("symm_mem", _START + r"(?:one|two)_shot_all_reduce\w*", Op.ALL_REDUCE),
    Family("custom_all_reduce", _START + r"cross_device_reduce_\w+", Op.ALL_REDUCE),
    Family("custom_all_reduce", _START + r"quickreduce::", Op.ALL_REDUCE),
    Family("tensorrt_llm", _START + r"(?:one|two)ShotAllReduce\w*", Op.ALL_REDUCE),
    Family("tensorrt_llm", _START + r"(?:\w*_)?allreduce_fusion_kernel\w*", Op.ALL_REDUCE),
    Family("tensorrt_llm", r"\b(?:trtllm|tensorrt_llm)\w*::[\w:]*all_?reduce", Op.ALL_REDUCE),
    Family("userbuffers", _START + r"userbuffers_\w+"),
)

# Longest first: an all-gather-v is an all-gather, a reduce-scatter is not a reduce.
_OPS: tuple[tuple[str, Op], ...] = (
    ("reducescatter", Op.REDUCE_SCATTER),
    ("allgather", Op.ALL_GATHER),
    ("allreduce", Op.ALL_REDUCE),
    ("alltoall", Op.ALL_TO_ALL),
    ("broadcast", Op.BROADCAST),
    ("sendrecv", Op.SEND_RECV),
    ("scatter", Op.SCATTER),
    ("gather", Op.GATHER),
    ("barrier", Op.BARRIER),
    ("reduce", Op.REDUCE),
)


@dataclass(frozen=True, slots=True)
class Communication:
    """A kernel that is communication: its family and the operation its name tells."""

    family: str
    op: Op


def classify(name: str, user_patterns: Sequence[str] = ()) -> Communication | None:
    """Returns: what communication a kernel name stands for, or None when it is compute.

    Args:
        name: kernel name, short or demangled.
        user_patterns: further regular expressions, matched anywhere in the name without case.

    >>> classify("ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)")
    Communication(family='nccl', op=<Op.ALL_REDUCE: 'all_reduce'>)
    >>> classify("void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float>>(T3)") is None
    True
    """
    head = re.split(r"[<(]", name.replace("(anonymous namespace)::", ""), maxsplit=1)[0]
    for family in FAMILIES:
        match = family.regex().search(head)
        if match:
            return Communication(family.name, family.op or _op_in(head[match.start() :]))
    if any(_compiled(pattern).search(name) for pattern in user_patterns):
        return Communication("user", _op_in(name))
    return None


def _op_in(name: str) -> Op:
    squeezed = name.lower().replace("_", "")
    return next((op for word, op in _OPS if word in squeezed), Op.UNKNOWN)
