"""What follows from a cause: the links of the chain behind it, each as far as lines show it."""

from collections.abc import Sequence

from harness.diagnose.logs.story import Story
from harness.diagnose.logs.waits import Wait, common_op
from harness.diagnose.logs.wording import who

LAUNCHER = ("closing", "block_exit", "exit", "cancelled", "task_end")


def effects(story: Story) -> tuple[str, ...]:
    """What a failure leads to: others lose it or wait for it, watchdogs abort, the launcher cleans up."""
    for key in story.waits.stuck_groups():
        if waits := story.waits.of_group(key):
            return hang_chain("", waits, story)[1:]
    lost = sorted(
        {
            e.rank
            for e in story.of("nccl_error", "peer_closed", "gloo_wait", "store_lost")
            if e.rank is not None
        }
    )
    links = (f"-> {who(lost)} {'loses' if len(lost) == 1 else 'lose'} the connection",) if lost else ()
    return (*links, *_endings(story))


def hang_chain(cause: str, waits: Sequence[Wait], story: Story) -> tuple[str, ...]:
    """From the cause to the end of the job."""
    links = [cause]
    if waits:
        limit = next((w.limit_ms for w in waits if w.limit_ms), None)
        after = f" after {limit / 1000:.0f} s" if limit else ""
        one = len(waits) == 1
        links.append(
            f"-> {who([w.rank for w in waits])} {'waits' if one else 'wait'} in {common_op(waits)} "
            f"seq {waits[0].seq} and {'times' if one else 'time'} out{after}"
        )
    return (*links, *_endings(story))


def _endings(story: Story) -> tuple[str, ...]:
    links = []
    if story.of("taking_down", "watchdog_ended"):
        links.append("-> watchdogs take their processes down")
    if story.of(*LAUNCHER):
        links.append("-> the launcher stops the rest")
    return tuple(links)
