"""What the kernel, the driver and CUDA say: XIDs, memory, assertions, illegal accesses, ECC."""

import re

from harness.diagnose.logs.classes import KILLER, LOOP, LineClass, Parsed

HARDWARE_XIDS = frozenset((48, 61, 62, 63, 64, 74, 79, 92, 94, 95, 119, 120, 140, 143))
"""Double-bit ECC, row remapping, NVLink, fallen off the bus, contained and uncontained ECC, GSP."""

SOFTWARE_XIDS = frozenset((13, 31, 43, 45, 68, 69))
"""Usually the program's own: engine exceptions, memory page faults, stopped or preemptive channels."""

_XID = re.compile(
    r"Xid \(?(?:PCI:)?([0-9a-fA-F]{1,8}:[0-9a-fA-F]{2}(?::[0-9a-fA-F]{2})?(?:\.\d)?)\)?: "
    r"(\d{1,4})(?:, (?:pid=)?'?<?(\d{1,9})?)?"
)
_OOM = re.compile(
    r"(?:Memory cgroup out of memory|Out of memory)[:,]? Kill(?:ed)? process (\d{1,9})(?: \(([^)]{1,40})\))?"
)
_CONSTRAINT = re.compile(r"oom-kill:constraint=(\w{1,40}).{0,400}?,pid=(\d{1,9})")
_ASKED = re.compile(r"Tried to allocate ([\d.]{1,12} \w{1,4})")
_CUDA = re.compile(r"CUDA (?:runtime )?error(?: \(\d+\))?:? ?(.{0,160})")
_LOADER = re.compile(r"DataLoader worker \(pid(?:\(s\))? ?([\d, ]{1,60})\)")

CUDA_KINDS = (
    ("out of memory", "device_oom"),
    ("ecc error", "ecc"),
    ("device-side assert", "device_assert"),
    ("illegal memory access", "device_assert"),
    ("illegal instruction", "device_assert"),
    ("misaligned address", "device_assert"),
    ("illegal address", "device_assert"),
    ("unspecified launch failure", "cuda_launch"),
    ("fallen off the bus", "ecc"),
    ("nvlink", "ecc"),
    ("all cuda-capable devices are busy", "cuda_other"),
)


def xid(message: str) -> Parsed | None:
    """An XID by its card's bus id; hardware, software, or neither known."""
    found = _XID.search(message)
    if not found:
        return None
    numbers = {"xid": int(found[2])}
    if found[3]:
        numbers["pid"] = int(found[3])
    return Parsed(numbers=numbers, words={"bus": found[1].lower()})


def kernel_oom(message: str) -> Parsed | None:
    if found := _OOM.search(message):
        words = {"process": found[2]} if found[2] else {}
        return Parsed(numbers={"pid": int(found[1])}, words=words)
    if found := _CONSTRAINT.search(message):
        return Parsed(numbers={"pid": int(found[2])}, words={"constraint": found[1]})
    return None


def device_oom(message: str) -> Parsed | None:
    found = _ASKED.search(message)
    return Parsed(words={"asked": found[1]} if found else {})


def cuda_error(message: str) -> Parsed | None:
    """A CUDA error by what it says; the hint that follows each of them is no cause."""
    found = _CUDA.search(message)
    if not found:
        return None
    said = found[1].lower()
    kind = next((kind for words, kind in CUDA_KINDS if words in said), "cuda_other")
    return Parsed(kind, words={"error": found[1].strip()})


def assertion(message: str) -> Parsed | None:
    """One of a flood: a kernel's assertion, a thread each."""
    return Parsed("device_assert") if "ssert" in message and "TORCH_USE_CUDA_DSA" not in message else None


def loader_death(message: str) -> Parsed | None:
    """A loader's worker that was killed for memory, or that lost its shared memory."""
    found = _LOADER.search(message)
    if not found:
        return None
    numbers = {"worker_pid": int(pids[0])} if (pids := re.findall(r"\d+", found[1])) else {}
    if "Bus error" in message or "shared memory" in message:
        return Parsed(numbers=numbers, words={"how": "shared_memory"})
    if "Killed" in message:
        return Parsed(numbers=numbers, words={"how": "oom_killed"})
    return Parsed("exception", numbers=numbers, words={"type": "RuntimeError"})


def bad_alloc(message: str) -> Parsed | None:
    """C++ that found no memory: an abort of its own."""
    return Parsed(words={"how": "bad_alloc"}) if "bad_alloc" in message else None


CLASSES = (
    LineClass("bad_alloc", KILLER, r"std::bad_alloc", bad_alloc),
    LineClass("xid", KILLER, r"Xid \(?(PCI:)?[0-9a-fA-F]", xid),
    LineClass("kernel_oom", KILLER, r"ut of memory[:,]? Kill|oom-kill:constraint", kernel_oom),
    LineClass("device_oom", KILLER, r"CUDA out of memory|OutOfMemoryError: (CUDA|HIP)", device_oom),
    LineClass("cuda_error", KILLER, r"CUDA (runtime )?error", cuda_error),
    LineClass("device_assert", KILLER, r"Assertion .|device-side assert", assertion),
    LineClass("loader_death", LOOP, r"DataLoader worker \(pid", loader_death),
    LineClass(
        "shared_memory", LOOP, r"insufficient shared memory|unable to (open|write to|allocate) shared memory"
    ),
)
