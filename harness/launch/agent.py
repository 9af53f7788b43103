"""One drill's elastic agent: torchrun's own engine, with a record of how every rank ended.

Runs in a process forked from the launcher. torch's agent reports the first failure only and stops the
other ranks at once; this one looks at each exit before torch reaps it, and lets the observer collect
before the others are stopped.
"""

import os
import signal
import sys
import time
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from unittest import mock

from torch.distributed.elastic.agent.server.local_elastic_agent import LocalElasticAgent
from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs, SignalException, Std
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
from torch.distributed.launcher import api

from harness.bundle.codec import write_json
from harness.bundle.layout import Layout
from harness.launch.child import run_script
from harness.launch.namespace import enter_network_namespace
from harness.launch.request import LaunchRequest
from harness.model.bundle import Attempt, LauncherRecord, RankExit
from harness.worker.environment import BUNDLE, RankEnvironment
from harness.worker.lifeline import children_die_with_us, die_with_parent
from harness.worker.registration import Registration

MONITOR_INTERVAL_S = 0.05
FORK_BARRIER_S = 30.0


class ExitLedger:
    """Writes launcher.json as ranks start and end."""

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        self.reaped: Callable[[int], int | None] = lambda rank: None
        self._attempts: list[Attempt] = []
        self._exits: dict[int, RankExit] = {}
        self._stopping: float | None = None

    def started(self, attempt: int, pids: Mapping[int, int]) -> None:
        """All ranks of an attempt were started; `pids` by rank."""
        self._exits, self._stopping = {}, None
        self._attempts.append(Attempt(attempt, time.time(), dict(pids)))
        self._write()

    def stopping(self) -> None:
        """The agent begins to stop what still runs; later exits are clean-up."""
        self.look()
        if self._stopping is None:
            self._stopping = time.time()
            self._write()

    @property
    def is_stopping(self) -> bool:
        """Whether the agent has begun to stop what still runs."""
        return self._stopping is not None

    def look(self) -> tuple[RankExit, ...]:
        """Note ranks that have ended since the last look, without reaping them. Returns the new ones."""
        if not self._attempts:
            return ()
        new = tuple(
            exit_
            for rank, pid in self._attempts[-1].pids.items()
            if rank not in self._exits and (exit_ := self._peek(rank, pid))
        )
        if new:
            self._exits.update((exit_.rank, exit_) for exit_ in new)
            self._write()
        return new

    def reported(self, rank: int, pid: int, code: int) -> None:
        """torch itself reported a failure that it reaped before we could look."""
        if self._exits.get(rank) is None or self._exits[rank].code is None:
            self._exits[rank] = _exit(rank, pid, code, self._stopping is not None)
            self._write()

    def ended(self, outcome: str, error: str | None = None) -> None:
        """The agent itself is done. If it finished, every rank that torch reaped unseen ended with 0."""
        self.look()
        if outcome == "finished":
            for rank, seen in self._exits.items():
                if seen.code is None:
                    self._exits[rank] = _exit(rank, seen.pid, 0, cleanup=False)
        self._write(outcome, error)

    def _peek(self, rank: int, pid: int) -> RankExit | None:
        cleanup = self._stopping is not None
        try:
            info = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        except ChildProcessError:
            code = self.reaped(rank)
            if code is None:
                return RankExit(rank, pid, None, None, time.time(), cleanup)
            return _exit(rank, pid, code, cleanup)
        if info is None:
            return None
        exited = info.si_code == os.CLD_EXITED
        return _exit(rank, pid, info.si_status if exited else -info.si_status, cleanup)

    def _write(self, outcome: str | None = None, error: str | None = None) -> None:
        if self._attempts:
            current = self._attempts[-1]
            exits = tuple(sorted(self._exits.values(), key=lambda e: (e.at or 0.0, e.rank)))
            self._attempts[-1] = Attempt(
                current.attempt, current.started, current.pids, exits, self._stopping
            )
        try:
            write_json(self._layout.launcher, LauncherRecord(tuple(self._attempts), outcome, error))
        except OSError as failure:
            print(f"launcher.json: {failure.strerror}", file=sys.stderr, flush=True)


def _exit(rank: int, pid: int, code: int, cleanup: bool) -> RankExit:
    name = signal.Signals(-code).name if code < 0 else None
    return RankExit(rank, pid, code, name, time.time(), cleanup)


