"""Device memory: patterns are written, read back by another way, and compared byte by byte."""

import torch

from harness.worker.probes.devices import Device, devices
from harness.worker.probes.options import Options, Unable

DEFAULTS: Options = {"mib": 256, "rounds": 2, "broken": ""}

PATTERNS = (0x00, 0xFF, 0xAA, 0x55)
"""All bits off and on, and both ways of alternating; besides, a word's own address."""

CHUNK_BYTES = 64 << 20


def measure(options: Options) -> dict[str, object]:
    """Figures of `memory`. `broken`: flip, one bit turns after it was written.

    Raises:
        Unable: the memory cannot be had, or nothing was asked for.
    """
    size, rounds = int(options["mib"]) << 20, int(options["rounds"])
    if size <= 0 or rounds <= 0:
        raise Unable("--mib and --rounds: nothing would be tested; give 1 or more")
    errors, says = 0, []
    tested = devices(at_most_cores=1)
    for device in tested:
        device.enter()
        wrong = _test(device, size, rounds, flip=options["broken"] == "flip")
        errors += wrong
        if wrong:
            says.append(
                f"{device.name} ({device.model}): {wrong} bytes came back other than they were written"
            )
    checked = size * len(tested) / (1 << 30)
    return {"errors": errors, "checked_gib": checked, "devices": len(tested), "says": says}


def _test(device: Device, size: int, rounds: int, *, flip: bool) -> int:
    try:
        memory = torch.empty(size, dtype=torch.uint8, device=device.torch)
    except RuntimeError as error:
        raise Unable(f"{device.name}: {size >> 20} MiB cannot be had: {str(error).splitlines()[0]}") from None
    wrong = 0
    for _ in range(rounds):
        for pattern in PATTERNS:
            memory.fill_(pattern)
            if flip:
                memory[size // 2] ^= 0x10
            device.synchronize()
            wrong += sum(int((part != pattern).sum()) for part in _read(memory))
        wrong += _addresses(memory, device)
    return wrong


def _addresses(memory: torch.Tensor, device: Device) -> int:
    """Each word holds its own place: lines that are mixed up show, which equal patterns hide."""
    words = memory[: memory.numel() // 8 * 8].view(torch.int64)
    words.copy_(torch.arange(words.numel(), device=device.torch))
    device.synchronize()
    wrong, at = 0, 0
    for part in _read(words):
        expected = torch.arange(at, at + part.numel())
        wrong += 8 * int((part != expected).sum())
        at += part.numel()
    return wrong


def _read(memory: torch.Tensor) -> list[torch.Tensor]:
    """The memory in parts, copied to the host: what a reader sees, not what a cache remembers."""
    step = CHUNK_BYTES // memory.element_size()
    return [memory[at : at + step].to("cpu", copy=True) for at in range(0, memory.numel(), step)]
