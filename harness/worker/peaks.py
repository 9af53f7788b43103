"""What a device could do at best, by its name: dense bf16 FLOP/s, the denominator of MFU.

Figures are the vendors' data sheets without sparsity (theirs are printed with it and twice as high), as
torchtitan's `get_peak_flops` has them; the first seed quotes 989e12 for an H100 SXM. A name that is not here
has no peak: a guessed one would make every MFU below it look measured.
"""

import re
import shutil
import subprocess
from collections.abc import Sequence

_LSPCI_TIMEOUT_S = 5.0

_FORMS: tuple[tuple[str, float], ...] = (
    (r"\bGB300\b", 2.5e15),
    (r"\bB300\b", 2.25e15),
    (r"\bGB200\b", 2.5e15),
    (r"\bB200\b", 2.25e15),
    (r"\bB100\b", 1.8e15),
    (r"\bG?H200\b.*\bNVL\b", 836e12),
    (r"\bG?H200\b", 989e12),
    (r"\bH100\b.*\bNVL\b", 835e12),
    (r"\bH100\b.*\bPCIe\b", 756e12),
    (r"\b(?:G?H100|H800|H20[03])\b", 989e12),
    (r"\bH20\b", 148e12),
    (r"\bA[18]00\b", 312e12),
    (r"\bA40\b", 149.7e12),
    (r"\bA30\b", 165e12),
    (r"\bA10G?\b", 125e12),
    (r"\bL40S\b", 362e12),
    (r"\bL40\b", 181e12),
    (r"\bL4\b", 121e12),
    (r"\bMI355X?\b", 2.5e15),
    (r"\bMI325X?\b", 1300e12),
    (r"\bMI300X\b", 1300e12),
    (r"\bMI250X?\b", 191.5e12),
)
"""The most specific form of a family first. MI250X: one of its two dies, which is one device to torch."""

_TABLE = tuple((re.compile(form, re.IGNORECASE), peak) for form, peak in _FORMS)


def peak_flops(device_name: str, pci_names: Sequence[str] = ()) -> float | None:
    """Dense bf16 FLOP/s of one device, or None where the name is not known.

    `device_name` is `torch.cuda.get_device_name()` or nvidia-smi's. It may leave the form factor out, and
    then says too much of a slower board: `pci_names` (see `lspci_names`) of the same family count first.
    """
    family = _family(device_name)
    for name in (*(n for n in pci_names if family is not None and family in n.upper()), device_name):
        for form, peak in _TABLE:
            if form.search(name):
                return peak
    return None


def lspci_names() -> tuple[str, ...]:
    """What lspci calls this machine's NVIDIA devices; empty where it is missing, hangs or fails."""
    lspci = shutil.which("lspci")
    if lspci is None:
        return ()
    try:
        done = subprocess.run((lspci,), capture_output=True, text=True, timeout=_LSPCI_TIMEOUT_S)
    except (OSError, subprocess.SubprocessError):
        return ()
    return tuple(line for line in done.stdout.splitlines() if "NVIDIA" in line)


_FAMILY = re.compile(r"\b(G?[ABHL]\d{1,3}S?|MI\d{3})", re.IGNORECASE)


def _family(name: str) -> str | None:
    """H100 of ``NVIDIA H100 80GB HBM3``."""
    found = _FAMILY.search(name)
    return found[1].upper() if found else None
