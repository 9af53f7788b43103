"""What a whole file wears, by its head."""

import pytest

from harness.diagnose.texts.dress import LEAST_WITH_COLON, Dress, dress_of

ROWS = [f"step={n} loss=2.1" for n in range(30)]


@pytest.mark.parametrize(
    ("rows", "dress"),
    [
        (ROWS, None),
        (["Hello,", *(f"> {row}" for row in ROWS)], Dress(quotes=1)),
        (["> On Friday:", *(f">> {row}" for row in ROWS)], Dress(quotes=2)),
        (["> building datasets", "> setting tensorboard", *ROWS], None),
        ([f"{n:4}: {row}" for n, row in enumerate(ROWS, 1)], Dress(numbered=True)),
        ([f"{n:4}: {row}" for n, row in enumerate(ROWS)], None),
        ([f"> {n:4}: {row}" for n, row in enumerate(ROWS)], Dress(1, numbered=True)),
        ([f"{7 + 7 * n}:{row}" for n, row in enumerate(ROWS)], Dress(numbered=True)),
        ([f"{n:6}\t{row}" for n, row in enumerate(ROWS)], Dress(numbered=True)),
        ([f"> {n} | {row}" for n, row in enumerate(ROWS)], Dress(1, numbered=True)),
        ([f"{n % 24}: {row}" for n, row in enumerate(ROWS)], None),
        (["  9\ta", " 10\tb", " 12\tc", " 13\td"], Dress(numbered=True)),
        ([f"{n}: ready" for n in range(LEAST_WITH_COLON - 1)], None),
        ([f"{n:02}:00:00 {row}" for n, row in enumerate(ROWS)], None),
        (["<html><body><pre>", *ROWS], Dress(page=True)),
        (["<html><body>", *ROWS], None),
        ([], None),
    ],
)
def test_the_head_tells_what_all_lines_wear(rows: list[str], dress: Dress | None) -> None:
    """Marks of Megatron's own, labels of tasks, times of day are no dress."""
    assert dress_of("\n".join(rows).encode()) == dress


@pytest.mark.parametrize(
    ("dress", "text", "bare"),
    [
        (Dress(quotes=1), ">   File x", "  File x"),
        (Dress(quotes=1), "> > building", "> building"),
        (Dress(quotes=2), ">> > building", "> building"),
        (Dress(quotes=1), "not quoted", "not quoted"),
        (Dress(numbered=True), "  12:   File x", "  File x"),
        (Dress(numbered=True), "12:03:04:05 text", "03:04:05 text"),
        (Dress(1, numbered=True), "> 12: 3: text", "3: text"),
        (
            Dress(page=True),
            '<span class="a"><b>x</b> </span>[1,2]&lt;stderr&gt;:&quot;y&quot;',
            'x [1,2]<stderr>:"y"',
        ),
        (Dress(page=True), "in <module>", "in <module>"),
    ],
)
def test_a_line_without_it(dress: Dress, text: str, bare: str) -> None:
    """Blanks of the line's own stay, and words in angles that are no tags."""
    assert dress.off(text) == bare
