"""Which global rank each speaker is, and which ranks left a trace at all (DIAGNOSIS, logs, rule 2).

Local ranks, tasks, processes and cards become global ranks only where something ties them together; whoever
stays unknown is known by host and local rank at best, and is convicted of nothing.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import PurePosixPath

from harness.diagnose.logs.event import STRONG, Event, RankFrom
from harness.diagnose.logs.launched import launched
from harness.diagnose.logs.reader import FileLog, Speaker

MAX_RANK = 1 << 20
Agent = tuple[str, str]
"""What one agent's local ranks are counted in: a file or run folder, and a host or label inside."""


@dataclass
class Census:
    """Ranks of one job. `world_size`: as stated or given, None if nothing states it.

    `hosts`: rank -> host. `pids`: (host or "", pid) -> rank. `buses`: (host or "", bus id) -> rank.
    `heard`: rank -> files in which it speaks. `unplaced`: hosts or files whose local ranks are not known as
    global ones. `file_ranks`: files of one rank alone. `mixed`: files in which several machines
    speak. `least`: ranks that there are at least, as communicators
    state; `launched`: as many as launchers name processes or tasks. `of_many`: files named after one rank in
    which others speak.
    """

    world_size: int | None
    hosts: dict[int, str] = field(default_factory=dict)
    pids: dict[tuple[str, int], int | None] = field(default_factory=dict)
    buses: dict[tuple[str, str], int | None] = field(default_factory=dict)
    heard: dict[int, set[str]] = field(default_factory=dict)
    shifts: dict[Agent, int] = field(default_factory=dict)
    unplaced: set[str] = field(default_factory=set)
    tasks_are_ranks: bool = False
    file_hosts: dict[str, str] = field(default_factory=dict)
    file_ranks: dict[str, int] = field(default_factory=dict)
    least: int = 0
    launched: int = 0
    of_many: set[str] = field(default_factory=set)
    mixed: set[str] = field(default_factory=set)

    @property
    def size(self) -> int:
        """The world size, or as many ranks as anything shows at least."""
        return self.world_size or max(self.least, self.launched, max(self.heard, default=-1) + 1)

    @property
    def silent(self) -> tuple[int, ...]:
        """Ranks that should be there and are not heard; none if the world size is not stated."""
        return tuple(r for r in range(self.world_size or 0) if r not in self.heard)

    def place(self, event: Event) -> tuple[int | None, RankFrom | None, str | None]:
        """An event's global rank, where it is known, what says so, and its host."""
        host = event.host or self.file_hosts.get(event.file)
        rank, source = event.rank, event.rank_from
        if source is RankFrom.GROUP and event.group is not None:
            rank = None
        if event.what in _SPOKEN_OF or (source is RankFrom.FILE and event.file in self.of_many):
            rank, source = None, None
        if event.what == "block_exit" and not self._agrees(event):
            # Lines of the block are missing: the exit code is another rank's.
            rank, source = None, None
        if rank is None or source is RankFrom.GROUP:
            rank, source = self._found(event, host) or (rank, source)
        if (rank is None or source is RankFrom.GROUP) and event.what not in _SPOKEN_OF:
            own = self.file_ranks.get(event.file)
            rank, source = (own, RankFrom.FILE) if own is not None else (rank, source)
        if rank is not None and self.world_size and rank >= self.world_size:
            rank, source = None, None
        if rank is not None and host is None:
            host = self.hosts.get(rank)
        return rank, source if rank is not None else None, host

    def _agrees(self, event: Event) -> bool:
        pid = event.numbers.get("pid")
        key = (event.host or "", pid) if pid is not None else None
        return key is None or key not in self.pids or self.pids[key] == event.rank

    def _found(self, event: Event, host: str | None) -> tuple[int, RankFrom] | None:
        if event.what == "exit" and "local_rank" in event.numbers:
            shift = self.shifts.get(agents_of(event.file, event.host, event.task, self.mixed))
            if shift is not None:
                return event.numbers["local_rank"] + shift, RankFrom.FILE
        pid = event.pid if event.what not in _PID_IN_NUMBERS else event.numbers.get("pid")
        if pid is not None and (rank := self.rank_of_pid(host, pid)) is not None:
            return rank, RankFrom.PID
        bus = event.words.get("bus")
        if bus is not None and event.what == "xid" and (rank := self.rank_of_bus(host, bus)) is not None:
            return rank, RankFrom.DEVICE
        spoken_of = event.what in _SPOKEN_OF
        local = event.numbers.get("local_rank") if spoken_of else event.local_rank
        if local is not None:
            agent = agents_of(event.file, event.host, event.task, self.mixed)
            if (shift := self.shifts.get(agent)) is not None:
                return local + shift, RankFrom.FILE
        elif event.task is not None and self.tasks_are_ranks and event.what not in _SPOKEN_OF:
            return event.task, RankFrom.TASK
        return None

    def rank_of_pid(self, host: str | None, pid: int) -> int | None:
        """The rank of a process; without a host only where there is one machine: numbers repeat on others."""
        if host and (host, pid) in self.pids:
            return self.pids[host, pid]
        return self.pids.get(("", pid)) if self.one_machine(host) else None

    def one_machine(self, host: str | None) -> bool:
        """Whether the whole job runs on one machine, as far as known, and `host` is that one or unknown."""
        machines = {*self.hosts.values(), *self.file_hosts.values()}
        whole = self.world_size is None or 2 * len(self.heard) > self.world_size
        return whole and (len(machines) == 0 or machines == {host} or (host is None and len(machines) == 1))

    def rank_of_bus(self, host: str | None, bus: str) -> int | None:
        """The rank on a card; without a host only where there is one machine: bus ids repeat on others."""
        short = short_bus(bus)
        known = {h for h, _ in self.buses if h}
        if host and (host, short) in self.buses:
            return self.buses[host, short]
        if host and host in known:
            return None
        return self.buses.get(("", short)) if self.one_machine(host) else None


