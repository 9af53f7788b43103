"""Memory and output of the process, measured for real where this machine can."""

import ctypes
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from harness.worker.memory import MemoryReader
from harness.worker.memory_device import DeviceMemory
from harness.worker.memory_heap import Heap
from harness.worker.memory_pace import Pace

MIB = 1 << 20
Record = dict[str, int | float | str | bool]


@pytest.fixture
def reader() -> Iterator[MemoryReader]:
    """A reader of this process's memory."""
    reader = MemoryReader()
    yield reader
    reader.close()


def heap() -> Heap:
    """The allocator, or a skip where glibc is too old or another allocator is preloaded."""
    found = Heap.find()
    if found is None:
        pytest.skip("no mallinfo2")
    return found


RESIDENT = """
import json; from pathlib import Path; from harness.worker.memory import MemoryReader
reader, before, after = MemoryReader(), {}, {}
reader.add(before, 0.0)
block = bytearray(b"x") * (64 << 20)
# So much later that the reading is due again, however slow the first one was.
reader.add(after, 1e6)
(row,) = (r for r in Path("/proc/self/status").read_text().splitlines() if r.startswith("VmRSS"))
print(json.dumps([before["rss_bytes"], after["rss_bytes"], int(row.split()[1]) * 1024]))
"""


def alone(code: str) -> list[int]:
    """Numbers that an interpreter of its own prints: other tests have left nothing in its heap."""
    done = subprocess.run((sys.executable, "-c", code), capture_output=True, text=True, check=True)
    found: list[int] = json.loads(done.stdout)
    return found


def test_resident_memory_is_what_the_kernel_says() -> None:
    """64 MiB that are touched are 64 MiB more; the kernel's own figure agrees within its batching."""
    before, after, kernel = alone(RESIDENT)

    assert 60 * MIB < after - before < 70 * MIB
    assert abs(kernel - after) < 4 * MIB


def test_a_closed_descriptor_makes_it_absent(reader: MemoryReader) -> None:
    """Somebody closed all descriptors: no figure, no exception."""
    reader.close()
    record: Record = {}
    reader.add(record, 0.0)

    assert "rss_bytes" not in record


PRINTS = """
import sys; from harness.worker.memory import MemoryReader
reader = MemoryReader(); print("x" * 1000, flush=True); print("y" * 50, file=sys.stderr, flush=True)
record = {}; reader.add(record, 0.0); open(sys.argv[1], "w").write(str(record.get("stdout_bytes")))
"""


@pytest.mark.parametrize(
    ("out", "err", "expected"),
    [
        (None, None, "None"),
        ("out", None, "1001"),
        ("out", "err", "1052"),
        ("out", "out", "1052"),
    ],
)
def test_output_counts_where_it_goes_to_files(
    tmp_path: Path, out: str | None, err: str | None, expected: str
) -> None:
    """Two files add up, one file counts once, a pipe does not count."""
    files = {name: (tmp_path / name).open("w") for name in {out, err} - {None} if name}
    subprocess.run(
        (sys.executable, "-c", PRINTS, str(tmp_path / "found")),
        stdout=files[out] if out else subprocess.PIPE,
        stderr=files[err] if err else subprocess.PIPE,
        check=True,
    )
    for file in files.values():
        file.close()

    assert (tmp_path / "found").read_text() == expected


def test_the_heap_in_use_got_and_free() -> None:
    """A block in use is allocated; freed inside the heap it is inactive, and still reserved."""
    allocator = heap()
    libc = ctypes.CDLL(None)
    libc.malloc.restype = ctypes.c_void_p
    libc.malloc.argtypes = (ctypes.c_size_t,)
    libc.free.argtypes = (ctypes.c_void_p,)
    before = allocator.read()
    blocks = [libc.malloc(60_000) for _ in range(500)]
    used = allocator.read()
    # The blocks between hold the heap together: nothing goes back to the kernel.
    for block in blocks[::2]:
        libc.free(block)
    fragmented = allocator.read()
    for block in blocks[1::2]:
        libc.free(block)

    assert used["mem_allocated_peak"] - before["mem_allocated_peak"] >= 500 * 60_000 * 0.9
    assert used["mem_reserved_peak"] >= used["mem_allocated_peak"]
    assert fragmented["mem_inactive_split"] - used["mem_inactive_split"] >= 250 * 60_000 * 0.9
    assert fragmented["mem_reserved_peak"] - used["mem_reserved_peak"] < MIB


