"""Whatever is lost, torn, merged or damaged: never an innocent culprit, never an exception."""

import os
import random
import re
import shutil
import tempfile
import zlib
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from harness.diagnose.api import diagnose
from harness.model.diagnosis import Diagnosis
from harness.model.errors import PrerequisiteError
from tests.diagnose.logs.cases import CASES, DRESSES, Case
from tests.diagnose.logs.cases.writing import write

Files = Mapping[str, bytes]

SMALL = [case for case in CASES.values() if not case.large]
CLASSES = tuple(
    re.compile(pattern)
    for pattern in (
        rb"last (NCCL )?(enqueued|completed)",
        rb"Watchdog caught|Caught collective",
        rb"Observed flight recorder",
        rb"First PG on this rank|dump signal",
        rb"^srun: |slurmstepd",
        rb"torch/distributed/elastic|torch\.distributed\.elastic|exitcode|closing signal",
        rb"NCCL INFO",
        rb"Error: |Traceback",
        rb"ncclRemoteError|Connection",
        rb"iteration|step|Epoch|it/s",
        rb"NVRM|Killed process|oom-kill",
        rb"\[rank[0-3]\]",
        rb"\[rank[4-7]\]",
    )
)
PREFIXES = ("none", "default", "label", "ray", "pdsh", "cloud")
NUMBERED = ("idle_rank", "fabric", "behind", "ahead", "odd_size", "odd_operation", "alone", "root_ran_ahead")


def lines_lost(files: Files, rng: random.Random) -> dict[str, bytes]:
    """A tenth to three fifths of all lines are gone."""
    share = rng.uniform(0.1, 0.6)
    return {
        name: b"".join(row for row in data.splitlines(keepends=True) if rng.random() > share)
        for name, data in files.items()
    }


def class_lost(files: Files, rng: random.Random) -> dict[str, bytes]:
    """One class of lines is gone, or one whole file."""
    if len(files) > 1 and rng.random() < 0.5:
        gone = rng.choice(sorted(files))
        return {name: data for name, data in files.items() if name != gone}
    pattern = rng.choice(CLASSES)
    return {
        name: b"".join(row for row in data.splitlines(keepends=True) if not pattern.search(row))
        for name, data in files.items()
    }


def torn(files: Files, rng: random.Random) -> dict[str, bytes]:
    """Every file ends at a random byte."""
    return {name: data[: rng.randrange(len(data) + 1)] for name, data in files.items()}


LOSSES = {"lines": lines_lost, "class": class_lost, "torn": torn}


def answer(files: Files) -> Diagnosis | None:
    """The diagnosis of files; None where nothing is left to diagnose."""
    with tempfile.TemporaryDirectory() as folder:
        write(files, Path(folder))
        try:
            return diagnose(Path(folder)).diagnosis
        except PrerequisiteError:
            return None


def lose(case: Case, dress: str, how: str, seed: int) -> None:
    rng = random.Random(zlib.crc32(f"{case.name} {dress} {how} {seed}".encode()))
    found = answer(LOSSES[how](case.build(DRESSES[dress]), rng))
    if found is not None:
        assert set(found.culprits) <= case.expect.may_convict, f"{dress} {how} {seed}: {found.summary}"


@pytest.mark.parametrize("case", SMALL, ids=[case.name for case in SMALL])
def test_losses(case: Case) -> None:
    """Lost lines, classes, files and tails make an answer weaker; they never turn it against an innocent."""
    how = sorted(LOSSES)[zlib.crc32(case.name.encode()) % len(LOSSES)]
    dress = case.dresses[zlib.crc32(f"{case.name} {how}".encode()) % len(case.dresses)]

    lose(case, dress, how, seed=0)


@pytest.mark.sweep
@pytest.mark.parametrize("how", LOSSES)
@pytest.mark.parametrize("case", CASES.values(), ids=list(CASES))
def test_many_losses(case: Case, how: str) -> None:
    """As above, in every dress, many times over."""
    for dress in case.dresses:
        for seed in range(1, 3 if case.large else 16):
            lose(case, dress, how, seed)