_SPOKEN_OF = frozenset(
    (
        "xid",
        "kernel_oom",
        "cancelled",
        "task_end",
        "slurm_oom",
        "node_lost",
        "exit",
        "closing",
        "exit_ok",
        "return_code",
    )
)
"""Lines of a kernel, a scheduler or a launcher: whose file they stand in does not say whom they mean."""

_PID_IN_NUMBERS = frozenset(("shell_killed", "exit", "exit_ok", "closing", "kernel_oom", "xid", "block_exit"))


def agents_of(file: str, host: str | None, task: int | None, mixed: Container[str] = ()) -> Agent:
    """By what a speaker's agent is known: torchrun's folder, a label, a machine of several in one file."""
    folder = _above_attempts(file)
    if folder is not None:
        return folder, ""
    if task is not None:
        return file, f"task {task}"
    return (file, host or "") if file in mixed else (file, "")


@lru_cache(maxsize=4096)
def _above_attempts(file: str) -> str | None:
    """The folder in which torchrun put those of its attempts."""
    parts = PurePosixPath(file).parts
    at = next((i for i, part in enumerate(parts) if part.startswith("attempt_")), None)
    return str(PurePosixPath(*parts[:at])) if at is not None else None


def short_bus(bus: str) -> str:
    """A bus id as NCCL (``3b000``, ``0000:3b:00.0``) or the kernel (``0000:3b:00``) writes it, as one."""
    digits = bus.lower().split(".")[0].replace(":", "").lstrip("0")
    if ":" not in bus:
        # NCCL prints the whole id as one hexadecimal number: bus, device, function.
        digits = digits[:-1]
    return digits


def take_census(
    logs: Sequence[FileLog], stated: int | None, hosts: Mapping[int, str], buses: Mapping[int, str]
) -> Census:
    """Who is who. `hosts` and `buses`: what the heads of the logs say of ranks."""
    census = Census(stated)
    events = [event for log in logs for event in log.events]
    census.least = max(
        (e.numbers["nranks"] for e in events if e.what == "communicator"),
        default=max((e.numbers["world"] for e in events if "world" in e.numbers), default=0),
    )
    census.of_many = {log.file.name for log in logs if log.file.rank is not None and not _only_own(log)}
    _hosts(census, logs, events, hosts)
    _files_of_one_rank(census, logs)
    _shifts(census, logs, events)
    census.tasks_are_ranks = _tasks_are_ranks(census, logs, events)
    for log in logs:
        for speaker in log.speakers:
            rank = _rank_of(speaker, log, census)
            if rank is not None and 0 <= rank < (stated or MAX_RANK):
                census.heard.setdefault(rank, set()).add(log.file.name)
                if speaker.host:
                    census.hosts.setdefault(rank, speaker.host)
    for event in events:
        if event.what == "block_exit" and event.rank is not None and event.rank < (stated or MAX_RANK):
            census.heard.setdefault(event.rank, set()).add(event.file)
    _pids(census, logs, events)
    _buses(census, events, buses)
    census.launched = launched(events, tasks_are_ranks=census.tasks_are_ranks)
    return census


