"""Options that change numbers: from traceq.toml, then from the command line."""

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
        nranks: ranks of the whole job, where no source tells it.
    """

    step_pattern: str | None = None
    comm_patterns: tuple[str, ...] = ()
    p2p_as_comm: bool = False
    rank_map: dict[str, int] = field(default_factory=dict)
    nranks: int | None = None

    def as_json(self) -> dict[str, Any]:
        """Returns: the options as plain data, for the run file; without names of files."""
        return {name: value for name, value in asdict(self).items() if name != "rank_map"}


_KEYS: dict[str, dict[str, tuple[str, type]]] = {
    "steps": {"pattern": ("step_pattern", str)},
    "communication": {"patterns": ("comm_patterns", list), "p2p_as_comm": ("p2p_as_comm", bool)},
    "ranks": {"nranks": ("nranks", int)},
}


def load_options(path: Path | None) -> ReadOptions:
    """Returns: the options of a traceq.toml file, or the defaults when there is none.

    Raises:
        ConfigError: the file cannot be read, or has a key that means nothing.
    """
    if path is None:
        return ReadOptions()
    try:
        data = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        message = f"{path.name}: cannot be read as TOML: {error}"
        raise ConfigError(message) from error
    values: dict[str, Any] = {}
    for section, table in data.items():
        known = _KEYS.get(section)
        if known is None or not isinstance(table, dict):
            fact = "unknown section" if known is None else "must be a section:"
            message = f"{path.name}: {fact} [{section}]; there are: {', '.join(_KEYS)}"
            raise ConfigError(message)
        for key, value in table.items():
            if key not in known or type(value) is not known[key][1]:
                message = f"{path.name}: [{section}] has no such setting: {key} = {value!r}"
                raise ConfigError(message)
            values[known[key][0]] = tuple(value) if isinstance(value, list) else value
    return checked(replace(ReadOptions(), **values))


def checked(options: ReadOptions) -> ReadOptions:
    """Returns: the options, once every pattern in them compiles, here and in polars.

    Raises:
        ConfigError: a pattern is not a regular expression.
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
    return options
