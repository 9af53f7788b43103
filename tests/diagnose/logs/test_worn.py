"""What a whole log wears changes no answer: a quotation, numbers, a page, a hole, a logger's objects."""

import html
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from harness.diagnose.api import diagnose
from harness.model.diagnosis import Diagnosis
from tests.diagnose.logs.cases.writing import write
from tests.diagnose.logs.wild import WILD
from tests.diagnose.logs.wild.model import Wild

SOME = (
    "glued_bar",
    "segv_named",
    "srun_task_killed",
    "torchrun_layout",
    "two_nodes_two_blocks",
    "mesh_sisters",
    "barrier_in_group",
    "detail_in_group",
    "half_joined",
    "kernel_kills_other",
    "config_dump",
    "words_in_data",
)

WORN_ALREADY = ("utf16", "grep_numbered", "cat_numbered", "pasted_numbered", "jenkins_page", "html_escaped")
"""Packed as they are, they are no text to put a second dress on, or one numbers what has numbers."""


def _quoted(data: bytes) -> bytes:
    return b"".join(b"> " + row + b"\n" for row in data.rstrip(b"\n").split(b"\n"))


def _numbered(data: bytes) -> bytes:
    rows = data.rstrip(b"\n").split(b"\n")
    return b"".join(b"%6d\t%s\n" % (n, row) for n, row in enumerate(rows, 1))


def _page(data: bytes) -> bytes:
    escaped = html.escape(data.decode(errors="surrogateescape")).encode(errors="surrogateescape")
    return b"<html><body><pre>\n" + escaped + b"</pre></body></html>\n"


def _holed(data: bytes) -> bytes:
    half = data.find(b"\n", len(data) // 2) + 1
    return data[:half] + b"\0" * 9000 + b"\n" + data[half:]


def _objects(data: bytes) -> bytes:
    rows = data.decode(errors="surrogateescape").rstrip("\n").split("\n")
    return "".join(json.dumps({"event": row, "level": "info"}) + "\n" for row in rows).encode()


DRESSES: dict[str, Callable[[bytes], bytes]] = {
    "quoted": _quoted,
    "numbered": _numbered,
    "page": _page,
    "holed": _holed,
    "objects": _objects,
}


@pytest.mark.parametrize("dress", DRESSES)
@pytest.mark.parametrize("name", SOME)
def test_a_dress_changes_no_answer(name: str, dress: str, tmp_path: Path) -> None:
    """Kind, culprits, suspects and the number of ranks are those of the log without it."""
    assert _worn(WILD[name], dress, tmp_path) == _answer(WILD[name].files(), WILD[name], tmp_path / "bare")


@pytest.mark.sweep
@pytest.mark.parametrize("dress", ["quoted", "page"])
@pytest.mark.parametrize("name", [name for name in WILD if name not in WORN_ALREADY])
def test_no_dress_changes_any_answer(name: str, dress: str, tmp_path: Path) -> None:
    """All incidents that we have."""
    assert _worn(WILD[name], dress, tmp_path) == _answer(WILD[name].files(), WILD[name], tmp_path / "bare")


def _worn(wild: Wild, dress: str, folder: Path) -> tuple[object, ...]:
    put_on = DRESSES[dress]
    return _answer(
        {name: put_on(data) if data else data for name, data in wild.files().items()}, wild, folder / dress
    )


def _answer(files: dict[str, bytes], wild: Wild, folder: Path) -> tuple[object, ...]:
    found: Diagnosis = diagnose(write(files, folder), world_size=wild.world).diagnosis
    return found.kind, found.culprits, found.suspects, found.ranks.expected
