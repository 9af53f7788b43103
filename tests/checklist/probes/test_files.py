"""Probes over files and variables: the job's dump path, ranks' logs, what is on record."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.checklist.probes import configuration, dump_path, rank_logs
from harness.worker.probes.options import Unable

SOUND = {"TORCH_NCCL_ASYNC_ERROR_HANDLING": "3"}


def tried(environ: dict[str, str], nproc: int = 4, without: bool = False) -> dict[str, object]:
    return dump_path.measure({"nproc": nproc, "without": without}, environ)


def test_a_sound_dump_path(tmp_path: Path) -> None:
    """Stated, writable for each rank, found again by its prefix; nothing of the trial is left."""
    found = tried({**SOUND, "TORCH_FR_DUMP_TEMP_FILE": f"{tmp_path}/deep/er/rank_"})

    assert found["path"] == f"{tmp_path}/deep/er/rank_"
    assert (found["set"], found["writable"], found["collectable"], found["defeated_by"]) == (
        True,
        True,
        True,
        "",
    )
    assert list(tmp_path.iterdir()) == []


def test_a_path_that_cannot_be_written(tmp_path: Path) -> None:
    """A file is where the folder should be: no rank can write, and the first says why."""
    (tmp_path / "file").touch()

    found = tried({**SOUND, "TORCH_FR_DUMP_TEMP_FILE": f"{tmp_path}/file/rank_"})

    assert (found["writable"], found["collectable"]) == (False, False)
    says = found["says"]
    assert isinstance(says, list)
    assert says[0] == f"rank 0 cannot write {tmp_path}/file/rank_0: Not a directory"


def test_a_relative_path_is_no_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every rank's working folder would decide where its dump is."""
    monkeypatch.chdir(tmp_path)

    found = tried({**SOUND, "TORCH_FR_DUMP_TEMP_FILE": "dumps_"})

    assert "dumps_ is relative" in str(found["defeated_by"])


@pytest.fixture
def unwritable(tmp_path: Path) -> Iterator[Path]:
    """A folder that not even root can write: a read-only mount."""
    folder = tmp_path / "mounted"
    folder.mkdir()
    mounted = subprocess.run(("mount", "-t", "tmpfs", "-o", "ro", "none", str(folder)), capture_output=True)
    if mounted.returncode:
        pytest.skip("mounting is not permitted")
    yield folder
    subprocess.run(("umount", str(folder)), check=True)


def test_a_read_only_file_system(unwritable: Path) -> None:
    """Also on tmpfs, which goes with the container: both are said."""
    found = tried({**SOUND, "TORCH_FR_DUMP_TEMP_FILE": f"{unwritable}/rank_"})

    assert (found["writable"], found["persistent"], found["file_system"]) == (False, False, "tmpfs")


@pytest.mark.parametrize(
    ("environ", "said"),
    [
        ({}, "TORCH_NCCL_ASYNC_ERROR_HANDLING is not set"),
        ({"TORCH_NCCL_ASYNC_ERROR_HANDLING": "1"}, "tears down before dumps"),
        ({**SOUND, "TORCH_NCCL_DUMP_ON_TIMEOUT": "0"}, "a timeout leaves no dump"),
        ({**SOUND, "TORCH_INCLUDE_ONLY_ACTIVE": "1"}, "dumps without history"),
    ],
)
def test_settings_that_defeat_dumps_are_named(tmp_path: Path, environ: dict[str, str], said: str) -> None:
    """A good path is of no use under them."""
    found = tried({**environ, "TORCH_FR_DUMP_TEMP_FILE": f"{tmp_path}/rank_"})

    assert said in str(found["defeated_by"])


def test_without_a_path_it_says_where_dumps_would_go(tmp_path: Path) -> None:
    """torch's default below the home folder, which a container loses."""
    environ = {**SOUND, "HOME": str(tmp_path), "TORCH_FR_DUMP_TEMP_FILE": "/elsewhere/rank_"}

    found = tried(environ, without=True)

    assert (found["path"], found["set"]) == (f"{tmp_path}/.cache/torch/comm_lib_trace_rank_", False)
    assert list(tmp_path.iterdir()) == []


def test_dumps_of_an_earlier_incident_are_seen_and_kept(tmp_path: Path) -> None:
    """They would be overwritten: that is somebody's evidence."""
    (tmp_path / "rank_1").write_bytes(b"evidence")

    found = tried({**SOUND, "TORCH_FR_DUMP_TEMP_FILE": f"{tmp_path}/rank_"})

    assert found["earlier_dumps"] == 1
    assert (tmp_path / "rank_1").read_bytes() == b"evidence"


