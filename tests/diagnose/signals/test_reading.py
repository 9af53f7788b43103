"""Step records in the state in which files are found: wild numbers, disorder, restarts, several runs."""

import gzip
import json
import tracemalloc
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pytest

from harness.diagnose.api import diagnose
from harness.diagnose.signals.find import Records, loose_files, read_records
from harness.model.diagnosis import Diagnosis
from harness.model.errors import UsageError
from harness.model.kinds import Kind
from tests.diagnose.signals.made import Job, Record, since

Ranks = dict[int, list[Record]]


def write(records: Mapping[int, Sequence[Record]], folder: Path, attempt: int = 0) -> Path:
    """Write records of each rank under `folder`, which is returned."""
    place = folder / f"attempt_{attempt}"
    place.mkdir(parents=True, exist_ok=True)
    for rank, own in records.items():
        (place / f"rank_{rank}.jsonl").write_text("".join(json.dumps(r) + "\n" for r in own))
    return folder


def read(folder: Path) -> Records:
    """The step records of a folder."""
    return read_records(loose_files([folder]))


def ranks(diagnosis: Diagnosis) -> int:
    """Of how many ranks it speaks."""
    return len({*diagnosis.culprits, *diagnosis.victims})


DRAGS = since(100, 5, seconds=0.1)


@pytest.mark.parametrize("tokens", [1000, 65_536, 4_194_304])
def test_steps_that_count_tokens_take_no_more_memory(tokens: int, tmp_path: Path) -> None:
    """There are no more stretches than records, however far apart their steps are."""
    records = Job().records()
    for own in records.values():
        for record in own:
            record["step"] = int(record["step"]) * tokens
    write(records, tmp_path)

    tracemalloc.start()
    diagnosis = diagnose(tmp_path).diagnosis
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()

    assert diagnosis.kind is Kind.HEALTHY
    assert peak < 64 << 20


@pytest.mark.parametrize("wild", [10**12, -(10**12), 1e300, 2**63, 2**63 - 1, 2**53, 50_000, 7.5, -1e18])
@pytest.mark.parametrize("at", [0, 50, -1])
def test_a_wild_step_number_is_left_out(wild: float, at: int, tmp_path: Path) -> None:
    """One line's step is no step of the run; the rest answers as before."""
    records = Job(extra=DRAGS).records()
    records[3][at]["step"] = wild

    diagnosis = diagnose(write(records, tmp_path)).diagnosis

    assert (diagnosis.kind, diagnosis.culprits) == (Kind.STRAGGLER, (5,))
    assert any("rank_3.jsonl" in line for line in read(tmp_path).complaints)


def test_a_rank_with_steps_of_another_world_is_left_out(tmp_path: Path) -> None:
    """All its lines say so, and no other rank's do: ranks of one start have steps in common."""
    records = Job(extra=DRAGS).records()
    for record in records[2]:
        record["step"] = int(record["step"]) + 10**12

    found = read(write(records, tmp_path))

    assert [h.rank for h in found.histories[0]] == [0, 1, 3, 4, 5, 6, 7]
    assert any("rank_2.jsonl: its steps are far from all" in line for line in found.complaints)
    assert diagnose(tmp_path).diagnosis.culprits == (5,)


def test_several_runs_in_one_folder_are_refused(tmp_path: Path) -> None:
    """Ranks of one run and ranks of another make no job."""
    Job(ranks=4).write(tmp_path / "monday")
    Job(ranks=6, seed=1).write(tmp_path / "tuesday")
    for rank, path in enumerate(sorted((tmp_path / "tuesday" / "attempt_0").iterdir())):
        lines = [json.loads(line) for line in path.read_text().splitlines()]
        write({rank: [{**r, "t": r["t"] + 90_000} for r in lines]}, tmp_path / "tuesday")

    with pytest.raises(
        UsageError, match="this folder holds 2 runs of step records: monday, tuesday; give one of them"
    ):
        diagnose(tmp_path)

    assert len(read(tmp_path / "tuesday").histories[0]) == 6


