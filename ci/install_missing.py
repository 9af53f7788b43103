"""Installs from a folder of wheels what this Python lacks, into a folder of its own. Never torch.

    python ci/install_missing.py WHEELS SITE

Prints what it could not install, a name a line; reasons go to standard error. Needs nothing but pip.
"""

import re
import shutil
import subprocess
import sys
import tempfile
from importlib import metadata
from pathlib import Path


def main(wheels: Path, site: Path) -> None:
    """Install what is missing or too old: all at once, or one by one where that fails."""
    lines = (wheels / "requirements.txt").read_text().split()
    missing = [line for line in lines if not _has(*line.partition(">=")[::2])]
    if missing and not _install(wheels, site, *missing):
        for line in missing:
            if not _install(wheels, site, line):
                print(line.partition(">=")[0])
    if any(wheels.glob("drill_harness-*.whl")) and not _install(wheels, site, "--no-deps", "drill-harness"):
        print("drill-harness")


def _has(name: str, least: str) -> bool:
    try:
        return _numbers(metadata.version(name)) >= _numbers(least)
    except metadata.PackageNotFoundError:
        return False


def _numbers(version: str) -> list[int]:
    return [int(part) for part in re.findall(r"\d+", version.split("+")[0])][:3]


def _install(wheels: Path, site: Path, *what: str) -> bool:
    with tempfile.TemporaryDirectory() as part:
        command = (
            *(sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-index"),
            *("--find-links", str(wheels), "--target", part, *what),
        )
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            print(f"{' '.join(what)}: {done.stderr.strip()}", file=sys.stderr)
            return False
        # pip itself would replace a folder that several packages share, such as bin.
        shutil.copytree(part, site, dirs_exist_ok=True)
    return True


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
