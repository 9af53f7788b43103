"""py-spy samples of a bundle, rank by rank."""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Frame:
    """One frame as py-spy prints it, with the text of its line where the file was there to read."""

    name: str
    filename: str
    line: int = 0
    source: str | None = None

    @property
    def function(self) -> str:
        """The function's own name: py-spy puts its class before it."""
        return self.name.rsplit(".", 1)[-1]

    def __str__(self) -> str:
        return f"{self.name} {self.filename.rsplit('/', 1)[-1]}:{self.line}"


@dataclass(frozen=True)
class Thread:
    """One thread, innermost frame first."""

    thread_name: str | None = None
    active: bool = False
    owns_gil: bool = False
    frames: tuple[Frame, ...] = ()


@dataclass(frozen=True)
class ProcessStacks:
    """One process of a rank. `state` is the kernel's word, `error` why there are no threads.

    `switches`: how often its main thread has gone to sleep so far; None where that was not read.
    """

    pid: int
    role: str = "rank"
    state: str | None = None
    error: str | None = None
    switches: int | None = None
    threads: tuple[Thread, ...] | None = None

    @property
    def main(self) -> tuple[Frame, ...]:
        """Frames of the main thread, innermost first; empty where it could not be read."""
        thread = self._main_thread
        return thread.frames if thread else ()

    @property
    def main_keeps_gil(self) -> bool:
        """Whether the main thread owns the GIL and sleeps: native code took it along."""
        thread = self._main_thread
        return thread is not None and thread.owns_gil and not thread.active

    @property
    def _main_thread(self) -> Thread | None:
        threads = self.threads or ()
        return next((t for t in threads if t.thread_name == "MainThread"), threads[0] if threads else None)


@dataclass(frozen=True)
class RankStacks:
    """All processes of one rank in one sampling."""

    rank: int
    file: str
    processes: tuple[ProcessStacks, ...]

    @property
    def own(self) -> ProcessStacks | None:
        """The rank's own process."""
        return next((p for p in self.processes if p.role == "rank"), None)

    @property
    def children(self) -> tuple[ProcessStacks, ...]:
        """What the rank started: loader workers and the like."""
        return tuple(p for p in self.processes if p.role != "rank" and p.main)


def read_sampling(folder: Path, root: Path) -> tuple[dict[int, RankStacks], tuple[str, ...]]:
    """All ``rank_<n>.json`` of one sampling, and a complaint for each that cannot be read."""
    samples = sorted(folder.glob("rank_*.json")) if folder.is_dir() else []
    if not samples:
        return {}, ()
    # It takes a tenth of a second to import: only where there is something to read.
    from pydantic import TypeAdapter, ValidationError

    document = TypeAdapter(tuple[ProcessStacks, ...])
    found: dict[int, RankStacks] = {}
    complaints: list[str] = []
    for path in samples:
        name = str(path.relative_to(root))
        number = path.stem.removeprefix("rank_")
        try:
            processes = document.validate_json(path.read_bytes())
        except (OSError, ValidationError) as error:
            complaints.append(f"{name}: not a stack sample ({type(error).__name__})")
            continue
        if number.isascii() and number.isdigit():
            found[int(number)] = RankStacks(int(number), name, processes)
    return found, tuple(complaints)
