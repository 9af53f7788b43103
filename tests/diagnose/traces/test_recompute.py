"""Recomputed activations are told from new work, for both kinds of checkpoints."""

import numpy as np
import pytest

from harness.diagnose.traces.header import Header
from harness.diagnose.traces.recompute import launched_while_recomputing, recomputing
from harness.diagnose.traces.recorder import Recorder
from harness.diagnose.traces.recording import Recording

NODE = "autograd::engine::evaluate_function: "
BACKWARD = {"Sequence number": 7, "Fwd thread id": 1}
FORWARD = {"Sequence number": 80, "Fwd thread id": 0}


def event(cat: str, name: str, at: float, us: float, args: dict[str, int], tid: int = 2) -> dict[str, object]:
    return {"ph": "X", "cat": cat, "name": name, "tid": tid, "ts": at, "dur": us, "args": args}


def launched(events: list[dict[str, object]], at: float, tid: int = 2) -> bool:
    """Whether a kernel launched at a moment counts as recomputed."""
    recording = Recording(Header("item"))
    recorder = Recorder(recording)
    call = event("cuda_runtime", "cudaLaunchKernel", at, 1.0, {"correlation": 9}, tid)
    other = event("cuda_runtime", "cudaLaunchKernel", 999.0, 1.0, {"correlation": 4}, tid)
    kernel = event("kernel", "ampere_sgemm_128x64_nn", 500.0, 10.0, {"correlation": 9})
    for one in (*events, other, call, kernel):
        recorder.take(one)
    (found,) = launched_while_recomputing(recording, recomputing(recording)).tolist()
    return bool(found)


@pytest.mark.parametrize(("at", "again"), [(105.0, True), (125.0, False), (145.0, True), (160.0, False)])
def test_reentrant_checkpoints(at: float, again: bool) -> None:
    """Inside CheckpointFunctionBackward, but not inside an evaluation nested in it."""
    events = [
        event("cpu_op", f"{NODE}CheckpointFunctionBackward", 100.0, 50.0, BACKWARD),
        event("cpu_op", f"{NODE}AddmmBackward0", 120.0, 20.0, BACKWARD),
    ]

    assert launched(events, at) is again


def test_checkpoints_inside_checkpoints() -> None:
    """A checkpoint within the nested backward of another recomputes as well."""
    events = [
        event("cpu_op", f"{NODE}CheckpointFunctionBackward", 100.0, 90.0, BACKWARD),
        event("cpu_op", f"{NODE}MulBackward0", 110.0, 70.0, BACKWARD),
        event("cpu_op", f"{NODE}CheckpointFunctionBackward", 120.0, 40.0, BACKWARD),
    ]

    assert launched(events, 130.0)
    assert not launched(events, 115.0)


def test_checkpoints_without_reentry() -> None:
    """What is recorded for a backward, inside a backward, is a forward done again; a plain one is not."""
    backward = event("cpu_op", f"{NODE}AddmmBackward0", 100.0, 50.0, BACKWARD)
    again = event("cpu_op", "aten::addmm", 110.0, 10.0, FORWARD)
    gradient = event("cpu_op", "aten::mm", 130.0, 10.0, {})

    assert launched([backward, again, gradient], 115.0)
    assert not launched([backward, again, gradient], 135.0)
    assert not launched([again], 115.0), "the first forward is no recomputation"


def test_another_thread_recomputes_nothing() -> None:
    """The main thread may launch while autograd's recomputes."""
    backward = event("cpu_op", f"{NODE}CheckpointFunctionBackward", 100.0, 50.0, BACKWARD)

    assert launched([backward], 120.0, tid=2)
    assert not launched([backward], 120.0, tid=1)


def test_annotations_name_it() -> None:
    """A framework's own annotation counts on its thread."""
    assert launched([event("user_annotation", "recompute_block_3", 100.0, 50.0, {})], 120.0)


def test_kernels_without_a_launch_are_new_work() -> None:
    """A trace without runtime calls cannot say, and then it is not counted."""
    recording = Recording(Header("item"))
    Recorder(recording).take(event("kernel", "gemm", 1.0, 2.0, {"correlation": 3}))

    assert np.array_equal(launched_while_recomputing(recording, recomputing(recording)), [False])
