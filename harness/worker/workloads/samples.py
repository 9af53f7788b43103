"""Made-up data that is the same in every run: sample i of a rank never changes."""

import torch
from torch.utils.data import Dataset


class MadeUp(Dataset[torch.Tensor]):
    """`count` samples of one rank. What a sample is, `made` says."""

    def __init__(self, rank: int, count: int) -> None:
        self._rank = rank
        self._count = count

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, index: int) -> torch.Tensor:
        return self.made(torch.Generator().manual_seed(1_000_003 * self._rank + index))

    def made(self, seed: torch.Generator) -> torch.Tensor:
        """One sample, from numbers of `seed` alone."""
        raise NotImplementedError