class RecordingAgent(LocalElasticAgent):
    """torch's local agent with a ledger of exits and a pause for the observer."""

    layout: Layout
    hold_s: float
    ledger: ExitLedger

    def _start_workers(self, worker_group: Any) -> dict[int, Any]:
        pids: dict[int, Any] = super()._start_workers(worker_group)
        self._hold_before_close()
        attempt = worker_group.spec.max_restarts - self._remaining_restarts
        by_rank = {w.global_rank: pids[w.local_rank] for w in worker_group.workers}
        self.ledger.reaped = self._reaped_code
        self.ledger.started(attempt, by_rank)
        self.layout.collected_flag.unlink(missing_ok=True)
        _fork_barrier(self.layout, attempt).touch()
        return pids

    def _monitor_workers(self, worker_group: Any) -> Any:
        if any(exit_.code != 0 for exit_ in self.ledger.look()):
            self._let_the_observer_collect()
        result = super()._monitor_workers(worker_group)
        for failure in result.failures.values():
            rank = worker_group.workers[failure.local_rank].global_rank
            self.ledger.reported(rank, failure.pid, failure.exitcode)
        return result

    def _hold_before_close(self) -> None:
        """torch stops all ranks by closing their context, at once after any failure that it sees first."""
        context: Any = self._pcontext
        close = context.close

        def hold_and_close(*args: Any, **kwargs: Any) -> None:
            failed = any(exit_.code != 0 for exit_ in self.ledger.look())
            if failed and not self.ledger.is_stopping:
                self._let_the_observer_collect()
            self.ledger.stopping()
            close(*args, **kwargs)

        context.close = hold_and_close

    def _reaped_code(self, rank: int) -> int | None:
        """The exit code of a rank that torch reaped before we looked; one agent: rank is local rank."""
        context: Any = self._pcontext
        forked = getattr(context, "_pc", None)
        if forked is not None:
            code = forked.processes[rank].exitcode
        else:
            handler = getattr(context, "subprocess_handlers", {}).get(rank)
            code = handler.proc.returncode if handler else None
        return code if isinstance(code, int) else None

    def _shutdown(self, *args: Any, **kwargs: Any) -> None:
        self.ledger.stopping()
        super()._shutdown(*args, **kwargs)
        self.ledger.look()

    def _let_the_observer_collect(self) -> None:
        """Wait until evidence is safe, at most `hold_s`. A real torchrun would stop the others now."""
        deadline = time.monotonic() + self.hold_s
        while time.monotonic() < deadline and not self.layout.collected_flag.exists():
            self.ledger.look()
            time.sleep(0.01)


def run_agent(request: LaunchRequest) -> int:
    """Run one drill's ranks to their end. Returns what torchrun would: 0, or 1 if a rank failed."""
    layout = Layout(Path(request.bundle))
    _redirect_output(layout.launcher_log)
    os.environ.update(request.env)
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    os.environ[BUNDLE] = request.bundle
    os.chdir(layout.root)
    if request.network_namespace:
        enter_network_namespace()
    ledger = ExitLedger(layout)
    RecordingAgent.layout, RecordingAgent.hold_s, RecordingAgent.ledger = (
        layout,
        request.hold_s,
        ledger,
    )
    config = api.LaunchConfig(
        min_nodes=1,
        max_nodes=1,
        nproc_per_node=request.nproc,
        run_id=request.run_id,
        rdzv_backend="c10d",
        # Port 0: the store takes a free one, so runs side by side cannot meet.
        rdzv_endpoint="127.0.0.1:0",
        local_addr="127.0.0.1",
        max_restarts=request.max_restarts,
        monitor_interval=MONITOR_INTERVAL_S,
        start_method="fork" if request.start == "fork" else "spawn",
        logs_specs=DefaultLogsSpecs(log_dir=str(layout.logs), redirects=Std.ALL),
    )
    try:
        # launch_agent looks the class up when called; all else in it stays torch's own.
        with mock.patch.object(api, "LocalElasticAgent", RecordingAgent):
            _launch(config, request)
    except ChildFailedError as error:
        print(error, file=sys.stderr, flush=True)
        ledger.ended("failed")
        return 1
    except SignalException as error:
        ledger.ended("stopped", str(error))
        return 128 + int(error.sigval)
    except Exception as error:
        ledger.ended("error", f"{type(error).__name__}: {error}")
        raise
    ledger.ended("finished")
    return 0


def _launch(config: api.LaunchConfig, request: LaunchRequest) -> None:
    if request.start == "fork":
        api.elastic_launch(config, run_rank)(request.script, request.argv, os.getpid())
    else:
        child = ("-u", "-m", "harness.launch.child", str(os.getpid()), request.script)
        api.elastic_launch(config, sys.executable)(*child, *request.argv)


def run_rank(script: str, argv: tuple[str, ...], agent: int) -> None:
    """A forked rank: run the drill's script as torchrun would, without paying for the imports again."""
    die_with_parent(agent)
    children_die_with_us()
    env = RankEnvironment.read()
    Registration(env)
    if env.layout:
        _wait_for_siblings(_fork_barrier(env.layout, env.attempt))
    try:
        run_script(script, argv)
    except Exception:
        # An exec'd rank leaves its traceback in stderr; torch's fork keeps it to itself.
        traceback.print_exc()
        raise


def _wait_for_siblings(barrier: Path) -> None:
    """Touch no socket until every sibling is forked.

    The agent's store names each peer that connects (getnameinfo); a rank forked at that moment inherits
    glibc's resolver lock held, and hangs in its own first look-up. Seen once in some 250 forks.
    """
    deadline = time.monotonic() + FORK_BARRIER_S
    while not barrier.exists() and time.monotonic() < deadline:
        time.sleep(0.001)


def _fork_barrier(layout: Layout, attempt: int) -> Path:
    return layout.live / f"attempt_{attempt}_started"


def _redirect_output(log: Path) -> None:
    fd = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.dup2(fd, 1)
    os.dup2(fd, 2)
    for spare in (fd, null):
        os.close(spare)
