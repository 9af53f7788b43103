"""Simulated training jobs that block as real ones do, and the dumps that each rank would leave.

Every rank runs a program of collectives and point-to-point calls over tensor, data, pipeline and
expert groups, several steps of several micro-batches. One thing is broken; ranks then issue and
complete what they can until nothing moves, and leave dumps in the form that torch writes.
"""

import pickle
import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

from harness.diagnose.flight.sources import DumpSource

Members = tuple[int, ...]


@dataclass(frozen=True)
class Group:
    name: str
    desc: str
    members: Members


@dataclass(frozen=True)
class Call:
    """One call of a program. `peer` is a global rank for sends and receives."""

    group: Group
    op: str
    sizes: tuple[int, ...]
    site: tuple[str, int]
    dtype: str = "Float"
    peer: int | None = None
    uneven: bool = False
    parts: tuple[tuple[int, ...], tuple[int, ...]] = ((), ())

    @property
    def p2p(self) -> bool:
        return self.peer is not None


@dataclass(frozen=True)
class Shape:
    """Sizes of the job. Ranks are numbered tensor first, then data, then pipeline."""

    tp: int = 1
    dp: int = 1
    pp: int = 1
    steps: int = 3
    microbatches: int = 2
    layers: int = 2
    described: bool = True
    even: bool = False
    experts: bool = False
    moody: bool = False
    lonely: bool = False

    @property
    def world(self) -> int:
        return self.tp * self.dp * self.pp

    def role_size(self) -> int:
        """How many ranks issue the same calls."""
        return self.tp * self.dp


@dataclass
class Entry:
    call: Call
    seq: int
    created: float
    done: bool = False
    started: bool = False


@dataclass
class Job:
    """A job while it runs. `stuck` are (group, seq) that the fabric does not carry; `frozen` kernels."""

    shape: Shape
    programs: list[list[Call]]
    depth: list[int]
    rng: random.Random
    stuck: set[tuple[str, int]] = field(default_factory=set)
    frozen: set[tuple[int, int]] = field(default_factory=set)
    entries: list[list[Entry]] = field(default_factory=list)
    clock: float = 1_700_000_000.0

    def run(self, stop_after: int | None = None) -> None:
        """Issue and complete until nothing moves, or until `stop_after` calls were issued in all."""
        world = self.shape.world
        self.entries = [[] for _ in range(world)]
        counters: list[dict[str, int]] = [{} for _ in range(world)]
        issued = 0
        while stop_after is None or issued < stop_after:
            ready = [r for r in range(world) if self._may_issue(r)]
            if not ready:
                if not self._complete():
                    return
                continue
            rank = self.rng.choice(ready)
            call = self.programs[rank][len(self.entries[rank])]
            key = ("p2p:" if call.p2p else "") + call.group.name
            counters[rank][key] = counters[rank].get(key, 0) + 1
            self.clock += 0.001
            self.entries[rank].append(Entry(call, counters[rank][key], self.clock))
            issued += 1
            if self.rng.random() < 0.5:
                self._complete()

    def _may_issue(self, rank: int) -> bool:
        mine = self.entries[rank]
        if len(mine) >= len(self.programs[rank]):
            return False
        return sum(not e.done for e in mine[-self.depth[rank] - 1 :]) < self.depth[rank]

    def _complete(self) -> bool:
        """One pass over everything that could complete; whether anything did."""
        moved = False
        waiting: dict[tuple[str, int], list[tuple[int, Entry]]] = {}
        channels: dict[tuple[str, int, int], tuple[list[Entry], list[Entry]]] = {}
        for rank, mine in enumerate(self.entries):
            blocked = False
            for at, entry in enumerate(mine):
                if entry.call.p2p:
                    peer = entry.call.peer
                    assert peer is not None
                    send = entry.call.op == "send"
                    key = (entry.call.group.name, *((rank, peer) if send else (peer, rank)))
                    channels.setdefault(key, ([], []))[0 if send else 1].append(entry)
                if entry.done:
                    continue
                entry.started = not blocked and (rank, at) not in self.frozen
                blocked = True
                if entry.started and not entry.call.p2p:
                    waiting.setdefault((entry.call.group.name, entry.seq), []).append((rank, entry))
        for (name, seq), parts in waiting.items():
            members = parts[0][1].call.group.members
            same = {(e.call.op, () if e.call.uneven else e.call.sizes, e.call.dtype) for _, e in parts}
            if len(parts) == len(members) and len(same) == 1 and (name, seq) not in self.stuck:
                for _, entry in parts:
                    entry.done = True
                moved = True
        for sends, receives in channels.values():
            for send, receive in zip(sends, receives, strict=False):
                if send.done or not (send.started and receive.started):
                    continue
                if (send.call.sizes, send.call.dtype) != (receive.call.sizes, receive.call.dtype):
                    break
                send.done = receive.done = moved = True
        return moved


