"""What to run next, for jobs that go on."""

import pytest

from harness.diagnose.remedies import next_steps, recommendations
from harness.model.diagnosis import Where
from harness.model.kinds import Kind


@pytest.mark.parametrize("site", ["compute", "host", None])
def test_a_job_on_cpus_has_no_card_to_look_at(site: str | None) -> None:
    """Neither commands nor advice speak of one."""
    where = Where(site=site)

    said = [*next_steps(Kind.STRAGGLER, (5,), where, True)]
    said += [r.do for r in recommendations(Kind.STRAGGLER, where, True)]

    assert said
    assert not any("nvidia" in line or "card" in line for line in said)


def test_the_rank_is_named_in_the_commands() -> None:
    """The first of those that matter, and a few where none is known."""
    assert all("# rank 5" in line for line in next_steps(Kind.STRAGGLER, (5, 7), Where(), False))
    assert all("# a few ranks" in line for line in next_steps(Kind.DATA_STARVED, (), Where(), False))
