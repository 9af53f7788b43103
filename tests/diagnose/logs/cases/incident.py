"""The writer: events of an incident in, log files in a dress out."""

import random
import zlib
from dataclasses import dataclass

from tests.diagnose.logs.cases import clock, launchers
from tests.diagnose.logs.cases.frameworks import header, step_line
from tests.diagnose.logs.cases.model import Dress, Group

LEVELS = {"I": "INFO", "W": "WARNING", "E": "ERROR", "F": "FATAL"}


@dataclass(frozen=True)
class Line:
    """One event. `t`: seconds since the start; `rank` is None for what an agent, Slurm or the kernel says."""

    t: float
    text: str
    rank: int | None = None
    node: int = 0
    src: str = "raw"
    level: str = "E"
    where: str = ""
    attempt: int = 0


class Incident:
    """A job under way. Methods add events; `files` writes them."""

    def __init__(self, dress: Dress, world: int, per_node: int, quiet: bool, lost: tuple[int, ...]) -> None:
        self.dress = dress
        self.world = world
        self.per_node = per_node
        self.lines: list[Line] = []
        self.attempt = 0
        self.last_step: int | None = None
        self.extra: dict[str, bytes] = {}
        self.default = Group(tuple(range(world)))
        self.lost = lost
        self.random = random.Random(zlib.crc32(dress.name.encode()) + world)
        if not quiet:
            self.start(0.0)

    @property
    def nodes(self) -> int:
        return -(-self.world // self.per_node)

    @property
    def ranks(self) -> range:
        return range(self.world)

    def host(self, node: int) -> str:
        return f"gpu-a{node}"

    def node(self, rank: int) -> int:
        return rank // self.per_node

    def local(self, rank: int) -> int:
        return rank % self.per_node

    def pid(self, rank: int) -> int:
        return 40000 + 1000 * self.attempt + self.local(rank)

    def bus(self, rank: int) -> str:
        """The PCI bus of a rank's device, as a kernel writes it."""
        return f"{0x1A + 0x10 * self.local(rank):02x}"

    # -- what is said ---------------------------------------------------------------------------------

    def say(
        self, t: float, rank: int, text: str, src: str = "raw", level: str = "E", where: str = ""
    ) -> None:
        self.lines.append(Line(t, text, rank, self.node(rank), src, level, where, self.attempt))

    def c10(
        self, t: float, rank: int, text: str, level: str = "E", where: str = "ProcessGroupNCCL.cpp:1834"
    ) -> None:
        """A line of torch's C++ logger."""
        self.say(t, rank, text, "c10", level, where)

    def raises(self, t: float, rank: int, text: str, at: str = "train.py", function: str = "main") -> None:
        """An uncaught Python exception with its traceback."""
        trace = (
            "Traceback (most recent call last):\n"
            f'  File "/app/{at}", line 212, in <module>\n    main()\n'
            f'  File "/app/{at}", line 187, in {function}\n    loss = step(batch)\n{text}'
        )
        self.say(t, rank, trace, "exc")

    def log(self, t: float, rank: int, text: str, level: str = "I") -> None:
        """A line of the program's own logger."""
        self.say(t, rank, f"{clock.python(t)} - train - {LEVELS[level]} - {text}")

    def nccl(self, t: float, rank: int, text: str, level: str = "INFO") -> None:
        pid = self.pid(rank)
        host = self.host(self.node(rank))
        self.say(t, rank, f"{host}:{pid}:{pid + 300} [{self.local(rank)}] NCCL {level} {text}")

    def agent(self, t: float, node: int, text: str, level: str = "W") -> None:
        self.lines.append(Line(t, text, None, node, "agent", level, "", self.attempt))

    def slurm(self, t: float, text: str, node: int = 0) -> None:
        self.lines.append(Line(t, text, None, node, "slurm", "E", "", self.attempt))

    def kernel(self, t: float, node: int, text: str) -> None:
        """A line of the kernel's log: `dmesg -T` beside files of ranks, else syslog, which names its host."""
        said = f"[{clock.ctime(t)}] "
        if self.dress.layout != "ranks":
            said = f"{clock.syslog(t)} {self.host(node)} kernel: "
        self.lines.append(Line(t, said + text, None, node, "kernel", "E", "", 0))

    def start(self, t: float) -> None:
        """Launch, banners, communicator creation."""
        launchers.banner(self, t)
        for text in header(self.dress.framework, self.world, t):
            self.say(t + 2, 0, text)
        for rank in self.ranks:
            self.nccl(
                t + 4 + rank * 1e-3,
                rank,
                f"ncclCommInitRankConfig comm 0x55d0{rank:04x}a0 rank {rank} nranks {self.world} "
                f"cudaDev {self.local(rank)} nvmlDev {self.local(rank)} busId {self.bus(rank)}000 "
                "commId 0x7d1f00aa55 - Init COMPLETE",
            )
        self.nccl(t + 4.5, 0, "Connected all rings, use ring PXN 0 GDR 1")
        self.say(
            t + 5,
            0,
            "/opt/env/lib/python3.11/site-packages/torch/nn/modules/module.py:1830: "
            "UserWarning: Using a non-full backward hook when the forward contains multiple autograd Nodes",
        )

    def restart(self, t: float) -> None:
        """The agents start all ranks anew, under new process ids."""
        for node in range(self.nodes):
            self.agent(
                t - 1,
                node,
                "[default] Worker group FAILED. 3/3 attempts left;  will restart worker group",
                "I",
            )
        self.attempt += 1
        self.start(t)

    def steps(self, t0: float, t1: float, first: int = 1, every: float = 10.0) -> int:
        """Step lines of the framework from t0 to t1; returns the last step."""
        step, t = first, t0
        while t < t1:
            self.say(
                t,
                self.world - 1 if self.dress.framework == "megatron" else 0,
                step_line(self.dress.framework, step, t),
            )
            step, t = step + 1, t + every
        self.last_step = step - 1
        return step - 1

    # -- files ----------------------------------------------------------------------------------------

    def files(self) -> dict[str, bytes]:
        out: dict[str, list[str]] = {}
        order = sorted(range(len(self.lines)), key=lambda i: (self.lines[i].t, i))
        if self.dress.shuffled:
            order = self._shuffle(order)
        for i in order:
            line = self.lines[i]
            if self._gone(line):
                continue
            name = self._name(line)
            if name is not None:
                out.setdefault(name, []).extend(self._dressed(line))
        files = {name: ("\n".join(lines) + "\n").encode() for name, lines in out.items()}
        names = sorted(files, reverse=self.dress.reverse_names)
        return {name: files[name] for name in names} | self.extra

    def streams(self) -> list[list[str]]:
        """The rows of each speaker, dressed, in the speaker's own order; the kernel's are left out."""
        out: dict[str, list[str]] = {}
        for line in sorted(self.lines, key=lambda line: line.t):
            if line.src != "kernel" and not self._gone(line):
                out.setdefault(f"{line.rank} {line.node}", []).extend(self._dressed(line))
        return list(out.values())

    def _gone(self, line: Line) -> bool:
        """A lost rank's lines, and those of an agent all of whose ranks are lost."""
        if line.rank is not None:
            return line.rank in self.lost
        mine = [r for r in self.ranks if self.node(r) == line.node]
        return line.src == "agent" and all(r in self.lost for r in mine)

    def _shuffle(self, order: list[int]) -> list[int]:
        """One file made by appending each speaker's lines: file order is not time order."""
        speakers = sorted(
            {(self.lines[i].attempt, self.lines[i].rank, self.lines[i].node) for i in order}, key=str
        )
        self.random.shuffle(speakers)
        speakers.sort(key=lambda speaker: speaker[0])
        key = {s: n for n, s in enumerate(speakers)}
        return sorted(
            order, key=lambda i: key[(self.lines[i].attempt, self.lines[i].rank, self.lines[i].node)]
        )

    def _name(self, line: Line) -> str | None:
        host = self.host(line.node)
        layout = self.dress.layout
        if line.src == "kernel":
            if layout != "ranks":
                return f"{host}.kern.log"
            return f"{host}/dmesg.txt" if self.nodes > 1 else "dmesg.txt"
        if line.src == "slurm":
            return {"ranks": "slurm-4411.out", "nodes": f"{host}.err", "one": "job-4411.log"}[layout]
        if layout == "one":
            return "job-4411.log"
        if layout == "nodes":
            return f"{host}.err"
        if line.rank is None:
            return f"agent-{host}.err" if self.dress.launcher == "torchrun" else "slurm-4411.out"
        if self.dress.launcher == "srun":
            return f"4411.{line.rank}.err"
        above = f"{host}/" if self.nodes > 1 else ""
        return f"{above}run77_k3x9/attempt_{line.attempt}/{self.local(line.rank)}/stderr.log"

    def _dressed(self, line: Line) -> list[str]:
        rows = [row for text in self._spoken(line) for row in text.split("\n")]
        if line.src == "kernel":
            return rows
        if line.rank is not None:
            rows = [self._coloured(row) for row in rows]
        if self.dress.glued and line.src == "c10" and self.random.random() < 0.4:
            rows[0] = f"Training:  31%|███▏      | 28/90 [04:41<10:22, 10.0s/it]{rows[0]}"
        prefix = launchers.prefix(self, line.rank, line.node, line.src)
        if self.dress.stamp:
            rows = [f"{clock.iso(line.t)} {row}" for row in rows]
        rows = [prefix + row for row in rows]
        if self.dress.wrapped and line.rank is not None and line.src == "c10":
            rows = [part for row in rows for part in _wrap(row)]
        if self.dress.doubled and line.src == "c10":
            rows = [*rows, *rows]
        return rows

    def _spoken(self, line: Line) -> list[str]:
        if line.src == "c10" and line.rank is not None:
            return [self._c10(line, line.rank)]
        if line.src == "exc" and line.rank is not None and self.dress.era != "old":
            return [f"[rank{line.rank}]: {row}" for row in line.text.split("\n")]
        if line.src == "agent":
            return launchers.agent_line(self, line.t, line.level, line.text)
        return [line.text]

    def _c10(self, line: Line, rank: int) -> str:
        if self.dress.era in ("new", "half"):
            stamp = clock.glog(line.t)
            return f"[rank{rank}]:[{line.level}{stamp} {line.where}] {line.text}"
        if self.dress.era == "mid":
            return f"[rank{rank}]:[{line.level} {line.where}] {line.text}"
        return f"[{line.level} {line.where}] {line.text}"

    def _coloured(self, row: str) -> str:
        if self.dress.colour == "none" or not row:
            return row
        escape = "\x1b" if self.dress.colour == "esc" else ""
        return f"{escape}[31m{row}{escape}[0m" if self.random.random() < 0.5 else row


def _wrap(row: str, width: int = 180) -> list[str]:
    """A terminal's wrapping: the line breaks in the middle of words and numbers."""
    return [row[i : i + width] for i in range(0, len(row), width)] or [""]
