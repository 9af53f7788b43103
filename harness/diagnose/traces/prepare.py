"""One trace, read and reduced to what the comparison needs of it: a few per cent of its size."""

from dataclasses import dataclass

from harness.diagnose.traces import names
from harness.diagnose.traces.breakdown import Computing, Work
from harness.diagnose.traces.collectives import Collectives, identify
from harness.diagnose.traces.find import TraceFile, rank_from_name
from harness.diagnose.traces.header import NotATrace
from harness.diagnose.traces.intervals import Cover, cover
from harness.diagnose.traces.read import read_trace
from harness.diagnose.traces.recompute import launched_while_recomputing, recomputing
from harness.diagnose.traces.recording import CollectiveKey, Recording
from harness.diagnose.traces.spans import Columns
from harness.diagnose.traces.steps import choose_steps
from harness.diagnose.traces.work import flags, work_of


@dataclass(frozen=True)
class Prepared:
    """One rank's trace before its collectives are compared with those of other ranks.

    `began_ns` is unix time, comparable between traces. `said` is what a reader should know about the file.
    """

    file: str
    rank: int | None
    world_size: int | None
    began_ns: int
    steps: Columns
    computing: Computing
    collectives: Collectives
    keys: tuple[CollectiveKey, ...]
    work: Work
    said: tuple[str, ...]
    broken: bool


def prepare(file: TraceFile) -> Prepared:
    """Read a trace and reduce it.

    Raises:
        NotATrace: nothing in it could be used; the message says why.
        OSError: it cannot be opened.
    """
    return reduce_recording(read_trace(file.path), file.name)


def reduce_recording(recording: Recording, name: str) -> Prepared:
    """Reduce what was read; `name` is the file's.

    Raises:
        NotATrace: nothing in it could be used.
    """
    if recording.header.has_device and not recording.on_device and recording.broken is not None:
        raise NotATrace(f"cut off before its kernels ({recording.broken})")
    steps, said = choose_steps(recording)
    if not len(steps):
        raise NotATrace(_nothing(recording))
    if recording.broken is not None:
        said = (f"breaks off after {recording.events} events ({recording.broken})", *said)
    if recording.header.has_device and not recording.on_device:
        said = (*said, "lists a device but holds no kernels: was ProfilerActivity.CUDA on?")
    if recording.skipped:
        said = (*said, f"{recording.skipped} of {recording.events} events make no sense and are left out")
    thread = _training_thread(recording)
    keys = tuple(key for key in recording.keys.of if isinstance(key, CollectiveKey))
    collectives = identify(recording.collectives.columns(), keys, steps)
    rank = recording.header.rank
    return Prepared(
        file=name,
        rank=rank if rank is not None else rank_from_name(name),
        world_size=recording.header.world_size,
        began_ns=recording.header.base_ns + int(steps.begin[0]),
        steps=steps,
        computing=_computing(recording, thread),
        collectives=collectives,
        keys=keys,
        work=work_of(recording, steps, thread, collectives),
        said=said,
        broken=recording.broken is not None,
    )


def _nothing(recording: Recording) -> str:
    """Why no step of a trace can be used."""
    if recording.broken:
        return f"cut off within its first steps ({recording.broken})"
    if recording.impossible_steps:
        return f"all its {recording.impossible_steps} steps end when they begin, or before"
    left = f": {recording.skipped} events that make no sense are left out" if recording.skipped else ""
    return f"nothing computes{left}"


def _training_thread(recording: Recording) -> int:
    """The thread that calls profiler.step(); else the one with the most operations."""
    threads: list[int] = recording.steps.columns().thread.tolist()
    if threads:
        return max(set(threads), key=threads.count)
    return max(recording.ops_of_thread, key=recording.ops_of_thread.__getitem__, default=-1)


def _computing(recording: Recording, thread: int) -> Computing:
    found = recomputing(recording)
    loader = recording.loader.columns()
    loader = loader.where(loader.thread == thread)
    if recording.on_device:
        spans = recording.kernels.columns()
        matrix = flags(recording.kernel_names, names.is_matrix_kernel)[spans.label]
        again = launched_while_recomputing(recording, found)
    else:
        spans = recording.ops.columns()
        spans = spans.where(spans.thread == thread)
        matrix = flags(recording.op_names, names.is_matrix_op)[spans.label]
        again = found.at(spans.thread, spans.begin)
    return Computing(
        on_device=recording.on_device,
        compute=_cover(spans.where(matrix & ~again)),
        recompute=_cover(spans.where(again)),
        other=_cover(spans.where(~matrix & ~again)),
        loader=_cover(loader),
    )


def _cover(spans: Columns) -> Cover:
    return cover(spans.begin, spans.end)