def _hosts(
    census: Census, logs: Sequence[FileLog], events: Iterable[Event], heads: Mapping[int, str]
) -> None:
    """Which host each rank and each file is on: as NCCL's lines, torchrun's block, names of files say."""
    census.hosts.update(heads)
    machines = {host for log in logs for s in log.speakers if (host := s.host)} | set(heads.values())
    for log in logs:
        named = {s.host for s in log.speakers if s.host}
        folder = next((p for p in reversed(PurePosixPath(log.file.name).parts[:-1]) if p in machines), None)
        if len(named) > 1:
            census.mixed.add(log.file.name)
        elif named:
            census.file_hosts[log.file.name] = named.pop() or ""
        elif log.file.host or folder:
            census.file_hosts[log.file.name] = log.file.host or folder or ""
    for event in events:
        if event.rank is not None and event.rank_from in STRONG and event.host:
            census.hosts.setdefault(event.rank, event.host)


def _files_of_one_rank(census: Census, logs: Sequence[FileLog]) -> None:
    """Files that srun wrote a task each: as many as ranks, alike but for a number, and nothing against it."""
    if not census.world_size:
        return
    stems: dict[str, list[tuple[int, FileLog]]] = defaultdict(list)
    for log in logs:
        numbers = list(_NUMBER.finditer(PurePosixPath(log.file.name).name))
        if numbers and log.file.rank is None and log.file.local_rank is None:
            last = numbers[-1]
            name = PurePosixPath(log.file.name).name
            stems[f"{name[: last.start()]}#{name[last.end() :]}"].append((int(last[0]), log))
    for found in stems.values():
        if sorted(number for number, _ in found) != list(range(census.world_size)) or len(found) < 2:
            continue
        if all(_only(number, log) for number, log in found):
            census.file_ranks.update({log.file.name: number for number, log in found})


_NUMBER = re.compile(r"\d{1,7}")


def _only_own(log: FileLog) -> bool:
    """Whether nobody but the rank in a file's name speaks in it with a prefix."""
    stated = {s.rank for s in log.speakers if s.rank_from is RankFrom.PREFIX}
    return stated <= {log.file.rank}


def _only(rank: int, log: FileLog) -> bool:
    """Whether nobody but one rank speaks in a file, as far as its lines say."""
    strong = {s.rank for s in log.speakers if s.rank is not None and s.rank_from in STRONG}
    return strong <= {rank} and not any(s.local_rank is not None or s.task is not None for s in log.speakers)


def _shifts(census: Census, logs: Sequence[FileLog], events: Iterable[Event]) -> None:
    """By how much each agent's local ranks lie below the global ones."""
    said: dict[Agent, Counter[int]] = defaultdict(Counter)
    locals_of: dict[Agent, set[int]] = defaultdict(set)
    ranks = set[int]()
    for log in logs:
        for speaker in log.speakers:
            if speaker.rank is not None and speaker.rank_from in STRONG:
                ranks.add(speaker.rank)
            if speaker.local_rank is None:
                continue
            agent = agents_of(log.file.name, speaker.host, speaker.task, census.mixed)
            locals_of[agent].add(speaker.local_rank)
            if speaker.rank is not None and speaker.rank_from in STRONG:
                said[agent][speaker.rank - speaker.local_rank] += 1
    for event in events:
        if event.what == "block_exit" and event.rank is not None and event.local_rank is not None:
            ranks.add(event.rank)
            agent = agents_of(event.file, event.host, event.task, census.mixed)
            said[agent][event.rank - event.local_rank] += 1
    for agent, counts in said.items():
        if len(counts) == 1:
            census.shifts[agent] = next(iter(counts))
    agents = set(locals_of)
    if len(agents) == 1:
        (agent,) = agents
        local = locals_of[agent]
        size = census.world_size or census.least
        beyond = max(ranks, default=0) > max(local) or size > max(local) + 1
        alone = census.world_size or not (_is_a_node(agent, logs) or _others_may_be(agent, logs))
        if agent not in said and not beyond and alone:
            census.shifts[agent] = 0
    if len(set(census.shifts.values())) == 1 and not {*census.shifts.values()} - {0}:
        _same_agent_elsewhere(census, logs, events, locals_of)
    census.unplaced = {agent[1] or agent[0] for agent in agents if agent not in census.shifts}


def _is_a_node(agent: Agent, logs: Sequence[FileLog]) -> bool:
    """Whether a file's name says that it is of one machine of several."""
    own = next((log.file for log in logs if log.file.name == agent[0]), None)
    return own is not None and (
        own.node is not None or own.host is not None or _HOST_NAME.search(own.name) is not None
    )


_HOST_NAME = re.compile(
    r"(?:^|[/_.-])[a-z]{2,}[a-z0-9]*-?[a-z]?\d{1,4}\.(?:err|out|log|stderr|stdout)(?:\.gz)?$"
)
"""``gpu-a1.err``: a machine, more likely than a run."""


