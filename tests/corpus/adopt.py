"""Takes what `ci/gpu_check.sh` brought back from a machine with cards into the corpus.

    python tests/corpus/adopt.py OUT

Of runs on NCCL that passed, the bundles go to tests/corpus/nccl/ without the answers, which go into its
answers.json; then `docs/gpu-runs.md` may say that they ran.
"""

import json
import sys
import tarfile
from pathlib import Path

HERE = Path(__file__).parent
ANSWERS = frozenset(("run.json", "injection.jsonl", "events.jsonl", "diagnosis.json", "verdict.json"))


def adopt(out: Path, into: Path, backend: str = "nccl") -> list[str]:
    """Add what passed on a back end. Returns its names."""
    summary = json.loads((out / "summary.json").read_text())
    stored = into / "answers.json"
    answers = json.loads(stored.read_text()) if stored.exists() else {}
    adopted = []
    for ran in summary["runs"]:
        if ran["backend"] != backend or ran["verdict"] != "pass" or ran["archive"] is None:
            continue
        into.mkdir(parents=True, exist_ok=True)
        diagnosis = _without_answers(out / ran["archive"], into / f"{ran['name']}.tar.gz")
        answers[ran["name"]] = {
            "kind": diagnosis["kind"],
            "culprits": diagnosis["culprits"],
            "suspects": diagnosis["suspects"],
            "site": diagnosis["where"]["site"],
            "shared": ran["shared_gpu"],
            "at": summary["at"],
            "torch": summary["machine"]["torch"],
            "nccl": summary["machine"]["nccl"],
            "cards": summary["machine"]["cards"],
        }
        adopted.append(ran["name"])
    if adopted:
        stored.write_text(json.dumps(answers, indent=1) + "\n")
    return adopted


def _without_answers(archive: Path, copy: Path) -> dict[str, dict[str, object]]:
    """Copy an archive but for what would give the answer away; returns the diagnosis that was in it."""
    found: dict[str, dict[str, object]] = {}
    with tarfile.open(archive) as old, tarfile.open(copy, "w:gz") as new:
        for member in old:
            file = old.extractfile(member)
            name = member.name.removeprefix("bundle/")
            if name == "diagnosis.json" and file is not None:
                found = json.load(file)
            if name not in ANSWERS and file is not None:
                new.addfile(member, file)
    return found


if __name__ == "__main__":
    names = adopt(Path(sys.argv[1]), HERE / "nccl")
    print(f"adopted {', '.join(names)}" if names else "nothing there passed on NCCL")