def groups_of(shape: Shape) -> dict[int, dict[str, Group]]:
    """Each rank's groups by kind: world, tp, dp, pp."""
    found: dict[int, dict[str, Group]] = {r: {} for r in range(shape.world)}
    serial = 0

    def add(kind: str, members: Members) -> None:
        nonlocal serial
        desc = "default_pg" if kind == "world" else f"mesh_{kind}" if shape.described else "undefined"
        group = Group(str(serial), desc, members)
        serial += 1
        for member in members:
            found[member][kind] = group

    tp, dp, pp = shape.tp, shape.dp, shape.pp
    add("world", tuple(range(shape.world)))
    if shape.experts:
        for stage in range(pp):
            for t in range(tp):
                add("ep", tuple(stage * tp * dp + d * tp + t for d in range(dp)))
    if tp > 1:
        for block in range(dp * pp):
            add("tp", tuple(block * tp + i for i in range(tp)))
    if dp > 1:
        for stage in range(pp):
            for t in range(tp):
                add("dp", tuple(stage * tp * dp + d * tp + t for d in range(dp)))
    if pp > 1:
        for column in range(tp * dp):
            add("pp", tuple(stage * tp * dp + column for stage in range(pp)))
    return found


def programs_of(shape: Shape) -> list[list[Call]]:
    """What each rank calls when nothing is broken: GPipe-like steps, then gradients, then a norm."""
    groups = groups_of(shape)
    programs: list[list[Call]] = []
    for rank in range(shape.world):
        mine, calls = groups[rank], []
        stage = rank // (shape.tp * shape.dp)
        stride = shape.tp * shape.dp
        pipeline = mine.get("pp")
        for step in range(shape.steps):
            for batch in range(shape.microbatches):
                if pipeline and stage > 0:
                    calls.append(Call(pipeline, "recv", (512,), ("forward_recv", 10), peer=rank - stride))
                mood = _mood(mine, shape, step, batch)
                calls += _layers(mine, shape, "forward", 20, mood)
                calls += _experts(mine, rank, step, batch)
                if pipeline and stage < shape.pp - 1:
                    calls.append(Call(pipeline, "send", (512,), ("forward_send", 30), peer=rank + stride))
            for batch in range(shape.microbatches):
                if pipeline and stage < shape.pp - 1:
                    calls.append(Call(pipeline, "recv", (512,), ("backward_recv", 40), peer=rank + stride))
                calls += _layers(mine, shape, "backward", 50, _mood(mine, shape, step, batch))
                if pipeline and stage > 0:
                    calls.append(Call(pipeline, "send", (512,), ("backward_send", 60), peer=rank - stride))
            if "dp" in mine:
                for layer in range(shape.layers):
                    size = 4096 * (layer + 1)
                    calls.append(Call(mine["dp"], "_reduce_scatter_base", (size,), ("reduce_grads", 70)))
                for layer in range(shape.layers):
                    size = 1024 * (layer + 1)
                    calls.append(Call(mine["dp"], "_allgather_base", (size,), ("gather_params", 80)))
            if shape.lonely and "tp" in mine and mine["tp"].members[0] == 0:
                calls.append(Call(mine["tp"], "all_reduce", (3,), ("log_metrics", 85)))
            calls.append(Call(mine["world"], "all_reduce", (1,), ("grad_norm", 90)))
        programs.append(calls)
    return programs


def _mood(mine: dict[str, Group], shape: Shape, step: int, batch: int) -> int:
    """How long this tensor group's sequences are: data decides, and sister groups differ."""
    if not shape.moody or "tp" not in mine:
        return 0
    return random.Random(f"{mine['tp'].members} {step} {batch}").randrange(1000)


def _experts(mine: dict[str, Group], rank: int, step: int, batch: int) -> list[Call]:
    """An all-to-all whose parts depend on the data; what one sends, the other receives."""
    if "ep" not in mine:
        return []
    members = mine["ep"].members

    def part(source: int, target: int) -> int:
        return random.Random(f"{source} {target} {step} {batch}").randrange(1, 500)

    sent = tuple(part(rank, other) for other in members)
    received = tuple(part(other, rank) for other in members)
    call = Call(mine["ep"], "all_to_all", (0,), ("dispatch", 25), uneven=True, parts=(sent, received))
    return [call]


def _layers(mine: dict[str, Group], shape: Shape, function: str, line: int, mood: int = 0) -> list[Call]:
    group = mine.get("tp")
    if group is None:
        return []
    sizes = [mood + (2048 if shape.even else 2048 * (layer + 1)) for layer in range(shape.layers)]
    return [Call(group, "all_reduce", (size,), (function, line)) for size in sizes]


