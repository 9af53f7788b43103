"""Numbers that go wrong while everything runs: a bad input, a flipped bit, samples that come again."""

from collections.abc import Sequence
from typing import Any

import torch

from harness.worker.faults import Act, Fault

FLIPPED_BIT = 22
"""The highest bit of a float32's fraction: the value stays finite and plausible."""


class BadInput(Act):
    """One feature of one sample is infinite, in one step."""

    def batch(self, fault: Fault, step: int, batch: Any) -> Any:
        if fault.due(step):
            fault.fire()
            batch = batch.clone()
            batch[0, 0] = torch.inf
        return batch


class FlipBit(Act):
    """One bit of one element of a reduced gradient flips, in one step, as bad hardware flips it."""

    def gradients(self, fault: Fault, step: int, gradients: Sequence[torch.Tensor]) -> None:
        if fault.due(step):
            fault.fire()
            bits = gradients[0].view(torch.int32).view(-1)
            bits[len(bits) // 2] ^= 1 << FLIPPED_BIT


class RepeatSamples(Act):
    """After a restart the rank's loader begins its shard anew: its place in the data was not restored."""

    attempt = 1

    def position(self, fault: Fault, samples: int) -> int:
        fault.fire()
        return 0
