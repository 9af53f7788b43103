"""Reading traces: whole, compressed, bare, cut short, damaged, and none at all."""

import gzip
import json
import subprocess
import sys
from pathlib import Path

import pytest

from harness.diagnose.comparing import compare
from harness.diagnose.traces.find import find_traces, rank_from_name
from harness.diagnose.traces.header import NotATrace
from harness.diagnose.traces.prepare import prepare
from harness.diagnose.traces.read import read_trace
from harness.model.errors import PrerequisiteError
from tests.diagnose.traces.generate import Work, generated, write

STEPS = 6


@pytest.fixture
def whole(tmp_path: Path) -> Path:
    """A trace of rank 3, six steps."""
    return write(tmp_path / "rank3_trace.json", generated(Work(), 3, STEPS))


def test_a_compressed_trace_reads_the_same(whole: Path, tmp_path: Path) -> None:
    """gzip is told by its first bytes, whatever the name."""
    packed = tmp_path / "packed.json"
    packed.write_bytes(gzip.compress(whole.read_bytes()))

    one, other = prepare(find_traces([whole])[0]), prepare(find_traces([packed])[0])

    assert one.rank == other.rank == 3
    assert one.work == other.work
    assert one.steps.begin.tolist() == other.steps.begin.tolist()


def test_a_bare_array_is_a_trace(whole: Path, tmp_path: Path) -> None:
    """The other form of a Chrome trace: events and nothing around them; the rank is in the name then."""
    bare = tmp_path / "x_rank_7.json"
    bare.write_text(json.dumps(json.loads(whole.read_bytes())["traceEvents"]))

    (found,) = find_traces([bare])

    assert prepare(found).rank == 7
    assert len(prepare(found).steps) == STEPS - 1


@pytest.mark.parametrize("packed", [False, True])
def test_a_trace_cut_short_gives_its_whole_steps(whole: Path, tmp_path: Path, packed: bool) -> None:
    """A killed profiler: the steps before the cut count, and the cut is said."""
    data = whole.read_bytes()
    if packed:
        data = gzip.compress(data)
    cut = tmp_path / "cut.json"
    cut.write_bytes(data[: len(data) * 7 // 10])

    trace = prepare(find_traces([cut])[0])

    full = prepare(find_traces([whole])[0])
    assert 0 < len(trace.steps) < STEPS - 1
    assert trace.steps.begin.tolist() == full.steps.begin.tolist()[: len(trace.steps)]
    assert trace.broken
    assert any("breaks off" in words for words in trace.said)
    assert any("cut off and left out" in words for words in trace.said)


def test_a_trace_cut_before_its_kernels_is_refused(whole: Path, tmp_path: Path) -> None:
    """What looks like a trace without a device would put everything into the wrong bucket."""
    data = whole.read_bytes()
    cut = tmp_path / "cut.json"
    cut.write_bytes(data[: data.index(b'"cat": "kernel"')])

    with pytest.raises(NotATrace, match="before its kernels"):
        prepare(find_traces([cut])[0])


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("empty.json", b""),
        ("notes.json", b'{"name": "package", "version": 3}'),
        ("list.json", b"[1, 2, 3]"),
        ("text.json", b"hello"),
        ("half.json.gz", gzip.compress(b'{"traceEvents": []}', mtime=0)[:9]),
    ],
)
def test_other_files_are_no_traces(tmp_path: Path, name: str, data: bytes) -> None:
    """They are passed over, not half-read."""
    (tmp_path / name).write_bytes(data)

    assert find_traces([tmp_path]) == ()


def test_a_trace_without_events_says_so(tmp_path: Path) -> None:
    """The list is there and empty."""
    (tmp_path / "a.json").write_text('{"schemaVersion": 1, "traceEvents": []}')

    with pytest.raises(NotATrace, match="no events"):
        read_trace(tmp_path / "a.json")


def test_numbers_of_64_bits_are_read(whole: Path) -> None:
    """Communicator ids are hashes; ijson's fast numbers do not hold them."""
    document = json.loads(whole.read_bytes())
    for event in document["traceEvents"]:
        event.setdefault("args", {})["Comms Id"] = 2**64 - 1
    whole.write_text(json.dumps(document))

    recording = read_trace(whole)

    assert recording.broken is None
    assert len(recording.steps) == STEPS


