"""How many ranks a job has, and which rank sits where, from what the heads of its logs state."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from harness.diagnose.logs.heads_facts import Fact, Stated, dispute, settle

Numbers = Mapping[str, Sequence[Stated[int]]]


@dataclass(frozen=True)
class Member:
    """One line of NCCL's about a rank of one communicator. `rank` counts inside that communicator."""

    host: str
    pid: int
    device: int
    pci: str
    rank: int
    nranks: int
    file: str
    line: int
    text: str


@dataclass(frozen=True)
class World:
    """`is_least`: the size is only implied by what was seen, so that there may be more ranks."""

    size: Fact[int]
    nodes: Fact[int]
    ranks_per_node: Fact[int]
    is_least: bool = False


def pci_address(bus: str) -> str:
    """NCCL's bus id, ``3b000``, as the kernel writes it: ``0000:3b:00.0``.

    Source: ncclBusIdToInt64 in NCCL's utils.cc, which reads the address without its colons and dot.
    """
    number = int(bus, 16)
    return f"{number >> 20:04x}:{number >> 12 & 0xFF:02x}:{number >> 4 & 0xFF:02x}.{number & 0xF:x}"


def read_world(numbers: Numbers, members: Sequence[Member]) -> World:
    """The world's size as it is stated, else as the launch implies it, else as its parts do.

    A communicator cannot be larger than the world: one that is contradicts the statement.
    """
    nodes = settle((*numbers.get("nodes", ()), *_not_elastic(numbers)))
    per_node = settle(numbers.get("per_node", ()))
    stated = settle(numbers.get("world", ()))
    size = stated if stated.disputed else dispute(stated, _launched(nodes, per_node))
    if not size.stated:
        size = settle(numbers.get("world.generic", ()))
    if size.stated:
        return World(dispute(size, _larger(size, numbers, members)), nodes, per_node)
    implied = _tasks(numbers, nodes, per_node)
    if not implied.stated:
        implied = _largest(members)
    return World(implied, nodes, per_node, is_least=implied.value is not None)


def homes(world: World, members: Iterable[Member]) -> dict[int, Member]:
    """The place of each global rank, where NCCL says it of a communicator as large as the world.

    Nothing where the world's size is not known for sure: the fourth host's tensor-parallel group counts from
    0 as well. A rank that two files place differently has no place.
    """
    if world.is_least or world.size.value is None:
        return {}
    last: dict[tuple[int, str], Member] = {}
    for member in members:
        if member.nranks == world.size.value and member.rank < member.nranks:
            last[member.rank, member.file] = member
    found: dict[int, Member] = {}
    unclear: set[int] = set()
    for (rank, _), member in last.items():
        known = found.setdefault(rank, member)
        if (known.host, known.pci) != (member.host, member.pci):
            unclear.add(rank)
    return {rank: found[rank] for rank in sorted(found) if rank not in unclear}


def _not_elastic(numbers: Numbers) -> list[Stated[int]]:
    """torchrun's launch configuration, where least and most nodes are equal."""
    most = {stated.file: stated.value for stated in numbers.get("nodes.max", ())}
    return [stated for stated in numbers.get("nodes.min", ()) if most.get(stated.file) == stated.value]


def _launched(nodes: Fact[int], per_node: Fact[int]) -> Fact[int]:
    if nodes.value is None or per_node.value is None:
        return Fact()
    product = nodes.value * per_node.value
    based_on = (*per_node.stated[:1], *nodes.stated[:1])
    return Fact(product, tuple(Stated(product, s.file, s.line, s.text) for s in based_on))


def _tasks(numbers: Numbers, nodes: Fact[int], per_node: Fact[int]) -> Fact[int]:
    """Slurm's tasks are ranks, unless each of them is a node's agent."""
    tasks = settle(numbers.get("world.tasks", ()))
    if per_node.stated or (tasks.value is not None and tasks.value == nodes.value):
        return Fact()
    return tasks


def _largest(members: Sequence[Member]) -> Fact[int]:
    """The largest communicator, unless one rank of that size sits in two places: then it is a part."""
    most = max((member.nranks for member in members), default=0)
    largest = [member for member in members if member.nranks == most]
    places: dict[int, set[tuple[str, str]]] = {}
    for member in largest:
        places.setdefault(member.rank, set()).add((member.host, member.pci))
    if most < 2 or any(len(homes) > 1 for homes in places.values()):
        return Fact()
    return settle(_size(member) for member in largest)


def _larger(size: Fact[int], numbers: Numbers, members: Sequence[Member]) -> Fact[int]:
    """A communicator larger than the world is said to be, later in its file than that was said."""
    if size.value is None:
        return Fact()
    said = {s.file: s.line for key in ("world", "world.generic") for s in numbers.get(key, ())}
    larger = [m for m in members if m.nranks > size.value and m.line > said.get(m.file, 0)]
    if not larger:
        return Fact()
    most = max(larger, key=lambda member: member.nranks)
    return Fact(most.nranks, (_size(most),))


def _size(member: Member) -> Stated[int]:
    return Stated(member.nranks, member.file, member.line, member.text)
