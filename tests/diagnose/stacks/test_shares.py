"""Repeated samples as shares: which work, in which function, and which samplings are independent."""

import json
from pathlib import Path

import pytest

from harness.diagnose.stacks.apart import cite_shares, who_waits_least
from harness.diagnose.stacks.shares import read_shares

C10D = "/venv/lib/python3.11/site-packages/torch/distributed/distributed_c10d.py"
DATA = "/venv/lib/python3.11/site-packages/torch/utils/data/dataloader.py"

WAITS = [("all_reduce", C10D, 9), ("<module>", "/job/train.py", 5)]
LOADS = [("_next_data", DATA, 7), ("<module>", "/job/train.py", 3)]


def works(line: int) -> list[tuple[str, str, int]]:
    """At work in one line of a function."""
    return [("MLP.forward", "/job/mlp.py", line), ("<module>", "/job/train.py", 4)]


def write(
    root: Path,
    sampling: int,
    rank: int,
    frames: list[tuple[str, str, int]],
    switches: int | None = None,
    error: str | None = None,
) -> None:
    """One rank in one sampling, as the observer writes it."""
    thread = {
        "thread_name": "MainThread",
        "frames": [{"name": n, "filename": f, "line": line} for n, f, line in frames],
    }
    threads = None if error else [thread]
    process = {"pid": 1, "role": "rank", "state": "sleeping", "error": error, "threads": threads}
    path = root / "stacks" / "attempt_0" / str(sampling) / f"rank_{rank}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps([{**process, "switches": switches}]))


def write_job(root: Path, samplings: int, asleep: bool = False) -> None:
    """Rank 1 of four is at work while the others wait; `asleep`: all the time in one and the same wait."""
    for sampling in range(samplings):
        switches = 7 if asleep else 7 + 10 * sampling
        for rank in (0, 2, 3):
            write(root, sampling, rank, WAITS, switches)
        write(root, sampling, 1, works(31), switches)


def test_shares_of_one_rank(tmp_path: Path) -> None:
    """Each activity's share; functions of the most frequent work, by their most frequent line."""
    for sampling, frames in enumerate((works(31), works(32), works(31), LOADS, WAITS)):
        write(tmp_path, sampling, 0, frames, sampling)

    own = read_shares(tmp_path / "stacks" / "attempt_0", tmp_path)[0]

    assert own.samples == 5
    assert own.doing == {"own": 0.6, "dataloader": 0.2, "communication": 0.2}
    assert own.work == "own"
    assert own.top == (("MLP.forward mlp.py:31", 0.6),)
    assert own.waited_in == "all_reduce"
    assert own.file == "stacks/attempt_0"
    assert own.moments == ("own", "own", "own", "dataloader", "communication")


def test_samplings_are_in_the_order_of_their_numbers(tmp_path: Path) -> None:
    """The tenth comes after the ninth; other folders are passed over."""
    for sampling in range(11):
        write(tmp_path, sampling, 0, works(1) if sampling == 10 else WAITS, sampling)
    (tmp_path / "stacks" / "attempt_0" / "notes").mkdir()

    own = read_shares(tmp_path / "stacks" / "attempt_0", tmp_path)[0]

    assert own.moments[-1] == "own"


@pytest.mark.parametrize("samplings", [0, 1, 2])
def test_too_few_samplings(tmp_path: Path, samplings: int) -> None:
    """The looks at a hang are no shares."""
    write_job(tmp_path, samplings)

    assert read_shares(tmp_path / "stacks" / "attempt_0", tmp_path) == {}


def test_what_could_not_be_read(tmp_path: Path) -> None:
    """A failed sample and a broken file count as not sampled; a rank without any has no shares."""
    write_job(tmp_path, 4)
    write(tmp_path, 1, 0, [], error="py-spy: no")
    (tmp_path / "stacks" / "attempt_0" / "2" / "rank_0.json").write_text("[{")
    for sampling in range(4):
        write(tmp_path, sampling, 4, [], error="py-spy: no")

    shares = read_shares(tmp_path / "stacks" / "attempt_0", tmp_path)

    assert sorted(shares) == [0, 1, 2, 3]
    assert shares[0].samples == 2
    assert shares[0].moments == ("communication", None, None, "communication")


def test_one_long_wait_is_one_moment(tmp_path: Path) -> None:
    """Nobody is named for one long save of a rank, however often it was sampled."""
    write_job(tmp_path, 12, asleep=True)

    shares = read_shares(tmp_path / "stacks" / "attempt_0", tmp_path)

    assert shares[1].samples == 12
    assert shares[1].moments == ("own",)
    assert who_waits_least(shares) == ()


def test_waits_that_nobody_counted_are_one(tmp_path: Path) -> None:
    """Without a count of switches, equal stacks are taken for one wait."""
    for sampling in range(12):
        for rank in range(4):
            write(tmp_path, sampling, rank, works(31) if rank == 1 else WAITS)

    shares = read_shares(tmp_path / "stacks" / "attempt_0", tmp_path)

    assert shares[1].moments == ("own",)


def test_who_drags_is_cited(tmp_path: Path) -> None:
    """The rank at work while its peers wait in ever new collectives is named, with what both did."""
    write_job(tmp_path, 12)

    shares = read_shares(tmp_path / "stacks" / "attempt_0", tmp_path)

    assert who_waits_least(shares) == (1,)
    cited = cite_shares(1, shares)
    assert (cited.source, cited.file, cited.rank) == ("stack", "stacks/attempt_0", 1)
    assert cited.says == (
        "rank 1: in 12 of 12 samples in its own code, most in MLP.forward mlp.py:31 (12); "
        "its 3 peers waited for others in 36 of 36, most in all_reduce"
    )
