"""Finding the ranks of a job that somebody else started, from what /proc shows of its processes."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from harness.model.bundle import Uncollected
from harness.model.errors import PrerequisiteError, UsageError
from harness.model.ranks import format_ranks

_NAMES = (
    ("RANK", "LOCAL_RANK", "WORLD_SIZE"),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("PMI_RANK", "MPI_LOCALRANKID", "PMI_SIZE"),
    ("SLURM_PROCID", "SLURM_LOCALID", "SLURM_NTASKS"),
)
"""Variables of a rank, its local rank and the world: torch's own first, then what launchers set."""

_ATTEMPT = "TORCHELASTIC_RESTART_COUNT"
_PYTHON = ("python", "pt_main_thread", "pypy")
_AGENT = ("torchrun", "torch.distributed.run", "torch.distributed.launch", "torch/distributed/run.py")


@dataclass(frozen=True)
class RankProcess:
    """One rank's process. `environ` is empty where it cannot be read; `parent` is who started it.

    `started` is unix seconds; `world_size` is None where nothing says it.
    """

    rank: int
    local_rank: int
    world_size: int | None
    attempt: int
    pid: int
    parent: int
    started: float
    environ: Mapping[str, str] = field(default_factory=dict, repr=False)
    cwd: Path | None = None


@dataclass(frozen=True)
class Job:
    """The ranks of one job on this machine. `lacking` says what could not be found out, and why."""

    ranks: Mapping[int, RankProcess]
    lacking: tuple[Uncollected, ...] = ()

    @property
    def pids(self) -> dict[int, int]:
        """Rank -> pid."""
        return {rank: process.pid for rank, process in self.ranks.items()}

    @property
    def world_size(self) -> int:
        """The largest recorded world; without any, as many as the highest rank needs."""
        recorded = [process.world_size or 0 for process in self.ranks.values()]
        return max(*recorded, max(self.ranks) + 1)

    @property
    def attempt(self) -> int:
        """Which start of the ranks this is, from 0."""
        return max(process.attempt for process in self.ranks.values())

    @property
    def agents(self) -> tuple[int, ...]:
        """The parents of the ranks, each once."""
        return tuple(sorted({process.parent for process in self.ranks.values()}))


@dataclass(frozen=True)
class _Candidate:
    """A process that may be a rank. `environ` is None where it cannot be read, `why` says why."""

    process: psutil.Process
    parent: int
    started: float
    command: tuple[str, ...]
    environ: Mapping[str, str] | None
    why: str = ""

    @property
    def pid(self) -> int:
        return self.process.pid


def ranks_of_agent(pid: int) -> Job:
    """The ranks among the descendants of a torchrun.

    Raises:
        PrerequisiteError: no such process, or none of its descendants is a rank.
    """
    try:
        children = psutil.Process(pid).children(recursive=True)
    except psutil.Error:
        raise PrerequisiteError(f"--torchrun-pid {pid}: there is no such process on this machine") from None
    where = f"--torchrun-pid {pid}: among its {len(children)} descendants"
    return _job(_looked_at(children), where)


def ranks_matching(pattern: str) -> Job:
    """The ranks whose command line matches a regular expression.

    Raises:
        UsageError: not a regular expression, or ranks of several jobs match.
        PrerequisiteError: nothing that matches is a rank.
    """
    try:
        expression = re.compile(pattern)
    except re.error as error:
        raise UsageError(f"--match {pattern}: not a regular expression: {error}") from None
    ours = {process.pid for process in (psutil.Process(), *psutil.Process().parents())}
    matching = [p for p in psutil.process_iter() if p.pid not in ours and expression.search(_command(p))]
    return _job(_looked_at(matching), f"--match {pattern}: among {len(matching)} matching processes")


def ranks_among(pids: Sequence[int]) -> Job:
    """The ranks that are, or own, the given processes.

    Raises:
        PrerequisiteError: a process is not there, or none is a rank.
    """
    try:
        processes = [psutil.Process(pid) for pid in pids]
    except psutil.NoSuchProcess as error:
        raise PrerequisiteError(f"--pid {error.pid}: there is no such process on this machine") from None
    return _job(_looked_at(processes), f"--pid {','.join(map(str, pids))}:")


def _command(process: psutil.Process) -> str:
    try:
        return " ".join(process.cmdline())
    except psutil.Error:
        return ""


def _looked_at(processes: Iterable[psutil.Process]) -> list[_Candidate]:
    return [found for process in processes if (found := _look(process)) is not None]


def _look(process: psutil.Process) -> _Candidate | None:
    """What a process shows; None if it has gone."""
    try:
        parent, started, command = process.ppid(), process.create_time(), tuple(process.cmdline())
    except psutil.Error:
        return None
    try:
        return _Candidate(process, parent, started, command, process.environ())
    except psutil.AccessDenied:
        return _Candidate(process, parent, started, command, None, "not permitted")
    except (psutil.Error, OSError) as error:
        return _Candidate(process, parent, started, command, None, str(error))