def _others_may_be(agent: Agent, logs: Sequence[FileLog]) -> bool:
    """Whether files may be another agent's, whose ranks would count from 0 as well."""
    others = [log for log in logs if agents_of(log.file.name, None, None)[0] != agent[0] and log.events]
    if any(_NUMBER.sub("#", log.file.name) == _NUMBER.sub("#", agent[0]) for log in others):
        return True
    return len(others) > 1 or any(log.file.node is not None or log.file.host is not None for log in others)


def _same_agent_elsewhere(
    census: Census, logs: Sequence[FileLog], events: Iterable[Event], locals_of: Mapping[Agent, set[int]]
) -> None:
    """One agent's own log speaks of the same local ranks as its ranks' files do."""
    if len(census.shifts) != 1 or len(locals_of) > 1:
        return
    files = {event.file for event in events if event.what in ("exit", "block_exit", "closing")}
    for file in files:
        census.shifts.setdefault(agents_of(file, None, None, census.mixed), 0)


def _tasks_are_ranks(census: Census, logs: Sequence[FileLog], events: Iterable[Event]) -> bool:
    """Whether srun started each rank as a task of its own, rather than an agent a node."""
    labels = {s.task for log in logs for s in log.speakers if s.task is not None}
    both = [s for log in logs for s in log.speakers if s.task is not None and s.rank_from in STRONG]
    if any(s.local_rank is not None for log in logs for s in log.speakers if s.task is not None):
        return False
    if any(s.rank != s.task for s in both):
        return False
    if any(event.what in ("exit", "closing", "block_exit") for event in events):
        return False
    size = census.world_size or census.least or None
    if labels:
        return bool(both) or (size is not None and max(labels) + 1 == size)
    by_host: dict[str, set[int]] = defaultdict(set)
    for event in events:
        if event.what == "task_end":
            by_host[event.words.get("host", "")].update(event.named)
    return any(len(tasks) > 1 for tasks in by_host.values())


def _rank_of(speaker: Speaker, log: FileLog, census: Census) -> int | None:
    guessed = speaker.rank_from is RankFrom.FILE and log.file.name in census.of_many
    if speaker.rank is not None and speaker.rank_from in STRONG and not guessed:
        return speaker.rank
    if speaker.local_rank is not None:
        shift = census.shifts.get(agents_of(log.file.name, speaker.host, speaker.task, census.mixed))
        return speaker.local_rank + shift if shift is not None else None
    if speaker.task is not None and census.tasks_are_ranks:
        return speaker.task
    return census.file_ranks.get(log.file.name)


def _pids(census: Census, logs: Sequence[FileLog], events: Iterable[Event]) -> None:
    """Processes by number; one that two ranks have is nobody's."""

    def note(host: str | None, pid: int, rank: int | None) -> None:
        for key in {(host or "", pid), ("", pid)}:
            known = census.pids.get(key, rank)
            census.pids[key] = rank if known == rank else None

    size = census.world_size or census.least
    for log in logs:
        for speaker in log.speakers:
            rank = _rank_of(speaker, log, census)
            if rank is not None and speaker.pid is not None:
                note(speaker.host or census.file_hosts.get(log.file.name), speaker.pid, rank)
    for event in events:
        if event.what == "block_exit" and event.rank is not None and (pid := event.numbers.get("pid")):
            known = census.pids.get((event.host or "", pid), event.rank)
            if "damaged" in event.words:
                continue
            note(event.host, pid, event.rank if known == event.rank else None)
        elif event.what == "communicator" and event.pid and event.numbers["nranks"] == size:
            note(event.host, event.pid, event.numbers["rank"])
            census.heard.setdefault(event.numbers["rank"], set()).add(event.file)
        elif event.what == "exit" and (pid := event.numbers.get("pid")):
            shift = census.shifts.get(agents_of(event.file, event.host, event.task, census.mixed))
            if shift is not None:
                note(event.host, pid, event.numbers["local_rank"] + shift)


def _buses(census: Census, events: Iterable[Event], heads: Mapping[int, str]) -> None:
    """Cards by bus id, from communicators of all ranks."""

    def note(host: str | None, bus: str, rank: int) -> None:
        for key in {(host or "", short_bus(bus)), ("", short_bus(bus))}:
            known = census.buses.get(key, rank)
            census.buses[key] = rank if known == rank else None

    for rank, bus in heads.items():
        note(census.hosts.get(rank), bus, rank)
    for event in events:
        if event.what != "communicator" or "bus" not in event.words:
            continue
        whole = event.numbers["nranks"] == (census.world_size or census.least)
        own = event.rank if event.rank_from in STRONG else event.numbers["rank"] if whole else None
        if own is not None:
            rank = own
            host = event.host or census.file_hosts.get(event.file) or census.hosts.get(rank)
            note(host, event.words["bus"], rank)
            if host:
                census.hosts.setdefault(rank, host)
