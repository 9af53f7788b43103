"""Real work of a set length on any device: matrix products, counted beforehand and not stopped by a clock."""

import time

import torch

WARM_UP, TIMED = 3, 20


class Matrices:
    """Products of `width` x `width` matrices; `one_s`: how long one takes alone, measured when made."""

    def __init__(self, device: torch.device, width: int, dtype: torch.dtype = torch.float32) -> None:
        self._matrix = torch.randn(width, width, device=device, dtype=dtype)
        self._out = torch.empty_like(self._matrix)
        self._device = device
        self._multiply(WARM_UP)
        self._wait()
        begun = time.perf_counter()
        self._multiply(TIMED)
        self._wait()
        self.one_s = (time.perf_counter() - begun) / TIMED

    def work(self, seconds: float) -> int:
        """Enqueue as many products as take `seconds` alone; returns their number.

        On a device this returns before they are done, as any training step's host does.
        """
        count = max(1, round(seconds / self.one_s))
        self._multiply(count)
        return count

    def _multiply(self, count: int) -> None:
        for _ in range(count):
            torch.mm(self._matrix, self._matrix, out=self._out)

    def _wait(self) -> None:
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)
