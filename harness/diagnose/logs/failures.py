"""What broke, one failure a rank: the voices of one event merged, the most specific speaks (rules 5, 6)."""

import dataclasses
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from harness.diagnose.logs.event import Event, RankFrom
from harness.diagnose.logs.machine_lines import HARDWARE_XIDS
from harness.diagnose.logs.phrases import Phrase
from harness.diagnose.logs.story import DATED, Story
from harness.diagnose.logs.symptoms import (
    OF_OTHERS,
    exit_code,
    is_communication,
    is_wrapper,
    why_symptom,
)
from harness.model.kinds import Kind

ORDER = (
    Kind.HARDWARE_FAULT,
    Kind.NODE_LOST,
    Kind.HOST_OOM,
    Kind.DEVICE_OOM,
    Kind.DEVICE_ASSERT,
    Kind.CHECKPOINT_FAILED,
    Kind.STORAGE_FAILURE,
    Kind.DATA_CORRUPT,
    Kind.LOSS_NOT_FINITE,
    Kind.SOFTWARE_ERROR,
    Kind.RANK_EXITED,
)
"""The most specific first (DIAGNOSIS, logs, rule 5)."""

KERNEL = ("xid", "kernel_oom")
A_DAY_S = 16 * 3600.0
"""A kernel's clock is the host's, perhaps in another zone: what is further away is of another run."""

AFTERMATH_XIDS = frozenset((45,))
"""What the driver says when it cleans up after something else."""

INFORMING_XIDS = frozenset((63, 64, 92, 94))
"""Recovered, or noted for the next reset: a cause only if something broke on that card."""

_CORRUPT_TYPES = (
    *("UnidentifiedImageError", "BadZipFile", "BadGzipFile", "UnpicklingError", "JSONDecodeError"),
    *("ArrowInvalid", "SafetensorError", "UnicodeDecodeError", "ParquetError", "LibsndfileError"),
    *("CorruptedDataError", "DataCorruptionError", "ChecksumError", "ZstdError", "LZMAError"),
)
"""What names of exceptions end with."""
_CORRUPT_WORDS = Phrase(
    r"checksum mismatch|crc(?:32)? mismatch|corrupt(?:ed)? (?:file|shard|record|sample|data|index|image)|"
    r"(?:file|shard|image|record|tar) is (?:corrupt|truncated)|manifest (?:mismatch|"
    r"does not match)|schema mismatch|truncated (?:file|shard|record)",
    *("mismatch", "corrupt", "truncated", "does not match"),
    ignore_case=True,
)
_STORAGE_TYPES = (
    *("AISBatchLoaderError", "AISError", "AISRetryableError", "MaxRetryError", "EndpointConnectionError"),
    *("ClientError", "ReadTimeoutError", "ConnectTimeoutError", "ConnectionClosedError", "RetryError"),
    *("IncompleteReadError", "IncompleteRead", "ProtocolError", "ChunkedEncodingError", "BotoCoreError"),
    *("NoCredentialsError", "ServiceUnavailable", "TooManyRequests"),
)
"""What names of exceptions end with."""
_STORAGE_WORDS = Phrase(
    r"Errno (?:5|28|30|107|116|121|122)\b|No space left on device|Disk quota exceeded|Input/output error|"
    r"Stale file handle|Read-only file system|Max retries exceeded|retries exhausted|"
    r"SlowDown|503 Service Unavailable",
    *("errno ", "no space left", "disk quota", "input/output", "stale file", "read-only file"),
    *("max retries", "retries exhausted", "slowdown", "503 service"),
    ignore_case=True,
)
_CHECKPOINT_WORDS = Phrase(
    r"checkpoint|ckpt|torch\.save|PytorchStreamWriter|\.distcp\b|unexpected pos \d",
    *("checkpoint", "ckpt", "torch.save", "pytorchstreamwriter", ".distcp", "unexpected pos"),
    ignore_case=True,
)
_NOT_FINITE = Phrase(
    r"found (?:NaN|Inf)\b|\b(?:NaN|Inf) (?:in|loss|grad)|"
    r"(?:loss|grad(?:ient)?s?(?: norm)?) (?:is|are|was|became) (?:NaN|Inf|not finite)|"
    r"non-finite (?:loss|grad)",
    *("nan", "inf", "not finite", "non-finite"),
    ignore_case=True,
)
_HOST_MEMORY = Phrase(
    r"DataLoader worker \(pid.{0,30}killed by signal: (Killed|Bus error)|Cannot allocate memory|"
    r"(?<![A-Za-z])MemoryError|node running low on memory",
    *("DataLoader worker", "Cannot allocate", "MemoryError", "running low"),
)