Break = Callable[["Scenario", random.Random], None]


@dataclass
class Scenario:
    """One incident: what was broken, and the job after it stood still."""

    fault: str
    shape: Shape
    seed: int
    culprit: int = -1
    at: int = -1
    job: Job = field(init=False)
    lost: set[int] = field(default_factory=set)
    still_running: bool = False

    def __post_init__(self) -> None:
        rng = random.Random(f"{self.fault} {self.shape} {self.seed}")
        depth = [rng.choice((1, 1, 2, 4)) for _ in range(self.shape.world)]
        self.job = Job(self.shape, programs_of(self.shape), depth, rng)
        self.culprit = rng.randrange(self.shape.world)
        stop = FAULTS[self.fault](self, rng)
        self.job.run(stop)
        self.still_running = self.fault == "snapshot"

    @property
    def program(self) -> list[Call]:
        """The culprit's calls."""
        return self.job.programs[self.culprit]

    def pick(self, rng: random.Random, wanted: Callable[[Call], bool] = lambda call: True) -> int:
        """A position in the culprit's program, past its first step."""
        length = len(self.program)
        first = length // self.shape.steps
        places = [i for i in range(first, length - 1) if wanted(self.program[i])]
        if not places:
            places = [i for i in range(length - 1) if wanted(self.program[i])]
        self.at = rng.choice(places)
        return self.at

    def dumps(
        self,
        ring: int = 2000,
        timing: bool = False,
        stacks: bool = True,
        skew: bool = True,
        backend: str = "nccl",
        waited_s: float = 600.0,
    ) -> dict[int, dict[str, object]]:
        """What every rank that still can would write."""
        rng = random.Random(self.seed)
        groups = groups_of(self.shape)
        found: dict[int, dict[str, object]] = {}
        for rank, mine in enumerate(self.job.entries):
            if rank in self.lost:
                continue
            shift = rng.randrange(1000) if skew else 0
            records = [self._record(rank, i + 0, e, timing, stacks, backend) for i, e in enumerate(mine)]
            kept = records[-ring:]
            if len(kept) == len(records):
                shift = 0
            for record in kept:
                record["record_id"] = int(str(record["record_id"])) + shift
            found[rank] = {
                "version": "2.10",
                "entries": kept,
                "pg_config": {
                    g.name: {"name": g.name, "desc": g.desc, "ranks": str(list(g.members))}
                    for g in groups[rank].values()
                },
                "pg_status": {},
            }
        return found

    def _record(
        self, rank: int, number: int, entry: Entry, timing: bool, stacks: bool, backend: str
    ) -> dict[str, object]:
        call = entry.call
        name = f"{backend}:{call.op}"
        if call.peer is not None:
            here, there = call.group.members.index(rank), call.group.members.index(call.peer)
            name += f" {here}->{there}" if call.op == "send" else f" {here}<-{there}"
        state = "completed" if entry.done else "started" if timing and entry.started else "scheduled"
        frames = [
            {
                "name": call.op,
                "filename": "/x/site-packages/torch/distributed/distributed_c10d.py",
                "line": 1,
            },
            {"name": call.site[0], "filename": "/job/train.py", "line": call.site[1]},
            {"name": "main", "filename": "/job/train.py", "line": 1},
        ]
        return {
            "record_id": number,
            "process_group": (call.group.name, call.group.desc),
            "profiling_name": name,
            "input_sizes": [[n] for n in call.parts[0]] or [list(call.sizes)],
            "output_sizes": [[n] for n in call.parts[1]] or [list(call.sizes)],
            "input_dtypes": [call.dtype] * (len(call.parts[0]) or 1),
            "output_dtypes": [call.dtype] * (len(call.parts[1]) or 1),
            "state": state,
            "frames": frames if stacks else [],
            "time_created_ns": int(entry.created * 1e9),
            "retired": entry.done,
            "is_p2p": call.p2p,
            "collective_seq_id": 0 if call.p2p else entry.seq,
            "p2p_seq_id": entry.seq if call.p2p else 0,
        }

    def sources(self, **options: object) -> list[DumpSource]:
        """Dumps as the analyzer takes them, in random order."""
        waited = float(str(options.pop("waited_s", 600.0)))
        dumps = self.dumps(**options)  # type: ignore[arg-type]
        order = list(dumps)
        random.Random(self.seed).shuffle(order)
        return [_source(rank, dumps[rank], self.job.clock + waited) for rank in order]

    def write(self, folder: Path, prefix: str = "nccl_trace_rank_") -> None:
        """Dumps as files."""
        folder.mkdir(parents=True, exist_ok=True)
        for rank, dump in self.dumps().items():
            (folder / f"{prefix}{rank}").write_bytes(pickle.dumps(dump))


