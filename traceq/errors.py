"""Every error that traceq raises on purpose; each knows its exit status."""


class TraceqError(Exception):
    """A failure told in one line: the thing, the fact, the way out."""

    exit_code = 2


class SourceError(TraceqError):
    """An input that cannot be read or holds nothing to measure."""


class RunFileError(TraceqError):
    """A run file that cannot be written, opened or understood."""


class StoreError(TraceqError):
    """A store or catalog that cannot be used, or a run that it does not hold."""


class QueryError(TraceqError):
    """A query, parameter or statement that cannot be run."""


class ConfigError(TraceqError):
    """A configuration file that does not say what it should."""