@dataclass(frozen=True)
class Failure:
    """One break. `rank` is None where only the `hosts` are known; `sure`: its rank may be convicted.

    `event` is the line that says most; `first` the earliest of its `voices`. `signal` is a name.
    """

    kind: Kind
    rank: int | None
    sure: bool
    event: Event
    voices: tuple[Event, ...]
    how: str | None = None
    site: str | None = None
    signal: str | None = None
    hosts: tuple[str, ...] = ()
    ranks: tuple[int, ...] = ()

    @property
    def accused(self) -> tuple[int, ...]:
        """Its ranks: those of `ranks`, else `rank`; none where only hosts are known."""
        return self.ranks or ((self.rank,) if self.rank is not None else ())

    @property
    def first(self) -> Event:
        """The earliest of its lines, by time where known, else by place."""
        dated = [e for e in self.voices if e.at is not None and e.precision_s < 60]
        return min(dated, key=lambda e: e.at or 0.0) if dated else self.voices[0]

    @property
    def order(self) -> int:
        """How specific it is; smaller is more."""
        return ORDER.index(self.kind)

    @property
    def blind(self) -> bool:
        """Whether only an end is known, not its cause."""
        return self.kind is Kind.RANK_EXITED and self.how != "exception"


@dataclass
class Found:
    """Failures by rank, those without one, and the symptoms with their reasons."""

    failures: list[Failure] = field(default_factory=list)
    symptoms: list[Event] = field(default_factory=list)


def find_failures(story: Story) -> Found:
    """All breaks of the last attempt that may be causes."""
    found = Found()
    loose: list[Failure] = []
    for event in story.events:
        failure = _failure(event, story)
        if failure is None:
            continue
        because = why_symptom(event, story)
        if because is not None:
            found.symptoms.append(event.as_symptom(because))
        else:
            loose.append(failure)
    found.failures = _aftermath_dropped(_merged(loose, story), story, found)
    return found


def _failure(event: Event, story: Story) -> Failure | None:
    make = _MAKERS.get(event.what)
    return make(event, story) if make else None


def _of(kind: Kind, event: Event, **more: object) -> Failure:
    sure = event.strong
    hosts = (event.host,) if event.host else ()
    return Failure(kind, event.rank, sure, event, (event,), **{"hosts": hosts, **more})  # type: ignore[arg-type]


def _xid(event: Event, story: Story) -> Failure | None:
    code = event.numbers["xid"]
    if code in AFTERMATH_XIDS:
        return None
    kind = (
        Kind.HARDWARE_FAULT if code in HARDWARE_XIDS else Kind.DEVICE_ASSERT if code in (13, 31, 43) else None
    )
    if kind is None or not _of_this_run(event, story) or _quoted(event, story):
        return None
    if kind is Kind.DEVICE_ASSERT and _foreign(event, story):
        return None
    return _of(kind, event, how=f"xid_{code}")


def _quoted(event: Event, story: Story) -> bool:
    """Whether a kernel's words stand in a log of the job itself, which went on after them."""
    own = any(e.what == "step" and e.file == event.file for e in story.of("step"))
    return own and story.later_step(event) is not None


def _of_this_run(event: Event, story: Story) -> bool:
    """Whether a kernel's line can be of the job's time: zones and clocks differ by hours, not by a day."""
    times = [
        e.at
        for e in story.events
        if e.at is not None
        and e.what not in KERNEL
        and e.precision_s < 60
        and story.clocks[e.file].date in DATED
    ]
    own = event.at is not None and event.precision_s < 60 and story.clocks[event.file].date in DATED
    if event.at is None or not own or not times:
        return True
    return min(times) - A_DAY_S < event.at < max(times) + A_DAY_S


def _foreign(event: Event, story: Story) -> bool:
    """Whether a process that the kernel names is none of the job's, as far as those are known."""
    pid = event.numbers.get("pid")
    if pid is None:
        return False
    own = {p: r for (host, p), r in story.census.pids.items() if host in ("", event.host or "")}
    known = {r for r in own.values() if r is not None}
    if event.rank is not None:
        return pid not in own and event.rank in known
    return pid not in own and bool(known) and len(known) >= story.census.size


def _ecc(event: Event, story: Story) -> Failure:
    return _of(Kind.HARDWARE_FAULT, event, how="ecc")


