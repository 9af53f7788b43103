"""Twenty thousand mutated dumps and archives: no crash, no hang, nothing imported, memory bounded."""

import gzip
import io
import pickle
import random
import resource
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest

from harness.diagnose.flight.load import NotADump
from harness.diagnose.flight.room import analyse_dumps
from harness.diagnose.flight.sources import DumpSource, find_dumps
from tests.simulate import Scenario, Shape

MUTANTS = 20_000
NASTY: tuple[Any, ...] = (
    *(None, -1, 1 << 70, 1e308, float("nan"), "", "x" * 1000, b"\xff", True, [], {}, (), [[]], [None]),
    *({"a": 1}, [[-1]], [["x"]], "9" * 400, ("only",), [1, [2, [3]]]),
)


def mutate(rng: random.Random, dump: dict[str, Any]) -> bytes:
    """One damaged dump: bytes flipped, cut, doubled, or a field replaced by something nasty."""
    kind = rng.randrange(6)
    if kind < 3:
        dump = pickle.loads(pickle.dumps(dump))
        for _ in range(rng.randrange(1, 4)):
            entry = rng.choice(dump["entries"]) if rng.random() < 0.8 else dump
            entry[rng.choice(list(entry))] = rng.choice(NASTY)
            if not isinstance(dump.get("entries"), list) or not dump["entries"]:
                break
            if not all(isinstance(e, dict) and e for e in dump["entries"]):
                break
        return pickle.dumps(dump)
    data = bytearray(pickle.dumps(dump, protocol=rng.choice((0, 2, 4))))
    if kind == 3:
        for _ in range(rng.randrange(1, 20)):
            data[rng.randrange(len(data))] = rng.randrange(256)
    elif kind == 4:
        del data[rng.randrange(len(data)) :]
    else:
        at = rng.randrange(len(data))
        data[at:at] = data[rng.randrange(len(data)) :][: rng.randrange(64)]
    return bytes(data)


def source_of(rank: int, data: bytes) -> DumpSource:
    """One dump in memory."""
    return DumpSource(f"rank_{rank}", rank, None, len(data), lambda: data)


def test_mutated_dumps_are_survived() -> None:
    """Whatever a file holds, it is a complaint or a table; others are still analysed."""
    rng = random.Random(20)
    scenario = Scenario("size", Shape(dp=4, steps=2), 1)
    dumps = scenario.dumps()
    whole = [source_of(r, pickle.dumps(dumps[r])) for r in range(1, 4)]
    analyse_dumps(whole, world_size=4)
    modules = {name.partition(".")[0] for name in sys.modules}
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for number in range(MUTANTS):
        data = mutate(rng, dumps[0])
        source = source_of(0, data)
        result = analyse_dumps([source, *whole] if number % 10 == 0 else [source], world_size=4)
        assert all("\n" not in line for line in result.evidence.complaints)
    assert {name.partition(".")[0] for name in sys.modules} == modules
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 300 * 1024


def test_mutated_archives_are_survived(tmp_path: Path) -> None:
    """Broken zips and gzips end as complaints."""
    rng = random.Random(21)
    inner = pickle.dumps(Scenario("size", Shape(dp=3, steps=2), 1).dumps()[0])
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("rank_0", inner)
    originals = {"a.zip": buffer.getvalue(), "rank_0.gz": gzip.compress(inner)}
    for _ in range(600):
        name = rng.choice(list(originals))
        data = bytearray(originals[name])
        for _ in range(rng.randrange(1, 8)):
            data[rng.randrange(len(data))] = rng.randrange(256)
        path = tmp_path / name
        path.write_bytes(bytes(data[: rng.randrange(1, len(data) + 1)]))
        sources, complaints = find_dumps([path])
        for source in sources:
            try:
                source.read()
            except NotADump as error:
                complaints.append(str(error))
        assert sources or complaints
        path.unlink()


@pytest.mark.parametrize("nest", [1000, 100_000])
def test_deep_nesting_is_no_dump(nest: int) -> None:
    """Pickles that nest for ever, and JSON that does."""
    for data in (b"(" * nest + b"t" * nest + b".", b"[" * nest, b'{"entries":' * nest):
        source = source_of(0, data)
        assert analyse_dumps([source]).evidence.complaints
