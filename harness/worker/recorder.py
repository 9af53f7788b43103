"""Flight Recorder dumps of this rank, on request and when things end badly.

NCCL's process group has its own pipe and watchdog; gloo has neither. For gloo this gives the same
interface: a byte into ``<prefix><rank>.pipe`` makes the rank write its dump to ``<prefix><rank>``,
with the very variables that torch documents for NCCL. NCCL puts its own pipe in the place of this one as
soon as its group forms; what is left to us then are the ends that no watchdog sees.
"""

import ctypes
import os
import select
import signal
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import torch
from torch.utils._traceback import CapturedTraceback

from harness.bundle.codec import write_atomically

PIPE_PREFIX = "TORCH_NCCL_DEBUG_INFO_PIPE_FILE"
DUMP_PREFIX = "TORCH_FR_DUMP_TEMP_FILE"

_LIBC = ctypes.CDLL(None)
_SIGNAL_CALLBACK = ctypes.CFUNCTYPE(None, ctypes.c_int)


def take_dump(backend: str = "gloo") -> bytes:
    """The recorder's pickle with Python stacks, as torch itself would write it.

    NCCL's calls are in a recorder of their own. Source: torch/csrc/distributed/c10d/init.cpp,
    `_dump_nccl_trace` and `_dump_fr_trace` (includeCollectives, includeStackTraces, onlyActive).
    """
    c10d = torch._C._distributed_c10d
    name = "_dump_nccl_trace" if backend == "nccl" else "_dump_fr_trace"
    return bytes(getattr(c10d, name)(True, True, False))


_symbolizer_started = False


def start_symbolizer() -> None:
    """Pay for the symbolizer's start (1 to 2 s of CPU), which the first dump with stacks would pay.

    Once a process: forked ranks inherit it from the launcher. Without it a rank that is told to stop
    may not get its dump out in time.
    """
    global _symbolizer_started
    if not _symbolizer_started:
        CapturedTraceback.extract().summary()  # type: ignore[no-untyped-call]
        _symbolizer_started = True


class DumpTriggers:
    """Dumps this rank's recorder by pipe, by SIGTERM, by SIGABRT and when told to.

    SIGTERM is served by a thread behind `signal.set_wakeup_fd`: Python's own handlers do not run while
    the main thread waits inside gloo. SIGABRT is served by a C-level handler, since gloo aborts from a
    thread of its own. Dumps that nobody asked for never replace one that was taken earlier in the same
    incident: a wait that raises changes the record.
    """

    def __init__(self, dump: Path, pipe: Path) -> None:
        self._dump = dump
        self._pipe_path = pipe
        self.backend = "gloo"
        """Whose recorder is dumped: set it when the group forms."""
        self._lock = threading.Lock()
        self._taken = False
        self._on_abort = _SIGNAL_CALLBACK(lambda _: self.dump())
        os.mkfifo(pipe)
        # Read-write, so that the pipe never reports end of file when a writer leaves.
        self._pipe = os.open(pipe, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        self._wakeup_r, self._wakeup_w = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)

    def arm(self) -> None:
        """Install handlers and start the serving thread. Call from the main thread, before joining."""
        signal.signal(signal.SIGTERM, _interrupt_python_code)
        signal.set_wakeup_fd(self._wakeup_w, warn_on_full_buffer=False)
        _LIBC.signal(signal.SIGABRT, self._on_abort)
        threading.Thread(target=self._serve, name="drill-dump", daemon=True).start()

    def dump(self, on_request: bool = False) -> None:
        """Write the dump; one that nobody asked for does not replace an earlier one."""
        with self._lock:
            # NCCL's own threads write the same file, by pipe or when their time is up.
            if (self._taken or self._dump.exists()) and not on_request:
                return
            try:
                write_atomically(self._dump, take_dump(self.backend))
                self._taken = True
            except Exception as error:
                print(f"flight recorder dump failed: {error}", file=sys.stderr, flush=True)

    def close(self) -> None:
        """Remove the pipe; the thread ends with the process."""
        self._pipe_path.unlink(missing_ok=True)

    def _serve(self) -> None:
        poller = select.poll()
        poller.register(self._pipe, select.POLLIN)
        poller.register(self._wakeup_r, select.POLLIN)
        while True:
            for fd, _ in poller.poll():
                received = _drain(fd)
                if fd == self._pipe and received:
                    self.dump(on_request=True)
                elif signal.SIGTERM in received:
                    self.dump()
                    _die_of(signal.SIGTERM)


def _interrupt_python_code(signum: int, frame: object) -> None:
    """Exists so that Python hands SIGTERM to the wakeup pipe instead of dying at once."""


def _die_of(signum: signal.Signals) -> None:
    """End this process by the signal itself, so that its exit status tells the truth."""
    sys.stdout.flush()
    sys.stderr.flush()
    _LIBC.signal(int(signum), 0)
    os.kill(os.getpid(), signum)


def _drain(fd: int) -> bytes:
    try:
        return os.read(fd, 4096)
    except BlockingIOError:
        return b""


def dump_triggers(rank: int, environ: Callable[[str], str | None]) -> DumpTriggers | None:
    """Triggers for the prefixes in the environment, or None where either is not set or not writable."""
    dump, pipe = environ(DUMP_PREFIX), environ(PIPE_PREFIX)
    if not dump or not pipe:
        return None
    try:
        Path(f"{dump}{rank}").parent.mkdir(parents=True, exist_ok=True)
        Path(f"{pipe}{rank}.pipe").unlink(missing_ok=True)
        return DumpTriggers(Path(f"{dump}{rank}"), Path(f"{pipe}{rank}.pipe"))
    except OSError as error:
        print(f"no flight recorder triggers: {error}", file=sys.stderr, flush=True)
        return None