def _kernel_oom(event: Event, story: Story) -> Failure | None:
    if not _of_this_run(event, story):
        return None
    killed = any(exit_code(e)[1] == 9 for e in story.of("exit", "block_exit", "task_end"))
    if story.later_step(event):
        return None
    if event.rank is None and (_foreign(event, story) or (not killed and story.of("completed"))):
        # Nobody of the job is known to have been killed: the process may be anybody's.
        return None
    return _of(Kind.HOST_OOM, event, how="oom_killed")


def _device_oom(event: Event, story: Story) -> Failure:
    return _of(Kind.DEVICE_OOM, event)


def _device_assert(event: Event, story: Story) -> Failure:
    return _of(Kind.DEVICE_ASSERT, event)


def _cuda(event: Event, story: Story) -> Failure:
    return _of(Kind.RANK_EXITED, event, how="exception")


def _loader(event: Event, story: Story) -> Failure:
    return _of(Kind.HOST_OOM, event, how=event.words.get("how"), site="dataloader")


def _bad_alloc(event: Event, story: Story) -> Failure:
    return _of(Kind.HOST_OOM, event, how="exception")


def _shell(event: Event, story: Story) -> Failure:
    """A shell or DeepSpeed's launcher on an end: which rank it was, they do not say."""
    _, number = exit_code(event)
    failure = _of(
        Kind.RANK_EXITED, event, how="signal" if number else "exit_code", signal=_signal_name(number)
    )
    return dataclasses.replace(failure, rank=None, sure=False)


def _shared(event: Event, story: Story) -> Failure:
    return _of(Kind.HOST_OOM, event, how="shared_memory")


def _node(event: Event, story: Story) -> Failure:
    host = event.words.get("host")
    ranks = tuple(sorted(r for r, h in story.census.hosts.items() if host and (h == host)))
    return Failure(
        Kind.NODE_LOST, None, bool(ranks), event, (event,), hosts=(host,) if host else (), ranks=ranks
    )


def _cancelled(event: Event, story: Story) -> Failure | None:
    """A job cancelled for a node's failure: the node that reports it lives; which one failed, others say."""
    if not event.words.get("reason", "").startswith("NODE FAIL"):
        return None
    return Failure(Kind.NODE_LOST, None, False, event, (event,))


def _ais(event: Event, story: Story) -> Failure:
    return _of(Kind.STORAGE_FAILURE, event, site="dataloader")


def _retry(event: Event, story: Story) -> Failure | None:
    if event.numbers["try"] < event.numbers["of"] or event.numbers["of"] < 2:
        return None
    if story.later_step(event) is not None:
        return None
    return _of(Kind.STORAGE_FAILURE, event, site="dataloader")


_OTHER_RANKS = re.compile(r"\b[Rr](?:ank|ANK)s?[ :=#]{0,2}(?:dict_keys\(\[)?(\d{1,7})\b|\brank(\d{1,7})\b")


def _exception(event: Event, story: Story) -> Failure:
    """An exception; one that speaks of other ranks says nothing against who raised it."""
    failure = _kind_of_exception(event, story)
    said = f"{event.text} {event.words.get('said', '')}"
    named = {int(a or b) for a, b in _OTHER_RANKS.findall(said[:1000])} - {event.rank}
    if not named or event.rank is None:
        return failure
    known = tuple(sorted(r for r in named if r < max(story.census.size, 1)))
    return dataclasses.replace(failure, sure=False, ranks=known)


def _kind_of_exception(event: Event, story: Story) -> Failure:
    """An exception by what it says and where it was raised."""
    said, name = event.words.get("said", ""), event.words.get("type", "").rsplit(".", 1)[-1]
    whole = f"{name}: {said}"
    in_checkpoint = event.words.get("in") == "checkpoint" or bool(_CHECKPOINT_WORDS.search(whole))
    storage = name.endswith(_STORAGE_TYPES) or bool(_STORAGE_WORDS.search(whole))
    if found := _HOST_MEMORY.search(whole):
        how = "shared_memory" if found[1] == "Bus error" else "oom_killed" if found[1] else None
        return _of(Kind.HOST_OOM, event, how=how)
    if in_checkpoint and (storage or "unexpected pos" in said or "PytorchStreamWriter" in said):
        return _of(Kind.CHECKPOINT_FAILED, event, how="exception", site="checkpoint")
    if _NOT_FINITE.search(whole):
        return _not_finite(event, story)
    if name.endswith(_CORRUPT_TYPES) or _CORRUPT_WORDS.search(whole):
        return _of(Kind.DATA_CORRUPT, event, how="exception", site=event.words.get("in"))
    if storage or (
        event.words.get("in") == "dataloader" and re.search(r"Connection|Timeout|timed out", whole)
    ):
        return _of(Kind.STORAGE_FAILURE, event, how="exception", site=event.words.get("in"))
    failure = _of(Kind.SOFTWARE_ERROR, event, how="exception", site=event.words.get("in"))
    fatal = "traced" in event.words or event.rank_from in (RankFrom.PREFIX, RankFrom.BLOCK)
    # Outside of a traceback it may be a line about an error that was handled.
    return failure if fatal else dataclasses.replace(failure, sure=False)


