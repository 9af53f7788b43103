"""Whatever happens to a log: reading it never raises, and lines that were spared keep their numbers."""

import gzip
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.diagnose.signals.formats.read import Foreign, read_foreign
from tests.diagnose.signals.formats.reading import SAMPLES, by_step, read_bytes

FILES = sorted(path for path in SAMPLES.rglob("*") if path.is_file())
ONE_LINE_A_STEP = [SAMPLES / "torchtitan" / "stdout.log", SAMPLES / "deepspeed" / "pipeline.log"]

_NOT_GARBAGE = frozenset(b"\r\n:0123456789\0")
_MAGIC = (b"\x80", b"\x1f", b"\xfe", b"\xff", b"\xef", b"<", b"{")
GARBAGE = st.binary(max_size=40).filter(lambda b: not set(b) & _NOT_GARBAGE and b[:1] not in _MAGIC)
"""No digits and colons: another number, or another timer's name, is not to be told from a true one.

And nothing that makes the file another kind of file.
"""

DAMAGE = st.one_of(
    st.tuples(st.just("head"), st.floats(0, 0.99), GARBAGE),
    st.tuples(st.just("tail"), st.floats(0.01, 1), GARBAGE),
    st.tuples(st.just("lost"), st.just(0.0), GARBAGE),
    st.tuples(st.just("before"), st.just(0.0), GARBAGE),
)


def damaged(line: bytes, damage: tuple[str, float, bytes]) -> list[bytes]:
    """A line that was cut off, begun late, overwritten, or has a foreign one before it."""
    how, share, garbage = damage
    at = int(share * len(line))
    return {
        "head": [line[:at] + garbage],
        "tail": [garbage + line[at:]],
        "lost": [garbage],
        "before": [garbage, line],
    }[how]


def mutilate(path: Path, damages: dict[int, tuple[str, float, bytes]]) -> tuple[Foreign, set[int]]:
    """Read a damaged copy of a sample; the numbers of the lines that were spared come with it."""
    lines = path.read_bytes().splitlines()
    damages = {at % len(lines): damage for at, damage in damages.items()}
    out = [
        part
        for at, line in enumerate(lines)
        for part in (damaged(line, damages[at]) if at in damages else [line])
    ]
    with TemporaryDirectory() as folder:
        foreign = read_bytes(Path(folder), b"\n".join(out) + b"\n", path.name)
    hurt = {at for at, damage in damages.items() if damage[0] != "before"}
    return foreign, {at + 1 for at in range(len(lines)) if at not in hurt}


def all_steps(foreign: Foreign) -> list[tuple[int, int, dict[str, float]]]:
    return [(c.rank, step, values) for c in foreign.columns for step, values in by_step(c).items()]


MANY = st.dictionaries(st.integers(0, 200), DAMAGE, max_size=12)


@pytest.mark.parametrize("path", ONE_LINE_A_STEP, ids=lambda p: p.name)
@settings(deadline=None, max_examples=60)
@given(damages=MANY)
def test_a_spared_line_keeps_its_step_and_numbers(
    path: Path, damages: dict[int, tuple[str, float, bytes]]
) -> None:
    """Formats with one line a step."""
    foreign, spared = mutilate(path, damages)

    found = all_steps(foreign)
    for columns in read_foreign([path]).columns:
        for line, (step, values) in zip(columns.line.tolist(), by_step(columns).items(), strict=True):
            values.pop("ckpt_duration_s", None)
            if line in spared:
                assert any(s == step and values.items() <= v.items() for _, s, v in found), (line, step)


@settings(deadline=None, max_examples=60)
@given(damages=MANY)
def test_spared_timers_are_every_rank_s_own(damages: dict[int, tuple[str, float, bytes]]) -> None:
    """A block that lost lines gives less, and nothing false to ranks whose lines are there."""
    path = SAMPLES / "megatron" / "all.log"
    foreign, spared = mutilate(path, damages)

    found = {(rank, step): values for rank, step, values in all_steps(foreign)}
    for rank, step, values in all_steps(read_foreign([path])):
        first = 2 if step == 10 else 25
        if set(range(first, first + 23)) <= spared and spared >= {1}:
            said = found[rank, step]
            assert {name: said[name] for name in values} == values


@settings(deadline=None, max_examples=60)
@given(damages=MANY)
def test_spared_spans_keep_their_step(damages: dict[int, tuple[str, float, bytes]]) -> None:
    """A step of which no event was hurt is the same to the last digit."""
    (path,) = (p for p in FILES if "global_rank_0" in p.name)
    foreign, spared = mutilate(path, damages)

    found = {step: values for _, step, values in all_steps(foreign)}
    (whole,) = read_foreign([path]).columns
    begin = 4
    for end, (step, values) in zip(whole.line.tolist(), by_step(whole).items(), strict=True):
        if set(range(begin, end + 1)) <= spared:
            assert found[step] == values
        begin = end + 1


@pytest.mark.parametrize("path", FILES, ids=lambda p: p.name)
@settings(deadline=None, max_examples=40)
@given(data=st.data())
def test_nothing_that_happens_to_a_file_raises(path: Path, data: st.DataObject) -> None:
    """Bytes changed, cut out, repeated or cut off anywhere, gzipped or not."""
    content = bytearray(path.read_bytes())
    for _ in range(data.draw(st.integers(1, 8))):
        at = data.draw(st.integers(0, len(content)))
        size = data.draw(st.integers(0, 300))
        content[at : at + size] = data.draw(
            st.one_of(st.binary(max_size=60), st.just(bytes(content[at : at + 3 * size])), st.just(b""))
        )
    packed = gzip.compress(bytes(content))
    for cut in (bytes(content), packed[: data.draw(st.integers(0, len(packed)))]):
        with TemporaryDirectory() as folder:
            foreign = read_bytes(Path(folder), cut, path.name)
        assert all(len(c) == len(c.t) == len(c.line) for c in foreign.columns)


WORDS = (
    *(
        "{",
        "}",
        '"log_type_name"',
        ":",
        '"step_end"',
        "null",
        "1e400",
        "\0",
        "\n",
        " ",
        "nan",
        "step: ",
        "loss: ",
    ),
    *("tps: ", "iteration ", "1/ 2 |", "ranks (ms):", "rank 0: 1.0", "time (ms) |", "step=1, skipped="),
)


@settings(deadline=None, max_examples=100)
@given(st.lists(st.sampled_from(WORDS)))
def test_no_mixture_of_words_raises(words: list[str]) -> None:
    """Pieces of all formats in any order."""
    with TemporaryDirectory() as folder:
        foreign = read_bytes(Path(folder), "".join(words).encode())

    assert isinstance(foreign, Foreign)