def _job(candidates: list[_Candidate], where: str) -> Job:
    readable = [c for c in candidates if c.environ is not None]
    names = next((n for n in _NAMES if any(n[0] in (c.environ or {}) for c in readable)), None)
    found = _with_rank(readable, names) if names else []
    hidden = [c for c in candidates if c.environ is None]
    lacking: list[Uncollected] = []
    if not found:
        found = list(_by_order(hidden, lacking))
    elif hidden:
        pids = ", ".join(str(c.pid) for c in hidden)
        lacking.append(Uncollected(f"environment of pid {pids}", f"{hidden[0].why}: left out of the ranks"))
    if not found:
        raise PrerequisiteError(_nobody(where, hidden))
    newest = max(process.attempt for process in found)
    ranks = {p.rank: p for p in sorted(found, key=lambda p: p.rank) if p.attempt == newest}
    doubled = {p.rank for p in found if p.attempt == newest and ranks[p.rank].pid != p.pid}
    if doubled:
        agents = sorted({p.parent for p in found if p.rank in doubled})
        raise UsageError(
            f"{where} rank {format_ranks(doubled)} is there more than once: several jobs; "
            f"choose one with --torchrun-pid, one of {', '.join(map(str, agents))}"
        )
    return Job(ranks, tuple(lacking))


def _nobody(where: str, hidden: list[_Candidate]) -> str:
    if hidden:
        pids = ", ".join(str(c.pid) for c in hidden[:8])
        return (
            f"{where} no rank was found: the environment of pid {pids} cannot be read ({hidden[0].why}): "
            "run as the job's user or as root"
        )
    return (
        f"{where} no rank was found: none has RANK in the environment that it was started with; "
        "has torchrun started its ranks yet, is this the right machine?"
    )


def _with_rank(candidates: list[_Candidate], names: tuple[str, str, str]) -> list[RankProcess]:
    """One process a rank: launchers in front of it and helpers behind it are not ranks themselves."""
    chosen: dict[int, tuple[_Candidate, _Candidate]] = {}
    for candidate in candidates:
        if _number(candidate, names[0]) is not None:
            top = _topmost(candidate, names)
            rank = _python_of(top, names)
            chosen[rank.pid] = (top, rank)
    above = {parent for top, _ in chosen.values() for parent in _ancestors(top)}
    return [
        _rank_process(rank, top, names)
        for top, rank in chosen.values()
        if top.pid not in above and rank.pid not in above
    ]


def _identity(candidate: _Candidate, names: tuple[str, str, str]) -> tuple[str | None, ...]:
    """What a rank's helpers inherit, and its launcher does not have."""
    environ = candidate.environ or {}
    return tuple(environ.get(n) for n in (names[0], names[1], "TORCHELASTIC_RUN_ID", _ATTEMPT))


def _topmost(candidate: _Candidate, names: tuple[str, str, str]) -> _Candidate:
    """The first process of a rank: its wrapper script, or itself."""
    top = candidate
    for parent in candidate.process.parents():
        looked = _look(parent)
        if looked is None or _identity(looked, names) != _identity(candidate, names):
            break
        top = looked
    return top


def _python_of(top: _Candidate, names: tuple[str, str, str]) -> _Candidate:
    """The Python process behind wrappers (a shell, a profiler) that did not exec it."""
    here = top
    while not _is_python(here):
        try:
            children = _looked_at(here.process.children())
        except psutil.Error:
            return top
        alike = [c for c in children if _identity(c, names) == _identity(top, names)]
        if len(alike) != 1:
            return top
        here = alike[0]
    return here


def _is_python(candidate: _Candidate) -> bool:
    try:
        name = candidate.process.name()
    except psutil.Error:
        name = ""
    program = Path(candidate.command[0]).name if candidate.command else ""
    return name.startswith(_PYTHON) or program.startswith(_PYTHON)


def _ancestors(candidate: _Candidate) -> Iterator[int]:
    try:
        yield from (parent.pid for parent in candidate.process.parents())
    except psutil.Error:
        return


def _rank_process(rank: _Candidate, top: _Candidate, names: tuple[str, str, str]) -> RankProcess:
    number = _number(rank, names[0]) or 0
    local = _number(rank, names[1])
    try:
        cwd = Path(rank.process.cwd())
    except psutil.Error:
        cwd = None
    return RankProcess(
        rank=number,
        local_rank=number if local is None else local,
        world_size=_number(rank, names[2]),
        attempt=_number(rank, _ATTEMPT) or 0,
        pid=rank.pid,
        parent=top.parent,
        started=rank.started,
        environ=rank.environ or {},
        cwd=cwd,
    )


def _number(candidate: _Candidate, name: str) -> int | None:
    text = (candidate.environ or {}).get(name, "")
    return int(text) if text.isascii() and text.isdigit() and len(text) < 8 else None


def _by_order(hidden: list[_Candidate], lacking: list[Uncollected]) -> Iterator[RankProcess]:
    """Ranks whose environment is closed to us, numbered as an agent of a single node starts them."""
    by_agent: dict[int, list[_Candidate]] = {}
    for candidate in hidden:
        by_agent.setdefault(candidate.parent, []).append(candidate)
    agents = {pid: children for pid, children in by_agent.items() if _is_lone_agent(pid)}
    if len(agents) != 1:
        return
    ((agent, children),) = agents.items()
    children.sort(key=lambda c: (c.started, c.pid))
    lacking.append(
        Uncollected(
            f"environment of rank 0-{len(children) - 1}",
            f"{children[0].why}: ranks are numbered in the order in which the agent (pid {agent}) started "
            "them; run as the job's user or as root to be sure",
        )
    )
    for number, child in enumerate(children):
        yield RankProcess(number, number, len(children), 0, child.pid, agent, child.started)


def _is_lone_agent(pid: int) -> bool:
    """Whether a process is a torchrun that runs on this node only: its local ranks are the global ones."""
    try:
        command = psutil.Process(pid).cmdline()
    except psutil.Error:
        return False
    if not any(name in word for word in command for name in _AGENT):
        return False
    nodes = re.search(r"--nnodes[= ](\S+)", " ".join(command))
    return nodes is None or nodes.group(1) in ("1", "1:1") or "--standalone" in command