def _exit(event: Event, story: Story) -> Failure:
    _, number = exit_code(event)
    signal = _signal_name(number)
    failure = _of(Kind.RANK_EXITED, event, how="signal" if number else "exit_code", signal=signal)
    sure = "damaged" not in event.words and _others_lived(event, story)
    return dataclasses.replace(failure, sure=failure.sure and sure)


def _others_lived(event: Event, story: Story) -> bool:
    """Whether others were still there when a rank ended: of ranks that died together a launcher names one."""
    pid = event.numbers.get("pid")
    closed = any(e.numbers.get("pid") != pid for e in story.of("closing"))
    lost = any(
        e.rank not in (None, event.rank) and not (e.what == "exception" and is_wrapper(e))
        for e in story.of(*OF_OTHERS, "exception")
    )
    listed = any(e.rank != event.rank for e in story.of("block_exit"))
    return closed or lost or listed or story.world_size == 1


def _task(event: Event, story: Story) -> Failure | None:
    """srun's word on tasks: ranks only where every rank is a task of its own."""
    host = event.words.get("host")
    tasks = event.named if story.census.tasks_are_ranks else ()
    rank = tasks[0] if len(tasks) == 1 else None
    how = event.words.get("how", "")
    kind = Kind.HOST_OOM if how == "Out Of Memory" else Kind.RANK_EXITED
    _, number = exit_code(event)
    placed = dataclasses.replace(event, rank=rank, rank_from=None)
    # srun's own clean-up kills look like any other.
    sure = rank is not None and (kind is Kind.HOST_OOM or number != 9 or _all_lost_it(rank, story))
    return Failure(
        kind, rank, sure, placed, (placed,),
        how="oom_killed" if kind is Kind.HOST_OOM else "signal" if number else "exit_code",
        signal=_signal_name(number), hosts=(host,) if host else (), ranks=tasks,
    )  # fmt: skip


def _all_lost_it(rank: int, story: Story) -> bool:
    """Whether every other rank says for itself that it lost others."""
    return bool(story.world_size) and all(
        any(e.what in OF_OTHERS or (e.what == "exception" and is_communication(e)) for e in story.of_rank(r))
        for r in story.others((rank,))
    )


def _slurm_oom(event: Event, story: Story) -> Failure:
    return _of(Kind.HOST_OOM, event, how="oom_killed")


def _not_finite(event: Event, story: Story) -> Failure:
    return _of(Kind.LOSS_NOT_FINITE, event, how="exception")


def _crash(event: Event, story: Story) -> Failure | None:
    if event.text.startswith("traceback"):
        return None
    return (
        _of(Kind.RANK_EXITED, event, how="signal", signal="SIGSEGV")
        if "egmentation" in event.text or "SEGV" in event.text
        else None
    )


def _storage(event: Event, story: Story) -> Failure | None:
    """A bare line of a full or broken store, where no exception repeats it."""
    if story.later_step(event) is not None or event.rank is None:
        return None
    in_checkpoint = bool(_CHECKPOINT_WORDS.search(event.text))
    return _of(
        Kind.CHECKPOINT_FAILED if in_checkpoint else Kind.STORAGE_FAILURE, event, how=event.words.get("how")
    )


_MAKERS = {
    "xid": _xid,
    "ecc": _ecc,
    "kernel_oom": _kernel_oom,
    "device_oom": _device_oom,
    "device_assert": _device_assert,
    "cuda_launch": _cuda,
    "cuda_other": _cuda,
    "loader_death": _loader,
    "shared_memory": _shared,
    "node_lost": _node,
    "cancelled": _cancelled,
    "ais_loader": _ais,
    "retry": _retry,
    "exception": _exception,
    "exit": _exit,
    "block_exit": _exit,
    "task_end": _task,
    "slurm_oom": _slurm_oom,
    "crash": _crash,
    "storage": _storage,
    "bad_alloc": _bad_alloc,
    "shell_killed": _shell,
    "return_code": _shell,
}


