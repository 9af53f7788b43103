"""py-spy samples of a bundle, rank by rank."""

from dataclasses import dataclass
from pathlib import Path

from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError


class Frame(BaseModel):
    """One frame as py-spy prints it."""

    model_config = ConfigDict(extra="ignore", frozen=True)
    name: str
    filename: str
    line: int = 0

    def __str__(self) -> str:
        return f"{self.name} {self.filename.rsplit('/', 1)[-1]}:{self.line}"


class Thread(BaseModel):
    """One thread, innermost frame first."""

    model_config = ConfigDict(extra="ignore", frozen=True)
    thread_name: str | None = None
    active: bool = False
    owns_gil: bool = False
    frames: tuple[Frame, ...] = ()


class ProcessStacks(BaseModel):
    """One process of a rank. `state` is the kernel's word, `error` why there are no threads."""

    model_config = ConfigDict(extra="ignore", frozen=True)
    pid: int
    role: str = "rank"
    state: str | None = None
    error: str | None = None
    threads: tuple[Thread, ...] | None = None

    @property
    def main(self) -> tuple[Frame, ...]:
        """Frames of the main thread, innermost first; empty where it could not be read."""
        threads = self.threads or ()
        named = [t for t in threads if t.thread_name == "MainThread"]
        chosen = named or list(threads[:1])
        return chosen[0].frames if chosen else ()


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


_DOCUMENT = TypeAdapter(tuple[ProcessStacks, ...])


def read_sampling(folder: Path, root: Path) -> tuple[dict[int, RankStacks], tuple[str, ...]]:
    """All ``rank_<n>.json`` of one sampling, and a complaint for each that cannot be read."""
    found: dict[int, RankStacks] = {}
    complaints: list[str] = []
    for path in sorted(folder.glob("rank_*.json")) if folder.is_dir() else ():
        name = str(path.relative_to(root))
        number = path.stem.removeprefix("rank_")
        try:
            processes = _DOCUMENT.validate_json(path.read_bytes())
        except (OSError, ValidationError) as error:
            complaints.append(f"{name}: not a stack sample ({type(error).__name__})")
            continue
        if number.isascii() and number.isdigit():
            found[int(number)] = RankStacks(int(number), name, processes)
    return found, tuple(complaints)
