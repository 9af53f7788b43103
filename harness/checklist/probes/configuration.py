"""Everything that decides what will run, on record: commit, environment, image, versions, command line."""

import json
import os
import sys
from pathlib import Path

from harness.bundle.environment import versions
from harness.checklist.fingerprint import changed_files, code_state, digest, image, repository
from harness.jobenv import relevant
from harness.worker.probes.options import Options

DEFAULTS: Options = {}

JOB_FILES, RESULTS = "DRILL_JOB_FILES", "DRILL_RESULTS"
"""Set by the checklist: files of the job's environment, and the folder of results."""

MAX_LISTED = 5


def measure(options: Options) -> dict[str, object]:
    """Figures of `configuration`; the record itself goes into the probe's folder as configuration.json."""
    results = Path(os.environ.get(RESULTS, "runs"))
    code = code_state(Path.cwd(), results)
    root = repository(Path.cwd())
    dirty = changed_files(root, results) if root else []
    files = [name for name in os.environ.get(JOB_FILES, "").split(os.pathsep) if name]
    record = {
        "code": code,
        "environment": relevant(os.environ),
        "files": {name: Path(name).read_text(errors="replace") for name in files},
        "image": image(os.environ),
        "versions": versions(),
        "python": sys.executable,
    }
    if folder := os.environ.get("DRILL_PROBE_OUT"):
        (Path(folder) / "configuration.json").write_text(json.dumps(record, indent=1, sort_keys=True) + "\n")
    says = []
    if not code:
        says.append(f"{Path.cwd()} is in no git repository: nobody can say later which code this was")
    if dirty:
        named = ", ".join(str(path.relative_to(root or path)) for path in dirty[:MAX_LISTED])
        says.append(f"not committed: {named}{' and others' if len(dirty) > MAX_LISTED else ''}")
    if not files:
        says.append("the job's own environment was not given: --env-file or --env-from-script")
    return {
        "committed": bool(code),
        "dirty_files": len(dirty),
        "environment_recorded": bool(files),
        "image": image(os.environ),
        "fingerprint": digest(record)[:16],
        "says": says,
    }
