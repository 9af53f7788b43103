"""Memory that goes, step by step: split into pieces that nobody can use, or never given back."""

from dataclasses import dataclass, field

import torch

from harness.worker.faults import Act, Fault

LEAK_BYTES = 2 << 20
"""What a leaking rank keeps of every step."""

PIECES = 4
"""Short-lived buffers a step, of each of which a piece lives on."""

LARGE_BYTES = 16 << 20


@dataclass
class Fragment(Act):
    """From its step on, pieces of short-lived buffers live on, and the buffers grow by the step.

    The gaps that the buffers leave between the pieces are too small for the next step's: what is held grows,
    what is used does not. On CPUs glibc's allocator is split so, by messages of which the heads are kept; on
    GPUs torch's caching allocator, by small tensors between large ones.
    """

    _kept: list[object] = field(default_factory=list, init=False)

    def at_step(self, fault: Fault, step: int) -> None:
        if not fault.since(step):
            return
        if not self._kept:
            # glibc maps large blocks apart until one of their size was freed: any job has freed large ones.
            torch.ones(LARGE_BYTES // 4)
        fault.fire()
        on_gpu = torch.cuda.is_available() and torch.distributed.get_backend() == "nccl"
        (self._split_device if on_gpu else self._split_heap)(step - fault.step)

    def _split_heap(self, age: int) -> None:
        size = (256 << 10) + age * (8 << 10)
        messages = [bytearray(b"m") * size for _ in range(PIECES)]
        for message in messages:
            # Cut in place: the head stays where it is, and a gap lies between it and the next.
            del message[4 << 10 :]
        self._kept += messages

    def _split_device(self, age: int) -> None:
        size, kept = (24 << 20) + age * (1 << 20), 2 << 20
        device = torch.device("cuda", torch.cuda.current_device())
        passing = []
        for _ in range(PIECES):
            passing.append(torch.ones(size // 4, device=device))
            self._kept.append(torch.ones(kept // 4, device=device))


@dataclass
class Leak(Act):
    """From its step on, a list grows: somebody keeps every step's outputs for a report."""

    _history: list[bytes] = field(default_factory=list, init=False)

    def at_step(self, fault: Fault, step: int) -> None:
        if fault.since(step):
            fault.fire()
            self._history.append(bytes([step % 251 + 1]) * LEAK_BYTES)