def _source(rank: int, dump: dict[str, object], written: float) -> DumpSource:
    data = pickle.dumps(dump)
    return DumpSource(f"rank_{rank}", rank, written, len(data), lambda: data)


def _collective(call: Call) -> bool:
    return not call.p2p and not call.uneven


def _skip(s: Scenario, rng: random.Random) -> None:
    del s.program[s.pick(rng, _collective)]


def _extra(s: Scenario, rng: random.Random) -> None:
    at = s.pick(rng, _collective)
    call = s.program[at]
    s.program.insert(at, replace(call, op="all_reduce", sizes=(1,), site=("_check_batch", 777)))


def _duplicate(s: Scenario, rng: random.Random) -> None:
    at = s.pick(rng, _collective)
    s.program.insert(at, s.program[at])


def _size(s: Scenario, rng: random.Random) -> None:
    at = s.pick(rng, _collective)
    s.program[at] = replace(s.program[at], sizes=(s.program[at].sizes[0] + 7,))


def _dtype(s: Scenario, rng: random.Random) -> None:
    at = s.pick(rng, _collective)
    s.program[at] = replace(s.program[at], dtype="Half")


def _type(s: Scenario, rng: random.Random) -> None:
    at = s.pick(rng, _collective)
    s.program[at] = replace(s.program[at], op="broadcast")


def _order(s: Scenario, rng: random.Random) -> None:
    program = s.program
    places = [
        i
        for i in range(len(program) // s.shape.steps, len(program) - 2)
        if program[i].group != program[i + 1].group and not program[i].p2p and not program[i + 1].p2p
    ]
    s.at = rng.choice(places)
    program[s.at], program[s.at + 1] = program[s.at + 1], program[s.at]


def _stall(s: Scenario, rng: random.Random) -> None:
    del s.program[s.pick(rng) :]


def _lost(s: Scenario, rng: random.Random) -> None:
    _stall(s, rng)
    s.lost.add(s.culprit)


def _fabric(s: Scenario, rng: random.Random) -> None:
    at = s.pick(rng, _collective)
    call = s.program[at]
    seq = sum(c.group == call.group and not c.p2p for c in s.program[: at + 1])
    s.job.stuck.add((call.group.name, seq))


def _gpu(s: Scenario, rng: random.Random) -> None:
    s.job.frozen.add((s.culprit, s.pick(rng, lambda call: _collective(call) and len(call.group.members) > 2)))


def _microbatch(s: Scenario, rng: random.Random) -> None:
    """One forward and one backward micro-batch more, in some step past the first."""
    length = len(s.program) // s.shape.steps
    per = length_of_microbatch(s)
    step = rng.randrange(1, s.shape.steps)
    start = step * length
    block = s.program[start : start + per]
    s.at = start + per * s.shape.microbatches
    s.program[s.at : s.at] = block


def _fewer(s: Scenario, rng: random.Random) -> None:
    length = len(s.program) // s.shape.steps
    per = length_of_microbatch(s)
    s.at = rng.randrange(1, s.shape.steps) * length
    del s.program[s.at : s.at + per]


def length_of_microbatch(s: Scenario) -> int:
    """Calls of the culprit's forward micro-batch."""
    stage = s.culprit // (s.shape.tp * s.shape.dp)
    p2p = (stage > 0) + (stage < s.shape.pp - 1) if s.shape.pp > 1 else 0
    return p2p + (s.shape.layers if s.shape.tp > 1 else 0) + s.shape.experts


def _is_send(call: Call) -> bool:
    return call.op == "send"


def _p2p_missing(s: Scenario, rng: random.Random) -> None:
    del s.program[s.pick(rng, lambda call: call.p2p)]


def _p2p_size(s: Scenario, rng: random.Random) -> None:
    at = s.pick(rng, _is_send)
    s.program[at] = replace(s.program[at], sizes=(s.program[at].sizes[0] + 3,))


def _healthy(s: Scenario, rng: random.Random) -> None:
    s.culprit = -1


def _snapshot(s: Scenario, rng: random.Random) -> int:
    s.culprit = -1
    total = sum(len(program) for program in s.job.programs)
    return rng.randrange(total // 3, total)


FAULTS: dict[str, Callable[[Scenario, random.Random], int | None]] = {
    "skip": _skip,
    "extra": _extra,
    "duplicate": _duplicate,
    "size": _size,
    "dtype": _dtype,
    "type": _type,
    "order": _order,
    "stall": _stall,
    "lost": _lost,
    "fabric": _fabric,
    "gpu": _gpu,
    "microbatch": _microbatch,
    "fewer": _fewer,
    "p2p_missing": _p2p_missing,
    "p2p_size": _p2p_size,
    "healthy": _healthy,
    "snapshot": _snapshot,
}
