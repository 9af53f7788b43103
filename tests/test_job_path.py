"""A drill through the real job's own environment: its variables, and its dump path."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from harness.bundle.layout import Layout
from harness.model.errors import PrerequisiteError
from harness.observe.job_path import JobDumpPath


def drill(*arguments: str, cwd: Path) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        (sys.executable, "-m", "harness.cli", *arguments),
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=120,
    )


@pytest.mark.ranks
def test_dumps_go_where_the_jobs_would_and_end_in_the_bundle(tmp_path: Path) -> None:
    """The job's path is used as it is, and left as it was."""
    script, dumps = tmp_path / "launch.sh", tmp_path / "persistent" / "dumps"
    script.write_text(
        f"#!/bin/bash\nexport TORCH_FR_DUMP_TEMP_FILE={dumps}/rank_\nexport TORCH_FR_BUFFER_SIZE=500\n"
        "export SECRET=1\nsource site.sh\ntorchrun train.py\n"
    )

    done = drill(
        *("run", "fr_hang", "--nproc", "4", "--culprit", "1", "--env-from-script", "launch.sh", "--json"),
        cwd=tmp_path,
    )

    document = json.loads(done.stdout)
    assert (done.returncode, document["verdict"]["verdict"]) == (0, "pass"), done.stderr
    assert "launch.sh:5: source site.sh: may set variables" in done.stderr
    bundle = tmp_path / document["bundle"]
    found = sorted(path.name for path in (bundle / "flight_recorder" / "attempt_0").iterdir())
    assert found == [f"rank_{rank}" for rank in range(4)]
    assert not any((bundle / "flight_recorder" / "attempt_0" / name).is_symlink() for name in found)
    assert list(dumps.iterdir()) == []
    environment = json.loads((bundle / "bundle.json").read_text())["environment"]
    assert environment["TORCH_FR_BUFFER_SIZE"] == "500"
    assert "SECRET" not in environment


@pytest.mark.ranks
def test_a_path_that_cannot_be_written_is_found_out(tmp_path: Path) -> None:
    """What would be lost in the incident is missing in the drill: inconclusive, and said."""
    blocked = tmp_path / "file"
    blocked.write_text("not a folder")
    (tmp_path / "job.env").write_text(f"TORCH_FR_DUMP_TEMP_FILE={blocked}/rank_\n")

    done = drill(
        *("run", "fr_hang", "--nproc", "4", "--culprit", "1", "--env-file", "job.env", "--json"), cwd=tmp_path
    )

    document = json.loads(done.stdout)
    assert done.returncode == 3
    assert "flight_recorder" in document["verdict"]["checks"]["evidence_complete"]["found"]
    assert any("flight recorder" in lost for lost in document["diagnosis"]["missing_evidence"])


def test_evidence_of_an_earlier_incident_is_not_overwritten(tmp_path: Path) -> None:
    """Dumps that lie there are somebody's: nothing is started."""

    (tmp_path / "rank_2").write_bytes(b"of an incident")
    path = JobDumpPath.of({"TORCH_FR_DUMP_TEMP_FILE": str(tmp_path / "rank_")}, Layout(tmp_path / "run"), 4)
    assert path is not None

    with pytest.raises(PrerequisiteError, match="dumps of rank 2 are there from before"):
        path.prepare()
    assert (tmp_path / "rank_2").read_bytes() == b"of an incident"


def test_without_a_stated_path_the_bundles_own_is_used(tmp_path: Path) -> None:
    """A job that says nothing of it, and no job at all."""

    assert JobDumpPath.of({"NCCL_DEBUG": "INFO"}, Layout(tmp_path), 4) is None
    assert JobDumpPath.of(None, Layout(tmp_path), 4) is None