def bundle(folder: Path, ranks: int = 3, **changes: object) -> Path:
    """A run folder with logs and a table of ranks."""
    rows = []
    for rank in range(ranks):
        path = folder / "logs" / "run_x" / "attempt_0" / str(rank) / "stderr.log"
        path.parent.mkdir(parents=True)
        path.touch()
        rows.append({"rank": rank, "host": "node1", "pid": 100 + rank, "device": f"cuda:{rank}", **changes})
    (folder / "ranks.json").write_text(json.dumps({"world_size": ranks, "ranks": rows}))
    return folder


def looked(**options: object) -> dict[str, object]:
    return rank_logs.measure({**rank_logs.DEFAULTS, **options})  # type: ignore[dict-item]


def test_every_rank_has_a_log_and_a_place(tmp_path: Path) -> None:
    """And the way from a rank's number to its card is one line."""
    found = looked(bundle=str(bundle(tmp_path)))

    assert (found["ranks"], found["without_log"], found["without_device"]) == (3, "", "")
    assert found["example"] == "rank 2 is pid 102 on node1, device cuda:2"


def test_a_rank_without_a_log_is_named(tmp_path: Path) -> None:
    """Its folder is there, its file is not."""
    bundle(tmp_path)
    next((tmp_path / "logs").glob("*/attempt_0/1/stderr.log")).unlink()

    found = looked(bundle=str(tmp_path))

    assert found["without_log"] == "1"
    assert "no log of rank 1" in str(found["says"])


@pytest.mark.parametrize("change", [{"host": ""}, {"device": None}])
def test_ranks_without_a_place_are_named(tmp_path: Path, change: dict[str, object]) -> None:
    """No host, or no device."""
    assert looked(bundle=str(bundle(tmp_path, **change)))["without_device"] == "0-2"


def test_a_table_that_is_none(tmp_path: Path) -> None:
    """Missing or damaged: no rank has a place."""
    bundle(tmp_path)
    (tmp_path / "ranks.json").write_text('{"ranks": [')

    assert looked(bundle=str(tmp_path))["without_device"] == "0-2"


def test_logs_of_any_job_by_the_numbers_in_their_names(tmp_path: Path) -> None:
    """``--logs`` with the job's size: a rank that left nothing at all is missed."""
    for rank in (0, 1, 3):
        (tmp_path / f"train.rank{rank}.log").touch()

    assert looked(logs=str(tmp_path), world_size=5)["without_log"] == "2,4"
    with pytest.raises(Unable, match="--logs"):
        looked()
    (tmp_path / "empty").mkdir()
    with pytest.raises(Unable, match="--redirects 3"):
        looked(logs=str(tmp_path / "empty"), table=str(tmp_path / "none"))


def git(*arguments: str) -> None:
    subprocess.run(
        ("git", "-c", "user.name=x", "-c", "user.email=x", *arguments), check=True, capture_output=True
    )


def test_what_is_on_record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Commit, what differs from it, the job's own files; and the record itself beside the figures."""
    monkeypatch.chdir(tmp_path)
    out, job = tmp_path / "runs" / "out", tmp_path / "job.env"
    out.mkdir(parents=True)
    job.write_text("NCCL_DEBUG=WARN\n")
    for name, value in (
        ("DRILL_PROBE_OUT", out),
        ("DRILL_JOB_FILES", job),
        ("DRILL_RESULTS", tmp_path / "runs"),
    ):
        monkeypatch.setenv(name, str(value))
    monkeypatch.setenv("CONTAINER_IMAGE", "train:7")
    assert configuration.measure({})["committed"] is False
    git("init", "-q")
    git("add", "job.env")
    git("commit", "-q", "-m", "x")

    clean = configuration.measure({})
    (tmp_path / "model.py").write_text("lr = 1")
    dirty = configuration.measure({})

    assert (clean["committed"], clean["dirty_files"], clean["environment_recorded"]) == (True, 0, True)
    assert clean["image"] == "train:7"
    assert dirty["dirty_files"] == 1
    assert "not committed: model.py" in str(dirty["says"])
    assert clean["fingerprint"] != dirty["fingerprint"]
    record = json.loads((out / "configuration.json").read_text())
    assert record["files"][str(job)] == "NCCL_DEBUG=WARN\n"
    assert len(record["code"]["commit"]) == 40


def test_the_command_line_prints_one_object() -> None:
    """As a checklist calls it; an unknown probe is named with those that exist."""
    command = (sys.executable, "-m", "harness.checklist.probes")
    environ = {**os.environ, "HOME": "/nonexistent"}

    done = subprocess.run(
        (*command, "dump_path", "--without", "true"), capture_output=True, text=True, env=environ
    )
    unknown = subprocess.run((*command, "x"), capture_output=True, text=True)

    assert json.loads(done.stdout)["set"] is False
    assert (unknown.returncode, unknown.stderr) == (2, "give one of: dump_path, rank_logs, configuration\n")