def test_the_nodes_of_one_run_are_one_job(tmp_path: Path) -> None:
    """Each node's folder has ranks of its own; a node's folder copied to another is the same run."""
    records = Job(extra=DRAGS).records()
    write({r: own for r, own in records.items() if r < 4}, tmp_path / "node0")
    write({r: own for r, own in records.items() if r >= 3}, tmp_path / "node1")

    diagnosis = diagnose(tmp_path).diagnosis

    assert (diagnosis.kind, diagnosis.culprits, ranks(diagnosis)) == (Kind.STRAGGLER, (5,), 8)


def test_a_file_given_twice_counts_once(tmp_path: Path) -> None:
    """A folder and one of its files, under whatever name."""
    Job(ranks=2).write(tmp_path)
    (tmp_path / "again").symlink_to(tmp_path / "attempt_0")

    found = read_records(loose_files([tmp_path, tmp_path / "attempt_0" / "rank_1.jsonl"]))

    assert [h.rank for h in found.histories[0]] == [0, 1]
    assert found.complaints == ()


@pytest.mark.parametrize("at", [0, 1, 150, 198])
@pytest.mark.parametrize("apart", [1, 3])
def test_lines_out_of_order_are_put_in_order(at: int, apart: int, tmp_path: Path) -> None:
    """Two lines of one rank came in the wrong order: that is no restart of the job."""
    records = Job(extra=DRAGS).records()
    at = min(at, 199 - apart)
    records[2].insert(at + apart, records[2].pop(at))

    diagnosis = diagnose(write(records, tmp_path)).diagnosis

    assert (diagnosis.kind, diagnosis.culprits) == (Kind.STRAGGLER, (5,))
    assert list(read(tmp_path).histories) == [0]
    assert any("rank_2.jsonl: steps go back once without" in line for line in read(tmp_path).complaints)


def test_one_rank_that_repeats_steps_makes_no_second_start(tmp_path: Path) -> None:
    """Seven ranks went on: the last record of each step counts."""
    records = Job(extra=DRAGS).records()
    records[4][100:100] = [dict(r) for r in records[4][90:100]]

    diagnosis = diagnose(write(records, tmp_path)).diagnosis

    assert (diagnosis.kind, diagnosis.culprits, ranks(diagnosis)) == (Kind.STRAGGLER, (5,), 8)


@pytest.mark.parametrize("first", [0, 50_000])
@pytest.mark.parametrize("length", [1, 5, 12])
def test_an_evaluation_in_the_same_file_is_no_restart(length: int, first: int, tmp_path: Path) -> None:
    """It logs steps of its own, from 0 on, after which training goes on where it was."""
    records = Job(extra=since(first + 100, 5, seconds=0.1), first=first).records()
    for rank, own in records.items():
        records[rank] = [r for row in own for r in (row, *_evaluation(row, length))]

    diagnosis = diagnose(write(records, tmp_path)).diagnosis

    assert (diagnosis.kind, diagnosis.culprits) == (Kind.STRAGGLER, (5,))
    assert diagnosis.job.last_step == first + 199


def test_what_one_rank_logs_after_training_is_no_part_of_it(tmp_path: Path) -> None:
    """Its last evaluation logs steps from 0 on: what training recorded in those steps counts."""
    records = Job(extra=DRAGS).records()
    records[0] += [{**records[0][-1], "step": step} for step in range(5)]

    diagnosis = diagnose(write(records, tmp_path)).diagnosis

    assert (diagnosis.kind, diagnosis.culprits) == (Kind.STRAGGLER, (5,))


def _evaluation(row: Record, length: int) -> list[Record]:
    due = int(row["step"]) % 20 == 19
    return [{**row, "step": s, "step_time_s": 0.03, "comm_wait_s": 0.0} for s in range(length)] if due else []


def restarted(drop: Callable[[Ranks], None] = lambda second: None) -> Ranks:
    """150 steps, then a resume at step 100 in the same files."""
    first, second = Job(steps=150).records(), Job(steps=200, first=100, seed=1).records()
    for own in second.values():
        for record in own:
            record["t"] = float(record["t"]) + 4000
    drop(second)
    return {rank: [*first[rank], *second[rank]] for rank in first}