@settings(max_examples=30, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(name=st.sampled_from(NUMBERED), prefix=st.sampled_from(PREFIXES), seed=st.integers(0, 2**32 - 1))
def test_merges(name: str, prefix: str, seed: int) -> None:
    """However the ranks' lines are merged into one file, and whatever stands before them: the same answer."""
    case = CASES[name]
    dress = replace(DRESSES["ranks"], layout="one", prefix=prefix)

    found = answer({"job.log": merged(case.incident(dress).streams(), random.Random(seed))})

    assert found is not None
    assert found.kind.value in case.expect.kinds, found.summary
    assert set(case.expect.either) <= {*found.culprits, *found.suspects}
    assert set(case.expect.culprits) <= set(found.culprits) <= case.expect.may_convict


def merged(streams: list[list[str]], rng: random.Random) -> bytes:
    """A random merge that keeps each stream's order."""
    turns = [n for n, stream in enumerate(streams) for _ in stream]
    rng.shuffle(turns)
    heads = [iter(stream) for stream in streams]
    return ("\n".join(next(heads[n]) for n in turns) + "\n").encode()


GOOD = "odd_size"


@pytest.fixture
def good(tmp_path: Path) -> Path:
    """The logs of a plain incident, with room for a bad file beside them."""
    return write(CASES[GOOD].build(DRESSES["nodes"]), tmp_path / "logs")


def bad(kind: str, path: Path) -> None:
    """Put something unreadable, endless or senseless at `path`."""
    if kind == "binary":
        path.write_bytes(random.Random(7).randbytes(200_000))
    elif kind == "endless":
        path.write_bytes(b"[rank3]: RuntimeError " * 500_000)
    elif kind == "zeros":
        path.write_bytes(bytes(1_000_000))
    elif kind == "fifo":
        os.mkfifo(path)
    elif kind == "dangling":
        path.symlink_to(path.with_name("nowhere"))
    elif kind == "loop":
        path.symlink_to(path.parent, target_is_directory=True)
    elif kind == "folder":
        path.mkdir()
    elif kind == "locked":
        path.write_text("out of reach\n")
        path.chmod(0)
    elif kind == "device":
        path.symlink_to("/dev/zero")
    else:
        path.write_bytes(b"")


BAD = ("binary", "endless", "zeros", "fifo", "dangling", "loop", "folder", "locked", "device", "empty")


@pytest.mark.parametrize("kind", BAD)
def test_bad_beside_good(kind: str, good: Path) -> None:
    """A bad file beside good ones costs nobody the answer."""
    bad(kind, good / "worker.err")

    found = diagnose(good).diagnosis

    assert found.kind.value == CASES[GOOD].expect.kind
    assert found.culprits == CASES[GOOD].expect.culprits


@pytest.mark.parametrize("kind", BAD)
def test_bad_alone(kind: str, tmp_path: Path) -> None:
    """Bad input alone is an answer that accuses nobody, or a plain complaint; never another exception."""
    folder = tmp_path / "logs"
    folder.mkdir()
    bad(kind, folder / "worker.err")

    try:
        found = diagnose(folder).diagnosis
    except PrerequisiteError as complaint:
        assert "\n" not in str(complaint)
    else:
        assert not found.culprits


@pytest.mark.parametrize("name", ["odd_size", "fabric", "idle_rank", "exception"])
def test_same_file_twice(name: str, tmp_path: Path) -> None:
    """A file that was copied, or is given twice, is one witness."""
    case = CASES[name]
    dress = replace(DRESSES["label"], framework="titan")
    (data,) = case.build(dress).values()
    folder = write({"job-4411.log": data}, tmp_path / "logs")
    shutil.copy(folder / "job-4411.log", folder / "copy-of-job-4411.log")

    for found in (diagnose(folder), diagnose(folder / "job-4411.log", folder / "job-4411.log")):
        assert found.diagnosis.kind.value in case.expect.kinds
        assert set(found.diagnosis.culprits) <= case.expect.may_convict
        assert {*case.expect.culprits, *case.expect.either} <= {
            *found.diagnosis.culprits,
            *found.diagnosis.suspects,
        }


def test_one_file(tmp_path: Path) -> None:
    """A single file is as good as a folder, and citations are relative to where it lies."""
    (data,) = CASES[GOOD].build(DRESSES["label"]).values()
    folder = write({"job-4411.log": data}, tmp_path / "logs")

    found = diagnose(folder / "job-4411.log").diagnosis

    assert found.culprits == CASES[GOOD].expect.culprits
    assert {c.file for c in found.evidence if c.file} <= {"job-4411.log", "."}
