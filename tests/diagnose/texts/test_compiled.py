"""Compiled patterns are kept between runs, and whatever is wrong with the file costs time only."""

from pathlib import Path

import pytest

from harness.diagnose.texts.patterns import Database, Pattern

PATTERNS = (Pattern("a", "fo{2}"), Pattern("b", "ba[rz]"))


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "drill"


def hits() -> list[int]:
    return Database(PATTERNS).scan(memoryview(b"a foo and a baz\n"))


def test_the_second_run_compiles_nothing(cache: Path) -> None:
    """It finds the same as the first."""
    first = hits()

    (kept,) = cache.iterdir()
    before = kept.stat().st_mtime_ns
    again = hits()

    assert len(first) == 2
    assert again == first
    assert kept.stat().st_mtime_ns == before


@pytest.mark.parametrize("damage", ["empty", "short", "flipped", "text", "folder"])
def test_a_damaged_file_is_compiled_anew(cache: Path, damage: str) -> None:
    """Cut off, with a turned bit, or something else: the answer is the same, the file is mended."""
    expected = hits()
    (kept,) = cache.iterdir()
    data = bytearray(kept.read_bytes())
    if damage == "flipped":
        data[len(data) // 2] ^= 1
    if damage == "folder":
        kept.unlink()
        kept.mkdir()
    else:
        kept.write_bytes({"empty": b"", "short": data[:-9], "flipped": data, "text": b"x" * 99}[damage])

    assert hits() == expected
    if damage != "folder":
        assert hits() == expected
        assert len(kept.read_bytes()) == len(data)


def test_a_cache_that_cannot_be_written_is_done_without(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file is where the folder should be."""
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))

    assert len(hits()) == 2


def test_other_patterns_have_another_file(cache: Path) -> None:
    """A changed pattern never meets an old database."""
    hits()
    Database((Pattern("a", "fo{3}"),)).ready()

    assert len(list(cache.iterdir())) == 2