def test_senseless_events_are_left_out(whole: Path) -> None:
    """Other people's events are not trusted: what makes no sense is counted, the rest is used."""
    document = json.loads(whole.read_bytes())
    senseless = [
        {"ph": "X", "cat": "kernel", "name": "gemm"},
        {"ph": "X", "cat": "kernel", "name": 3, "ts": 1.0, "dur": 2.0},
        {"ph": "X", "cat": "kernel", "name": "gemm", "ts": "soon", "dur": 2.0},
        {"ph": "X", "cat": "user_annotation", "name": "ProfilerStep#x", "tid": 1, "ts": 1.0},
        {"cat": "kernel"},
        17,
    ]
    document["traceEvents"][5:5] = senseless
    whole.write_text(json.dumps(document))

    trace = prepare(find_traces([whole])[0])

    assert any(words.startswith(f"{len(senseless)} of ") for words in trace.said)
    assert len(trace.steps) == STEPS - 1


def test_without_step_annotations_the_trace_is_one_step(whole: Path) -> None:
    """profiler.step() was never called: one step from the first kernel to the last, and that is said."""
    document = json.loads(whole.read_bytes())
    events = [e for e in document["traceEvents"] if not e["name"].startswith("ProfilerStep")]
    whole.write_text(json.dumps({**document, "traceEvents": events}))

    trace = prepare(find_traces([whole])[0])

    assert trace.steps.label.tolist() == [-1]
    assert any("no ProfilerStep" in words for words in trace.said)


@pytest.mark.parametrize(
    ("name", "rank"),
    [
        ("rank3_trace.json", 3),
        ("iteration_100/rank12_trace.json.gz", 12),
        ("x_rank_7.json", 7),
        ("5.json", 5),
        ("node037_4146.1700000000000.pt.trace.json", None),
        ("trace.json", None),
    ],
)
def test_ranks_in_names(name: str, rank: int | None) -> None:
    """Process ids and times in a name are no ranks."""
    assert rank_from_name(name) == rank


MEASURE = """
import sys
from pathlib import Path
from harness.diagnose.traces.read import read_trace
from harness.model.errors import PrerequisiteError
small, large = map(Path, sys.argv[1:])
read_trace(small)
def peak():
    (line,) = (line for line in open("/proc/self/status") if line.startswith("VmHWM"))
    return int(line.split()[1]) * 1024
before = peak()
assert read_trace(large).events > 40_000
print((peak() - before) / large.stat().st_size)
"""


def test_memory_does_not_follow_the_file(tmp_path: Path) -> None:
    """Reading a large trace takes a small part of its size more memory than reading a small one."""
    small = write(tmp_path / "small.json", generated(Work()))
    document = generated(Work(layers=50), steps=10).document()
    body = json.dumps(document.pop("traceEvents"), indent=1)[1:-1]
    large = tmp_path / "large.json"
    large.write_text(f'{json.dumps(document)[:-1]}, "traceEvents": [{",".join([body] * 16)}]}}')
    assert large.stat().st_size > 20 << 20

    command = (sys.executable, "-c", MEASURE, str(small), str(large))
    done = subprocess.run(command, capture_output=True, text=True, check=True)

    assert float(done.stdout) < 0.25


def spoilt(path: Path, name: str, duration: float) -> int:
    """Give all events whose name begins so another duration, in microseconds; how many there are."""
    document = json.loads(path.read_bytes())
    events = [e for e in document["traceEvents"] if e["name"].startswith(name) and "dur" in e]
    for event in events:
        event["dur"] = duration
    path.write_text(json.dumps(document))
    return len(events)


@pytest.mark.parametrize("duration", [0.0, -1.0])
def test_kernels_that_take_no_time_are_left_out(whole: Path, duration: float) -> None:
    """They are counted among the senseless ones, and the others are used."""
    count = spoilt(whole, "Memcpy", duration)

    trace = prepare(find_traces([whole])[0])

    assert any(words.startswith(f"{count} of ") for words in trace.said)
    assert "Memcpy DtoD (Device -> Device)" not in trace.work.by_name


@pytest.mark.parametrize("duration", [0.0, -1.0])
def test_steps_that_take_no_time_are_no_steps(whole: Path, duration: float) -> None:
    """A trace whose steps all end before they begin is none, rather than one of -1 us a step."""
    spoilt(whole, "ProfilerStep", duration)

    with pytest.raises(NotATrace, match=f"all its {STEPS} steps end when they begin"):
        prepare(find_traces([whole])[0])


@pytest.mark.parametrize("duration", [0.0, -1.0])
def test_a_side_with_impossible_times_only_is_refused(whole: Path, tmp_path: Path, duration: float) -> None:
    """Nothing is left to compare: that is an error with its reason, not a comparison."""
    bad = tmp_path / "bad" / "rank3_trace.json"
    bad.parent.mkdir()
    bad.write_bytes(whole.read_bytes())
    spoilt(bad, "", duration)

    with pytest.raises(PrerequisiteError, match=r"rank3_trace\.json: "):
        compare([bad], whole)
