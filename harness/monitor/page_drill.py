"""The page drill beside a training drill: breaks, waits for the page, mends, waits for the end of it.

It plays in a thread of its own, while the experiment watches the ranks; the two share a few plain values.
"""

import os
import signal
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from harness.bundle.layout import Layout
from harness.bundle.reader import BundleReader
from harness.bundle.writer import BundleWriter
from harness.model.page import Message, PageReport
from harness.monitor.chain import Chain
from harness.monitor.confirm import ask_person
from harness.monitor.last_steps import last_steps
from harness.monitor.scene import SCENES
from harness.monitor.services import ServiceDied
from harness.monitor.stack import Stack
from harness.observe.watch import Notice, Watch

JOB = "page-drill"
SETTLE_STEPS = 5
SETTLE_LIMIT_S = 60.0
RESTART_LIMIT_S = 60.0
GRACE_STEPS = 10
"""So many steps ahead the ranks are told to end: all of them must read it before they get there."""

HELD_EVALUATIONS = 4
"""How often the rules are looked at while a restart is held up: a second page would come by then."""

GO_ON_LIMIT_S = 10.0
POLL_S = 0.05
XID_LINE = (
    b"[%d.0] NVRM: Xid (PCI:0000:3b:00): 79, pid=0, GPU has fallen off the bus. (a drill wrote this line)\n"
)


class _Over(Exception):
    """The drill cannot go on; the message says why."""


