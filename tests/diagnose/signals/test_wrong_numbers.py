"""Digests, places in the data and values that are not finite: who is named, and above all who is not."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from harness.diagnose.api import diagnose
from harness.model.diagnosis import Diagnosis
from harness.model.kinds import Confidence, Kind
from tests.diagnose.signals.made import Change, Job, Record


def found(job: Job, folder: Path) -> Diagnosis:
    """The diagnosis of a made-up job's records."""
    return diagnose(job.write(folder)).diagnosis


def holding(digest: Callable[[int, int], str]) -> Change:
    """Records that hold a digest of rank and step."""

    def hold(rank: int, step: int, record: Record) -> None:
        record["digest"] = digest(rank, step)

    return hold


HEALTHY_DIGESTS = {
    "experts, alike when made": lambda r, s: "init" if s == 0 else f"dense {s}" if r < 6 else f"{r} {s}",
    "stages, alike when made": lambda r, s: "init" if s == 0 else f"{r // 2} {s}",
    "a last stage of three ranks": lambda r, s: "init" if s == 0 else f"{r < 5} {s}",
    "shards of zeros until training begins": lambda r, s: "zeros" if s < 5 else f"{r} {s}",
    "frozen until step 100, then shards": lambda r, s: "frozen" if s < 100 else f"{r // 3} {s}",
    "one rank unfrozen with a part of its own": lambda r, s: "frozen" if s < 100 else f"{r == 7} {s}",
    "two ranks with experts unfrozen": lambda r, s: "frozen" if s < 100 else f"{s}" if r < 6 else f"{r} {s}",
    "synchronised every ten steps": lambda r, s: f"{s}" if s % 10 == 0 else f"{r} {s}",
    "some synchronised every ten steps": lambda r, s: f"{s}" if s % 10 == 0 or r > 2 else f"{r} {s}",
    "synchronised every ten steps from 50 on": lambda r, s: f"{s}" if s < 50 or s % 10 == 0 else f"{r} {s}",
    "one alone for 30 steps": lambda r, s: f"{r} {s}" if r == 5 and 60 <= s < 90 else f"{s}",
    "all alone from step 50 on": lambda r, s: f"{s}" if s < 50 else f"{r} {s}",
    "half another part from step 50 on": lambda r, s: f"{s}" if s < 50 else f"{r // 4} {s}",
    "NaN of several bit patterns": lambda r, s: f"{s}" if s < 100 else f"nan {r % 3}",
    "a log that lags from step 60 on": lambda r, s: f"{s - 1}" if r == 5 and s >= 60 else f"{s}",
}


@pytest.mark.parametrize("name", HEALTHY_DIGESTS)
def test_digests_that_differ_in_healthy_jobs(name: str, tmp_path: Path) -> None:
    """Ranks are replicas only if they agree while training changes what they hold, and part for good."""
    diagnosis = found(Job(change=holding(HEALTHY_DIGESTS[name])), tmp_path)

    assert diagnosis.kind is Kind.HEALTHY, diagnosis.summary


def test_a_digest_odd_in_one_record_is_suspected(tmp_path: Path) -> None:
    """Numbers do not heal: it may be one bad record, and the summary says which step."""
    diagnosis = found(Job(change=holding(lambda r, s: "odd" if (r, s) == (5, 77) else f"{s}")), tmp_path)

    assert (diagnosis.culprits, diagnosis.suspects) == ((), (5,))
    assert diagnosis.confidence is Confidence.POSSIBLE
    assert "in step 77 only" in diagnosis.summary


@pytest.mark.parametrize("same", [True, False])
def test_ranks_that_part_together_are_suspects_at_most(same: bool, tmp_path: Path) -> None:
    """Two ranks of eight, alike or not: it may be a change of roles."""
    job = Job(change=holding(lambda r, s: f"{s}" if r < 6 or s < 50 else f"{r * (not same)} odd {s}"))

    diagnosis = found(job, tmp_path)

    assert (diagnosis.kind, diagnosis.culprits) == (Kind.SILENT_CORRUPTION, ())
    assert (diagnosis.suspects, diagnosis.confidence) == ((6, 7), Confidence.POSSIBLE)


def test_shards_that_part_in_the_same_step_convict_nobody(tmp_path: Path) -> None:
    """One rank in each of two groups of replicas: something was changed for all groups."""
    job = Job(change=holding(lambda r, s: f"{r % 2} {s}" if r < 6 or s < 50 else f"{r} {s}"))

    assert found(job, tmp_path).culprits == ()


def test_replicas_that_part_where_the_loss_is_not_finite_are_an_effect(tmp_path: Path) -> None:
    """The rank whose loss it was is named, for that."""

    def spoil(rank: int, step: int, record: Record) -> None:
        if step >= 100:
            record["loss"] = "NaN"
            record["digest"] = f"{rank == 3} {step}"

    diagnosis = found(Job(change=spoil), tmp_path)

    assert (diagnosis.kind, diagnosis.culprits) == (Kind.LOSS_NOT_FINITE, ())


