"""The whole pre-training checklist: rehearsed as it ships, and with every item broken."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent

BREAKS = {
    "        with: {mib: 4096}\n": "        with: {mib: 4096, broken: flip}\n",
    "with: {size: 512, dtype: float32, seconds: 1.0}": 'with: {size: 512, dtype: float32, broken: "0"}',
    "with: {nproc: 4, mib: 4, rounds: 5, limit: 0.15}": (
        "with: {nproc: 4, mib: 4, rounds: 2, limit: 0.15, broken: 'rank:2'}"
    ),
    "with: {seconds: 6.0}": "with: {seconds: 3.0, broken: slow}",
    "      - probe: memory_account\n": "      - probe: memory_account\n        with: {broken: leak}\n",
    "with: {nproc: 2, step_ms: 20.0}": "with: {nproc: 2, step_ms: 20.0, broken: jitter}",
    "      - probe: checkpoint\n": "      - probe: checkpoint\n        with: {broken: byte}\n",
    "      - probe: reshard\n": "      - probe: reshard\n        with: {broken: weights}\n",
    "{drill: slow_rank, takes: 10s}": "{drill: blind, takes: 10s}",
    "      - drill: page\n        takes: 130s\n        rehearsal: {set: {threshold: 5}, takes: 40s}\n": "",
    "{drill: control, set: {workload: mlp, steps: 20}, takes: 8s}": "{drill: blind, takes: 8s}",
    "      - {drill: control, takes: 8s}\n      - probe: rank_logs\n": (
        "      - probe: rank_logs\n        with: {logs: logs, world_size: 4}\n"
    ),
}
"""What stands in the shipped file, and what breaks it."""


def job(folder: Path) -> Path:
    """A repository with a job's environment, a runbook and a roster."""
    (folder / "docs").mkdir()
    (folder / "job.env").write_text(
        f"TORCH_FR_DUMP_TEMP_FILE={folder}/dumps/rank_\nTORCH_NCCL_ASYNC_ERROR_HANDLING=3\n"
    )
    (folder / ".gitignore").write_text("runs\ndumps\n")
    (folder / "docs" / "runbook.md").write_text("what to do")
    (folder / "docs" / "on-call.md").write_text("who")
    return folder


def run(folder: Path, checklist: str, *more: str) -> dict[str, str]:
    """Each item's outcome."""
    git = ("git", "-c", "user.name=x", "-c", "user.email=x")
    for command in (("init", "-q"), ("add", "-A"), ("commit", "-q", "-m", "x")):
        subprocess.run((*git, *command), cwd=folder, check=True)
    command = (sys.executable, "-m", "harness.cli", "checklist", "run", checklist, "--json", *more)
    environ = {k: v for k, v in os.environ.items() if not k.startswith("TORCH_")}
    done = subprocess.run(command, cwd=folder, env=environ, capture_output=True, text=True, timeout=550)
    return {item["id"]: f"{item['outcome']}: {item['why']}" for item in json.loads(done.stdout)["items"]}


@pytest.mark.sweep
def test_the_whole_rehearsal(tmp_path: Path) -> None:
    """On a laptop without GPUs: everything is rehearsed, what needs none passes, a person is waited for."""
    shutil.copy(ROOT / "checklists" / "pretrain.yaml", job(tmp_path))

    found = run(tmp_path, "pretrain.yaml", "--env-file", "job.env")

    assert len(found) == 13
    assert found.pop("configuration").startswith("pass")
    assert found.pop("on_call").startswith("not_run: waits for a signature")
    assert all(outcome.startswith("rehearsed") for outcome in found.values()), found
    assert not any((tmp_path / "dumps").glob("*"))


@pytest.mark.sweep
def test_every_item_fails_where_everything_is_broken(tmp_path: Path) -> None:
    """A wrong bit, a slow card, a byte of a checkpoint, a lost log, a blind diagnosis, no runbook."""
    text = (ROOT / "checklists" / "pretrain.yaml").read_text()
    for there, broken in BREAKS.items():
        assert there in text, there
        text = text.replace(there, broken)
    job(tmp_path)
    (tmp_path / "pretrain.yaml").write_text(text)
    (tmp_path / "docs" / "runbook.md").unlink()
    (tmp_path / "job.env").write_text(f"TORCH_FR_DUMP_TEMP_FILE={tmp_path}/job.env/rank_\n")
    (tmp_path / "logs").mkdir()
    for rank in (0, 1, 3):
        (tmp_path / "logs" / f"rank_{rank}.log").touch()
    drills = tmp_path / "drills"
    drills.mkdir()
    for suffix in ("py", "yaml"):
        shutil.copy(ROOT / "drills" / f"killed_rank.{suffix}", drills / f"blind.{suffix}")
    blind = drills / "blind.yaml"
    # It expects another kind than what it breaks: as if the diagnosis saw something else.
    spec = blind.read_text().replace("name: killed_rank", "name: blind").replace("killed_rank.py", "blind.py")
    blind.write_text(spec.replace("kind: rank_exited", "kind: straggler"))

    found = run(tmp_path, "pretrain.yaml")

    assert len(found) == 13
    assert all(outcome.startswith("fail") for outcome in found.values()), found
