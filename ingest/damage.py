"""What odd values in a file become: one error in words, about that file alone."""

from collections.abc import Iterator
from contextlib import contextmanager

import polars as pl

from traceq.errors import SourceError

_ODD_VALUES = (pl.exceptions.PolarsError, TypeError, ValueError, ArithmeticError, RecursionError)


@contextmanager
def told_in_words(name: str) -> Iterator[None]:
    """Turns what an odd value, or the machine, does to a reading into one error of that source.

    The error says nothing of the value, which may be anything that a file holds.
    """
    try:
        yield
    except OSError as error:
        message = f"{name}: cannot be read: {error.strerror}"
        raise SourceError(message) from error
    except _ODD_VALUES as error:
        kind = type(error).__name__
        message = f"{name}: damaged: it holds values that cannot be ({kind}): export it again"
        raise SourceError(message) from error
