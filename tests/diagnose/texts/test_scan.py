"""One pass for many patterns."""

import dataclasses
import pickle
import re
from pathlib import Path

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from harness.diagnose.texts import blocks
from harness.diagnose.texts.dress import Dress
from harness.diagnose.texts.files import TextFile
from harness.diagnose.texts.lines import MAX_LINE_CHARS, Line
from harness.diagnose.texts.patterns import (
    HEAD,
    HEAD_LINES,
    SAMPLE,
    SAMPLE_LINES,
    TAIL,
    TAIL_LINES,
    Pattern,
)
from harness.diagnose.texts.scan import Lines, Scanner

PLACES = {HEAD, TAIL, SAMPLE}
SCANNER = Scanner(
    [Pattern("ERROR", "error", ignore_case=True), Pattern("STEP", r"step=\d"), Pattern("STEP", "iteration ")]
)


def text_file(folder: Path, data: bytes) -> TextFile:
    path = folder / "a.log"
    path.write_bytes(data)
    return TextFile("a.log", path, "text", len(data))


def lines_of(folder: Path, data: bytes) -> Lines:
    return SCANNER.lines(text_file(folder, data))


def matched(lines: Lines) -> list[tuple[int, str, set[str]]]:
    return [(line.number, line.text, set(line.tags) - PLACES) for line in lines if line.tags - PLACES]


def numbers(lines: list[Line], tag: str) -> list[int]:
    return [line.number for line in lines if tag in line.tags]


def test_a_line_comes_once_with_all_its_tags(tmp_path: Path) -> None:
    """In order, under its number, whatever matched and how often."""
    data = b"a\nstep=1 step=2 Error\nb\n\niteration 7\n"

    assert matched(lines_of(tmp_path, data)) == [
        (2, "step=1 step=2 Error", {"STEP", "ERROR"}),
        (5, "iteration 7", {"STEP"}),
    ]


