"""Records the corpus: runs drills for real, and stores their bundles without the answers and without names.

    python tests/corpus/record.py            # writes tests/corpus/*.tar.gz and answers.json anew
    python tests/corpus/record.py size skip  # only these

Paths of the machine, its name and its environment are replaced; everything else is as the ranks left it.
"""

import json
import pickle
import platform
import shutil
import sys
import tarfile
import tempfile
from pathlib import Path

import torch

from harness.experiment import RunResult
from harness.testing import run_drill

HERE = Path(__file__).parent
ANSWERS = ("run.json", "injection.jsonl", "events.jsonl", "diagnosis.json", "verdict.json")
RECORDED = {
    "size": ("fr_hang", "size", {"numel": 4096}),
    "size_more": ("fr_hang", "size_more", {"numel": 4096}),
    "skip": ("fr_hang", "skip", {"numel": 4096}),
    "extra": ("branch", "bad_sample", {}),
    "microbatch": ("microbatch", "more", {}),
    "killed": ("killed_rank", "sigkill", {}),
    "exception": ("killed_rank", "exception", {}),
    "loader": ("dataloader_stall", "read", {}),
    "gil": ("lock_stall", "gil", {}),
    "p2p": ("p2p", "missing", {}),
    "absent": ("init_stuck", "absent", {}),
    "teardown": ("teardown", "late", {}),
    "healthy": ("control", "none", {"steps": 4}),
    "slow_backward": ("slow_rank", "backward", {}),
    "crowded": ("slow_rank", "host", {}),
    "starved": ("data_starved", "one", {}),
    "all_starved": ("data_starved", "all", {}),
    "fragmented": ("fragmentation", "split", {}),
    "save_failed": ("ckpt_slow", "failed", {}),
    "not_finite": ("loss_nan", "data", {}),
    "repeated": ("data_repeat", "resume", {}),
    "flipped": ("grad_tamper", "flip", {}),
    "steady": ("control", "none", {"workload": "mlp", "steps": 80, "jitter": 0.02, "save_every": 10}),
}


def main() -> None:
    """Run and store what is asked for, or everything."""
    wanted = sys.argv[1:] or list(RECORDED)
    stored = HERE / "answers.json"
    answers = json.loads(stored.read_text()) if stored.exists() else {}
    for name in wanted:
        drill, mode, parameters = RECORDED[name]
        with tempfile.TemporaryDirectory() as folder:
            run = run_drill(drill, mode=mode, parameters=parameters, out=Path(folder))
            assert run.verdict.verdict.value == "pass", (name, run.verdict)
            answers[name] = _answer(run)
            _store(run.bundle, HERE / f"{name}.tar.gz")
        print(name, answers[name], flush=True)
    stored.write_text(json.dumps(answers, indent=1) + "\n")


def _answer(run: RunResult) -> dict[str, object]:
    found = run.result.diagnosis
    return {
        "kind": found.kind.value,
        "culprits": list(found.culprits),
        "suspects": list(found.suspects),
        "site": found.where.site,
    }


def _store(bundle: Path, archive: Path) -> None:
    """One archive with a folder `bundle`, all files cleaned."""
    names = _names(bundle)
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "bundle"
        shutil.copytree(bundle, copy, ignore=shutil.ignore_patterns(*ANSWERS, "kernel.log", "checkpoints"))
        for path in copy.rglob("*"):
            if path.is_file():
                path.write_bytes(_cleaned(path, names))
        manifest = json.loads((copy / "bundle.json").read_text())
        manifest["environment"] = {k: v for k, v in manifest["environment"].items() if "/" not in v}
        (copy / "bundle.json").write_text(json.dumps(manifest))
        with tarfile.open(archive, "w:gz") as tar:
            tar.add(copy, "bundle")


def _names(bundle: Path) -> dict[str, str]:
    """What is replaced by what, longest first."""
    packages = str(Path(torch.__file__).parent.parent)
    project = str(HERE.parent.parent)
    found = {
        str(bundle.resolve()): "/job/bundle",
        packages: "/venv/lib/python3/site-packages",
        str(Path(packages).parent): "/usr/lib/python3",
        project: "/job",
        str(Path(json.__file__).parent.parent): "/usr/lib/python3",
        sys.prefix: "/venv",
        platform.node(): "node",
    }
    return dict(sorted(found.items(), key=lambda item: -len(item[0])))


def _cleaned(path: Path, names: dict[str, str]) -> bytes:
    data = path.read_bytes()
    if "flight_recorder" in path.parts:
        return pickle.dumps(_replaced(pickle.loads(data), names), protocol=2)
    text = data.decode(errors="replace")
    for old, new in names.items():
        text = text.replace(old, new)
    return text.encode()


def _replaced(value: object, names: dict[str, str]) -> object:
    if isinstance(value, str):
        for old, new in names.items():
            value = value.replace(old, new)
        return value
    if isinstance(value, dict):
        return {key: _replaced(inner, names) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(_replaced(inner, names) for inner in value)
    return value


if __name__ == "__main__":
    main()
