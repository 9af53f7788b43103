"""Memory that goes, step by step: split into pieces that nobody can use, or never given back."""

from dataclasses import dataclass, field

import torch

from harness.worker.faults import Act, Fault

KIB = 1 << 10
LEAK_BYTES = 2 << 20
"""What a leaking rank keeps of every step."""

LARGE_BYTES = 16 << 20
PIECES = 4
"""Short-lived buffers a step, each with a long-lived one behind it."""


@dataclass
class Fragment(Act):
    """From its step on, long-lived small tensors between short-lived ones that grow by the step.

    The gaps that the short-lived leave are too small for the next step's: what is held grows, what is used
    does not. On CPUs glibc's allocator is split so, on GPUs torch's caching allocator.
    """

    _kept: list[torch.Tensor] = field(default_factory=list, init=False)

    def at_step(self, fault: Fault, step: int) -> None:
        if not fault.since(step):
            return
        if not self._kept:
            # glibc maps large blocks apart until one of their size was freed: any job has freed large ones.
            torch.ones(LARGE_BYTES // 4)
        fault.fire()
        on_gpu = torch.cuda.is_available() and torch.distributed.get_backend() == "nccl"
        device = torch.device("cuda", torch.cuda.current_device()) if on_gpu else torch.device("cpu")
        # Above torch's 1 MiB small pool on a GPU; on a CPU a size that glibc takes from its heap.
        short, kept = (24 << 20, 2 << 20) if on_gpu else (256 * KIB, 4 * KIB)
        size = short + (step - fault.step) * short // 32
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
