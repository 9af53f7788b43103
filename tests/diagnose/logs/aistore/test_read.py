"""Reading daemon logs: whole, gzipped, damaged, garbled, without dates."""

import gzip
import random
from pathlib import Path

import pytest

from harness.diagnose.logs.aistore import read as reading
from harness.diagnose.logs.aistore.read import read_daemons

from .made import BROKEN, LOST, Log, read, unix


def a_log() -> Log:
    """A target over midnight, with markers and one broken stream."""
    log = Log(unix("2025-11-19 22:00:00"), number=3)
    log.run("2025-11-20 01:00:00", get_n=1000, err_get_n=1)
    log.say(BROKEN, "E")
    return log.run("2025-11-20 02:00:00", get_n=1000)


def test_a_log_is_read_with_its_dates(tmp_path: Path) -> None:
    """Role, id, beginning, end and counters stand on the calendar, beyond midnight too."""
    log = a_log()

    (file,) = read(tmp_path, log).files

    assert (file.role, file.id, file.header, file.zone) == ("target", "ais-target-3", "started", "UTC")
    assert (file.began, int(file.last)) == (unix("2025-11-19 22:00:00"), int(unix("2025-11-20 02:00:00")))
    assert int(file.samples[-1].at) == int(unix("2025-11-20 02:00:00"))
    assert file.samples[-1].values[0] == 80_000
    assert file.patterns is not None
    (bucket,) = file.patterns["stream_broken"]
    assert (bucket.count, log.lines[bucket.first.line - 1][2:]) == (1, bucket.first.text[2:])
    assert int(bucket.first.at) == int(unix("2025-11-20 01:00:00"))


def test_gzip_makes_no_difference(tmp_path: Path) -> None:
    """A gzipped log reads as the plain one does, whatever its name ends with."""
    log = a_log()
    name, plain = log.write(tmp_path)
    packed = tmp_path / "packed"
    packed.write_bytes(gzip.compress(plain.read_bytes()))

    assert read_daemons([(name, packed)]) == read_daemons([(name, plain)])


def test_a_gzip_that_is_cut_off_gives_what_stands_before(tmp_path: Path) -> None:
    """Half a file is read, with one line of complaint."""
    log = a_log()
    packed = tmp_path / "cut.gz"
    whole = gzip.compress(log.text().encode())
    packed.write_bytes(whole[: len(whole) * 3 // 4])

    found = read_daemons([(log.name + ".gz", packed)])

    assert len(found.files) == 1
    assert 0 < len(found.files[0].samples) < 80
    assert [log.name in complaint and "cut off" in complaint for complaint in found.complaints] == [True]


@pytest.mark.parametrize(
    "content", [b"", b"\x00" * 4096, b"no stamp\n" * 9, b"x" * 300_000, b"\x1f\x8b\x08junk"]
)
def test_what_is_no_log_gives_one_complaint(tmp_path: Path, content: bytes) -> None:
    """Nothing is raised and nothing is made up."""
    path = tmp_path / "f"
    path.write_bytes(content)

    found = read_daemons([("f", path)])

    assert (found.files, len(found.complaints)) == ((), 1)


def test_a_missing_file_gives_one_complaint(tmp_path: Path) -> None:
    """A path that is gone, or a folder, is complained about."""
    found = read_daemons([("gone", tmp_path / "gone"), ("folder", tmp_path)])

    assert (found.files, len(found.complaints)) == ((), 2)


@pytest.mark.parametrize("seed", range(20))
def test_garbled_bytes_raise_nothing(tmp_path: Path, seed: int) -> None:
    """Bytes overwritten at random lose some lines, not the file."""
    log = a_log()
    chance = random.Random(seed)
    data = bytearray(log.text().encode())
    for _ in range(len(data) // 100):
        data[chance.randrange(len(data))] = chance.randrange(256)
    path = tmp_path / "g"
    path.write_bytes(bytes(data))

    found = read_daemons([(log.name, path)])

    assert len(found.files) == 1
    assert len(found.files[0].samples) > 20


def test_a_line_without_end_is_cut(tmp_path: Path) -> None:
    """A line of several MiB costs what is kept of it, and the lines behind it keep their numbers."""
    log = a_log()
    log.lines[4] = "I 22:09:00.000000 " + "y" * (3 << 20)
    number = log.say(LOST, "E")

    (file,) = read(tmp_path, log).files

    assert file.patterns is not None
    assert [bucket.first.line for bucket in file.patterns["batch_lost"]] == [number]


def test_a_renamed_log_without_a_first_line_is_dated_by_its_marker(tmp_path: Path) -> None:
    """Name and first line lost: the marker dates what stands before it too."""
    log = a_log()
    log.lines.pop(0)
    found = read_daemons([log.write(tmp_path, "ais-target-3/log")])

    (file,) = found.files
    assert (file.role, file.id, file.year_known) == ("target", "ais-target-3", True)
    assert int(file.began) == int(unix("2025-11-19 22:03:00"))


def test_without_marker_and_first_line_the_name_gives_the_day_and_no_year(tmp_path: Path) -> None:
    """A year is not made up while reading."""
    log = Log(unix("2025-11-19 22:00:00"), header=None, markers=False)
    log.run("2025-11-20 01:00:00", get_n=1)

    (file,) = read(tmp_path, log).files

    assert (file.dated, file.year_known, file.zone) == (True, False, None)


def test_the_copy_behind_the_link_to_the_newest_log_counts_once(tmp_path: Path) -> None:
    """A log that was packed under two names is one log."""
    log = a_log()
    again = log.write(tmp_path, "aistarget.INFO")

    found = read_daemons([log.write(tmp_path), again])

    assert [file.id for file in found.files] == ["ais-target-3"]


def test_many_stats_lines_are_thinned_and_still_add_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Memory stays bounded; first and last figures stay."""
    monkeypatch.setattr(reading, "MAX_SAMPLES", 16)

    (file,) = read(tmp_path, a_log()).files

    assert len(file.samples) <= 18
    assert file.samples[-1].values[0] == 80_000
