"""What a result is about: code, configuration, software, machines. It holds for no other."""

import hashlib
import json
import os
import platform
import subprocess
from collections.abc import Mapping
from contextlib import suppress
from importlib import metadata
from pathlib import Path

from harness.bundle.codec import to_json
from harness.bundle.environment import versions
from harness.jobenv import JobEnvironment, relevant
from harness.model.checklist import Checklist, Fingerprint
from harness.model.errors import PrerequisiteError
from harness.observe.gpus import gpu_count

GIT_LIMIT_S = 20.0
MAX_UNTRACKED_BYTES = 1 << 20
"""Untracked files are hashed up to this size each; of larger ones the size counts."""

IMAGE_VARIABLES = (
    *("CONTAINER_IMAGE", "SLURM_CONTAINER_IMAGE", "APPTAINER_CONTAINER", "SINGULARITY_CONTAINER"),
    *("IMAGE_DIGEST", "DOCKER_IMAGE", "NVIDIA_PYTORCH_VERSION"),
)

_GIT_ELSEWHERE = frozenset(
    (
        *("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_COMMON_DIR", "GIT_NAMESPACE", "GIT_PREFIX"),
        *("GIT_OBJECT_DIRECTORY", "GIT_ALTERNATE_OBJECT_DIRECTORIES", "GIT_CEILING_DIRECTORIES"),
    )
)
"""With these git looks at another repository than the one that a folder is in: a hook of one sets them."""

_DRIVER = Path("/proc/driver/nvidia")


def digest(value: object) -> str:
    """SHA-256 over a value's JSON with sorted keys."""
    return digest_of_json(to_json(value))


def digest_of_json(document: object) -> str:
    """The same of what was read from JSON."""
    text = json.dumps(document, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def take_fingerprint(
    checklist: Checklist, job: JobEnvironment, results: Path, environ: Mapping[str, str] = os.environ
) -> Fingerprint:
    """The fingerprint of here and now. `results`: the folder of results, which is no part of the code."""
    seen = job.over(environ)
    return Fingerprint(
        checklist=hashlib.sha256(checklist.path.read_bytes()).hexdigest(),
        code=code_state(Path.cwd(), results),
        environment=relevant(seen),
        files=job.files,
        versions={**versions(), **_libraries(), "image": image(seen)},
        topology=topology(environ),
    )


def differences(then: Fingerprint, now: Fingerprint, *, hardware: bool) -> list[str]:
    """What changed between two fingerprints, in words. `hardware`: whether the machines count, too."""
    found = []
    if then.checklist != now.checklist:
        found.append("the checklist itself was changed")
    # Variables count as they are; files that set them only where both sides were given the same ones.
    both = then.files.keys() & now.files.keys()
    parts = [
        ("file", {f: then.files[f] for f in both}, {f: now.files[f] for f in both}),
        ("code", then.code, now.code),
        ("environment", then.environment, now.environment),
        ("version of", then.versions, now.versions),
    ]
    if hardware:
        parts.append(("topology", then.topology, now.topology))
    for what, before, after in parts:
        for name in sorted({*before, *after}):
            was, is_ = before.get(name), after.get(name)
            if was != is_:
                found.append(f"{what} {name} was {_shown(was)}, is {_shown(is_)}")
    return found


def code_state(folder: Path, results: Path) -> dict[str, str]:
    """Commit and a hash of what is not committed; empty where the folder is in no repository."""
    commit, root = _git(folder, "rev-parse", "HEAD"), repository(folder)
    if commit is None or root is None:
        return {}
    changed = hashlib.sha256()
    files = 0
    for path in changed_files(root, results):
        files += 1
        changed.update(str(path).encode() + b"\0" + _content(path, results) + b"\0")
    state = changed.hexdigest()[:16] if files else "none"
    return {"commit": commit.decode().strip(), "uncommitted": state}


def repository(folder: Path) -> Path | None:
    """The root of the repository that a folder is in."""
    root = _git(folder, "rev-parse", "--show-toplevel")
    return Path(os.fsdecode(root).rstrip("\n")) if root else None


def changed_files(root: Path, results: Path) -> list[Path]:
    """Files that differ from the commit or are in none, but for ignored ones and the results themselves.

    Raises:
        PrerequisiteError: git does not answer.
    """
    status = _git(root, "status", "--porcelain", "-z", "--untracked-files=all", "--no-renames")
    if status is None:
        raise PrerequisiteError(
            f"{root}: `git status` fails or takes over {GIT_LIMIT_S:g} s: what is not committed is not known"
        )
    paths = [root / os.fsdecode(entry[3:]) for entry in status.split(b"\0") if len(entry) > 3]
    inside = results.resolve()
    return [path for path in paths if not path.resolve().is_relative_to(inside)]


def image(environ: Mapping[str, str]) -> str:
    """The container's image, where something says it."""
    return next((environ[name] for name in IMAGE_VARIABLES if environ.get(name)), "not stated")


def topology(environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Machines and cards: what hardware results are about. Without starting any program."""
    nodes = environ.get("SLURM_JOB_NODELIST") or environ.get("SLURM_NODELIST") or platform.node()
    count = gpu_count()
    found = {"nodes": nodes, "gpus": str(count)}
    models = set()
    for information in sorted((_DRIVER / "gpus").glob("*/information")):
        with suppress(OSError):
            lines = information.read_text(errors="replace").splitlines()
            models |= {line.partition(":")[2].strip() for line in lines if line.startswith("Model:")}
    if models:
        found["gpu model"] = ", ".join(sorted(models))
    with suppress(OSError, IndexError):
        found["driver"] = (_DRIVER / "version").read_text().splitlines()[0].strip()
    return found


def _libraries() -> dict[str, str]:
    """NCCL as torch's wheels bring it, whatever its CUDA."""
    for name in ("nvidia-nccl-cu13", "nvidia-nccl-cu12"):
        with suppress(metadata.PackageNotFoundError):
            return {"nccl": metadata.version(name)}
    return {}


def _git(folder: Path, *arguments: str) -> bytes | None:
    """Output of git; None where there is none, or no repository. Never waits for a lock or a password.

    Raises:
        PrerequisiteError: git refuses because the repository is somebody else's.
    """
    command = ("git", "-c", "core.fsmonitor=false", "--no-optional-locks", *arguments)
    environ = {name: value for name, value in os.environ.items() if name not in _GIT_ELSEWHERE}
    try:
        done = subprocess.run(
            command,
            cwd=folder,
            env={**environ, "LC_ALL": "C"},
            capture_output=True,
            timeout=GIT_LIMIT_S,
            stdin=subprocess.DEVNULL,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    if b"dubious ownership" in done.stderr:
        raise PrerequisiteError(
            f"{folder}: git does not read a repository of another user, so the code is not known: "
            "call this as its owner, or allow it: git config --global --add safe.directory PATH"
        )
    return done.stdout if done.returncode == 0 else None


def _content(path: Path, results: Path) -> bytes:
    try:
        size = path.stat().st_size
        if (path / ".git").exists():
            # A submodule, or a clone inside the clone: git says only that it differs.
            return json.dumps(code_state(path, results), sort_keys=True).encode()
        return path.read_bytes() if size <= MAX_UNTRACKED_BYTES else b"%d bytes" % size
    except OSError:
        # Deleted.
        return b"absent"


def _shown(value: str | None) -> str:
    if value is None:
        return "not set"
    return f"'{value}'" if len(value) <= 60 else f"'{value[:28]}...{value[-28:]}'"