def _signal_name(number: int | None) -> str | None:
    import signal

    return signal.Signals(number).name if number in set(signal.Signals) else None


def _merged(loose: Sequence[Failure], story: Story) -> list[Failure]:
    """One failure a rank: its most specific voice, with the others beside it."""
    by_rank: dict[int, list[Failure]] = {}
    unplaced: list[Failure] = []
    for failure in loose:
        if failure.rank is None:
            unplaced.append(failure)
        else:
            by_rank.setdefault(failure.rank, []).append(failure)
    merged = [_one(group) for group in by_rank.values()]
    return _with_unplaced(merged, unplaced, story)


def _one(group: Sequence[Failure]) -> Failure:
    best = min(group, key=lambda f: (f.order, f.how != "exception", not f.sure))
    voices = tuple(dict.fromkeys((*best.voices, *(e for f in group for e in f.voices))))
    return dataclasses.replace(
        best,
        sure=any(f.sure for f in group),
        voices=voices,
        how=best.how or next((f.how for f in group if f.how), None),
        signal=best.signal
        or (next((f.signal for f in group if f.signal), None) if best.kind is Kind.RANK_EXITED else None),
        site=best.site or next((f.site for f in group if f.site), None),
        hosts=tuple(dict.fromkeys(h for f in group for h in f.hosts)),
    )


def _with_unplaced(merged: list[Failure], unplaced: Iterable[Failure], story: Story) -> list[Failure]:
    """Join what only a host is known of to the one rank there that ended of it, else let it stand alone.

    An end without a rank says nothing that another failure does not; nor does one of a rank's own kind.
    """
    result = list(merged)
    for failure in unplaced:
        fits = [f for f in result if f.rank is not None and _explains(failure, f, story)]
        if len(fits) == 1 and failure.kind is not Kind.NODE_LOST:
            result.remove(fits[0])
            joined = _one((dataclasses.replace(failure, rank=fits[0].rank, sure=False), fits[0]))
            # A card that could not be told by its bus id is that rank's by guess only.
            guessed = failure.kind in (Kind.HARDWARE_FAULT, Kind.DEVICE_ASSERT)
            result.append(dataclasses.replace(joined, sure=joined.sure and not guessed))
            continue
        same = [f for f in result if f.kind is failure.kind]
        if failure.kind is Kind.NODE_LOST and same:
            result = [_one((f, failure)) if f is same[0] else f for f in result]
            continue
        told = any(f.rank is not None or f.hosts == failure.hosts for f in same)
        if not told and not (failure.kind is Kind.RANK_EXITED and result):
            result.append(failure)
    return result


def _explains(cause: Failure, end: Failure, story: Story) -> bool:
    """Whether a host's failure may be why a rank of that host ended."""
    if cause.hosts and end.hosts and cause.hosts[0] not in end.hosts:
        return False
    if cause.hosts and not end.hosts and len({*story.census.hosts.values()}) > 1:
        return False
    if cause.kind is Kind.HOST_OOM:
        return end.signal == "SIGKILL" or end.kind is Kind.HOST_OOM
    return (
        cause.kind in (Kind.HARDWARE_FAULT, Kind.DEVICE_ASSERT)
        and end.how == "exception"
        and end.kind
        in (
            Kind.RANK_EXITED,
            Kind.DEVICE_ASSERT,
            Kind.HARDWARE_FAULT,
        )
    )


def _aftermath_dropped(failures: Sequence[Failure], story: Story, found: Found) -> list[Failure]:
    """Leave out what came after a hang had ended in timeouts: it is what the abort makes of everybody."""
    timeouts = story.of("watchdog_timeout", "barrier_missed")
    kept: list[Failure] = []
    for failure in failures:
        late = next((t for t in timeouts if story.before(t, failure.first)), None)
        own = any(t.rank == failure.rank and t.rank is not None for t in timeouts)
        informing = failure.event.what == "xid" and failure.event.numbers["xid"] in INFORMING_XIDS
        if informing and len(failure.voices) == 1 and not _broke(failure, story):
            continue
        if late is None and not (own and failure.blind):
            kept.append(failure)
            continue
        why = f"it came after the timeout at {late.place}" if late else "its own watchdog had given up"
        found.symptoms.append(failure.event.as_symptom(why))
    return kept


def _broke(failure: Failure, story: Story) -> bool:
    return any(
        e.rank == failure.rank and e.what in ("cuda_launch", "cuda_other", "watchdog_timeout", "nccl_error")
        for e in story.events
    )
