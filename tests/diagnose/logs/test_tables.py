"""Tables over all ranks: states, the few first; and how often each class of lines was said."""

from pathlib import Path

import pytest

from harness.diagnose.logs.room import LogsResult, analyse_logs
from harness.model.diagnosis import TierCount
from tests.diagnose.logs.cases.writing import write


def read(folder: Path, text: str, world: int | None = 4) -> LogsResult:
    return analyse_logs([write({"job.log": text.encode()}, folder)], world)


def tier(result: LogsResult, what: str) -> TierCount:
    (row,) = [row for row in result.tiers if row.what == what]
    return row


TAG = "[PG ID 0 PG GUID 0(default_pg) Rank {r}]"
TIMEOUT = (
    "[rank{r}]: "
    + TAG
    + " Watchdog caught collective operation timeout: WorkNCCL(SeqNum=1371, OpType=ALLREDUCE, "
    "NumelIn=4, NumelOut=4, Timeout(ms)=600000) ran for 600049 milliseconds before timing out.\n"
)
PROGRESS = "[rank{r}]: " + TAG + " last enqueued work: {enqueued}, last completed work: {completed}. \n"
SIGNAL = "[rank{r}]: " + TAG + " Observed flight recorder dump signal from another rank via TCPStore.\n"


def hang() -> str:
    """Three wait, rank 3 has nothing pending."""
    waiting = "".join(
        TIMEOUT.format(r=r) + PROGRESS.format(r=r, enqueued=1372, completed=1370) for r in range(3)
    )
    return waiting + PROGRESS.format(r=3, enqueued=1370, completed=1370) + SIGNAL.format(r=3)


def test_like_ranks_share_a_row_and_the_few_come_first(tmp_path: Path) -> None:
    """The odd one is the first line that anybody reads."""
    states = read(tmp_path, hang()).states

    assert [state.ranks for state in states] == ["3", "0-2"]


def test_a_row_says_what_its_ranks_said_of_themselves(tmp_path: Path) -> None:
    """Group, last works, where their own watchdogs gave up, or that they only saw another's signal."""
    odd, rest = read(tmp_path, hang()).states

    assert (odd.group, odd.enqueued, odd.completed, odd.watchdog, odd.timed_out) == (
        "default_pg",
        1370,
        1370,
        "observed",
        None,
    )
    assert (rest.enqueued, rest.completed, rest.watchdog, rest.timed_out) == (1372, 1370, "own", 1371)


def test_the_last_step_of_each_rank(tmp_path: Path) -> None:
    """The highest that it reports."""
    text = "[rank0]: step: 90  loss:  2.1\n[rank0]: step: 91  loss:  2.1\n[rank1]: step: 90  loss:  2.1\n"

    states = {state.ranks: state.last_step for state in read(tmp_path, text, 2).states}

    assert states == {"0": 91, "1": 90}


@pytest.mark.parametrize(("code", "said"), [(-9, "signal 9"), (137, "signal 9"), (1, "exit code 1")])
def test_how_ranks_ended(code: int, said: str, tmp_path: Path) -> None:
    """As the launcher says; the others' end is not known."""
    labels = "".join(f"[default{r}]:hello\n" for r in range(4))
    text = f"{labels}failed (exitcode: {code}) local_rank: 2 (pid: 102) of binary: /usr/bin/python3\n"

    states = {state.ranks: (state.alive, state.exit) for state in read(tmp_path, text).states}

    assert states == {"2": (False, said), "0-1,3": (None, None)}


def test_a_class_counts_its_lines_ranks_and_files(tmp_path: Path) -> None:
    """With the first place where it was said."""
    row = tier(read(tmp_path, "hello\n" + hang()), "watchdog_timeout")

    assert (row.tier, row.count, row.ranks, row.files, row.first) == (1, 3, "0-2", 1, "job.log:2")


def test_repetitions_count(tmp_path: Path) -> None:
    """A flood is not the few lines that are kept of it."""
    text = "".join(f"[rank1]: x.cu:9: block: [{i},0,0] Assertion `i < n` failed.\n" for i in range(500))

    assert tier(read(tmp_path, text), "device_assert").count == 500


def test_context_has_no_row(tmp_path: Path) -> None:
    """Steps and signals are no trouble."""
    whats = {row.what for row in read(tmp_path, hang() + "[rank0]: step: 90  loss:  2.1\n").tiers}

    assert not whats & {"step", "dump_observed"}


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("[rank1]: GET x: retrying 5/5\n", "retry, exhausted"),
        ("[rank1]: GET x: retrying 2/5\n", "retry"),
        ("[rank1]: GET x: retrying 5/5\n[rank1]: step: 90  loss:  2.1\n", "retry, recovered"),
        ("[rank1]: GET x: retrying 1/5\n[rank1]: step: 90  loss:  2.1\n", "retry, recovered"),
    ],
)
def test_retries_by_how_they_went(text: str, what: str, tmp_path: Path) -> None:
    """Only the last of them is a failure, and only if the rank did not go on."""
    assert [row.what for row in read(tmp_path, text).tiers] == [what]


@pytest.mark.parametrize(
    ("raised", "symptom"),
    [
        ("torch.distributed.DistBackendError: NCCL error: remote process exited", True),
        ("KeyError: 'loss'", False),
    ],
)
def test_classes_that_only_follow_are_marked(raised: str, symptom: bool, tmp_path: Path) -> None:
    """Exceptions of lost communication, against one that is a cause."""
    text = f"[rank1]: Traceback (most recent call last):\n[rank1]: {raised}\n"

    assert tier(read(tmp_path, text), "exception").symptom is symptom
