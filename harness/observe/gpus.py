"""GPUs of this machine, without importing torch."""

from pathlib import Path


def gpu_count() -> int:
    """NVIDIA devices that the driver shows; 0 without a driver."""
    by_driver = Path("/proc/driver/nvidia/gpus")
    if by_driver.is_dir():
        return len(list(by_driver.iterdir()))
    return sum(1 for device in Path("/dev").glob("nvidia[0-9]*"))
