"""Fills a folder with wheels for a machine without a network: everything of ours but torch.

    python ci/wheels.py wheels --python 3.12
    python ci/wheels.py wheels --python 3.12 --without numpy    # the machine has it

The machine keeps its own torch. `requirements.txt` in the folder says what is needed there.
"""

import argparse
import re
import subprocess
import sys
from pathlib import Path

import tomli

ROOT = Path(__file__).resolve().parent.parent
THEIRS = ("torch",)
"""What the machine brings itself."""

PLATFORMS = ("manylinux_2_28", "manylinux_2_17", "manylinux2014", "manylinux_2_5", "manylinux1")


def main() -> None:
    """Download, build ours, and say how large it is."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--python", default=f"{sys.version_info.major}.{sys.version_info.minor}")
    parser.add_argument("--machine", default="x86_64")
    parser.add_argument("--without", action="append", default=[], help="leave this out; repeatable")
    args = parser.parse_args()
    if not re.fullmatch(r"3\.\d+", args.python):
        raise SystemExit(f"--python {args.python}: a version such as 3.12 is wanted")
    wanted = [line for line in requirements() if name_of(line) not in (*THEIRS, *args.without)]
    args.folder.mkdir(parents=True, exist_ok=True)
    download(wanted, args.folder, args.python, args.machine)
    for name in args.without:
        for wheel in args.folder.glob(f"{name.replace('-', '_')}-*.whl"):
            wheel.unlink()
    for old in args.folder.glob("drill_harness-*.whl"):
        old.unlink()
    pip("wheel", "--no-deps", "--wheel-dir", str(args.folder), str(ROOT))
    (args.folder / "requirements.txt").write_text("".join(f"{line}\n" for line in wanted))
    size = sum(file.stat().st_size for file in args.folder.iterdir())
    print(f"{args.folder}: {len(list(args.folder.glob('*.whl')))} wheels, {size / (1 << 20):.0f} MiB")


def requirements() -> list[str]:
    """The dependencies of pyproject.toml."""
    found: list[str] = tomli.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    return found


def name_of(requirement: str) -> str:
    """``pydantic`` of ``pydantic>=2.7``."""
    return re.split(r"[^A-Za-z0-9._-]", requirement, maxsplit=1)[0]


def download(wanted: list[str], folder: Path, python: str, machine: str) -> None:
    """Wheels of all that is wanted and of what that needs, with the versions of constraints.txt."""
    abi = f"cp{python.replace('.', '')}"
    pip(
        *("download", "--only-binary=:all:", "--dest", str(folder)),
        *("--python-version", python, "--implementation", "cp"),
        *(word for tag in (abi, "abi3", "none") for word in ("--abi", tag)),
        *(word for name in PLATFORMS for word in ("--platform", f"{name}_{machine}")),
        *("--constraint", str(ROOT / "ci" / "constraints.txt")),
        *wanted,
    )


def pip(*words: str) -> None:
    """Run pip; its complaint is the error."""
    done = subprocess.run(
        (sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet", *words),
        capture_output=True,
        text=True,
    )
    if done.returncode:
        raise SystemExit(f"pip {words[0]}: {done.stderr.strip()}")


if __name__ == "__main__":
    main()
