"""Options that change numbers: from traceq.toml, then from the command line."""

import math
import re
import tomllib
import warnings
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from traceq.errors import ConfigError

LARGEST_RANK = 999_999  # no job is larger; a larger number is damage


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """How sources are read.

    Attributes:
        step_pattern: regular expression that names a training step; its first group, if any, is
            the number of the step. None tries the patterns of the common frameworks.
        comm_patterns: further regular expressions of communication kernels.
        p2p_as_comm: count peer-to-peer copies as communication.
        rank_map: rank of a source, by its file name or the end of its path.
        nranks: ranks of the whole job, where no source tells it; and of a communicator whose
            size no source tells, where each rank uses one.
        link_peak: peak per GPU and direction [GB/s] by link: `intra`, `inter`, or `any`.
        gpu: GPU model, where sources do not tell it.
        baselines: outputs of nccl-tests to compare with, each a file or OP=FILE.
        nccl_logs: NCCL_DEBUG logs with sizes of the same run.
        keep_warmup: count warm-up calls too.
        straggler_fraction: share of its window by which a straggler is late, at least.
        straggler_p: chance under which a straggler's lateness is no accident.
    """

    step_pattern: str | None = None
    comm_patterns: tuple[str, ...] = ()
    p2p_as_comm: bool = False
    rank_map: dict[str, int] = field(default_factory=dict)
    nranks: int | None = None
    link_peak: dict[str, float] = field(default_factory=dict)
    gpu: str | None = None
    baselines: tuple[str, ...] = ()
    nccl_logs: tuple[str, ...] = ()
    keep_warmup: bool = False
    straggler_fraction: float = 0.01
    straggler_p: float = 0.05

    def as_json(self) -> dict[str, Any]:
        """Returns: the options as plain data, for the run file; without names of files."""
        return {name: value for name, value in asdict(self).items() if name not in _FILES}


_FILES = ("rank_map", "baselines", "nccl_logs")
LINKS = ("intra", "inter", "any")

_GATES = "gates"
_KEYS: dict[str, dict[str, tuple[str, type]]] = {
    "steps": {"pattern": ("step_pattern", str)},
    "communication": {"patterns": ("comm_patterns", list), "p2p_as_comm": ("p2p_as_comm", bool)},
    "ranks": {"nranks": ("nranks", int)},
    "links": {"peak_gbps": ("link_peak", dict), "gpu": ("gpu", str)},
    "stragglers": {
        "fraction": ("straggler_fraction", float),
        "p_value": ("straggler_p", float),
        "keep_warmup": ("keep_warmup", bool),
    },
}


def load_options(path: Path | None) -> ReadOptions:
    """Returns: the options of a traceq.toml file, or the defaults when there is none.

    Raises:
        ConfigError: the file cannot be read, or has a key that means nothing.
    """
    if path is None:
        return ReadOptions()
    values: dict[str, Any] = {}
    for section, table in _toml(path).items():
        if section == _GATES:
            continue
        known = _KEYS.get(section)
        if known is None or not isinstance(table, dict):
            fact = "unknown section" if known is None else "must be a section:"
            message = f"{path.name}: {fact} [{section}]; there are: {', '.join((*_KEYS, _GATES))}"
            raise ConfigError(message)
        for key, value in table.items():
            if key not in known or type(value) is not known[key][1]:
                message = f"{path.name}: [{section}] has no such setting: {key} = {value!r}"
                raise ConfigError(message)
            values[known[key][0]] = tuple(value) if isinstance(value, list) else value
    return checked(replace(ReadOptions(), **values))


def load_gates(path: Path | None) -> tuple[str, ...]:
    """Returns: the gates of a traceq.toml file, none when there is no file.

    Raises:
        ConfigError: the file cannot be read, or its gates are not a list of expressions.
    """
    section = {} if path is None else _toml(path).get(_GATES, {})
    gates = section.get("fail_on", []) if isinstance(section, dict) else None
    known = isinstance(section, dict) and set(section) <= {"fail_on"}
    if not known or not isinstance(gates, list) or not all(isinstance(g, str) for g in gates):
        name = "" if path is None else path.name
        message = f'{name}: [{_GATES}] must have: fail_on = ["METRIC OP VALUE", ...]'
        raise ConfigError(message)
    return tuple(gates)


def _toml(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        message = f"{path.name}: cannot be read as TOML: {error}"
        raise ConfigError(message) from error


def checked(options: ReadOptions) -> ReadOptions:
    """Returns: the options, once every pattern compiles, here and in polars, and numbers are sane.

    Raises:
        ConfigError: a pattern is not a regular expression, or a number cannot be.
    """
    import polars as pl  # noqa: PLC0415  # not needed where nothing is read

    for pattern in (options.step_pattern, *options.comm_patterns):
        if pattern is None:
            continue
        try:
            with warnings.catch_warnings(action="ignore"):
                re.compile(pattern)
            pl.Series([""]).str.contains(f"(?i:^(?:{pattern})$)")
        except (re.error, TypeError, pl.exceptions.ComputeError) as error:
            fact = str(error).strip().splitlines()[-1].removeprefix("error: ")
            message = f"{pattern!r}: not a regular expression: {fact}"
            raise ConfigError(message) from error
    if options.nranks is not None and not 1 <= options.nranks <= LARGEST_RANK + 1:
        message = f"nranks = {options.nranks}: must be from 1 to {LARGEST_RANK + 1}"
        raise ConfigError(message)
    for link, peak in options.link_peak.items():
        number = isinstance(peak, int | float) and not isinstance(peak, bool)
        if link not in LINKS or not number or not 0 < peak < math.inf:
            message = f"link peak {link} = {peak}: must be GB/s above 0 for {', '.join(LINKS)}"
            raise ConfigError(message)
    for name in ("straggler_fraction", "straggler_p"):
        value = getattr(options, name)
        if not 0 < value <= 1:
            message = f"{name} = {value}: must be above 0 and at most 1"
            raise ConfigError(message)
    return options
