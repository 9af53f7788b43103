"""What is handed in becomes a plain JSON value, without waiting for a device."""

import enum
from collections.abc import Callable

import numpy as np
import pytest
import torch

from harness.worker.signal_values import plain


class Colour(enum.IntEnum):
    RED = 1


class Wrapped(torch.Tensor):
    """Stands for DTensor and the results of asynchronous collectives: reading it may communicate."""

    def item(self) -> float:
        return 1.0


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (torch.tensor(1.5), 1.5),
        (torch.tensor([2.5]), 2.5),
        (torch.tensor(3), 3),
        (torch.tensor(True), True),
        (torch.tensor(0.5, dtype=torch.bfloat16), 0.5),
        (torch.tensor(1.5, requires_grad=True), 1.5),
        (torch.nn.Parameter(torch.tensor(1.5)), 1.5),
        (torch.tensor(float("inf")), "Infinity"),
        (np.float32(0.25), 0.25),
        (np.int64(7), 7),
        (np.bool_(True), True),
        (np.float64("nan"), "NaN"),
        (Colour.RED, 1),
        (2**63, float(2**63)),
        ("\ud800x", "?x"),
    ],
)
def test_numbers_of_any_make(value: object, expected: object) -> None:
    """Scalars of torch and numpy, and subclasses, are what they say; no warning about gradients."""
    found = plain(value)
    assert found == expected
    assert type(found) is type(expected)


@pytest.mark.parametrize(
    "make",
    [
        lambda: torch.zeros(2),
        lambda: torch.tensor(1 + 2j),
        lambda: torch.tensor(1.0, device="meta"),
        lambda: torch.tensor(1.0).as_subclass(Wrapped),
        lambda: np.zeros(3),
        lambda: 10**400,
        lambda: object(),
        lambda: {"a": 1},
        lambda: "x" * 2000,
        lambda: None,
    ],
)
def test_what_is_no_measurement_is_none(make: Callable[[], object]) -> None:
    """Many elements, other devices, subclasses that might communicate, objects, overlong texts."""
    assert plain(make()) is None


def test_a_tensor_that_is_not_on_the_cpu_is_not_even_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Asking is what synchronises."""
    monkeypatch.setattr(torch.Tensor, "item", lambda _: 1.0)

    assert plain(torch.tensor(1.0)) == 1.0
    assert plain(torch.tensor(1.0, device="meta")) is None


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_a_tensor_on_a_device_is_not_read() -> None:
    """A step that hands in its loss without .item() is not made to wait for the device."""
    torch.cuda.set_sync_debug_mode("error")
    try:
        assert plain(torch.ones((), device="cuda")) is None
    finally:
        torch.cuda.set_sync_debug_mode("default")
