"""Every moment of a step belongs to exactly one bucket."""

import dataclasses
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.diagnose.traces.breakdown import BUCKETS, parts
from harness.diagnose.traces.collectives import Collectives, identify, shortest, split
from harness.diagnose.traces.find import find_traces
from harness.diagnose.traces.header import Header
from harness.diagnose.traces.prepare import prepare, reduce_recording
from harness.diagnose.traces.recorder import Recorder
from harness.diagnose.traces.recording import CollectiveKey, Recording
from tests.diagnose.traces.generate import (
    ALL_REDUCE,
    ELEMENTWISE,
    GEMM,
    SEND_RECV,
    Trace,
    Work,
    generated,
    write,
)

NODE = "autograd::engine::evaluate_function: "
EVENTS = st.sampled_from(
    [
        ("kernel", GEMM[0]),
        ("kernel", ELEMENTWISE),
        ("kernel", ALL_REDUCE),
        ("kernel", SEND_RECV),
        ("gpu_memcpy", "Memcpy DtoH (Device -> Pinned)"),
        ("cuda_runtime", "cudaLaunchKernel"),
        ("cpu_op", "aten::mm"),
        ("cpu_op", "aten::add"),
        ("cpu_op", f"{NODE}CheckpointFunctionBackward"),
        ("cpu_op", f"{NODE}AddmmBackward0"),
        ("cpu_op", "c10d::allreduce_"),
        ("user_annotation", "gloo:all_reduce"),
        ("user_annotation", "gloo:send"),
        ("user_annotation", "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"),
        ("user_annotation", "recompute"),
        ("user_annotation", "ProfilerStep#4"),
    ]
)
TIMES = st.integers(0, 300_000).map(lambda ns: ns / 1000)


def recorded(events: list[dict[str, object]]) -> Recording:
    recording = Recording(Header("item"))
    for event in events:
        with suppress(ValueError):  # as the reader does: work that takes no time is left out
            Recorder(recording).take(event)
        recording.events += 1
    return recording


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.tuples(EVENTS, TIMES, TIMES, st.integers(1, 3), st.integers(1, 4)), max_size=40),
    st.lists(st.tuples(TIMES, TIMES.filter(bool)), min_size=1, max_size=4),
    st.booleans(),
)
def test_parts_add_up_exactly(events: list[object], steps: list[tuple[float, float]], device: bool) -> None:
    """Whatever overlaps whatever, no part is negative and together they are the step, to the nanosecond."""
    made: list[dict[str, object]] = []
    for number, (at, us) in enumerate(steps):
        name = f"ProfilerStep#{number}"
        made.append({"ph": "X", "cat": "user_annotation", "name": name, "tid": 1, "ts": at, "dur": us})
    for (cat, name), at, us, tid, number in events:  # type: ignore[misc]
        if device or cat not in ("kernel", "gpu_memcpy"):
            args = {"correlation": number, "Sequence number": number}
            made.append({"ph": "X", "cat": cat, "name": name, "tid": tid, "ts": at, "dur": us, "args": args})
    trace = reduce_recording(recorded(made), "rank0.json")
    least = shortest([trace.collectives])
    begin, end = trace.steps.begin, trace.steps.end

    found = parts(trace.computing, split(trace.collectives, trace.keys, least), begin, end)

    assert tuple(found) == BUCKETS
    assert all((part >= 0).all() for part in found.values())
    assert (sum(found.values()) == end - begin).all()


@pytest.mark.parametrize(
    ("bucket", "changed"),
    [
        ("compute", {"matrix_us": 4000.0}),
        ("kernel_eff", {"other_us": 2700.0}),
        ("recompute", {"recompute_us": 2400.0}),
        ("comm_exposed", {"transfer_us": 2300.0}),
        ("straggler", {"wait_us": 2020.0}),
        ("bubble", {"bubble_us": 2150.0}),
        ("data_wait", {"data_us": 2060.0}),
        ("cpu_launch", {"host_us": 2200.0}),
    ],
)
def test_each_kind_of_work_is_its_own_bucket(tmp_path: Path, bucket: str, changed: dict[str, float]) -> None:
    """Two milliseconds more of one thing are two milliseconds more in one bucket, and in no other."""
    still = dataclasses.replace(Work(), jitter=0.0)
    before = buckets(write(tmp_path / "a.json", generated(still)))
    after = buckets(write(tmp_path / "b.json", generated(dataclasses.replace(still, **changed))))

    grown_us = {name: round(after[name] - before[name], 1) for name in BUCKETS}

    assert grown_us == {**dict.fromkeys(BUCKETS, 0.0), bucket: 2000.0}


def buckets(path: Path) -> dict[str, float]:
    """Microseconds of each bucket in the last step of one trace."""
    trace = prepare(find_traces([path])[0])
    least = shortest([trace.collectives])
    when = split(trace.collectives, trace.keys, least)
    found = parts(trace.computing, when, trace.steps.begin, trace.steps.end)
    return {name: int(part[-1]) / 1000 for name, part in found.items()}


def test_hidden_communication_is_not_exposed(tmp_path: Path) -> None:
    """A collective under a running product costs nothing; an elementwise kernel beside a product neither."""
    trace = Trace()
    trace.clock = 100.0
    trace.add("user_annotation", "ProfilerStep#1", 1, 100.0, 100.0)
    trace.add("kernel", GEMM[0], 7, 110.0, 50.0, correlation=1)
    trace.add("kernel", ALL_REDUCE, 20, 140.0, 40.0, correlation=2)
    trace.add("kernel", ELEMENTWISE, 8, 120.0, 50.0, correlation=3)

    found = buckets(write(tmp_path / "a.json", trace))

    assert found["compute"] == 50.0
    assert found["kernel_eff"] == 10.0
    assert found["comm_exposed"] == 10.0
    assert found["cpu_launch"] == 30.0


def collectives(durations: list[int], nelems: int | None, steps: list[tuple[int, int]]) -> Collectives:
    key = CollectiveKey("all_reduce", nelems, "Float", "0", False)
    recording = Recording(Header("item"))
    for number, (begin, end) in enumerate(steps):
        recording.steps.add(begin, end, 0, number)
    for i, duration in enumerate(durations):
        recording.collectives.add(100 * i, 100 * i + duration, 0, 0)
    return identify(recording.collectives.columns(), (key,), recording.steps.columns())


def test_without_sizes_only_the_same_place_in_the_step_compares() -> None:
    """gloo's traces say no sizes: the second of a step is compared with the second of other steps."""
    steps = [(0, 200), (200, 400)]
    found = collectives([10, 50, 20, 70], None, steps)

    assert sorted(shortest([found]).values()) == [10, 50]


def test_uneven_steps_without_sizes_compare_nothing() -> None:
    """Where steps make a call a different number of times nobody knows which is which: nothing is waiting."""
    steps = [(0, 100), (100, 300)]
    found = collectives([10, 50, 20], None, steps)

    assert shortest([found]) == {}


def test_sizes_compare_across_places() -> None:
    """Equal messages of one group are alike, wherever in the step."""
    found = collectives([10, 50, 20, 70], 1024, [(0, 200), (200, 400)])

    assert list(shortest([found]).values()) == [10]
