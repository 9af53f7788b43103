"""What was going on when a wait began, and who never reports: leads and suspects, never convictions."""

from pathlib import Path

import pytest

from harness.diagnose.logs.room import analyse_logs
from harness.model.finding import Finding
from harness.model.kinds import Confidence, Kind
from tests.diagnose.logs.cases.writing import write


def decide(folder: Path, text: str, world: int | None = 8) -> Finding | None:
    return analyse_logs([write({"job.log": text.encode()}, folder)], world).finding


def expect(folder: Path, text: str, world: int | None = 8) -> Finding:
    found = decide(folder, text, world)
    assert found is not None
    return found


def at(minute: int, second: int, text: str) -> str:
    return f"2026-08-08 03:{minute:02}:{second:02},000 {text}\n"


def timeout(r: int, ran_ms: int = 600000) -> str:
    """At 03:20:00, so that the wait began at 03:10:00."""
    return at(
        20,
        0,
        f"[rank{r}]: [PG ID 0 PG GUID 0(default_pg) Rank {r}] Watchdog caught collective operation timeout: "
        "WorkNCCL(SeqNum=1371, OpType=BARRIER, NumelIn=1, NumelOut=1, Timeout(ms)=600000) "
        f"ran for {ran_ms} milliseconds before timing out.",
    )


def idle(r: int) -> str:
    return at(
        20,
        1,
        f"[rank{r}]: [PG ID 0 PG GUID 0(default_pg) Rank {r}] failure detected by watchdog at "
        "work sequence id: 1371 "
        "PG status: last enqueued work: 1370, last completed work: 1370. ",
    )


TIMEOUTS = "".join(timeout(r) for r in range(1, 8))


@pytest.mark.parametrize(
    ("line", "kind", "site"),
    [
        ("Saving the checkpoint (or staging if async is enabled).", Kind.CHECKPOINT_SLOW, "checkpoint"),
        ("Running validation at step 1000", Kind.RANK_STALLED, "evaluation"),
        ("Tokenizing the data set", Kind.RANK_STALLED, "dataloader"),
    ],
)
def test_what_began_within_seconds_of_the_wait_is_the_lead(
    line: str, kind: Kind, site: str, tmp_path: Path
) -> None:
    """Rank 0 alone is at it while its peers stand at a barrier: it may just have been long."""
    found = expect(tmp_path, at(9, 58, f"[rank0]: {line}") + TIMEOUTS)

    assert (found.kind, found.where.site, found.confidence) == (kind, site, Confidence.POSSIBLE)
    assert (found.culprits, found.suspects) == ((), (0,))


def test_what_had_ended_is_no_lead(tmp_path: Path) -> None:
    """The save was complete before the wait began."""
    text = at(9, 56, "[rank0]: Saving the checkpoint") + at(
        9, 59, "[rank0]: successfully saved checkpoint from iteration 1000"
    )

    found = expect(tmp_path, text + TIMEOUTS)

    assert found.where.site is None


def test_a_step_after_it_shows_that_it_had_ended(tmp_path: Path) -> None:
    """Though no line says so."""
    text = at(9, 56, "[rank0]: Saving the checkpoint") + at(9, 59, "[rank0]: step: 90  loss:  2.1")

    assert expect(tmp_path, text + TIMEOUTS).where.site is None


def test_what_began_long_before_the_wait_is_no_lead(tmp_path: Path) -> None:
    """Five minutes are no coincidence."""
    assert expect(tmp_path, at(5, 0, "[rank0]: Saving the checkpoint") + TIMEOUTS).where.site is None


def test_durations_of_a_suspended_process_lead_nowhere(tmp_path: Path) -> None:
    """It ran for an hour with a limit of ten minutes."""
    text = at(9, 58, "[rank0]: Saving the checkpoint") + "".join(timeout(r, 3600000) for r in range(1, 8))

    assert expect(tmp_path, text).where.site is None