MAPPED = """
import json, torch; from harness.worker.memory_heap import Heap
heap = Heap.find()
before = heap.read()
tensor = torch.empty(64 << 20, dtype=torch.uint8)
after = heap.read()
print(json.dumps([after[name] - before[name] for name in ("mem_allocated_peak", "mem_reserved_peak")]))
"""


def test_a_mapped_block_is_allocated_and_reserved() -> None:
    """What malloc maps by itself, as it does for large tensors, counts on both sides."""
    heap()

    allocated, reserved = alone(MAPPED)

    assert allocated >= 64 * MIB
    assert reserved >= 64 * MIB


def test_a_preloaded_allocator_makes_it_absent(tmp_path: Path) -> None:
    """With another malloc in front, glibc's figures would be of a heap that nobody uses."""
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("no compiler")
    heap()
    (tmp_path / "other.c").write_text(
        "#include <stddef.h>\nextern void *__libc_malloc(size_t);\n"
        "void *malloc(size_t size) { return __libc_malloc(size); }\n"
    )
    library = tmp_path / "other.so"
    subprocess.run((compiler, "-shared", "-fPIC", "-o", library, tmp_path / "other.c"), check=True)
    code = "from harness.worker.memory_heap import Heap; print(Heap.find())"
    done = subprocess.run(
        (sys.executable, "-c", code),
        env={**os.environ, "LD_PRELOAD": str(library)},
        capture_output=True,
        text=True,
        check=True,
    )

    assert done.stdout == "None\n"


@given(
    st.floats(1e-6, 10.0),
    st.lists(st.floats(1e-4, 5.0), min_size=20, max_size=200),
    st.floats(0, 2e9),
)
def test_readings_take_their_share_at_most(cost_s: float, steps_s: list[float], start: float) -> None:
    """However costly, however long the steps: after the first, at most the share of the time."""
    pace, t, spent = Pace(0.005), start, 0.0
    for step_s in steps_s:
        t += step_s
        if pace.due(t):
            spent += cost_s
            pace.took(t, cost_s)

    assert spent <= 2 * cost_s + 0.005 * (t - start) + 1e-6


def test_cheap_readings_happen_every_step() -> None:
    """A young heap is read in 5 us, a step takes 10 ms: no step is without."""
    pace = Pace(0.005)
    for step in range(1000):
        assert pace.due(1e9 + step * 0.01)
        pace.took(1e9 + step * 0.01, 5e-6)


def test_costly_readings_meet_on_all_ranks() -> None:
    """Ranks that started apart, with unequal costs, read in common steps: one wait, not one a rank."""
    reads: list[set[int]] = []
    for rank, cost_s in enumerate((0.011, 0.012, 0.03)):
        pace, own = Pace(0.005), set()
        for step in range(rank, 400):
            if pace.due(step * 0.1):
                own.add(step)
                pace.took(step * 0.1, cost_s)
        reads.append(own - {rank})

    assert reads[0] == reads[1]
    assert reads[2] < reads[0]


def test_a_clock_that_was_set_back_delays_nothing() -> None:
    """An hour back is not an hour without figures."""
    pace = Pace(0.005)
    pace.took(7200.0, 0.001)

    assert not pace.due(7200.0001)
    assert pace.due(3600.0)


