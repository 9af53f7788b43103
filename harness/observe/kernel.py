"""The kernel's log: OOM kills, XIDs, link failures, where reading it is allowed."""

import os
import shutil
import subprocess

MAX_KERNEL_LOG_BYTES = 1 << 20
_RECORD_BYTES = 8192
_TIMEOUT_S = 5.0


def read_kernel_log(since_s: float = 0.0) -> list[str] | None:
    """Lines that the kernel logged since `since_s` (CLOCK_MONOTONIC), as dmesg prints them.

    None where reading is not permitted. Source of the format: Documentation/ABI/testing/dev-kmsg.
    """
    try:
        fd = os.open("/dev/kmsg", os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    lines: list[str] = []
    try:
        while True:
            try:
                record = os.read(fd, _RECORD_BYTES)
            except BrokenPipeError:
                # The ring went round under us: the next read goes on with the oldest that is left.
                continue
            except OSError:
                break
            head, _, text = record.decode(errors="replace").partition(";")
            fields = head.split(",")
            if len(fields) < 3 or not fields[2].isdigit():
                continue
            at_s = int(fields[2]) / 1e6
            if at_s >= since_s:
                lines.append(f"[{at_s:12.6f}] {text.splitlines()[0] if text else ''}")
    finally:
        os.close(fd)
    return lines


def dmesg() -> tuple[bytes, str | None]:
    """The last part of the kernel's log with wall-clock times, and why it is empty if it is."""
    program = shutil.which("dmesg")
    if program is None:
        return b"", "there is no dmesg here"
    said = "dmesg printed nothing"
    for options in (("--time-format", "iso"), ("-T",), ()):
        try:
            done = subprocess.run((program, *options), capture_output=True, timeout=_TIMEOUT_S)
        except (OSError, subprocess.TimeoutExpired) as error:
            return b"", f"dmesg: {error}"
        if done.returncode == 0 and done.stdout:
            return _end(done.stdout), None
        if done.returncode != 0:
            said = done.stderr.decode(errors="replace").strip() or f"dmesg: exit code {done.returncode}"
            if "not permitted" in said:
                said += ": run as root, or sysctl kernel.dmesg_restrict=0"
                break
    return b"", said


def _end(log: bytes) -> bytes:
    if len(log) <= MAX_KERNEL_LOG_BYTES:
        return log
    return log[-MAX_KERNEL_LOG_BYTES:].partition(b"\n")[2]