def test_an_idle_ranks_open_save_is_named_with_it(tmp_path: Path) -> None:
    """The watchdogs convict it, the line says at what it is."""
    text = at(9, 58, "[rank0]: Saving the checkpoint") + TIMEOUTS + idle(0)

    found = expect(tmp_path, text)

    assert (found.culprits, found.where.site) == ((0,), "checkpoint")


@pytest.mark.parametrize(
    ("after", "site"), [("", "dataloader"), (at(9, 59, "[rank0]: step: 90  loss:  2.1"), None)]
)
def test_an_idle_ranks_trouble_with_data_is_named(after: str, site: str | None, tmp_path: Path) -> None:
    """Unless it recovered: a step came after it."""
    text = at(9, 58, "[rank0]: GET https://store.example/a: retrying 3/5") + after + TIMEOUTS + idle(0)

    found = expect(tmp_path, text)

    assert (found.culprits, found.where.site) == ((0,), site)


def test_who_never_reports_is_a_suspect(tmp_path: Path) -> None:
    """A rank that left no log at all: nothing is decided."""
    found = expect(tmp_path, TIMEOUTS)

    assert (found.kind, found.culprits, found.suspects) == (Kind.INCONCLUSIVE, (), (0,))
    assert "no log at all" in found.summary


def test_who_is_heard_but_never_times_out_is_a_suspect(tmp_path: Path) -> None:
    """It lives, and waits in nothing."""
    found = expect(tmp_path, "[rank0]: hello\n" + TIMEOUTS)

    assert (found.kind, found.culprits, found.suspects) == (Kind.RANK_STALLED, (), (0,))


def test_an_observer_of_the_signal_is_a_lead_only(tmp_path: Path) -> None:
    """That it saw others' signal proves nothing against it."""
    text = "[rank0]: Observed flight recorder dump signal from another rank via TCPStore.\n" + TIMEOUTS

    found = expect(tmp_path, text)

    assert (found.culprits, found.suspects) == ((), (0,))
    assert "only saw others' signal" in found.summary


def test_if_half_of_the_ranks_are_quiet_nobody_is_missed(tmp_path: Path) -> None:
    """Most logs are simply not here."""
    found = decide(tmp_path, "".join(timeout(r) for r in range(4)))

    assert found is None or found.suspects == ()


def test_the_quiet_ones_of_another_group_have_nothing_to_report(tmp_path: Path) -> None:
    """Six ranks wait in a group of their own."""
    text = "".join(timeout(r) for r in range(6)).replace(
        "PG ID 0 PG GUID 0(default_pg)", "PG ID 3 PG GUID 9(dp)"
    )

    found = decide(tmp_path, text)

    assert found is None or found.suspects == ()


def lost(r: int) -> str:
    return f"[rank{r}]: RuntimeError: [tcp/pair.cc:553] Connection closed by peer [127.0.0.1]:{14000 + r}.\n"


def stopped(r: int) -> str:
    name = "torch.distributed.elastic.multiprocessing.api.SignalException"
    return f"[rank{r}]: {name}: Process {521 + r} got signal: 1\n"


def test_who_has_not_lost_the_others_may_have_gone_first(tmp_path: Path) -> None:
    """A lead, where nothing says why connections closed."""
    found = expect(tmp_path, "".join(lost(r) for r in range(8) if r != 2))

    assert (found.kind, found.suspects) == (Kind.INCONCLUSIVE, (2,))


@pytest.mark.parametrize(
    "told",
    [
        "W1130 18:32:59.761000 504 agent/server/api.py:753] Received 1 death signal, shutting down workers\n",
        "",
    ],
)
def test_nobody_is_suspected_among_ranks_that_were_all_stopped(tmp_path: Path, told: str) -> None:
    """They lose one another in any order: the one that lost nobody was only stopped first."""
    ranks = "".join(lost(r) + stopped(r) for r in range(8) if r != 2) + stopped(2)

    found = decide(tmp_path, told + ranks)

    assert found is None or (found.culprits, found.suspects) == ((), ())
