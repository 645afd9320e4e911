"""What a torch.profiler trace can and cannot answer, and how to record it better."""

from pathlib import Path

from traceq.config import ReadOptions
from traceq.ingest.ranks import rank_in_file_name
from traceq.ingest.tables import Answer
from traceq.ingest.torch_profiler.collectives import rank_count, rank_number
from traceq.ingest.torch_profiler.context import Assembled
from traceq.ingest.torch_profiler.notes import ARGS_HINT, CUT_HINT, STEPS_HINT, is_complete
from traceq.ingest.torch_profiler.reader import assemble_file, base_time_ns, dictionary, gpu_name
from traceq.ingest.torch_profiler.stream import EventStream

_ACTIVITIES = "record with activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]"


def examine_torch(path: Path, label: str, compression: str | None) -> list[Answer]:
    """Returns: the questions a report answers, each with a verdict, evidence and remedy.

    Raises:
        SourceError: the file is no trace.
    """
    stream, _, trace = assemble_file(path, label, compression, ReadOptions())
    return [
        _whole(stream),
        _device_work(trace),
        *([_steps(trace), _sizes(trace)] if trace is not None else []),
        *([_gpu(stream, trace)] if trace is not None and trace.device_kind == "gpu" else []),
        _rank(stream, label),
        _clock(stream),
    ]


def _whole(stream: EventStream) -> Answer:
    question = "Is anything missing?"
    if is_complete(stream):
        return Answer(question, "yes", "the trace is whole")
    lost = "some events cannot be read" if stream.lost else "it does not end where it should"
    return Answer(question, "partly", stream.blocks.damage or lost, CUT_HINT)


def _device_work(trace: Assembled | None) -> Answer:
    question = "What ran on the GPU?"
    if trace is None:
        return Answer(question, "no", "neither device rows nor gloo collectives", _ACTIVITIES)
    if trace.device_kind == "cpu":
        return Answer(
            question, "yes", "nothing: it is a gloo run on CPUs, which is measured as one"
        )
    if trace.lost_graphs:
        evidence = f"{trace.lost_graphs} CUDA graph launches left no kernel"
        return Answer(question, "partly", evidence, "record without CUDA graphs")
    return Answer(question, "yes", f"{trace.ops.height:,} kernels, copies and sets")


def _steps(trace: Assembled) -> Answer:
    question = "Where are the training steps?"
    steps = trace.ops["step"].drop_nulls().n_unique()
    if not steps:
        return Answer(question, "no", "no annotation is named like a step", STEPS_HINT)
    return Answer(question, "yes", f"{steps} steps")


def _sizes(trace: Assembled) -> Answer:
    question = "How large are the messages?"
    total = len(trace.described)
    known = sum(each.size is not None for each in trace.described)
    if not total:
        return Answer(question, "yes", "there is no communication")
    verdict = "yes" if known == total else "partly" if known else "no"
    evidence = f"{known} of {total} communication operations tell their size"
    return Answer(question, verdict, evidence, None if known == total else ARGS_HINT)


def _gpu(stream: EventStream, trace: Assembled) -> Answer:
    question = "Which GPU model?"
    names = {gpu_name(stream, device) for device in trace.ops["device"].unique()} - {None}
    if not names:
        return Answer(question, "no", "deviceProperties does not tell it")
    return Answer(question, "yes", ", ".join(sorted(filter(None, names))))


def _rank(stream: EventStream, label: str) -> Answer:
    question = "Which rank is it?"
    info = dictionary(stream, "distributedInfo")
    rank, world = rank_number(info.get("rank")), rank_count(info.get("world_size"))
    named = rank_in_file_name(label)
    if rank is None and named is not None:
        return Answer(question, "partly", f"only the file name does: rank {named}")
    if rank is None:
        remedy = "give it with --rank-map FILE=RANK, or put rank<N> into the file name"
        return Answer(question, "no", "distributedInfo does not say", remedy)
    of = f" of {world}" if world is not None else " of an unknown number"
    return Answer(question, "yes", f"rank {rank}{of}")


def _clock(stream: EventStream) -> Answer:
    question = "Can it be laid beside other files in time?"
    if base_time_ns(stream) is not None:
        return Answer(question, "yes", "its base time is given in UTC")
    return Answer(question, "partly", "only if its times are UTC already, as in old traces")
