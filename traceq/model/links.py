"""Peak bandwidth of the link between the GPUs of one node, per GPU and direction."""

import re
import tomllib
from dataclasses import dataclass
from functools import cache
from importlib import resources


@dataclass(frozen=True, slots=True)
class LinkPeak:
    """A built-in link peak: its kind, its rate per direction [GB/s] and the figure's source."""

    gpu: str
    kind: str
    peak_gbps: float
    source: str


@cache
def link_table() -> tuple[LinkPeak, ...]:
    """Returns: the built-in table in the order in which its rows are tried."""
    text = resources.files("traceq.model").joinpath("links.toml").read_text(encoding="utf-8")
    return tuple(LinkPeak(**row) for row in tomllib.loads(text)["link"])


def link_peak(gpu_name: str | None) -> LinkPeak | None:
    """Returns: the peak of the link inside a node for a GPU model, or None when it is not known.

    >>> link_peak("NVIDIA A100-SXM4-40GB").peak_gbps
    300.0
    >>> link_peak("NVIDIA GeForce GTX 1080") is None
    True
    """
    if gpu_name is None:
        return None
    return next((row for row in link_table() if re.search(row.gpu, gpu_name, re.IGNORECASE)), None)
