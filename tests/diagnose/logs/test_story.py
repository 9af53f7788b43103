"""All files as one story: attempts apart, clocks compared, order told only where it is known."""

from pathlib import Path

import pytest

from harness.diagnose.logs.event import Event
from harness.diagnose.logs.room import analyse_logs
from harness.diagnose.logs.story import Story
from tests.diagnose.logs.cases.writing import write

OOM = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.50 GiB."
BAD = "ValueError: bad"


def story(folder: Path, files: dict[str, str], world: int | None = 4) -> Story:
    """What all files say."""
    told = analyse_logs([write({n: t.encode() for n, t in files.items()}, folder)], world).story
    assert told is not None
    return told


def two(told: Story) -> tuple[Event, Event]:
    """The one running out of memory, and the other exception."""
    (oom,) = told.of("device_oom")
    (bad,) = [event for event in told.of("exception") if event.text == BAD]
    return oom, bad


def test_lines_of_one_file_are_in_order(tmp_path: Path) -> None:
    """With or without times."""
    told = story(tmp_path, {"job.log": f"[rank1]: {OOM}\n[rank2]: {BAD}\n"})
    oom, bad = two(told)

    assert (told.before(oom, bad), told.before(bad, oom)) == (True, False)


def test_lines_of_two_files_without_times_have_no_order(tmp_path: Path) -> None:
    """File order is not time order."""
    told = story(tmp_path, {"a.log": f"[rank1]: {OOM}\n", "b.log": f"[rank2]: {BAD}\n"})
    oom, bad = two(told)

    assert told.before(oom, bad) is None
    assert told.seconds_between(oom, bad) is None


ON = "2026-08-08 03:12:{second},000 node-{node}:42:99 [0] NCCL INFO hello\n"


def test_times_on_one_host_are_compared(tmp_path: Path) -> None:
    """The later file name may hold the earlier event."""
    told = story(
        tmp_path,
        {
            "a.log": ON.format(second=10, node=0) + f"2026-08-08 03:12:40,000 [rank1]: {OOM}\n",
            "b.log": ON.format(second=10, node=0) + f"2026-08-08 03:12:20,000 [rank2]: {BAD}\n",
        },
    )
    oom, bad = two(told)

    assert told.before(bad, oom) is True
    assert told.seconds_between(bad, oom) == pytest.approx(20.0, abs=0.1)


def test_times_of_two_hosts_without_a_common_event_have_no_order(tmp_path: Path) -> None:
    """Their clocks may differ."""
    told = story(
        tmp_path,
        {
            "a.log": ON.format(second=10, node=0) + f"2026-08-08 03:12:40,000 [rank1]: {OOM}\n",
            "b.log": ON.format(second=10, node=1) + f"2026-08-08 03:12:20,000 [rank2]: {BAD}\n",
        },
    )
    oom, bad = two(told)

    assert told.before(bad, oom) is None


def test_events_that_both_saw_anchor_two_clocks(tmp_path: Path) -> None:
    """Steps written on both hosts, one clock an hour ahead: what seems later came first."""
    steps = "".join(
        f"2026-08-08 {{hour}}:1{i}:00,000 [rank{{rank}}]: step: {i}0  loss:  2.1\n" for i in range(6)
    )
    told = story(
        tmp_path,
        {
            "a.log": ON.format(second=10, node=0)
            + steps.format(hour="03", rank=1)
            + f"2026-08-08 03:30:00,000 [rank1]: {OOM}\n",
            "b.log": ON.format(second=10, node=1)
            + steps.format(hour="04", rank=2)
            + f"2026-08-08 04:25:00,000 [rank2]: {BAD}\n",
        },
    )
    oom, bad = two(told)

    assert told.before(bad, oom) is True


def test_a_restart_separates_attempts(tmp_path: Path) -> None:
    """The last attempt is diagnosed; what was before stays apart."""
    text = f"[rank1]: {OOM}\n[agent] restart_count=1 group_rank=0\n[rank2]: {BAD}\n"

    told = story(tmp_path, {"job.log": text})

    assert (told.attempt, [e.what for e in told.events]) == (1, ["restart", "exception"])
    assert {e.what for e in told.earlier[0]} == {"device_oom", "exception"}


def test_folders_of_attempts_separate_them(tmp_path: Path) -> None:
    """torchrun's layout."""
    told = story(
        tmp_path, {"run/attempt_0/1/stderr.log": OOM + "\n", "run/attempt_1/2/stderr.log": BAD + "\n"}
    )

    assert [e.what for e in told.events] == ["exception"]
    assert {e.what for e in told.earlier[0]} == {"device_oom", "exception"}


@pytest.mark.parametrize(("at", "last"), [("03:11:59", False), ("03:31:00", True)])
def test_a_file_without_marks_goes_by_its_time(at: str, last: bool, tmp_path: Path) -> None:
    """A kernel's log counts no attempts: what it says before the restart belongs there, the rest behind."""
    job = (
        "2026-08-08 03:10:00,000 node-0:42:99 [0] NCCL INFO hello\n"
        f"2026-08-08 03:12:00,000 [rank1]: {BAD}\n"
        "2026-08-08 03:20:00,000 [agent] restart_count=1 group_rank=0\n"
        "2026-08-08 03:30:00,000 [rank1]: step: 90  loss:  2.1\n"
    )
    kernel = f"2026-08-08 {at},000 node-0 kernel: Out of memory: Killed process 203 (python) total-vm:1kB\n"

    told = story(tmp_path, {"job.log": job, "node-0.kern.log": kernel})

    assert bool(told.of("kernel_oom")) is last
    assert any(e.what == "kernel_oom" for e in told.earlier[0]) is not last


def test_a_later_step_of_the_same_rank_shows_that_it_went_on(tmp_path: Path) -> None:
    """In the same file, behind the event."""
    text = f"[rank1]: {BAD}\n[rank1]: step: 90  loss:  2.1\n"

    told = story(tmp_path, {"job.log": text})

    step = told.later_step(told.of("exception")[0])
    assert step is not None
    assert step.numbers["step"] == 90


def test_another_ranks_step_does_not_show_it(tmp_path: Path) -> None:
    """Others may go on for a while."""
    told = story(tmp_path, {"job.log": f"[rank1]: {BAD}\n[rank2]: step: 90  loss:  2.1\n"})

    assert told.later_step(told.of("exception")[0]) is None


def test_times_of_the_block_are_those_of_its_fields(tmp_path: Path) -> None:
    """Not those of the lines that print it."""
    block = (
        "  time      : 2026-08-08_03:12:44\n  host      : node-1\n  rank      : 1 (local_rank: 1)\n"
        "  exitcode  : -9 (pid: 203)\n"
    )

    told = story(tmp_path, {"job.log": "2026-08-08 04:00:00,000 [agent] closing\n" + block})

    (event,) = told.of("block_exit")
    assert event.at is not None
    assert event.at % 86400 == 3 * 3600 + 12 * 60 + 44
