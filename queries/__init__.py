"""Canned queries: one question a file, each with a header that says what it returns.

A query is plain DuckDB SQL on the tables of a run file. Its parameters are DuckDB variables with a
default in the text, so that a file can also be read straight into the DuckDB shell.
"""

import re
from dataclasses import dataclass
from functools import cache
from importlib import resources

if __name__ != "traceq.queries":
    _MESSAGE = "import traceq.queries: the folder at the top is the same package under one name"
    raise ImportError(_MESSAGE)

_TITLE = re.compile(r"(?P<name>\w+): (?P<text>.+)")
_PARAM = re.compile(r"param (?P<name>\w+) (?P<type>\S+) = (?P<default>[^:]+): (?P<text>.+)")
_COLUMN = re.compile(
    r"column (?P<name>\w+) (?P<type>\S+) \[(?P<unit>[^\]]*)\]"
    r"(?: in (?P<low>\S+)\.\.(?P<high>\S+))?: (?P<text>.+)"
)


@dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter of a query: its DuckDB type, its default as SQL, and what it means."""

    name: str
    type: str
    default: str
    text: str


@dataclass(frozen=True, slots=True)
class Column:
    """A result column: its DuckDB type, unit, allowed range and meaning."""

    name: str
    type: str
    unit: str
    low: float | None
    high: float | None
    text: str


@dataclass(frozen=True, slots=True)
class Query:
    """A canned query, parsed from its header.

    Attributes:
        name: its name, which is that of its file.
        title: the question it answers.
        notes: further words about it.
        parameters: what can be chosen.
        columns: what it returns, in order.
        key: columns that tell rows apart.
        source: where its definitions are.
        sql: the whole text.
    """

    name: str
    title: str
    notes: str
    parameters: tuple[Parameter, ...]
    columns: tuple[Column, ...]
    key: tuple[str, ...]
    source: str
    sql: str


@cache
def query_names() -> tuple[str, ...]:
    """Returns: the names of all canned queries, sorted."""
    files = resources.files("traceq.queries").iterdir()
    return tuple(sorted(f.name.removesuffix(".sql") for f in files if f.name.endswith(".sql")))


@cache
def load_query(name: str) -> Query:
    """Returns: a canned query by name.

    Raises:
        KeyError: there is no such query.
        ValueError: its header does not follow the form.
    """
    if name not in query_names():
        raise KeyError(name)
    file = resources.files("traceq.queries").joinpath(f"{name}.sql")
    return parse_query(file.read_text(encoding="utf-8"))


def parse_query(sql: str) -> Query:
    """Returns: a query from its text.

    Raises:
        ValueError: a line of the header follows no form.
    """
    header: list[str] = []
    for line in sql.splitlines():
        if not line.startswith("--"):
            break
        header.append(line.removeprefix("--").strip())
    joined = _join_continued(header)
    title = _TITLE.fullmatch(joined[0]) if joined else None
    if title is None:
        message = "the first line must be '-- name: question'"
        raise ValueError(message)
    body = joined[1:]
    parameters = tuple(Parameter(**m.groupdict()) for m in _matches(_PARAM, "param ", body))
    columns = tuple(_column(m) for m in _matches(_COLUMN, "column ", body))
    key, source = (_last(word, body) for word in ("key: ", "source: "))
    notes = " ".join(line for line in body if line and not line.startswith(_WORDS))
    keys = tuple(part.strip() for part in key.split(","))
    return Query(title["name"], title["text"], notes, parameters, columns, keys, source, sql)


_WORDS = ("param ", "column ", "key: ", "source: ")


def _matches(form: re.Pattern[str], word: str, lines: list[str]) -> list[re.Match[str]]:
    matches = []
    for line in lines:
        if not line.startswith(word):
            continue
        match = form.fullmatch(line)
        if match is None:
            message = f"header line follows no form: {line!r}"
            raise ValueError(message)
        matches.append(match)
    return matches


def _last(word: str, lines: list[str]) -> str:
    return next((line.removeprefix(word) for line in lines if line.startswith(word)), "")


def _join_continued(header: list[str]) -> list[str]:
    joined: list[str] = []
    for line in header:
        if joined and line and joined[-1].startswith(_WORDS[:2]) and not line.startswith(_WORDS):
            joined[-1] += f" {line}"
        else:
            joined.append(line)
    return joined


def _column(match: re.Match[str]) -> Column:
    low, high = match["low"], match["high"]
    return Column(
        match["name"],
        match["type"],
        match["unit"],
        float(low) if low else None,
        float(high) if high and high != "inf" else None,
        match["text"],
    )
