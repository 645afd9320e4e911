"""Runs a canned query on a run file, once its parameters are checked."""

from collections.abc import Mapping
from difflib import get_close_matches

import polars as pl

from traceq.errors import QueryError
from traceq.queries import Parameter, Query, load_query, query_names
from traceq.runfile import Run

_CONVERT = {"INTEGER": int, "BIGINT": int, "DOUBLE": float, "VARCHAR": str}


def run_query(
    run: Run, name: str, parameters: Mapping[str, str | float] | None = None
) -> pl.DataFrame:
    """Returns: the rows of a canned query, with the columns that its header states.

    Raises:
        QueryError: there is no such query or parameter, or a value does not fit its type.
    """
    query = find_query(name)
    values = {key: _value(query, key, value) for key, value in (parameters or {}).items()}
    return run.frame(query.sql, values)


def find_query(name: str) -> Query:
    """Returns: a canned query by name.

    Raises:
        QueryError: there is none, with the nearest name.
    """
    try:
        return load_query(name)
    except KeyError:
        message = f"{name}: no such query{_nearest(name, query_names())}"
        raise QueryError(message) from None


def _value(query: Query, key: str, value: str | float) -> str | float:
    known = {parameter.name: parameter for parameter in query.parameters}
    if key not in known:
        message = f"{query.name} has no parameter {key}{_nearest(key, known)}"
        raise QueryError(message)
    return _converted(known[key], value)


def _converted(parameter: Parameter, value: str | float) -> str | float:
    try:
        converted: str | float = _CONVERT[parameter.type](value)
    except ValueError:
        message = f"{parameter.name}: {value!r} is not of type {parameter.type}"
        raise QueryError(message) from None
    return converted


def _nearest(name: str, known: Mapping[str, object] | tuple[str, ...]) -> str:
    close = get_close_matches(name, list(known), n=1)
    if close:
        return f"; did you mean {close[0]}?"
    return f"; there are: {', '.join(known)}" if known else "; it takes none"