def test_beginning_end_and_samples_come_untold(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """So that later code sees who speaks."""
    monkeypatch.setattr(blocks, "BLOCK_BYTES", 8000)
    data = b"".join(b"line %4d\n" % i for i in range(1, 2001))

    found = list(lines_of(tmp_path, data))

    assert numbers(found, HEAD) == list(range(1, 1 + HEAD_LINES))
    assert numbers(found, TAIL) == list(range(2001 - TAIL_LINES, 2001))
    firsts = [range(begin, begin + SAMPLE_LINES) for begin in (1, 801, 1601)]
    assert numbers(found, SAMPLE) == [number for first in firsts for number in first]
    assert all(line.text == f"line {line.number:4}" for line in found)


def test_the_tail_is_complete_where_the_last_block_is_short(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its first lines stand in the block before."""
    monkeypatch.setattr(blocks, "BLOCK_BYTES", 800)
    data = b"".join(b"line %4d\n" % i for i in range(1, 164))

    assert numbers(list(lines_of(tmp_path, data)), TAIL) == list(range(164 - TAIL_LINES, 164))


@pytest.mark.parametrize("block", [30, 1 << 20])
def test_lines_are_followed_while_somebody_wants_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, block: int
) -> None:
    """Over the ends of blocks too; none comes twice, and none is left out."""
    monkeypatch.setattr(blocks, "BLOCK_BYTES", block)
    data = b"".join(b"line %4d%s\n" % (i, b" error" if i == 300 else b"") for i in range(1, 1001))
    lines = lines_of(tmp_path, data)

    after = []
    for line in lines:
        lines.follow = 300 <= line.number < 310
        if 300 <= line.number <= 310:
            after.append((line.number, line.text[:9]))

    assert after == [(i, f"line {i:4}") for i in range(300, 311)]


def test_carriage_returns_split_a_line_that_keeps_its_number(tmp_path: Path) -> None:
    """The parts that match come, each with its own tags."""
    data = b"x\r\n 10%\r 20% step=3\r 30%\rerror: y\r\nz\n"

    assert matched(lines_of(tmp_path, data)) == [(2, " 20% step=3", {"STEP"}), (2, "error: y", {"ERROR"})]


def test_a_progress_bar_without_matches_comes_as_it_was_left(tmp_path: Path) -> None:
    """Its last part, since that is what a person saw."""
    (line,) = lines_of(tmp_path, b" 10%\r 20%\r 30%")

    assert (line.number, line.text, line.whole, line.tags) == (1, " 30%", False, PLACES)


def test_colours_are_no_text(tmp_path: Path) -> None:
    """With the escape or with it lost; other escape sequences go too."""
    data = b"\x1b[31m\x1b[Kerror\x1b[0m [33mhere[0m \x1b]0;title\x07end\n"

    assert [line.text for line in lines_of(tmp_path, data)] == ["error here end"]


def test_bytes_of_any_encoding_are_kept(tmp_path: Path) -> None:
    """As surrogates."""
    raw = b"error \xff\xfe\x80 " + "é".encode("latin-1")

    (line,) = lines_of(tmp_path, raw + b"\n")

    assert line.text.encode(errors="surrogateescape") == raw


def test_zeros_do_not_end_a_file(tmp_path: Path) -> None:
    """Nor hide a match."""
    assert matched(lines_of(tmp_path, b"\0" * 500 + b"error\0\n\0step=1\n")) == [
        (1, "\0" * 500 + "error\0", {"ERROR"}),
        (2, "\0step=1", {"STEP"}),
    ]


def test_an_endless_line_gives_its_beginning(tmp_path: Path) -> None:
    """With what matched in the first block of it; the lines behind it keep their numbers."""
    data = b"x" * 100_000 + b"error" + b"y" * (3 << 20) + b"\nstep=1\n"
    lines = lines_of(tmp_path, data)

    found = [line for line in lines if line.tags - PLACES]

    assert [(line.number, len(line.text), line.whole) for line in found] == [
        (1, 64 << 10, False),
        (2, 6, True),
    ]
    assert lines.complaints == ["a line is longer than 512 KiB: only the beginning was read"]


def test_an_empty_file_has_no_lines(tmp_path: Path) -> None:
    """It may have been emptied since it was found."""
    assert list(lines_of(tmp_path, b"")) == []


def test_a_scanner_goes_to_another_process(tmp_path: Path) -> None:
    """It is compiled there, or found."""
    scanner = pickle.loads(pickle.dumps(SCANNER))

    assert matched(scanner.lines(text_file(tmp_path, b"error"))) == [(1, "error", {"ERROR"})]


def test_two_passes_at_once_do_not_mix(tmp_path: Path) -> None:
    """Whoever reads two files side by side."""
    first, second = (iter(lines_of(tmp_path, b"error\nstep=1\n")) for _ in range(2))

    pairs = [(a.text, b.text) for a, b in zip(first, second, strict=True)]

    assert pairs == [("error", "error"), ("step=1", "step=1")]


@pytest.mark.parametrize("regex", [r"step=\d+", "a.*", "b?", "x{3,}"])
def test_a_pattern_that_ends_with_a_repeat_is_refused(regex: str) -> None:
    """It would match at each of its ends."""
    with pytest.raises(ValueError, match="ends with a repeat"):
        Pattern("X", regex)


@settings(deadline=None, max_examples=150)
@given(
    st.lists(
        st.sampled_from([b"error", b"step=1", b"abc", b"\n", b"\n", b"\r\n", b"\0", b"\xff"]), max_size=60
    ),
    st.sampled_from([24, 50, 1 << 20]),
)
def test_what_matches_is_what_a_plain_search_finds(
    tmp_path_factory: pytest.TempPathFactory, words: list[bytes], block: int
) -> None:
    """However the file is cut."""
    data = b"".join(words)
    raw_lines = data.split(b"\n")
    assume(max(map(len, raw_lines)) < block)
    wanted = [
        (number, raw.rstrip(b"\r").decode(errors="surrogateescape"))
        for number, raw in enumerate(raw_lines, 1)
        if re.search(rb"error|step=\d", raw)
    ]
    lines = lines_of(tmp_path_factory.mktemp("x"), data)
    lines._blocks.size = block

    assert [(number, text) for number, text, _ in matched(lines)] == wanted


def test_what_stands_behind_a_long_hole_is_the_line(tmp_path: Path) -> None:
    """Zeros in front do not use up what is kept of a long line."""
    data = b"\0" * (MAX_LINE_CHARS + 10) + b"error\n"

    assert matched(lines_of(tmp_path, data)) == [(1, "error", {"ERROR"})]


def test_lines_come_without_what_their_file_wears(tmp_path: Path) -> None:
    """Patterns find what is written, readers see what was meant."""
    file = dataclasses.replace(text_file(tmp_path, b"> error &lt;\n"), dress=Dress(quotes=1))

    assert matched(SCANNER.lines(file)) == [(1, "error &lt;", {"ERROR"})]
