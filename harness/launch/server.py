"""The launcher process: imports torch and starts the symbolizer once, then forks one agent a request.

Stays single-threaded, since forking a process with threads can leave a lock held for ever in the child.
Reads a `LaunchRequest` a line on standard input, writes a `LauncherMessage` a line on standard output,
and stops when standard input ends.
"""

import json
import os
import select
import signal
import sys
import time
from contextlib import suppress
from importlib import import_module

from harness.bundle.codec import dump_line
from harness.launch.request import LauncherMessage, LaunchRequest
from harness.worker.lifeline import die_with_parent


def serve(parent: int) -> None:
    """Serve requests until standard input ends. `parent` is the pid of the process that started us."""
    die_with_parent(parent)
    out = os.dup(1)
    os.dup2(2, 1)
    _warm_up()
    wake_r, wake_w = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(wake_w)
    agents: dict[int, str] = {}
    _say(out, LauncherMessage("ready"))
    pending = b""
    while True:
        readable, _, _ = select.select([0, wake_r], [], [])
        if wake_r in readable:
            os.read(wake_r, 4096)
            _reap(out, agents)
        if 0 in readable:
            received = os.read(0, 1 << 16)
            if not received:
                break
            *lines, pending = (pending + received).split(b"\n")
            for line in lines:
                request = LaunchRequest(**json.loads(line))
                pid = _fork_agent(request, (out, wake_r, wake_w))
                agents[pid] = request.bundle
                _say(out, LauncherMessage("started", request.bundle, pid))
    _stop(agents)


def _warm_up() -> None:
    """Pay for torch's imports, the elastic engine's and the symbolizer's start before any fork."""

    import harness.worker.session  # noqa: F401
    from harness.worker.recorder import start_symbolizer

    start_symbolizer()


def _fork_agent(request: LaunchRequest, ours: tuple[int, ...]) -> int:
    parent = os.getpid()
    for module in request.preload:
        # A module that does not import is the ranks' own trouble, and their log will say so.
        with suppress(ImportError):
            import_module(module)
    pid = os.fork()
    if pid:
        return pid
    code = 70
    try:
        die_with_parent(parent)
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        for fd in ours:
            os.close(fd)
        from harness.launch.agent import run_agent

        code = run_agent(request)
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _reap(out: int, agents: dict[int, str]) -> None:
    for pid in tuple(agents):
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            _say(out, LauncherMessage("ended", agents.pop(pid), pid, status))


def _stop(agents: dict[int, str]) -> None:
    for pid in agents:
        os.kill(pid, signal.SIGTERM)
    deadline = time.monotonic() + 2
    while agents and time.monotonic() < deadline:
        for pid in tuple(agents):
            if os.waitpid(pid, os.WNOHANG)[0]:
                del agents[pid]
        time.sleep(0.01)


def _say(out: int, message: LauncherMessage) -> None:
    os.write(out, dump_line(message))


if __name__ == "__main__":
    serve(int(sys.argv[1]))
