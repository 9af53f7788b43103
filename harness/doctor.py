"""Can this machine be drilled? Each check says what it found and how to mend it."""

import os
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

import psutil

from harness.catalog.environment import ring_without_asking
from harness.model.errors import PrerequisiteError
from harness.monitor.binaries import INSTALL, find_binaries
from harness.observe.dumps import PREFIX_VARIABLES, dump_prefix
from harness.observe.machine import look
from harness.observe.stacks import find_py_spy

TEMPORARY = frozenset(("tmpfs", "ramfs", "overlay", "devtmpfs"))
"""File systems that go with the container or the machine's power."""

_SHM_BYTES_PER_RANK = 8 << 20


@dataclass(frozen=True)
class Line:
    """One check. `status` is OK, WARN or FAIL; `remedy` is empty where nothing is to be done."""

    check: str
    status: str
    found: str
    remedy: str = ""


def examine(environ: Mapping[str, str] = os.environ) -> list[Line]:
    """All checks, in the order in which they matter."""
    checks: tuple[Callable[[Mapping[str, str]], list[Line]], ...] = (
        _torch,
        _py_spy,
        _dump_path,
        _defeating_variables,
        _shared_memory,
        _loopback,
        _processes,
        _gpus,
        _monitoring,
    )
    return [line for check in checks for line in check(environ)]


def _torch(environ: Mapping[str, str]) -> list[Line]:
    try:
        version = metadata.version("torch")
    except metadata.PackageNotFoundError:
        return [Line("torch", "FAIL", "not installed", "pip install 'torch>=2.10'")]
    major, minor = (int(part) for part in version.split(".")[:2])
    if (major, minor) < (2, 10):
        return [Line("torch", "FAIL", version, "2.10 or newer is needed: pip install -U torch")]
    unasked = str(ring_without_asking(version))
    size = environ.get("TORCH_FR_BUFFER_SIZE", environ.get("TORCH_NCCL_TRACE_BUFFER_SIZE", unasked))
    if not size.isdigit() or int(size) == 0:
        found = f"{version}; the recorder is off (buffer size {size})"
        return [Line("torch", "FAIL", found, "export TORCH_FR_BUFFER_SIZE=20000")]
    return [Line("torch", "OK", f"{version}; flight recorder on, ring of {size}")]