def test_a_restart_inside_files_comes_before_the_next_attempt(tmp_path: Path) -> None:
    """The newest folder holds the newest start, whatever the files of older ones hold."""
    write(restarted(), tmp_path)
    write(Job(steps=150, first=300, extra=since(400, 5, seconds=0.1)).records(), tmp_path, attempt=1)

    found, diagnosis = read(tmp_path), diagnose(tmp_path).diagnosis

    assert [(n, h[0].steps.tolist()) for n, h in found.histories.items()] == [
        (0, [0, 149]),
        (1, [100, 299]),
        (2, [300, 449]),
    ]
    assert found.of_attempt(1)[0].step == 449 and found.of_attempt(0)[0].step == 299
    assert (diagnosis.kind, diagnosis.culprits) == (Kind.STRAGGLER, (5,))


def test_a_restart_is_one_where_a_rank_lost_its_first_lines(tmp_path: Path) -> None:
    """It resumes a few steps later than others as far as its file tells."""
    found = read(write(restarted(lambda second: second[3].__delitem__(slice(0, 2))), tmp_path))

    assert {n: len(h) for n, h in found.histories.items()} == {0: 8, 1: 8}
    assert found.complaints == ()


def test_a_crash_loop_inside_files_is_many_starts(tmp_path: Path) -> None:
    """Each resumes at the same checkpoint and dies after a few steps."""
    records: Ranks = {rank: [] for rank in range(4)}
    for start in range(5):
        for rank, own in Job(ranks=4, steps=10, first=40, seed=start).records().items():
            records[rank] += own

    assert {n: len(h) for n, h in read(write(records, tmp_path)).histories.items()} == dict.fromkeys(
        range(5), 4
    )


@pytest.mark.parametrize("share", [0.3, 0.9])
def test_a_torn_archive_is_read_as_far_as_it_goes(share: float, tmp_path: Path) -> None:
    """However small it is; that it is torn is said."""
    for rank, own in Job(ranks=2).records().items():
        packed = gzip.compress("".join(json.dumps(r) + "\n" for r in own).encode())
        kept = packed[: int(len(packed) * share)] if rank else packed
        (tmp_path / f"rank_{rank}.jsonl.gz").write_bytes(kept)

    found = read(tmp_path)

    assert found.progress[0][0].step == 199
    assert abs(found.progress[0][1].step - 200 * share) < 20
    assert found.complaints == ("rank_1.jsonl.gz: the gzipped file is cut off: read as far as it goes",)


@pytest.mark.parametrize("lines", [1, 5])
def test_headers_may_stand_before_the_records(lines: int, tmp_path: Path) -> None:
    """What a launcher wrote about the run into the same file."""
    Job(extra=DRAGS).write(tmp_path)
    for path in (tmp_path / "attempt_0").iterdir():
        path.write_text('{"run": "x"}\n' * lines + path.read_text())

    assert diagnose(tmp_path).diagnosis.culprits == (5,)


@pytest.mark.parametrize("total", [1, 3])
@pytest.mark.parametrize("first", [0, 500])
def test_failed_saves_of_an_earlier_start_are_none_of_this(total: int, first: int, tmp_path: Path) -> None:
    """A count that was carried over does not rise."""

    def carry(rank: int, step: int, record: Record) -> None:
        if step > first or total > 1:
            record["ckpt_failed_total"] = total if first or total > 1 else 0

    assert diagnose(Job(first=first, change=carry).write(tmp_path)).diagnosis.kind is Kind.HEALTHY


def test_a_first_save_that_fails_counts(tmp_path: Path) -> None:
    """The run begins with these records, and the count is first told with the first save."""

    def fail(rank: int, step: int, record: Record) -> None:
        if "ckpt_duration_s" in record:
            record["ckpt_failed_total"] = int(rank == 6)

    diagnosis = diagnose(Job(save_every=10, change=fail).write(tmp_path)).diagnosis

    assert (diagnosis.kind, diagnosis.culprits) == (Kind.CHECKPOINT_FAILED, (6,))
