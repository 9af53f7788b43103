"""The device of a rank, and by what names drivers and kernels know it."""

import os
from contextlib import suppress
from dataclasses import dataclass

import torch


@dataclass(frozen=True)
class DeviceIdentity:
    """`name` for people (``cuda:0 NVIDIA H100``); `uuid` as nvidia-smi has it; `bus` as the kernel has it."""

    name: str
    uuid: str | None = None
    bus: str | None = None
    index: int | None = None


def device_of(backend: str, local_rank: int, shared: bool) -> torch.device:
    """Where a rank's tensors live: its own card, the first one if all share it, or the CPU."""
    if backend != "nccl":
        return torch.device("cpu")
    return torch.device("cuda", 0 if shared else local_rank % torch.cuda.device_count())


def identify(device: torch.device) -> DeviceIdentity:
    """What evidence of the hardware is joined by. What this torch does not tell is None."""
    if device.type != "cuda":
        return DeviceIdentity(str(device))
    with suppress(Exception):  # an identity that cannot be read is no reason not to train
        found = torch.cuda.get_device_properties(device)
        uuid = getattr(found, "uuid", None)
        renumbered = "CUDA_VISIBLE_DEVICES" in os.environ
        return DeviceIdentity(
            f"{device} {found.name}",
            None if uuid is None else uuid_text(str(uuid)),
            bus_address(found),
            None if renumbered else device.index,
        )
    return DeviceIdentity(str(device))


def uuid_text(uuid: str) -> str:
    """nvidia-smi's form, ``GPU-...``: torch leaves the prefix out."""
    return uuid if uuid.startswith(("GPU-", "MIG-")) else f"GPU-{uuid}"


def bus_address(properties: object) -> str | None:
    """``00000000:3b:00.0`` of torch's three numbers; None where it has none of them (before 2.8)."""
    parts = [getattr(properties, f"pci_{part}_id", None) for part in ("domain", "bus", "device")]
    if not all(isinstance(part, int) for part in parts):
        return None
    domain, bus, slot = (int(str(part)) for part in parts)
    return f"{domain:08x}:{bus:02x}:{slot:02x}.0"
