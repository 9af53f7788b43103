"""Runs what fits in a budget, each drill in a process of its own, and writes down what came of it."""

import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from harness.bundle.codec import write_json
from harness.catalog.selection import Selection, plan_selection
from harness.catalog.settings import Sources
from harness.gpucheck.facts import Facts
from harness.gpucheck.pack import Packer, without_names
from harness.gpucheck.worth import Wanted
from harness.model.plan import RunPlan

SCHEMA = "drill/gpu-check/1"
GUESS_S = 20.0
"""What a run may take before any has been measured."""

RUN_LIMIT_S, OVERHEAD_S = 90.0, 25.0
"""A drill's own bound, and what starting, collecting and stopping may take beside it."""

PACKING_S = 5.0
WORST = (5, 1, 3, 4, 0)


@dataclass
class Ran:
    """One run. `code`: its exit code; None of the rest where it gave no document."""

    name: str
    words: tuple[str, ...]
    code: int
    seconds: float
    verdict: str | None = None
    kind: str | None = None
    culprits: tuple[int, ...] = ()
    suspects: tuple[int, ...] = ()
    confidence: str | None = None
    summary: str | None = None
    backend: str | None = None
    shared_gpu: bool = False
    failing: dict[str, object] = field(default_factory=dict)
    timings: dict[str, object] = field(default_factory=dict)
    watchdog: object = None
    notes: tuple[str, ...] = ()
    error: str | None = None
    archive: str | None = None
    archive_bytes: int | None = None


@dataclass
class Check:
    """The whole check. `say` gets a line for people as each run ends."""

    facts: Facts
    out: Path
    budget_s: float
    nproc: int
    without: tuple[str, ...] = ()
    say: Callable[[str], None] = print
    ran: list[Ran] = field(default_factory=list)
    left_out: dict[str, str] = field(default_factory=dict)
    _packer: Packer = field(init=False)
    _started: float = field(default_factory=time.monotonic)

    def __post_init__(self) -> None:
        self._packer = Packer(self.out / "bundles")

    def run(self, wanted: Sequence[Wanted]) -> int:
        """Run all that fits. Returns the worst exit code; 4 if nothing could be run."""
        with tempfile.TemporaryDirectory(prefix="drill-check-") as scratch:
            for one in wanted:
                if reason := self._why_not(one):
                    self.left_out[one.name] = reason
                    continue
                self.ran.append(self._run(one, Path(scratch)))
                self._write()
            self._write()
        codes = {ran.code for ran in self.ran}
        return next((code for code in WORST if code in codes), 4)

    @property
    def _left_s(self) -> float:
        return self.budget_s - (time.monotonic() - self._started) - PACKING_S

    def _why_not(self, one: Wanted) -> str | None:
        """Why a run is left out: the machine lacks what it needs, or the time is up."""
        flags = {"mode": one.mode, "nproc": str(self.nproc)}
        if one.watchdog:
            flags["wait_for_watchdog"] = "true"
        (planned,) = plan_selection(Selection((one.drill,)), Sources.read(flags, one.sets))
        if not isinstance(planned.plan, RunPlan):
            return str(planned.plan)
        usual = statistics.median(r.seconds for r in self.ran) if self.ran else GUESS_S
        if self._left_s < usual:
            return f"no time left ({max(self._left_s, 0.0):.0f} s, a run takes {usual:.0f} s)"
        return None

    def _run(self, one: Wanted, scratch: Path) -> Ran:
        limit_s = max(1.0, min(RUN_LIMIT_S, self._left_s))
        folder = scratch / one.name
        words = (*one.words, "--nproc", str(self.nproc), "--timeout", f"{limit_s:.0f}")
        command = (sys.executable, "-m", "harness.cli", "run", *words, "--json", "--out", str(folder))
        began = time.monotonic()
        code, out, error = _bounded(command, min(limit_s, self._left_s) + OVERHEAD_S)
        ran = Ran(one.name, words, code, round(time.monotonic() - began, 1))
        _fill(ran, out, error)
        made = [path for path in sorted(folder.glob("*")) if path.is_dir() and not path.is_symlink()]
        if made:
            # The last one, where ranks that would not share a card were run again as fewer.
            ran.archive_bytes, reason = self._packer.add(one.name, made[-1])
            ran.archive = f"bundles/{one.name}.tar.gz" if reason is None else None
            ran.error = ran.error or (f"its bundle is not packed: {reason}" if reason else None)
            shutil.rmtree(folder, ignore_errors=True)
        self.say(_line(ran))
        return ran

    def _write(self) -> None:
        document = {
            "schema": SCHEMA,
            "at": time.strftime("%Y-%m-%d", time.gmtime()),
            "machine": asdict(self.facts),
            "without": list(self.without),
            "budget_s": self.budget_s,
            "spent_s": round(time.monotonic() - self._started, 1),
            "nproc": self.nproc,
            "runs": [asdict(ran) for ran in self.ran],
            "left_out": self.left_out,
        }
        write_json(self.out / "summary.json", without_names(document))


def _bounded(command: Sequence[str], limit_s: float) -> tuple[int, str, str]:
    """Exit code and output of a command; it and all that it started are ended when the limit is over."""
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    try:
        out, error = process.communicate(timeout=limit_s)
        return process.returncode, out, error
    except subprocess.TimeoutExpired:
        # First as Ctrl-C does: it stops its ranks, which are in sessions of their own, and keeps the bundle.
        for signum, wait_s in ((signal.SIGINT, 10.0), (signal.SIGKILL, 5.0)):
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signum)
            with suppress(subprocess.TimeoutExpired):
                out, error = process.communicate(timeout=wait_s)
                return 3, out, f"{error}\nstopped after {limit_s:.0f} s"
        return 3, "", f"stopped after {limit_s:.0f} s"


def _fill(ran: Ran, out: str, error: str) -> None:
    try:
        document: dict[str, Any] = json.loads(out)
    except ValueError:
        lines = [line for line in error.strip().splitlines() if line.strip()]
        ran.error = lines[-1] if lines else f"exit code {ran.code} without a word"
        return
    verdict, diagnosis = document["verdict"], document["diagnosis"]
    params = document.get("params", {})
    ran.verdict = verdict["verdict"]
    ran.failing = {name: check for name, check in verdict["checks"].items() if check["ok"] is False}
    ran.kind, ran.confidence = diagnosis["kind"], diagnosis["confidence"]
    ran.culprits, ran.suspects = tuple(diagnosis["culprits"]), tuple(diagnosis["suspects"])
    ran.summary = diagnosis["summary"]
    ran.backend, ran.shared_gpu = params.get("backend"), bool(params.get("share_gpu"))
    ran.timings, ran.watchdog = document["seconds"], document.get("watchdog")
    ran.notes = tuple(document.get("notes", ()))


def _line(ran: Ran) -> str:
    """A run in one line for people."""
    where = f"{ran.backend or '-'}{', one card' if ran.shared_gpu else ''}"
    what = ran.error or f"{ran.kind}, {_accused(ran)} ({ran.confidence})"
    missed = f"; failed: {', '.join(ran.failing)}" if ran.failing else ""
    verdict = (ran.verdict or "none").upper()
    return f"{verdict:<13} {ran.name:<26} {where:<16} {ran.seconds:5.1f} s  {what}{missed}"


def _accused(ran: Ran) -> str:
    if ran.culprits:
        return f"rank {', '.join(map(str, ran.culprits))}"
    return f"suspects {', '.join(map(str, ran.suspects))}" if ran.suspects else "nobody accused"
