"""Recorded bundles of real runs: today's diagnoser must still say what was broken, whatever is taken away."""

import json
import shutil
import tarfile
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from harness.diagnose.api import diagnose
from harness.model.errors import PrerequisiteError

CORPUS = Path(__file__).parent / "corpus"
ANSWERS: dict[str, dict[str, object]] = json.loads((CORPUS / "answers.json").read_text())


def unpacked(name: str, folder: Path) -> Path:
    """A recorded bundle, under a name that says nothing."""
    with tarfile.open(CORPUS / f"{name}.tar.gz") as tar:
        tar.extractall(folder, filter="data")
    return folder / "bundle"


@pytest.mark.parametrize("name", ANSWERS)
def test_what_was_broken_is_still_found(name: str, tmp_path: Path) -> None:
    """Kind, ranks and site of every recorded incident."""
    found = diagnose(unpacked(name, tmp_path)).diagnosis

    answer = {
        "kind": found.kind.value,
        "culprits": list(found.culprits),
        "suspects": list(found.suspects),
        "site": found.where.site,
    }
    assert answer == ANSWERS[name], found


@pytest.mark.parametrize("name", ANSWERS)
def test_logs_alone_accuse_nobody_else(name: str, tmp_path: Path) -> None:
    """What ranks and launcher printed, without dumps, stacks and records: the right answer, or none."""
    bundle, folder = unpacked(name, tmp_path), tmp_path / "printed"
    folder.mkdir()
    shutil.copytree(bundle / "logs", folder / "logs")
    if (bundle / "launcher.log").exists():
        shutil.copy(bundle / "launcher.log", folder)

    found = diagnose(folder).diagnosis

    assert found.kind.value in ("inconclusive", ANSWERS[name]["kind"]), found.summary
    culprits = ANSWERS[name]["culprits"]
    assert isinstance(culprits, list)
    assert set(found.culprits) <= set(culprits), found.summary


def _remove(name: str) -> Callable[[Path], None]:
    def remove(bundle: Path) -> None:
        path = bundle / name
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)

    return remove


def _one_dump(rank: int) -> Callable[[Path], None]:
    return lambda bundle: (bundle / f"flight_recorder/attempt_0/rank_{rank}").unlink(missing_ok=True)


def _one_log(rank: int) -> Callable[[Path], None]:
    return lambda bundle: [shutil.rmtree(path) for path in bundle.glob(f"logs/*/attempt_0/{rank}")] and None


def _one_record(rank: int) -> Callable[[Path], None]:
    return lambda bundle: [p.unlink() for p in bundle.glob(f"signals/*/rank_{rank}.jsonl")] and None


def _cut_records(bundle: Path) -> None:
    """The second half of all step records is lost."""
    for path in bundle.glob("signals/*/rank_*.jsonl"):
        path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def _cut_dumps(bundle: Path) -> None:
    """The second half of every dump is lost."""
    for path in (bundle / "flight_recorder" / "attempt_0").glob("rank_*"):
        path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


KINDS = (
    "flight_recorder",
    "stacks",
    "logs",
    "signals",
    "launcher.json",
    "launcher.log",
    "ranks.json",
    "bundle.json",
)
LOSSES: dict[str, Callable[[Path], None]] = {
    **{name: _remove(name) for name in KINDS},
    "the culprit's dump": _one_dump(5),
    "an innocent's dump": _one_dump(0),
    "half of every dump": _cut_dumps,
    "the culprit's log": _one_log(5),
    "an innocent's log": _one_log(0),
    "the culprit's step records": _one_record(5),
    "an innocent's step records": _one_record(0),
    "half of all step records": _cut_records,
}


def assert_no_innocent(name: str, losses: Sequence[str], folder: Path) -> None:
    """Take evidence away and diagnose: whoever is convicted is guilty."""
    bundle = unpacked(name, folder)
    for loss in losses:
        LOSSES[loss](bundle)

    guilty = {*ANSWERS[name]["culprits"], *ANSWERS[name]["suspects"]}  # type: ignore[misc]
    try:
        found = diagnose(bundle).diagnosis
    except PrerequisiteError:
        return
    assert set(found.culprits) <= guilty, found


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("name", ANSWERS)
def test_whatever_is_lost_no_innocent_is_convicted(name: str, loss: str, tmp_path: Path) -> None:
    """Less evidence may leave the case open; it never convicts somebody else."""
    assert_no_innocent(name, (loss,), tmp_path)


@pytest.mark.sweep
@pytest.mark.parametrize(
    "pair",
    [
        ("flight_recorder", "launcher.json"),
        ("stacks", "flight_recorder"),
        ("logs", "stacks"),
        ("ranks.json", "bundle.json"),
        ("logs", "launcher.json"),
    ],
    ids=str,
)
@pytest.mark.parametrize("name", ANSWERS)
def test_two_losses_at_once(name: str, pair: tuple[str, str], tmp_path: Path) -> None:
    """Nor do two kinds of evidence that are gone."""
    assert_no_innocent(name, pair, tmp_path)


@pytest.mark.parametrize("known", [True, False])
def test_a_job_that_is_killed_as_a_whole(known: bool, tmp_path: Path) -> None:
    """All ranks end at once: nobody is the cause, unless the kernel names the first one's memory."""
    bundle = unpacked("repeated", tmp_path)
    shutil.rmtree(bundle / "signals")
    exits = json.loads((bundle / "launcher.json").read_text())["attempts"][0]["exits"]
    first = min(exits, key=lambda e: e["at"])
    if known:
        line = (
            f"[12345.678] Memory cgroup out of memory: Killed process {first['pid']} (python) total-vm:1kB\n"
        )
        (bundle / "kernel.log").write_text(line)

    found = diagnose(bundle).diagnosis

    expected = ("host_oom", (first["rank"],)) if known else ("rank_exited", ())
    assert (found.kind.value, found.culprits, found.suspects) == (*expected, ())


def test_few_samples_do_not_say_that_a_rank_is_crowded_out(tmp_path: Path) -> None:
    """On a loaded machine three samplings are all there is, and one may happen to catch the rank running."""
    bundle = unpacked("slow_backward", tmp_path)
    stacks = bundle / "stacks" / "attempt_0"
    first, *_ = samplings = sorted(stacks.iterdir(), key=lambda folder: int(folder.name))
    for folder in samplings[3:]:
        shutil.rmtree(folder)
    path = first / "rank_5.json"
    processes = json.loads(path.read_text())
    processes[0]["state"] = "running"
    path.write_text(json.dumps(processes))

    found = diagnose(bundle).diagnosis

    assert (found.culprits, found.where.site) == ((5,), "compute")