def _py_spy(environ: Mapping[str, str]) -> list[Line]:
    """Read the stack of a real child of ours: what ptrace allows is only known by trying."""
    py_spy = find_py_spy()
    if py_spy is None:
        return [Line("py-spy", "FAIL", "not installed", "pip install py-spy")]
    child = subprocess.Popen(
        (sys.executable, "-c", "print(flush=True); input()"),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    try:
        assert child.stdout is not None
        child.stdout.readline()
        command = (py_spy, "dump", "--nonblocking", "--pid", str(child.pid))
        tried = subprocess.run(command, capture_output=True, text=True, timeout=20)
    except subprocess.TimeoutExpired:
        return [Line("py-spy", "FAIL", "took longer than 20 s", "run the drill on another machine")]
    finally:
        child.communicate(b"\n")
    if tried.returncode == 0:
        return [Line("py-spy", "OK", "can read the stacks of our processes")]
    said = (tried.stderr.strip().splitlines() or ["no reason given"])[-1]
    remedy = "allow ptrace: sysctl kernel.yama.ptrace_scope=0, or add SYS_PTRACE to the container"
    return [Line("py-spy", "FAIL", said, remedy)]


def _dump_path(environ: Mapping[str, str]) -> list[Line]:
    prefix = dump_prefix(environ)
    folder = Path(prefix).parent
    existing = next((p for p in (folder, *folder.parents) if p.exists()), Path("/"))
    remedy = "export TORCH_FR_DUMP_TEMP_FILE=/a/persistent/folder/rank_"
    try:
        with tempfile.TemporaryFile(dir=existing):
            pass
    except OSError as error:
        found = f"{prefix}*: {existing}: {error.strerror}"
        return [Line("dump path", "FAIL", found, remedy)]
    kind = file_system(existing)
    if kind in TEMPORARY:
        found = f"{prefix}* is on {kind}: gone with the container"
        return [Line("dump path", "WARN", found, remedy)]
    if not any(environ.get(name) for name in PREFIX_VARIABLES):
        found = f"not set: dumps would go to {prefix}*"
        return [Line("dump path", "WARN", found, remedy)]
    return [Line("dump path", "OK", f"{prefix}* on {kind}, writable")]


def file_system(path: Path) -> str:
    """The type of the file system that holds a path, by the kernel's mounts."""
    real = str(path.resolve())
    mounts = [
        p
        for p in psutil.disk_partitions(all=True)
        if real == p.mountpoint or real.startswith(p.mountpoint.rstrip("/") + "/")
    ]
    return max(mounts, key=lambda p: len(p.mountpoint)).fstype if mounts else "an unknown file system"


_DEFEATING: tuple[tuple[str, tuple[str, ...], str, str], ...] = (
    (
        "TORCH_NCCL_ASYNC_ERROR_HANDLING",
        ("1", "2", "0"),
        "under 1 the watchdog tears down before dumps are written (torchrun sets 1 if it is unset)",
        "export TORCH_NCCL_ASYNC_ERROR_HANDLING=3",
    ),
    (
        "TORCH_NCCL_DUMP_ON_TIMEOUT",
        ("0", "false"),
        "a timeout leaves no dump",
        "export TORCH_NCCL_DUMP_ON_TIMEOUT=1",
    ),
    (
        "TORCH_NCCL_ENABLE_MONITORING",
        ("0", "false"),
        "no monitor thread: a stuck watchdog leaves no dump",
        "export TORCH_NCCL_ENABLE_MONITORING=1",
    ),
    (
        "TORCH_INCLUDE_STACK_TRACE",
        ("0", "false"),
        "dumps without Python stacks: a skip can not be told from another order",
        "unset TORCH_INCLUDE_STACK_TRACE",
    ),
    (
        "TORCH_INCLUDE_ONLY_ACTIVE",
        ("1", "true"),
        "dumps without history: streams cannot be compared",
        "unset TORCH_INCLUDE_ONLY_ACTIVE",
    ),
)


def defeating(environ: Mapping[str, str]) -> list[str]:
    """Settings under which a hang would leave no dumps, or useless ones; in words."""
    return [line.found for line in _defeating_lines(environ)]


def _defeating_lines(environ: Mapping[str, str]) -> list[Line]:
    lines = [
        Line("environment", "WARN", f"{name}={environ[name]}: {why}", remedy)
        for name, values, why, remedy in _DEFEATING
        if environ.get(name, "").lower() in values
    ]
    if "TORCH_NCCL_ASYNC_ERROR_HANDLING" not in environ:
        name, _, why, remedy = _DEFEATING[0]
        lines.append(Line("environment", "WARN", f"{name} is not set: {why}", remedy))
    return lines


def _defeating_variables(environ: Mapping[str, str]) -> list[Line]:
    return _defeating_lines(environ) or [Line("environment", "OK", "nothing that defeats dumps")]


def _shared_memory(environ: Mapping[str, str]) -> list[Line]:
    shm = Path("/dev/shm")
    if not shm.is_dir():
        return [Line("shared memory", "WARN", "no /dev/shm", "data loader workers need it")]
    free = shutil.disk_usage(shm).free
    found = f"{free / (1 << 30):.1f} GiB free in /dev/shm"
    if free < 8 * _SHM_BYTES_PER_RANK:
        remedy = "docker run --shm-size=8g, or mount -o remount,size=8g /dev/shm"
        return [Line("shared memory", "FAIL", found, remedy)]
    return [Line("shared memory", "OK", found)]


def _loopback(environ: Mapping[str, str]) -> list[Line]:
    try:
        with socket.socket() as server:
            server.bind(("127.0.0.1", 0))
            server.listen()
            with socket.create_connection(server.getsockname(), timeout=2):
                return [Line("ports", "OK", "free ports on 127.0.0.1 can be taken and reached")]
    except OSError as error:
        remedy = "ip link set lo up; check the sandbox's network rules"
        return [Line("ports", "FAIL", f"127.0.0.1: {error.strerror}", remedy)]


def _processes(environ: Mapping[str, str]) -> list[Line]:
    cores = psutil.cpu_count() or 1
    memory = psutil.virtual_memory().available / (1 << 30)
    found = f"{cores} cores, {memory:.1f} GiB memory available"
    if memory < 2:
        return [Line("cores and memory", "WARN", found, "eight ranks want 2 GiB: use --nproc 4")]
    return [Line("cores and memory", "OK", found)]


def _gpus(environ: Mapping[str, str]) -> list[Line]:
    machine = look(environ)
    count = machine.gpus
    if count == 0:
        return [Line("GPUs", "OK", "none: drills run on CPUs with gloo")]
    if machine.cuda is None:
        remedy = "install a CUDA build of torch; without it drills run on CPUs with gloo"
        return [Line("GPUs", "WARN", str(machine.why_no_nccl), remedy)]
    if shutil.which("nvidia-smi") is None:
        remedy = "install the driver's tools; without them no GPU evidence is collected"
        return [Line("GPUs", "WARN", f"{count}, but no nvidia-smi", remedy)]
    nccl = f", NCCL {machine.nccl}" if machine.nccl else ""
    sharing = "; eight ranks share it" if count == 1 else ""
    return [Line("GPUs", "OK", f"{count}, CUDA {machine.cuda}{nccl}{sharing}")]


def _monitoring(environ: Mapping[str, str]) -> list[Line]:
    """The page drill's programs; other drills do without them."""
    try:
        found = find_binaries()
    except PrerequisiteError:
        return [Line("page drill", "WARN", "no Prometheus and Alertmanager", INSTALL)]
    return [Line("page drill", "OK", f"{found.prometheus}, {found.alertmanager}")]
