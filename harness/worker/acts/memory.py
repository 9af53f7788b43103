"""Memory that goes, step by step: split into pieces that nobody can use, or never given back."""

import sys
from dataclasses import dataclass, field
from pathlib import Path

import torch

from harness.worker.faults import Act, Fault

LEAK_BYTES = 2 << 20
"""What a leaking rank keeps of every step."""

PIECES = 4
"""Short-lived buffers a step, of each of which a piece lives on."""

LARGE_BYTES = 16 << 20


HOLE_BYTES, KEPT_BYTES = 8 << 20 | 1 << 19, 1 << 20 | 1 << 16
"""On a device: two of each fill one of the caching allocator's segments of 20 MiB, from which it cuts what is
smaller than 10 MiB and larger than 1 MiB. Source: torch's CUDACachingAllocator, kLargeBuffer and others."""

STREAMS = 32
"""Streams of one priority that a process has; asking for more gives the same again."""


@dataclass
class Fragment(Act):
    """From its step on, pieces of short-lived buffers live on, and what lies between them helps nobody.

    What is held grows, what is used does not. On CPUs glibc's allocator is split so, by messages that grow by
    the step and of which the heads are kept. On GPUs torch's caching allocator is, by side streams: a free
    block serves only the stream that it was cut for, and a piece that lives on keeps its segment in parts.
    """

    _kept: list[object] = field(default_factory=list, init=False)

    def at_step(self, fault: Fault, step: int) -> None:
        if not fault.since(step):
            return
        if not self._kept:
            # glibc maps large blocks apart until one of their size was freed: any job has freed large ones.
            torch.ones(LARGE_BYTES // 4)
        fault.fire()
        if on_device():
            self._kept += split_segment(torch.device("cuda", torch.cuda.current_device()), step - fault.step)
        else:
            self._split_heap(step - fault.step)

    def after_training(self, fault: Fault) -> None:
        """A snapshot of the allocator, of every rank: what is whole elsewhere shows what is split here."""
        if fault.env.layout is not None and on_device():
            save_snapshot(fault.env.layout.memory_snapshot(fault.env.attempt, fault.env.rank))

    def _split_heap(self, age: int) -> None:
        size = (256 << 10) + age * (8 << 10)
        messages = [bytearray(b"m") * size for _ in range(PIECES)]
        for message in messages:
            # Cut in place: the head stays where it is, and a gap lies between it and the next.
            del message[4 << 10 :]
        self._kept += messages


def on_device() -> bool:
    """Whether this rank computes on a GPU."""
    dist = torch.distributed
    return dist.is_available() and dist.is_initialized() and dist.get_backend() == "nccl"


def split_segment(device: torch.device, age: int) -> list[torch.Tensor]:
    """Leave a fresh segment in parts: returns what keeps it so. `age`: how often this was done before."""
    priority = -(age // STREAMS % 2)
    with torch.cuda.stream(torch.cuda.Stream(device, priority=priority)):  # type: ignore[no-untyped-call]
        pairs = [
            [torch.empty(size, dtype=torch.uint8, device=device) for size in (HOLE_BYTES, KEPT_BYTES)]
            for _ in range(2)
        ]
    return [kept for _, kept in pairs]


def save_snapshot(path: Path) -> None:
    """torch's own picture of the allocator, for https://docs.pytorch.org/memory_viz."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        torch.cuda.memory._dump_snapshot(str(path))  # type: ignore[no-untyped-call]
    except (OSError, RuntimeError) as error:
        print(f"no memory snapshot: {error}", file=sys.stderr, flush=True)


@dataclass
class EatDevice(Act):
    """Asks for more of its card than it may have. What others have on a shared card is left alone."""

    def at_step(self, fault: Fault, step: int) -> None:
        if not fault.due(step):
            return
        if not on_device():
            raise RuntimeError("device_oom needs a GPU: run it with --backend nccl")
        device = torch.cuda.current_device()
        total = torch.cuda.get_device_properties(device).total_memory
        allowed = allowed_share(torch.cuda.memory_reserved(device), total)
        torch.cuda.set_per_process_memory_fraction(allowed, device)
        fault.fire()
        kept = []
        while True:
            kept.append(torch.empty(GREED_BYTES // 4, dtype=torch.uint8, device=device))


GREED_BYTES = 1 << 30
"""So much more than it has, a rank may take before its allocator says no."""


def allowed_share(reserved_bytes: int, total_bytes: int) -> float:
    """What part of a card a rank may hold: what it has and GREED_BYTES, never more than the card."""
    return min(1.0, (reserved_bytes + GREED_BYTES) / total_bytes)


@dataclass
class Leak(Act):
    """From its step on, a list grows: somebody keeps every step's outputs for a report."""

    _history: list[bytes] = field(default_factory=list, init=False)

    def at_step(self, fault: Fault, step: int) -> None:
        if fault.since(step):
            fault.fire()
            self._history.append(bytes([step % 251 + 1]) * LEAK_BYTES)
