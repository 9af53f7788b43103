"""A cheap fingerprint of tensors that all replicas must hold alike, bit by bit."""

from collections.abc import Iterable

import torch

_WORDS = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


def digest(tensors: Iterable[torch.Tensor]) -> str:
    """The sum of all elements' bits, read as integers, modulo 2^64: 16 hexadecimal digits.

    One flipped bit anywhere changes it; it does not depend on rounding, since integers are added. Computed
    where the tensors are, with one transfer to the host at the end (which waits for the device). Tensors of
    any dense dtype and shape. Replicas (data parallel) must agree; shards do not.
    """
    sums = [_words(tensor).sum(dtype=torch.int64) for tensor in tensors if tensor.numel()]
    total = int(torch.stack(sums).sum()) if sums else 0
    return f"{total & (2**64 - 1):016x}"


def _words(tensor: torch.Tensor) -> torch.Tensor:
    plain = tensor.detach().contiguous()
    if plain.is_complex():
        plain = torch.view_as_real(plain)
    return plain.view(_WORDS[plain.element_size()])
