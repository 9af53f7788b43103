"""docs/your-own-drill.md is true: its files are written, its commands run, its output compared."""

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

PAGE = Path(__file__).parent.parent / "docs" / "your-own-drill.md"

_BLOCK = re.compile(r"(?P<before>[^\n]*)\n\n?```(?P<language>\w+)\n(?P<body>.*?)```", re.DOTALL)
_NAMED = re.compile(r"`(?P<path>[\w./]+)`:$")
_VARIES = (
    (re.compile(r"\d+\.\d+ ?s?"), "T"),
    (re.compile(r"\s+"), " "),
    (re.compile(r"\(.*GPU.*?\)"), "(GPUs)"),
)


def blocks() -> Iterator[tuple[str, str, str]]:
    """(file that a block is the content of, its language, its text), in the order of the page."""
    for block in _BLOCK.finditer(PAGE.read_text(encoding="utf-8")):
        named = _NAMED.search(block["before"])
        yield named["path"] if named else "", block["language"], block["body"]


def commands(console: str) -> Iterator[tuple[str, list[str]]]:
    """Each command of a console block with the lines shown under it."""
    for part in re.split(r"^\$ ", console, flags=re.MULTILINE)[1:]:
        command, *shown = part.splitlines()
        yield command, shown


def plain(line: str) -> str:
    """A line without what differs between two runs: durations, widths, and what machine it is."""
    for pattern, instead in _VARIES:
        line = pattern.sub(instead, line)
    return line.strip()


def assert_shown(shown: list[str], output: str) -> None:
    """The lines shown are the output; ``...`` stands for any number of lines."""
    printed = [plain(line) for line in output.splitlines()]
    position, loose = 0, False
    for line in shown:
        if line == "...":
            loose = True
            continue
        assert plain(line) in printed[position:], f"not printed: {line}\n{output}"
        found = printed.index(plain(line), position)
        assert loose or found == position, f"not shown: {printed[position]}\n{output}"
        position, loose = found + 1, False
    assert loose or position == len(printed), f"not shown: {printed[position:]}"


@pytest.mark.ranks
def test_the_page_is_true(tmp_path: Path, tag: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """In an empty folder, from the first block to the last: each command exits 0 and prints what is shown."""
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:/usr/bin:/bin")
    ran = []
    for path, language, body in blocks():
        if path:
            (tmp_path / path).parent.mkdir(exist_ok=True)
            (tmp_path / path).write_text(body)
        for command, shown in commands(body) if language == "console" else ():
            done = subprocess.run(
                ("bash", "-c", command), cwd=tmp_path, capture_output=True, text=True, timeout=100
            )
            assert done.returncode == 0, (command, done.stdout, done.stderr)
            assert_shown(shown, done.stdout)
            ran.append(command.split()[0])

    assert ran == ["drill", "drill", "drill", "python", "drill"]
    assert (tmp_path / "drills.xml").exists()
