"""What kind of job wrote these logs, read from the beginnings of its files, where it introduces itself."""

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice

from harness.diagnose.logs import heads_rules as rules
from harness.diagnose.logs.heads_facts import Fact, Stated, settle
from harness.diagnose.logs.heads_world import Member, World, homes, pci_address, read_world

MAX_LINES = 400
MAX_LINE_CHARS = 4096
MAX_TEXT_CHARS = 300
MAX_SOURCES = 20
MAX_CLOCK_COLUMN = 40
"""Where a bare time of day still begins a line, behind prefixes."""

_NAMES = frozenset((*rules.FRAMEWORKS, *rules.PURPOSES))
"""Keys of rules whose first line is all that matters."""


def _by_needle() -> dict[str, list[rules.Rule]]:
    found: dict[str, list[rules.Rule]] = defaultdict(list)
    for rule in rules.ALL_RULES:
        found[rule.needle].append(rule)
    return dict(found)


_BY_NEEDLE = _by_needle()
_MAY_BE_ANSI = re.compile(r"\x1b|\[[0-9;]{1,12}m")


@dataclass(frozen=True)
class Place:
    """One process as NCCL names it. `rank` is global, and None where that is not sure; `pci` as in XIDs."""

    host: str
    pid: int
    device: int
    pci: str
    file: str
    line: int
    rank: int | None = None


@dataclass(frozen=True)
class JobHead:
    """The job as its logs introduce it; see `Fact` for what is unknown and what is contradicted.

    `frameworks`: all that were seen, the most specific first; `framework` is the first of them.
    `world_is_least`: nothing states the world's size, there may be more ranks than it says.
    `hosts` and `pci` are by global rank. `layout`: ranks a group by axis (tensor, pipeline, context, expert,
    data). `started`: each file's first time as it is written. `sources`: where data is read from.
    """

    framework: Fact[str] = field(default_factory=Fact)
    frameworks: tuple[Stated[str], ...] = ()
    purpose: Fact[str] = field(default_factory=Fact)
    world_size: Fact[int] = field(default_factory=Fact)
    world_is_least: bool = False
    nodes: Fact[int] = field(default_factory=Fact)
    ranks_per_node: Fact[int] = field(default_factory=Fact)
    hosts: Mapping[int, Stated[str]] = field(default_factory=dict)
    pci: Mapping[int, Stated[str]] = field(default_factory=dict)
    places: tuple[Place, ...] = ()
    layout: Mapping[str, Fact[int]] = field(default_factory=dict)
    started: tuple[Stated[str], ...] = ()
    resumed_from: Fact[str] = field(default_factory=Fact)
    resumed_step: Fact[int] = field(default_factory=Fact)
    sources: tuple[Stated[str], ...] = ()
    versions: Mapping[str, Fact[str]] = field(default_factory=dict)


def read_heads(heads: Mapping[str, Sequence[tuple[int, str]]]) -> JobHead:
    """Read the first lines of every file: ``{file: [(line number from 1, text), ...]}``.

    Lines may carry any prefix. Sizes of groups, of batches and of one node are never taken for the world's.
    """
    seen = _Seen()
    for file, lines in heads.items():
        given = [(number, text[:MAX_LINE_CHARS]) for number, text in islice(lines, MAX_LINES)]
        # Most needles, and most often colours, are in no line of a file, which one look at all of them tells.
        whole = "\n".join(text for _, text in given)
        plain = _MAY_BE_ANSI.search(whole) is None
        whole = whole.lower() if plain else rules.ANSI.sub("", whole).lower()
        needles = [needle for needle in _BY_NEEDLE if needle in whole]
        for number, text in given:
            seen.read(file, number, text if plain else rules.ANSI.sub("", text), needles)
    return _head(seen)


class _Seen:
    """Everything that the lines state, by key."""

    def __init__(self) -> None:
        self.words: dict[str, list[Stated[str]]] = defaultdict(list)
        self.numbers: dict[str, list[Stated[int]]] = defaultdict(list)
        self.named: dict[str, Stated[str]] = {}
        self.started: dict[str, Stated[str]] = {}
        self.sources: dict[str, Stated[str]] = {}
        self.members: list[Member] = []

    def read(self, file: str, number: int, text: str, needles: Sequence[str]) -> None:
        lower = text.lower()
        for needle in needles:
            if needle in lower:
                self._apply(_BY_NEEDLE[needle], file, number, text)
        if "device mesh" in lower:
            for axis, size in _mesh(text):
                self.numbers[axis].append(Stated(size, file, number, _short(text)))
        if file not in self.started and (at := _first_time(text)):
            self.started[file] = Stated(at, file, number, _short(text))
        if len(self.sources) < MAX_SOURCES:
            for source in _sources(text):
                self.sources.setdefault(source, Stated(source, file, number, _short(text)))
        if " nranks " in text:
            self.members.extend(_members(file, number, text))

    def _apply(self, wordings: Sequence[rules.Rule], file: str, number: int, text: str) -> None:
        for rule in wordings:
            if rule.key in self.named:
                continue
            if not (found := rule.search(text)):
                continue
            value = found[1]
            if rule.key in _NAMES:
                self.named[rule.key] = Stated(rule.key, file, number, _short(text))
            elif value.isascii() and value.isdigit():
                self.numbers[rule.key].append(Stated(int(value), file, number, _short(text)))
            else:
                self.words[rule.key].append(Stated(value, file, number, _short(text)))


