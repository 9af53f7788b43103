"""Every appended line once, whatever happens to the files."""

import os
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.monitor import follow
from harness.monitor.follow import Follower

from .made import append


def taken(follower: Follower) -> list[bytes]:
    """The lines of one poll."""
    return [line for lines in follower.poll() for line in lines.lines]


def test_a_half_written_line_is_read_once_it_is_whole(tmp_path: Path) -> None:
    """A last line without its end waits, and is not lost when the rest of it comes."""
    file, follower = tmp_path / "rank_0.jsonl", Follower([tmp_path])
    append(file, b"one\ntw")
    first = taken(follower)
    append(file, b"o\n")

    assert (first, taken(follower), taken(follower)) == ([b"one"], [b"two"], [])


def test_a_rotated_file_is_read_to_its_end(tmp_path: Path) -> None:
    """Lines that were written between the last poll and the rotation come, and before the new file's."""
    file, follower = tmp_path / "rank_0.jsonl", Follower([tmp_path])
    append(file, b"one\n")
    taken(follower)
    append(file, b"two\n")
    file.rename(tmp_path / "rank_0.jsonl.1")
    append(file, b"three\n")

    assert taken(follower) == [b"two", b"three"]
    assert taken(follower) == []


def test_files_that_were_rotated_before_we_came_are_left_alone(tmp_path: Path) -> None:
    """History under a rotated name is never read."""
    append(tmp_path / "rank_0.jsonl.1", b"old\n")
    append(tmp_path / "rank_0.jsonl", b"new\n")

    assert taken(Follower([tmp_path])) == [b"new"]


@pytest.mark.parametrize("after", [b"x\n", b"a much longer line than the one before it\nand another\n"])
def test_a_truncated_file_is_read_anew(tmp_path: Path, after: bytes) -> None:
    """Truncated in place, also if it has grown past the old end before the next poll."""
    file, follower = tmp_path / "rank_0.jsonl", Follower([tmp_path])
    append(file, b"before it was cut\n")
    taken(follower)
    os.truncate(file, 0)
    append(file, after)

    assert taken(follower) == after.splitlines()
    assert follower.truncations == 1


def test_of_a_long_file_only_the_end_is_read(tmp_path: Path) -> None:
    """A file that is there already costs its last part, whole lines of it, and never its history."""
    line = b"x" * 1023 + b"\n"
    append(tmp_path / "rank_0.jsonl", line * 1024 + b"last\n")
    lines = taken(Follower([tmp_path]))

    assert lines[-1] == b"last"
    assert sum(map(len, lines)) <= follow.FIRST_BYTES
    assert set(lines[:-1]) == {line[:-1]}


def test_an_endless_line_is_passed_over(tmp_path: Path) -> None:
    """Two megabytes without a newline cost no memory, and what comes after them is read."""
    file, follower = tmp_path / "rank_0.jsonl", Follower([tmp_path])
    append(file, b"short\n")
    taken(follower)
    append(file, b"x" * (follow.LINE_BYTES + 5))
    first = taken(follower)
    append(file, b"still it\nnext\n")
    second = taken(follower)

    assert (first, second, follower.overlong) == ([], [b"next"], 1)


def test_new_ranks_and_new_starts_are_found(tmp_path: Path) -> None:
    """Files and folders that appear later are followed from their beginning."""
    follower = Follower([tmp_path])
    taken(follower)
    (tmp_path / "attempt_1").mkdir()
    append(tmp_path / "attempt_1" / "rank_7.jsonl", b"one\n")

    assert taken(follower) == [b"one"]


def test_a_folder_that_is_gone_for_a_while_is_not_read_twice(tmp_path: Path) -> None:
    """A share that hiccups costs a complaint, and no line comes again."""
    folder = tmp_path / "signals"
    folder.mkdir()
    append(folder / "rank_0.jsonl", b"one\n")
    follower = Follower([folder])
    taken(follower)
    folder.rename(tmp_path / "away")
    during = taken(follower), dict(follower.problems)
    (tmp_path / "away").rename(folder)

    assert during == ([], {str(folder): "No such file or directory"})
    assert taken(follower) == []


def test_a_kernel_log_is_read_from_now_on(tmp_path: Path) -> None:
    """What a log says of last week wakes nobody; after a rotation it is followed on."""
    log = tmp_path / "kern.log"
    append(log, b"last week\n")
    follower = Follower((), read_from_end=[log])
    first = taken(follower)
    append(log, b"now\n")
    log.rename(tmp_path / "kern.log.1")
    append(log, b"later\n")

    assert (first, taken(follower)) == ([], [b"now", b"later"])


ACTIONS = st.lists(
    st.one_of(st.binary(min_size=1, max_size=6), st.sampled_from(["poll", "rotate"])), max_size=40
)


@settings(max_examples=60, deadline=None)
@given(ACTIONS)
def test_every_line_comes_once_and_in_order(actions: list[bytes | str]) -> None:
    """Any order of writes, rotations and polls yields the written lines, each once."""
    with TemporaryDirectory() as name:
        folder = Path(name)
        file, follower = folder / "rank_0.jsonl", Follower([folder])
        got, wanted, rotations, seen = taken(follower), [], 0, False
        for action in actions:
            if action == "poll":
                got += taken(follower)
                seen = file.exists()
            elif action == "rotate":
                # A file that came and was rotated between two polls is history to us.
                if seen:
                    rotations += 1
                    file.rename(folder / f"rank_0.jsonl.{rotations}")
                    seen = False
            else:
                assert isinstance(action, bytes)
                append(file, action.replace(b"\n", b"n") + b"\n")
                wanted.append(action.replace(b"\n", b"n"))
        assert got + taken(follower) == wanted
