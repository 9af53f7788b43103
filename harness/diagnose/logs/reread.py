"""Reads cited lines again before a verdict is written (DIAGNOSIS, discipline 3)."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from harness.diagnose.logs.jsonlines import unwrapped
from harness.diagnose.texts.blocks import Blocks
from harness.diagnose.texts.ends import LineEnds
from harness.diagnose.texts.files import TextFile
from harness.diagnose.texts.lines import NO_TAGS, line_of
from harness.model.diagnosis import Citation

PROBE_CHARS = 24
"""So much of a line's words must stand where it is said to stand."""

LATER_LINES = 4
"""A record that was wrapped goes on in the lines after the one that is cited."""


@dataclass
class Reread:
    """Confirms citations of files; what does not hold is left out and complained of."""

    files: Mapping[str, TextFile]
    complaints: list[str] = field(default_factory=list)

    def confirmed(self, cited: Iterable[Citation]) -> tuple[Citation, ...]:
        """The citations whose lines say what they are said to say; those of other evidence as they are."""
        given = list(cited)
        wanted: dict[str, set[int]] = {}
        for citation in given:
            if citation.file is not None and citation.file in self.files and citation.line:
                wanted.setdefault(citation.file, set()).add(citation.line)
        texts = {name: _lines(self.files[name], numbers) for name, numbers in wanted.items()}
        kept: list[Citation] = []
        for citation in given:
            text = texts.get(citation.file or "", {}).get(citation.line or 0)
            if (
                citation.file not in texts
                or citation.line is None
                or (text is not None and _says(text, citation.says))
            ):
                kept.append(citation)
            else:
                self.complaints.append(f"{citation.file}:{citation.line} does not read as before: left out")
        return tuple(kept)


def _says(text: str, says: str) -> bool:
    """Whether the words of a citation, or those behind its introduction, stand in the text."""
    if says.startswith("DETAIL: ") and "Detected mismatch between collectives" in text:
        # Said in short: the line is a thousand characters long.
        return True
    squeezed = "".join(text.split())
    return any(
        "".join(part.split())[:PROBE_CHARS] in squeezed
        for part in (says, *(says.split(": ", n)[-1] for n in (1, 2)))
    )


def _lines(file: TextFile, numbers: set[int]) -> dict[int, str]:
    """Lines by number, each with the few after it."""
    found: dict[int, str] = {}
    number, last = 1, max(numbers) + LATER_LINES
    wanted = {n + k for n in numbers for k in range(LATER_LINES + 1)}
    near: dict[int, str] = {}
    ends = LineEnds()
    for block in Blocks(file.path):
        ends.of(block)
        count = ends.before(block.end)
        if any(number <= n <= number + count for n in wanted):
            for offset, raw in enumerate(block.data[: block.end].split(b"\n")):
                if number + offset in wanted:
                    near[number + offset] = line_of(number + offset, raw, NO_TAGS, whole=True).text
        number += count
        if number > last:
            break
    near = {n: _read_as(file, text) for n, text in near.items()}
    for n in numbers:
        if n in near:
            found[n] = "".join(near.get(n + k, "") for k in range(LATER_LINES + 1))
    return found


def _read_as(file: TextFile, text: str) -> str:
    """A line as it was read: without its file's dress, or as what its JSON says."""
    text = file.dress.off(text) if file.dress is not None else text
    said = unwrapped(text)
    return "\n".join(said.rows) if said is not None else text
