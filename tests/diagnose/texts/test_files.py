"""Which files are found, and what is said of those that cannot be read."""

import os
import socket
from pathlib import Path

import pytest

from harness.diagnose.texts.files import TextFile, find_texts

LOG = b"step 1\n"


def names(found: list[TextFile]) -> list[str]:
    return [file.name for file in found]


@pytest.fixture
def scratch(tmp_path: Path) -> Path:
    (tmp_path / "scratch").mkdir()
    return tmp_path / "scratch"


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    (tmp_path / "logs" / "node_1").mkdir(parents=True)
    (tmp_path / "logs" / "a.log").write_bytes(LOG)
    (tmp_path / "logs" / "node_1" / "rank_3.err").write_bytes(LOG * 2)
    return tmp_path / "logs"


def test_folders_are_searched(logs: Path, scratch: Path) -> None:
    """Names are relative to the path that was given, and say what they can."""
    found, complaints = find_texts([logs], scratch)

    assert found == [
        TextFile("a.log", logs / "a.log", "text", 7),
        TextFile("node_1/rank_3.err", logs / "node_1" / "rank_3.err", "text", 14, rank=3, node=1),
    ]
    assert complaints == []


def test_a_glob_that_no_shell_expanded(logs: Path, scratch: Path) -> None:
    """Quoted on the command line; one that fits nothing is said."""
    found, complaints = find_texts([logs / "**" / "*.err", logs / "*.gone"], scratch)

    assert names(found) == ["rank_3.err"]
    assert complaints == [f"{logs}/*.gone: fits nothing"]


def test_a_name_with_brackets_is_itself(logs: Path, scratch: Path) -> None:
    """A file that exists is no pattern."""
    (logs / "a[1].log").write_bytes(LOG)

    assert names(find_texts([logs / "a[1].log"], scratch)[0]) == ["a[1].log"]


def test_two_folders_are_told_apart(logs: Path, tmp_path: Path, scratch: Path) -> None:
    """By their names, and where these are equal by their paths."""
    (tmp_path / "b" / "logs").mkdir(parents=True)
    (tmp_path / "b" / "logs" / "a.log").write_bytes(LOG)

    found, _ = find_texts([logs, tmp_path / "b" / "logs"], scratch)

    assert names(found) == [
        str(logs / "a.log"),
        "logs/node_1/rank_3.err",
        str(tmp_path / "b" / "logs" / "a.log"),
    ]


def test_a_link_inside_a_folder_is_no_second_file(logs: Path, scratch: Path) -> None:
    """Nobody asked for it twice, so nothing is said."""
    (logs / "latest.log").symlink_to("a.log")

    found, complaints = find_texts([logs], scratch)

    assert (names(found), complaints) == (["a.log", "node_1/rank_3.err"], [])


@pytest.mark.parametrize("order", [1, -1])
def test_what_was_named_twice_is_read_once(logs: Path, scratch: Path, order: int) -> None:
    """A folder and a file in it, in any order: one complaint."""
    found, complaints = find_texts([logs, logs / "a.log"][::order], scratch)

    assert len(found) == 2
    assert len(complaints) == 1
    assert complaints[0].endswith(": reached by another path too, read once")


def test_the_same_file_named_twice(logs: Path, scratch: Path) -> None:
    """Read once, and said once."""
    found, complaints = find_texts([logs / "a.log"] * 2, scratch)

    assert (len(found), complaints) == (1, ["a.log: reached by another path too, read once"])


def test_what_is_no_file_is_never_opened(tmp_path: Path, scratch: Path) -> None:
    """A pipe would wait for ever; each has one line of complaint."""
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "dangling").symlink_to("gone")
    (tmp_path / "nothing").mkdir()
    with socket.socket(socket.AF_UNIX) as opened:
        opened.bind(str(tmp_path / "s"))
        given = ["pipe", "s", "dangling", "gone.log", "nothing"]

        found, complaints = find_texts([*(tmp_path / name for name in given), Path("/dev/null")], scratch)

    assert found == []
    assert complaints == [
        "pipe: a pipe, not read",
        "s: a socket, not read",
        "dangling: No such file or directory",
        "gone.log: No such file or directory",
        "nothing: an empty folder",
        "null: a device, not read",
    ]


def test_in_a_folder_only_what_looks_like_a_log_is_missed(tmp_path: Path, scratch: Path) -> None:
    """Pipes of debuggers, sources and weights are passed over without a word."""
    folder = tmp_path / "x"
    folder.mkdir()
    os.mkfifo(folder / "rank_0.pipe")
    os.mkfifo(folder / "b.log")
    (folder / "c.log").symlink_to("gone")
    (folder / "weights.bin").write_bytes(b"\x01\x02\0\0" * 5000)
    (folder / "d.err").write_bytes(b"\x01\x02\0\0" * 5000)
    (folder / "train.py").write_bytes(b"print('step 1')")
    (folder / ".hidden.log").write_bytes(LOG)

    found, complaints = find_texts([folder], scratch)

    assert found == []
    assert complaints == [
        "b.log: a pipe, not read",
        "c.log: No such file or directory",
        "d.err: binary, no text",
    ]


def test_what_a_person_gave_and_is_no_text(tmp_path: Path, scratch: Path) -> None:
    """Binary, empty, or packed by a program that is not at hand."""
    (tmp_path / "a").write_bytes(b"\x01\x02\0\0" * 5000)
    (tmp_path / "b").write_bytes(b"")
    (tmp_path / "c.log.zst").write_bytes(b"\x28\xb5\x2f\xfd" + b"abc")

    _, complaints = find_texts([tmp_path / name for name in ("a", "b", "c.log.zst")], scratch)

    assert complaints == [
        "a: binary, no text",
        "b: nothing in it",
        "c.log.zst: packed with zstd: unpack it first",
    ]


def test_a_log_that_begins_with_a_hole(tmp_path: Path, scratch: Path) -> None:
    """As a log that was truncated under its writer does."""
    with (tmp_path / "a.log").open("wb") as file:
        file.truncate(1 << 20)
        file.seek(1 << 20)
        file.write(LOG * 100)

    assert names(find_texts([tmp_path / "a.log"], scratch)[0]) == ["a.log"]


def test_linked_folders_are_not_entered(logs: Path, scratch: Path) -> None:
    """They may lead round in a circle."""
    (logs / "round").symlink_to(logs)

    assert names(find_texts([logs], scratch)[0]) == ["a.log", "node_1/rank_3.err"]