@pytest.mark.parametrize(("ranks", "confidence"), [(3, Confidence.LIKELY), (4, Confidence.CERTAIN)])
def test_one_that_parts_for_good_is_convicted(ranks: int, confidence: Confidence, tmp_path: Path) -> None:
    """Two that agree make it likely, three certain."""
    job = Job(
        ranks=ranks, steps=30, change=holding(lambda r, s: f"odd {s}" if r == 1 and s >= 20 else f"{s}")
    )

    diagnosis = found(job, tmp_path)

    assert (diagnosis.kind, diagnosis.culprits, diagnosis.where.step) == (Kind.SILENT_CORRUPTION, (1,), 20)
    assert diagnosis.confidence is confidence


def test_two_that_agreed_only_when_made_are_no_replicas(tmp_path: Path) -> None:
    """Two ranks that part before training changed what they hold hold different parts."""
    job = Job(ranks=2, change=holding(lambda r, s: "init" if s < 3 else f"{r} {s}"))

    assert found(job, tmp_path).kind is Kind.HEALTHY


@pytest.mark.parametrize("after", [0, 1])
def test_an_overflow_is_the_scalers_work_where_the_scale_falls(after: int, tmp_path: Path) -> None:
    """No flag is recorded; the scale halves with the record of that step, or with the next."""

    def overflow(rank: int, step: int, record: Record) -> None:
        record["loss_scale"] = 65536.0 if step < 180 + after else 32768.0
        if (rank, step) == (3, 180):
            record["grad_norm"] = "Infinity"
            record["loss"] = "Infinity"

    assert found(Job(change=overflow), tmp_path).kind is Kind.HEALTHY


def test_a_skipped_step_may_have_an_infinite_loss(tmp_path: Path) -> None:
    """What overflows forward is skipped like what overflows backward."""

    def overflow(rank: int, step: int, record: Record) -> None:
        record["skipped"] = step == 180
        if (rank, step) == (3, 180):
            record["loss"] = "Infinity"

    assert found(Job(change=overflow), tmp_path).kind is Kind.HEALTHY


