"""What a wild incident is: files as they were found, and the answers that are allowed."""

from collections.abc import Callable
from dataclasses import dataclass

Files = dict[str, str | bytes]


@dataclass(frozen=True)
class Wild:
    """One incident as people paste it, with the true answer.

    `kinds`: every answer that is not wrong; `inconclusive` where the text cannot tell. `culprits`: who must
    be convicted. `may_convict`: who may be, besides. `suspects`: who must be accused in either way. `calm`:
    nobody may be accused at all. `never`: who may not even be a suspect. `world`: what the reader passes as
    --world-size. `said`, `not_said`: words that must, and must not, stand in the summary.
    """

    name: str
    build: Callable[[], Files]
    kinds: tuple[str, ...]
    culprits: tuple[int, ...] = ()
    may_convict: tuple[int, ...] = ()
    suspects: tuple[int, ...] = ()
    calm: bool = False
    never: tuple[int, ...] = ()
    world: int | None = None
    expected_ranks: int | None = None
    not_said: tuple[str, ...] = ()
    said: tuple[str, ...] = ()

    def files(self) -> dict[str, bytes]:
        """File name -> bytes."""
        return {name: t if isinstance(t, bytes) else t.encode() for name, t in self.build().items()}
