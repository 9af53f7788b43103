"""Peaks by device name: the right form factor, and none for a stranger."""

import pytest

from harness.worker.peaks import peak_flops


@pytest.mark.parametrize(
    ("name", "peak"),
    [
        ("NVIDIA H100 80GB HBM3", 989e12),
        ("NVIDIA H100 PCIe", 756e12),
        ("NVIDIA H100 NVL", 835e12),
        ("NVIDIA H200", 989e12),
        ("NVIDIA H200 NVL", 836e12),
        ("NVIDIA GH200 480GB", 989e12),
        ("NVIDIA A100-SXM4-80GB", 312e12),
        ("NVIDIA A100-PCIE-40GB", 312e12),
        ("NVIDIA B200", 2.25e15),
        ("NVIDIA GB200", 2.5e15),
        ("NVIDIA L40S", 362e12),
        ("NVIDIA L4", 121e12),
        ("AMD Instinct MI300X OAM", 1300e12),
    ],
)
def test_known_devices(name: str, peak: float) -> None:
    """The dense bf16 figure of the data sheet, for the form factor that the name states."""
    assert peak_flops(name) == peak


@pytest.mark.parametrize("name", ["", "NVIDIA GeForce RTX 4090", "Tesla T4", "cpu", "NVIDIA A1000"])
def test_a_stranger_has_no_peak(name: str) -> None:
    """A name that is not in the table gets no figure at all, not another card's."""
    assert peak_flops(name) is None


def test_the_pci_name_tells_form_factors_apart() -> None:
    """Where the driver's name leaves the form factor out, the bus's name of the same family decides."""
    pci = (
        "17:00.0 Ethernet controller: NVIDIA ConnectX-6",
        "3b:00.0 3D controller: NVIDIA Corporation GH100 [H100 PCIe] (rev a1)",
    )

    assert peak_flops("NVIDIA H100 80GB", pci) == 756e12
    assert peak_flops("NVIDIA A100-SXM4-80GB", pci) == 312e12
