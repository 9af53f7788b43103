"""What a main thread is doing, from its frames. Unknown code is named, never guessed at."""

from collections.abc import Sequence
from dataclasses import dataclass

from harness.diagnose.frames import is_own_code
from harness.diagnose.stacks.samples import Frame

_TORCH_COMMUNICATION = ("distributed_c10d.py", "_functional_collectives.py")
_JOINING = frozenset(["init_process_group", "_new_process_group_helper", "rendezvous", "new_group"])
_LEAVING = frozenset(("destroy_process_group",))


@dataclass(frozen=True)
class Position:
    """`doing` is communication, joining, leaving or code; `frame` the innermost frame of the caller.

    `call` is torch's own function that the caller called, where it did.
    """

    doing: str
    frame: Frame | None
    call: str | None = None


def position(frames: Sequence[Frame]) -> Position:
    """Where a main thread is. `frames` are innermost first."""
    own = next((f for f in frames if is_own_code(f.filename)), None)
    within = frames[: frames.index(own)] if own is not None else frames
    names = {f.name for f in within}
    call = next((f.name for f in reversed(within) if not f.name.endswith("wrapper")), None)
    if names & _JOINING:
        return Position("joining", own, call)
    if names & _LEAVING:
        return Position("leaving", own, call)
    if any(f.filename.endswith(_TORCH_COMMUNICATION) for f in within):
        return Position("communication", own, call)
    return Position("code", own, call)
