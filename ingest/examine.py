"""What a source can and cannot answer."""

import tempfile
from pathlib import Path

from traceq.ingest.damage import told_in_words
from traceq.ingest.detect import Source, plain_file
from traceq.ingest.nsys.examination import examine_nsys
from traceq.ingest.tables import Answer
from traceq.ingest.torch_profiler.examination import examine_torch


def examine_source(source: Source) -> list[Answer]:
    """Returns: what one source can answer, question by question.

    Raises:
        SourceError: the source cannot be read.
    """
    with (
        tempfile.TemporaryDirectory(prefix="traceq-") as folder,
        told_in_words(source.file_name),
    ):
        if source.kind == "torch":
            return examine_torch(source.path, source.file_name, source.compression)
        return examine_nsys(plain_file(source, Path(folder)), source.file_name)
