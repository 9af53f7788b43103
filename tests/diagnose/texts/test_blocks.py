"""Cutting files into blocks of whole lines."""

import bz2
import gzip
import lzma
import os
from pathlib import Path

import pytest

from harness.diagnose.texts import blocks
from harness.diagnose.texts.blocks import Block, Blocks

PACK = {"plain": bytes, "gzip": gzip.compress, "bzip2": bz2.compress, "xz": lzma.compress}
PACKERS = [*PACK]


def written(folder: Path, data: bytes, packer: str = "plain") -> Path:
    path = folder / "a.log"
    path.write_bytes(PACK[packer](data))
    return path


def parts_of(found: list[Block]) -> list[bytes]:
    return [block.data[: block.end] for block in found]


@pytest.mark.parametrize("packer", PACKERS)
def test_blocks_are_whole_lines(tmp_path: Path, packer: str) -> None:
    """Packed or not, all bytes come, and only the last block may end inside a line."""
    data = b"".join(b"line %d\n" % i for i in range(100)) + b"no end"

    found = list(Blocks(written(tmp_path, data, packer), size=64))

    assert b"".join(parts_of(found)) == data
    assert [block.whole for block in found] == [True] * (len(found) - 1) + [False]
    assert max(block.end for block in found) <= 64
    assert all(part.endswith(b"\n") for part in parts_of(found)[:-1])


@pytest.mark.parametrize("packer", PACKERS)
def test_an_endless_line_is_skipped_in_bounded_memory(tmp_path: Path, packer: str) -> None:
    """Its beginning comes, then its end of line; one complaint."""
    reading = Blocks(written(tmp_path, b"x\n" + b"a" * 500 + b"\nb\n", packer), size=100)

    found = list(reading)

    assert parts_of(found) == [b"x\n", b"a" * 100, b"\nb\n"]
    assert reading.complaints == ["a line is longer than 0 KiB: only the beginning was read"]


@pytest.mark.parametrize("packer", PACKERS)
def test_an_endless_line_at_the_end(tmp_path: Path, packer: str) -> None:
    """Nothing comes behind it."""
    reading = Blocks(written(tmp_path, b"a" * 250, packer), size=100)

    assert parts_of(list(reading)) == [b"a" * 100]
    assert len(reading.complaints) == 1


def test_a_progress_bar_is_cut_at_its_carriage_returns(tmp_path: Path) -> None:
    """What stands behind hours of it is not lost."""
    data = b"".join(b"\r%3d%%" % i for i in range(100)) + b"\rTraceback\n"
    reading = Blocks(written(tmp_path, data), size=64)

    assert b"".join(parts_of(list(reading))) == data
    assert reading.complaints == []


@pytest.mark.parametrize(("packer", "cut"), [("gzip", 60), ("bzip2", 20), ("xz", 60)])
def test_a_damaged_file_is_read_as_far_as_it_goes(tmp_path: Path, packer: str, cut: int) -> None:
    """One complaint, and what stands before the damage if the format lets it be had."""
    data = b"".join(b"line %d\n" % i for i in range(20000))
    path = tmp_path / "a"
    path.write_bytes(PACK[packer](data)[:-cut])

    reading = Blocks(path)
    found = b"".join(parts_of(list(reading)))

    assert data.startswith(found)
    assert packer == "bzip2" or found
    assert len(reading.complaints) == 1


def test_zeros_are_read_over(tmp_path: Path) -> None:
    """A hole in a file is no end of it."""
    data = b"a\n" + b"\0" * 300 + b"\nb\n"

    assert b"".join(parts_of(list(Blocks(written(tmp_path, data), size=512)))) == data


def test_a_hole_larger_than_a_block_is_passed_over(tmp_path: Path) -> None:
    """The text right behind it comes, and what is held of the block before stays as it was."""
    reading = Blocks(written(tmp_path, b"a\n" + b"\0" * 1000 + b"b\nc\n"), size=100, memory=[])

    found = [(bytes(block.data[: block.end]).lstrip(b"\0")) for block in reading]

    assert [part for part in found if part] == [b"a\n", b"b\nc\n"]
    assert reading.complaints == []


@pytest.mark.parametrize("size", [0, 30])
def test_a_file_that_shrinks_meanwhile(tmp_path: Path, size: int) -> None:
    """What was read counts; nothing is raised."""
    path = written(tmp_path, b"0123456\n" * 100)
    reading = iter(Blocks(path, size=64))
    first = next(reading)

    os.truncate(path, size)

    assert first.end == 64
    assert list(reading) == []


def test_a_file_that_grows_meanwhile_is_read_as_it_was(tmp_path: Path) -> None:
    """A writer may be faster than a reader."""
    path = written(tmp_path, b"0123456\n" * 10)
    reading = iter(Blocks(path, size=64))
    found = [next(reading)]

    with path.open("ab") as file:
        file.write(b"0123456\n" * 100)

    assert b"".join(parts_of([*found, *reading])) == b"0123456\n" * 10


def test_what_is_not_there_is_complained_of(tmp_path: Path) -> None:
    """A file that vanished, and a pipe, which is not opened."""
    os.mkfifo(tmp_path / "pipe")
    gone, pipe = Blocks(tmp_path / "gone"), Blocks(tmp_path / "pipe")

    assert [*gone, *pipe] == []
    assert gone.complaints + pipe.complaints == ["No such file or directory", "not a regular file"]


def test_a_packed_file_that_never_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It may not unpack to more than any log has."""
    monkeypatch.setattr(blocks, "MAX_UNPACKED_BYTES", 1000)
    reading = Blocks(written(tmp_path, b"line\n" * 10000, "gzip"), size=100)

    found = list(reading)

    assert sum(block.end for block in found) < 1200
    assert len(reading.complaints) == 1
