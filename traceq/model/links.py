"""Peak bandwidth of the link between the GPUs of one node, per GPU and direction."""

import re
import tomllib
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
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
    if gpu_name is None or "MIG" in gpu_name:  # a part of a GPU has no NVLink
        return None
    return next((row for row in link_table() if re.search(row.gpu, gpu_name, re.IGNORECASE)), None)


def peak_of(
    link: str, gpus: AbstractSet[str | None], by_user: Mapping[str, float]
) -> tuple[float, str] | None:
    """Returns: the peak of a link per GPU and direction [GB/s] and where it is from, or None.

    The user's own figure comes first; then, inside a node, the slowest of the GPU models. Between
    nodes only the user knows how many network adapters there are for each GPU.

    Args:
        link: `intra`, `inter` or `unknown`.
        gpus: GPU models of the ranks; None for one that is not known.
        by_user: peaks [GB/s] by link; `any` holds for every link.

    >>> peak_of("intra", {"NVIDIA A100-SXM4-40GB"}, {})
    (300.0, 'NVLink 3')
    >>> peak_of("inter", {"NVIDIA A100-SXM4-40GB"}, {"inter": 25.0})
    (25.0, 'user')
    """
    for key in (link, "any"):
        if key in by_user:
            return by_user[key], "user"
    peaks = [link_peak(gpu) for gpu in gpus]
    known = [peak for peak in peaks if peak is not None]
    if link != "intra" or not known or len(known) < len(peaks):
        return None
    slowest = min(known, key=lambda peak: peak.peak_gbps)
    return slowest.peak_gbps, slowest.kind