def test_a_count_of_skipped_steps_excuses_only_where_it_grows(tmp_path: Path) -> None:
    """A total of two from step 10 on says nothing of step 150."""

    def overflow(rank: int, step: int, record: Record) -> None:
        record["skipped"] = min(step // 5, 2)
        if rank == 2 and step >= 150:
            record["loss"] = "NaN"

    assert found(Job(change=overflow), tmp_path).culprits == (2,)


def test_a_scale_that_falls_for_ever_is_no_excuse(tmp_path: Path) -> None:
    """A loss that stays NaN halves the scale every step, which brings nothing back."""

    def spoil(rank: int, step: int, record: Record) -> None:
        record["loss_scale"] = 2.0 ** (16 - max(0, step - 99))
        if step >= 100:
            record["grad_norm"] = "NaN"
            if rank == 5 or step > 100:
                record["loss"] = "NaN"

    diagnosis = found(Job(change=spoil), tmp_path)

    assert (diagnosis.kind, diagnosis.culprits, diagnosis.where.step) == (Kind.LOSS_NOT_FINITE, (5,), 100)


def test_a_gradient_that_is_finite_again_did_no_harm(tmp_path: Path) -> None:
    """A step that had taken it would have spoilt the parameters: somebody skipped it."""

    def overflow(rank: int, step: int, record: Record) -> None:
        if (rank, step) == (3, 180):
            record["grad_norm"] = "Infinity"

    assert found(Job(change=overflow), tmp_path).kind is Kind.HEALTHY


@pytest.mark.parametrize("few", [[1, 2, 3, 4, 5, 6, 7], [4, 5, 6, 7]])
def test_a_majority_is_not_convicted(few: list[int], tmp_path: Path) -> None:
    """Rank 0 may log a step later, and half the ranks may hold a norm of their own."""

    def spoil(rank: int, step: int, record: Record) -> None:
        if step > 180 or (step == 180 and rank in few):
            record["loss"] = "NaN"

    diagnosis = found(Job(change=spoil), tmp_path)

    assert (diagnosis.kind, diagnosis.culprits, diagnosis.suspects) == (Kind.LOSS_NOT_FINITE, (), ())
    assert f"on {len(few)} of 8 ranks" in diagnosis.summary


def test_a_rank_that_logs_more_often_is_not_convicted(tmp_path: Path) -> None:
    """Rank 0 logs the averaged loss in every step, the others in every tenth: it is the first to show it."""

    def spoil(rank: int, step: int, record: Record) -> None:
        if step >= 183:
            record["loss"] = "NaN"
        if rank and step % 10:
            del record["loss"]

    diagnosis = found(Job(change=spoil), tmp_path)

    assert (diagnosis.kind, diagnosis.culprits) == (Kind.LOSS_NOT_FINITE, ())


def test_a_loss_that_is_finite_again_is_told_as_that(tmp_path: Path) -> None:
    """In one step only: likely, not certain."""

    def spoil(rank: int, step: int, record: Record) -> None:
        if (rank, step) == (3, 180):
            record["loss"] = "NaN"

    diagnosis = found(Job(change=spoil), tmp_path)

    assert (diagnosis.kind, diagnosis.culprits) == (Kind.LOSS_NOT_FINITE, (3,))
    assert diagnosis.confidence is Confidence.LIKELY
    assert "in step 180 only" in diagnosis.summary


def test_a_loss_that_healed_long_ago_is_the_past(tmp_path: Path) -> None:
    """More than fifty steps of finite values since."""

    def spoil(rank: int, step: int, record: Record) -> None:
        if (rank, step) == (3, 120):
            record["loss"] = "NaN"

    assert found(Job(change=spoil), tmp_path).kind is Kind.HEALTHY


def placed(position: Callable[[int, int], float]) -> Change:
    """Records that hold a place in the data of rank and step."""

    def place(rank: int, step: int, record: Record) -> None:
        record["consumed_samples"] = position(rank, step)

    return place


USUAL_PLACES = {
    "one shard is shorter": lambda r, s: (s % (198 if r == 2 else 205) + 1) * 16,
    "two shards are shorter": lambda r, s: (s % (150 + r * 20) + 1) * 16,
    "a record of zero": lambda r, s: 0 if (r, s) == (5, 100) else (s + 1) * 16,
    "a record of -1": lambda r, s: -1 if (r, s) == (5, 100) else (s + 1) * 16,
    "a huge record": lambda r, s: 10**9 if (r, s) == (5, 100) else (s + 1) * 16,
    "a huge first record": lambda r, s: 10**9 if (r, s) == (5, 0) else (s + 1) * 16,
    "a last record of zero": lambda r, s: 0 if (r, s) == (5, 199) else (s + 1) * 16,
    "a record of two steps ago": lambda r, s: (s + 1 - 2 * ((r, s) == (5, 100))) * 16,
}


@pytest.mark.parametrize("name", USUAL_PLACES)
def test_places_that_fall_in_healthy_jobs(name: str, tmp_path: Path) -> None:
    """An epoch begins at the beginning, and a record that the next one contradicts is a bad record."""
    diagnosis = found(Job(change=placed(USUAL_PLACES[name])), tmp_path)

    assert diagnosis.kind is Kind.HEALTHY, diagnosis.summary


def test_a_fall_into_the_midst_that_lasts_is_found(tmp_path: Path) -> None:
    """One rank goes back by sixty steps and goes on from there."""
    job = Job(change=placed(lambda r, s: (s + 1 - 60 * (r == 5 and s >= 150)) * 16))

    diagnosis = found(job, tmp_path)

    assert (diagnosis.kind, diagnosis.culprits, diagnosis.where.step) == (Kind.DATA_CORRUPT, (5,), 150)


def resumed(first: Job, second: Job, folder: Path) -> Diagnosis:
    """The diagnosis of two starts of a job."""
    first.write(folder)
    place = folder / "attempt_1"
    place.mkdir()
    for rank, records in second.records().items():
        (place / f"rank_{rank}.jsonl").write_text("".join(json.dumps(r) + "\n" for r in records))
    return diagnose(folder).diagnosis


@pytest.mark.parametrize("ranks", [(4, 16), (8, 24), (8, 6)])
def test_a_job_of_another_size_counts_anew(ranks: tuple[int, int], tmp_path: Path) -> None:
    """Ranks that were not there before did not go on where they were, and shares of the data change."""
    anew = placed(lambda r, s: (s - 79) * 16)
    second = Job(ranks=ranks[1], first=80, steps=60, change=anew, seed=1)

    assert resumed(Job(ranks=ranks[0], steps=100), second, tmp_path).culprits == ()


@pytest.mark.parametrize("value", [0, -1, 10**9])
@pytest.mark.parametrize("step", [80, 99])
def test_one_bad_record_at_a_resume_is_no_rewind(value: float, step: int, tmp_path: Path) -> None:
    """The first record of the second start, or the last of the first one."""
    bad = placed(lambda r, s: value if (r, s) == (5, step) else (s + 1) * 16)
    begin = 100 if step == 99 else 80

    diagnosis = resumed(
        Job(steps=begin, change=bad), Job(first=begin, steps=60, change=bad, seed=1), tmp_path
    )

    assert diagnosis.culprits == (), diagnosis.summary


def test_a_place_that_was_not_restored_is_found_though_it_is_the_beginning(tmp_path: Path) -> None:
    """After a resume nobody's epoch begins, unless everybody's does."""
    begun = placed(lambda r, s: (s - 14 if r == 5 else s + 1) * 4)

    diagnosis = resumed(
        Job(steps=20, change=placed(lambda r, s: (s + 1) * 4)),
        Job(first=15, steps=25, change=begun, seed=1),
        tmp_path,
    )

    assert (diagnosis.kind, diagnosis.culprits, diagnosis.where.step) == (Kind.DATA_CORRUPT, (5,), 15)
