"""The order in which logs decide (DIAGNOSIS, logs): in another one they accuse innocents."""

from dataclasses import dataclass

from harness.diagnose.logs.endings import (
    completed_first,
    ended_well_early,
    healthy,
    restart_loop,
    stopped_from_outside,
)
from harness.diagnose.logs.failures import Found, find_failures
from harness.diagnose.logs.first import first_failure
from harness.diagnose.logs.hangs import (
    alone_waiting,
    heartbeat,
    idle_rank,
    init_stuck,
    stuck_fabric,
    unequal_calls,
    unequal_numbers,
)
from harness.diagnose.logs.leads import going_on, missing_voices, no_last_words
from harness.diagnose.logs.reports import compared_by_torch, desync_report, monitored_barrier
from harness.diagnose.logs.story import Story
from harness.model.finding import Finding


@dataclass(frozen=True)
class Decided:
    """What the rules found, and what they set aside on the way."""

    finding: Finding | None
    found: Found


def decide_by_logs(story: Story) -> Decided:
    """The first rule that decides. None if the text does not say."""
    found = find_failures(story)
    finding = (
        completed_first(story, found)
        or stopped_from_outside(story, found)
        or first_failure(found.failures, story)
        or ended_well_early(story, found)
        or healthy(story, found)
    )
    if finding is None:
        hangs = (
            compared_by_torch,
            desync_report,
            monitored_barrier,
            idle_rank,
            unequal_numbers,
            alone_waiting,
            unequal_calls,
            stuck_fabric,
            heartbeat,
            init_stuck,
            going_on,
            missing_voices,
            no_last_words,
        )
        finding = next((f for rule in hangs if (f := rule(story)) is not None), None)
    return Decided(restart_loop(story, finding) or finding, found)
