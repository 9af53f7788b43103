"""Cited lines are read again before a verdict: what does not hold is left out, and complained of."""

import json
from pathlib import Path

import pytest

from harness.diagnose.logs.reread import Reread
from harness.diagnose.texts.files import TextFile
from harness.model.diagnosis import Citation

LINES = [
    "first words of the log",
    "[rank3]: KeyError: 'loss'",
    "\x1b[31mcoloured\x1b[0m words of the log",
    "last",
]


def reread(folder: Path, lines: list[str] = LINES) -> Reread:
    path = folder / "job.log"
    path.write_text("\n".join(lines) + "\n")
    return Reread({"job.log": TextFile("job.log", path, "text")})


@pytest.mark.parametrize(
    ("says", "line"),
    [
        ("KeyError: 'loss'", 2),
        ("only then: KeyError: 'loss'", 2),
        ("coloured words of the log", 3),
        ("first words", 1),
    ],
)
def test_a_citation_that_holds_is_kept(says: str, line: int, tmp_path: Path) -> None:
    """By its words, or those behind its introduction; colours do not count."""
    citation = Citation("log", says, "job.log", line)
    room = reread(tmp_path)

    assert room.confirmed([citation]) == (citation,)
    assert room.complaints == []


def test_a_citation_of_other_words_is_left_out(tmp_path: Path) -> None:
    """Nothing near that line says so."""
    room = reread(tmp_path)

    assert room.confirmed([Citation("log", "ValueError: something else entirely", "job.log", 2)]) == ()
    assert len(room.complaints) == 1
    assert "job.log:2" in room.complaints[0]


def test_a_line_behind_the_end_is_left_out(tmp_path: Path) -> None:
    """The file was cut since it was read."""
    room = reread(tmp_path)

    assert room.confirmed([Citation("log", "KeyError: 'loss'", "job.log", 200)]) == ()
    assert len(room.complaints) == 1


def test_a_file_that_is_gone_is_complained_of(tmp_path: Path) -> None:
    """It does not raise."""
    room = reread(tmp_path)
    (tmp_path / "job.log").unlink()

    assert room.confirmed([Citation("log", "KeyError: 'loss'", "job.log", 2)]) == ()
    assert len(room.complaints) == 1


def test_a_record_that_was_wrapped_is_confirmed_over_its_lines(tmp_path: Path) -> None:
    """It goes on in the lines after the cited one."""
    room = reread(tmp_path, ["Watchdog caught", " collective operation timeout: WorkNCCL(", "SeqNum=1371)"])
    citation = Citation("log", "Watchdog caught collective operation timeout", "job.log", 1)

    assert room.confirmed([citation]) == (citation,)


@pytest.mark.parametrize(
    "citation",
    [
        Citation("flight_recorder", "rank 3 never issued it", "rank_3", record=7),
        Citation("launcher", "ended with 1", "launcher.json"),
        Citation("log", "no line", "job.log"),
        Citation("log", "no file"),
    ],
)
def test_what_is_no_line_of_these_files_is_kept_as_it_is(citation: Citation, tmp_path: Path) -> None:
    """Other rooms answer for theirs."""
    assert reread(tmp_path).confirmed([citation]) == (citation,)


def test_the_order_of_citations_stays(tmp_path: Path) -> None:
    """The first says most."""
    cited = [Citation("log", "last", "job.log", 4), Citation("log", "first words", "job.log", 1)]

    assert reread(tmp_path).confirmed(cited) == tuple(cited)


def test_lines_far_inside_a_large_file(tmp_path: Path) -> None:
    """Numbers count over blocks."""
    lines = [f"line number {n} of a large file" for n in range(1, 200001)]
    citation = Citation("log", "line number 199998 of a large file", "job.log", 199998)

    assert reread(tmp_path, lines).confirmed([citation]) == (citation,)


def test_words_inside_an_object_are_read_as_they_were_said(tmp_path: Path) -> None:
    """JSON escapes quotes, which a citation has not."""
    room = reread(tmp_path, [json.dumps({"message": 'ValueError: "a" "b" "c" "d" is none'})])
    citation = Citation("log", 'ValueError: "a" "b" "c" "d" is none', "job.log", 1)

    assert room.confirmed([citation]) == (citation,)
