"""How long a DDP step computes and how long it waits for others, told apart by when gradients are ready."""

import time
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook


class Phases:
    """The clock of one step: `begin`, forward and backward with `reduce` as DDP's hook, `end`.

    An all-reduce makes every rank's backward equally long. What a rank computed itself ends when its last
    bucket of gradients is ready; from there on it waits. On a GPU the moments are events of the stream, read
    after `end` has waited for it.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._moments: list[Any] = [None, None, None]

    def begin(self) -> None:
        """The forward pass begins."""
        self._moments = [self._now()] * 3

    def reduce(self, _: object, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:  # type: ignore[name-defined]
        """Give a ready bucket to the others, and note when it was ready."""
        self._moments[1] = self._now()
        return allreduce_hook(None, bucket)  # type: ignore[arg-type]

    def end(self) -> None:
        """The backward pass is over."""
        self._moments[2] = self._now()
        if self._device.type == "cuda":
            self._moments[2].synchronize()

    @property
    def compute_s(self) -> float:
        """From the start to this rank's last gradient, seconds."""
        return self._between(0, 1)

    @property
    def wait_s(self) -> float:
        """From this rank's last gradient to the end of the backward pass, seconds."""
        return self._between(1, 2)

    def _now(self) -> Any:
        if self._device.type != "cuda":
            return time.perf_counter()
        event = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        event.record()
        return event

    def _between(self, first: int, second: int) -> float:
        begin, end = self._moments[first], self._moments[second]
        if self._device.type == "cuda":
            return float(begin.elapsed_time(end)) / 1000
        return float(end - begin)
