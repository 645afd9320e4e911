"""Readers: one format each, one canonical set of rank tables."""

if __name__ != "traceq.ingest":
    _MESSAGE = "import traceq.ingest: the folder at the top is the same package under one name"
    raise ImportError(_MESSAGE)
