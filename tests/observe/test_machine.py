"""Cards and torch's build, without importing torch."""

from pathlib import Path

import pytest

from harness.observe.gpus import gpu_count
from harness.observe.machine import look


def make(root: Path, listed: int | None, let_in: int) -> Path:
    """A file system root as a driver fills it."""
    (root / "dev").mkdir()
    for i in range(let_in):
        (root / "dev" / f"nvidia{i}").touch()
    (root / "dev" / "nvidiactl").touch()
    (root / "dev" / "nvidia-uvm").touch()
    for i in range(listed or 0):
        (root / "proc/driver/nvidia/gpus" / f"0000:{i:02x}:00.0").mkdir(parents=True)
    if listed == 0:
        (root / "proc/driver/nvidia/gpus").mkdir(parents=True)
    return root


@pytest.mark.parametrize(
    ("listed", "let_in", "count"), [(8, 8, 8), (8, 1, 1), (None, 2, 2), (4, 0, 4), (0, 1, 1), (None, 0, 0)]
)
def test_cards_that_can_be_opened_count(tmp_path: Path, listed: int | None, let_in: int, count: int) -> None:
    """A container sees the host's eight in /proc and only its own in /dev."""
    assert gpu_count(make(tmp_path, listed, let_in)) == count


@pytest.mark.parametrize(
    ("named", "count"), [("", 0), ("-1", 0), ("0", 1), ("0,1", 2), ("0,-1,1", 1), ("GPU-1f2e, GPU-77aa", 2)]
)
def test_cuda_visible_devices_hides_cards(monkeypatch: pytest.MonkeyPatch, named: str, count: int) -> None:
    """As CUDA reads it: nothing counts from the first entry on that is no device."""
    monkeypatch.setattr("harness.observe.machine.gpu_count", lambda: 8)

    assert look({"CUDA_VISIBLE_DEVICES": named}).gpus == count


def test_this_torch_is_known_without_importing_it() -> None:
    """Its version, and whether it was built with CUDA, as torch itself says."""
    import torch

    found = look({})

    assert found.torch == torch.__version__
    assert found.cuda == torch.version.cuda