def stats(reserved: int) -> dict[str, object]:
    """The form of torch.cuda.memory_stats_as_nested_dict, as torch 2.13 documents it."""
    pools = {"current": 5, "peak": reserved, "allocated": 9, "freed": 4}
    return {
        "allocated_bytes": {
            "all": {**pools, "peak": reserved // 2},
            "small_pool": pools,
            "large_pool": pools,
        },
        "reserved_bytes": {"all": pools, "small_pool": pools, "large_pool": pools},
        "inactive_split_bytes": {"all": pools},
        "num_alloc_retries": 1,
        "num_ooms": 2,
        "num_device_alloc": 3,
        "num_device_free": 4,
        "num_sync_all_streams": 7,
    }


def test_the_device_that_is_used_most(monkeypatch: pytest.MonkeyPatch) -> None:
    """A rank that never called set_device is found on its device; peaks, retries and counts are its own."""
    cuda = SimpleNamespace(
        is_initialized=lambda: True,
        device_count=lambda: 4,
        memory_stats_as_nested_dict=lambda device: stats(1000 if device == 2 else 10 if device == 0 else 0),
    )
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(cuda=cuda))

    assert DeviceMemory().read() == {
        "mem_allocated_peak": 500,
        "mem_reserved_peak": 1000,
        "mem_inactive_split": 5,
        "num_alloc_retries": 1,
        "num_ooms": 2,
        "num_device_alloc": 3,
        "num_device_free": 4,
    }


@pytest.mark.parametrize(
    "cuda",
    [
        SimpleNamespace(is_initialized=lambda: False),
        SimpleNamespace(
            is_initialized=lambda: True,
            device_count=lambda: 0,
            memory_stats_as_nested_dict=lambda _: {},
        ),
        SimpleNamespace(
            is_initialized=lambda: True,
            device_count=lambda: 2,
            memory_stats_as_nested_dict=lambda _: stats(0),
        ),
        SimpleNamespace(
            is_initialized=lambda: True, device_count=lambda: 2, memory_stats_as_nested_dict=lambda _: {}
        ),
        None,
    ],
)
def test_without_a_device_in_use_the_heap_speaks(
    monkeypatch: pytest.MonkeyPatch, cuda: object, reader: MemoryReader
) -> None:
    """CUDA not initialised, no device, nothing allocated, torch half imported: the host's figures."""
    heap()
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(cuda=cuda))
    record: Record = {}
    reader.add(record, 0.0)

    assert int(record["mem_reserved_peak"]) > MIB
    assert "num_ooms" not in record


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_a_real_device() -> None:
    """The figures are torch's own, and asking for them synchronises nothing."""
    block = torch.ones(64 * MIB, dtype=torch.uint8, device="cuda")
    torch.cuda.set_sync_debug_mode("error")
    try:
        found = DeviceMemory().read()
    finally:
        torch.cuda.set_sync_debug_mode("default")

    flat = torch.cuda.memory_stats()
    assert found is not None
    assert found["mem_reserved_peak"] == flat["reserved_bytes.all.peak"] >= block.numel()
    assert found["mem_allocated_peak"] == flat["allocated_bytes.all.peak"]
    assert found["mem_inactive_split"] == flat["inactive_split_bytes.all.current"]
    assert found["num_device_alloc"] == flat["num_device_alloc"]


def test_reading_never_starts_a_device(tmp_path: Path) -> None:
    """torch is imported, CUDA is not used: it stays uninitialised, and the names torch must have exist."""
    code = (
        "import sys, json, torch; from harness.worker.memory import MemoryReader\n"
        "record = {}; MemoryReader().add(record, 0.0); print(json.dumps(record))\n"
        "assert not torch.cuda.is_initialized()\n"
        "assert torch.cuda.memory_stats_as_nested_dict and torch.cuda.device_count\n"
    )
    done = subprocess.run((sys.executable, "-c", code), capture_output=True, text=True, check=True)

    assert json.loads(done.stdout)["rss_bytes"] > 50 * MIB