class PageDrill:
    """One scene. `start` before the ranks are launched, `look` while they run, `stop` and `report`."""

    def __init__(
        self,
        scene: str,
        stack: Stack,
        writer: BundleWriter,
        rank: int,
        within_s: float,
        progress: Callable[[str, str], None],
        code: str | None = None,
        confirm_s: float = 600.0,
    ) -> None:
        self._name, self._scene = scene, SCENES[scene]
        self._stack, self._writer, self._rank = stack, writer, rank
        self._layout: Layout = writer.layout
        self._within_s, self._progress = within_s, progress
        self._code, self._confirm_s = code, confirm_s
        self._chain = Chain(stack, self._scene.alert)
        self._ending = threading.Event()
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._play, name="page-drill", daemon=True)
        self._pids: dict[int, int] = {}
        self._attempt = 0
        self._joined = False
        self._steps = 0
        self._step = -1
        self._resolved_after_s: float | None = None
        self._inhibited: bool | None = None
        self._confirmed: bool | None = None
        self._died: str | None = None

    def start(self) -> None:
        """Bring the monitoring up.

        Raises:
            ServiceDied: a program does not start.
        """
        self._stack.start()
        self._thread.start()

    def look(self, watch: Watch) -> None:
        """What the experiment sees of the ranks."""
        if watch.attempt != self._attempt:
            self._joined = False
        self._attempt, self._pids = watch.attempt, dict(watch.pids)
        self._joined, self._steps = watch.joined_at is not None, watch.steps

    def holds(self, notice: Notice) -> bool:
        """Whether a notice is what the drill brought about: then the job is left as it is."""
        return notice.kind in ("stall", "join") and not self._done.is_set()

    def stop(self) -> None:
        """End everything that was started."""
        self._ending.set()
        if self._thread.is_alive():
            self._thread.join()
        self._stack.stop()

    def report(self) -> PageReport:
        """What came of it."""
        chain, received = self._chain, self._stack.webhook.received
        return PageReport(
            scene=self._name,
            expected=self._scene.alert,
            within_s=self._within_s,
            seconds=chain.seconds,
            links=chain.links(),
            broken_link=chain.broken_link(),
            pages=sum(n.firing for n in received),
            resolves=self._scene.thaws,
            resolved_after_s=self._resolved_after_s,
            inhibited=self._inhibited,
            missing=self._missing(),
            messages=tuple(
                Message(n.at, n.firing, tuple(a.name for a in n.alerts), n.text) for n in received
            ),
            confirmed=self._confirmed,
            died=self._died,
            rehearsal=self._stack.pace.interval_s < 5,
        )

    def _play(self) -> None:
        try:
            self._until(self._settled, SETTLE_LIMIT_S, "no metrics of the job arrived in Prometheus")
            getattr(self, f"_play_{self._name}")()
        except _Over as over:
            self._died = str(over)
        except ServiceDied as error:
            self._died = str(error)
        finally:
            self._let_go()
            self._done.set()

    def _play_stall(self) -> None:
        self._freeze()
        if self._page():
            self._thaw_and_resolve()

    def _play_own(self) -> None:
        self._freeze()
        if not self._page():
            return
        assert self._code is not None
        self._progress("confirm", "type the code word of the page that reached you, then Enter")
        answer = ask_person(self._code, self._confirm_s, self._ending)
        self._confirmed = answer.confirmed
        if answer.why_not:
            self._died = answer.why_not

    def _play_restart(self) -> None:
        self._freeze()
        if not self._page():
            return
        self._progress("page", "killing the frozen rank: the launcher starts all of them again")
        self._writer.injected("SIGKILL", self._step, self._rank)
        self._signal(signal.SIGKILL)
        self._until(
            lambda: self._attempt == 1 and self._joined, RESTART_LIMIT_S, "the ranks were not restarted"
        )
        self._signal(signal.SIGSTOP)
        self._progress("page", "holding up the restart: nobody must be paged again")
        prometheus, alertmanager = self._stack.prometheus, self._stack.alertmanager
        self._until(
            lambda: prometheus.firing(self._scene.alert) and alertmanager.inhibited(self._scene.alert),
            6 * self._stack.pace.interval_s + SETTLE_LIMIT_S,
            "",
        )
        self._inhibited = alertmanager.inhibited(self._scene.alert)
        waited = time.monotonic() + HELD_EVALUATIONS * self._stack.pace.interval_s
        self._until(lambda: time.monotonic() > waited, SETTLE_LIMIT_S, "")
        self._thaw_and_resolve()

    def _play_exporter(self) -> None:
        self._chain.begin(time.time(), time.time())
        self._progress("page", "the exporter is killed")
        self._stack.exporter.kill()
        if self._page():
            since = time.time()
            self._stack.exporter.start()
            self._resolve(since)

    def _play_nan(self) -> None:
        self._wait_for_fault()
        self._page()

    _play_ckpt = _play_nan

    def _play_xid(self) -> None:
        self._chain.begin(time.time(), time.time())
        self._progress("page", "a kernel log reports XID 79")
        with self._stack.kernel_log.open("ab") as log:
            log.write(XID_LINE % int(time.monotonic()))
        self._page()

    def _settled(self) -> bool:
        """The job runs, and Prometheus knows how long its steps take."""
        p50 = self._stack.prometheus.value(f'job:train_step_time_seconds:p50{{job="{JOB}"}}')
        return p50 is not None and self._steps >= SETTLE_STEPS * max(1, len(self._pids))

    def _freeze(self) -> None:
        at = time.time()
        self._signal(signal.SIGSTOP)
        # What was under way when it froze may still be written.
        self._until(lambda: time.time() > at + 3 * POLL_S, SETTLE_LIMIT_S, "")
        steps = last_steps(self._layout.signals)
        last = min((t for _, t in steps.values()), default=at)
        self._step = min((step for step, _ in steps.values()), default=-1)
        self._chain.begin(last, max(at, last))
        self._progress("page", f"rank {self._rank} is frozen after step {self._step}")

    def _wait_for_fault(self) -> None:
        def fired() -> float | None:
            events = BundleReader(self._layout).injections()
            return min((i.t for i in events if i.event == "fired"), default=None)

        self._until(lambda: fired() is not None, SETTLE_LIMIT_S, "the fault never fired")
        at = fired()
        assert at is not None
        self._chain.begin(at, at)
        self._progress("page", "the fault has fired")

    def _page(self) -> bool:
        """Wait for the page; whether it came, late or not. After twice its time it will not."""
        self._until(lambda: self._chain.arrived is not None, 2 * self._within_s, "")
        if self._chain.arrived is None:
            return False
        # The code word is for who gets the page, not for who looks at this terminal.
        text = "it is there" if self._code else self._chain.page.text if self._chain.page else ""
        self._progress("page", text)
        return True

    def _thaw_and_resolve(self) -> None:
        since = time.time()
        self._mend()
        self._resolve(since)

    def _resolve(self, since: float) -> None:
        pace, limits = self._stack.pace, self._stack.limits
        limit_s = 2 * (pace.group_interval_s + 4 * pace.interval_s + limits.resolve_after_s) + GO_ON_LIMIT_S

        def message() -> float | None:
            received = self._stack.webhook.received
            return next((n.at for n in received if not n.firing and n.at > since), None)

        self._until(lambda: message() is not None, limit_s, "")
        found = message()
        self._resolved_after_s = None if found is None else found - since

    def _missing(self) -> tuple[str, ...]:
        """What the page should say and does not."""
        page = self._chain.page
        if page is None:
            return ()
        wanted = {"the job": JOB}
        if self._scene.breaks_ranks:
            wanted["the step"] = f"at step {self._step}"
        if self._name == "xid":
            wanted |= {"the XID": "XID 79", "the card": "0000:3b:00"}
        return tuple(what for what, text in wanted.items() if text not in page.text)

    def _signal(self, signum: signal.Signals) -> None:
        pid = self._pids.get(self._rank)
        if pid is not None:
            with suppress(ProcessLookupError):
                os.kill(pid, signum)

    def _mend(self) -> None:
        """Let the frozen rank go on, whatever else happened."""
        if self._scene.breaks_ranks:
            self._signal(signal.SIGCONT)

    def _let_go(self) -> None:
        """Let the job go on and end; until it has moved, a stall is still our doing."""
        before = self._steps
        self._mend()
        self._end_job()
        deadline = time.monotonic() + GO_ON_LIMIT_S
        while self._steps == before and time.monotonic() < deadline and not self._ending.wait(POLL_S):
            pass

    def _end_job(self) -> None:
        """Tell the ranks after which step to end; those that are gone do not read it."""
        steps = last_steps(self._layout.signals)
        last = max((step for step, _ in steps.values()), default=0) + GRACE_STEPS
        with suppress(OSError):
            path: Path = self._layout.last_step
            scratch = path.with_suffix(".tmp")
            scratch.write_text(str(last))
            scratch.replace(path)

    def _until(self, condition: Callable[[], object], limit_s: float, otherwise: str) -> None:
        """Wait for something.

        Raises:
            _Over: a monitoring program died, the run ends, or the limit passed and `otherwise` says why not.
        """
        deadline = time.monotonic() + limit_s
        while not condition():
            if (dead := self._stack.dead()) is not None:
                raise _Over(f"{dead.name} ended in the middle of the drill: {dead.log}")
            if self._ending.wait(POLL_S):
                raise _Over("the run ended before the drill did")
            if time.monotonic() > deadline:
                if otherwise:
                    raise _Over(f"{otherwise} within {limit_s:g} s")
                return