def _head(seen: _Seen) -> JobHead:
    world = read_world(seen.numbers, seen.members)
    placed = homes(world, seen.members)
    frameworks = tuple(seen.named[name] for name in rules.FRAMEWORKS if name in seen.named)
    purposes = [seen.named[name] for name in rules.PURPOSES if name in seen.named]
    return JobHead(
        framework=settle(frameworks[:1]),
        frameworks=frameworks,
        purpose=settle(purposes[:1]),
        world_size=world.size,
        world_is_least=world.is_least,
        nodes=_nodes(world, placed),
        ranks_per_node=world.ranks_per_node,
        hosts={rank: Stated(m.host, m.file, m.line, m.text) for rank, m in placed.items()},
        pci={rank: Stated(m.pci, m.file, m.line, m.text) for rank, m in placed.items()},
        places=_places(world, seen.members, placed),
        layout={axis: fact for axis in rules.AXES if (fact := settle(seen.numbers[axis])).stated},
        started=tuple(seen.started.values()),
        resumed_from=settle(stated for stated in seen.words["resumed"] if _is_path(stated.value)),
        resumed_step=settle(seen.numbers["resumed.step"]),
        sources=tuple(seen.sources.values()),
        versions={
            name: version
            for name in rules.VERSIONS
            if (version := settle(seen.words[f"version.{name}"])).stated
        },
    )


def _short(text: str) -> str:
    """A line as it is cited: cut, and without passwords."""
    return rules.CREDENTIALS.sub("", text.strip())[:MAX_TEXT_CHARS]


def _mesh(text: str) -> Iterator[tuple[str, int]]:
    """torchtitan's device mesh: its axes, and the world as their product."""
    if found := rules.MESH.search(text):
        names = re.findall(r"\w+", found[1])
        sizes = [int(size) for size in re.findall(r"\d{1,7}", found[2])]
    elif found := rules.MESH_BY_NAME.search(text):
        pairs = [pair.partition("=") for pair in re.findall(r"\w+=\d+", found[1])]
        # Experts share the ranks of other axes: they are no axis of the product.
        kept = [(name, size) for name, _, size in pairs if name not in ("ep", "etp")]
        names, sizes = [name for name, _ in kept], [int(size) for _, size in kept]
    else:
        return
    if len(names) != len(sizes) or len(set(names)) < len(names) or set(names) - set(rules.MESH_AXES):
        return
    axes: dict[str, int] = {}
    world = 1
    for name, size in zip(names, sizes, strict=True):
        axis = rules.MESH_AXES[name]
        world *= size
        axes[axis] = axes.get(axis, 1) * size
    if 0 < world < 10_000_000:
        yield "world", world
        yield from axes.items()


def _members(file: str, number: int, text: str) -> Iterator[Member]:
    for found in rules.NCCL_RANK.finditer(text):
        yield Member(
            found["host"],
            int(found["pid"]),
            int(found["device"]),
            pci_address(found["bus"]),
            int(found["rank"]),
            int(found["nranks"]),
            file,
            number,
            _short(text),
        )


def _places(world: World, members: Sequence[Member], placed: Mapping[int, Member]) -> tuple[Place, ...]:
    """Each process once, with its global rank where that is sure."""
    found: dict[tuple[str, int, str], Place] = {}
    for member in members:
        home = placed.get(member.rank) if member.nranks == world.size.value else None
        sure = home is not None and (home.host, home.pci) == (member.host, member.pci)
        key = (member.host, member.pid, member.pci)
        if key not in found or (sure and found[key].rank is None):
            found[key] = Place(
                member.host,
                member.pid,
                member.device,
                member.pci,
                member.file,
                member.line,
                member.rank if sure else None,
            )
    return tuple(found.values())


def _nodes(world: World, placed: Mapping[int, Member]) -> Fact[int]:
    """As stated, else the hosts of all ranks, if the place of every rank is known."""
    if world.nodes.stated or not placed or len(placed) != world.size.value:
        return world.nodes
    hosts = {member.host: member for member in placed.values()}
    return Fact(
        len(hosts), tuple(Stated(len(hosts), m.file, m.line, m.text) for m in list(hosts.values())[:4])
    )


def _first_time(text: str) -> str | None:
    found = rules.STAMP.search(text)
    if found:
        return found[0]
    clock = rules.CLOCK.search(text)
    return clock[0] if clock and clock.start() <= MAX_CLOCK_COLUMN else None


def _sources(text: str) -> Iterator[str]:
    if "://" in text:
        for found in rules.SOURCE.finditer(text):
            yield rules.CREDENTIALS.sub("", found[0]).rstrip(".")
        if endpoint := rules.ENDPOINT.search(text):
            yield rules.CREDENTIALS.sub("", endpoint[1])
    if "/" in text and rules.ABOUT_DATA.search(text) and "site-packages" not in text:
        for found in rules.DATA_PATH.finditer(text):
            if not found[0].endswith(".py"):
                yield found[0].rstrip(".")


def _is_path(text: str) -> bool:
    return "/" in text or bool(re.search(r"\.(?:ckpt|pt|pth|nemo|distcp)$|[_-]\d+$", text))
