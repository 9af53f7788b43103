"""A program that measures: its last line of output is a JSON object of figures, held against a criterion."""

import json
import math
import os
import signal
import subprocess
import time
from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path

from harness.bundle.folders import fresh_folder
from harness.checklist.expressions import ExpressionError, holds, names_in
from harness.checklist.surroundings import Surroundings, title_of
from harness.model.checklist import Figure, ItemOutcome, Step, StepResult
from harness.model.errors import Interrupted
from harness.observe.processes import kill_tree
from harness.worker.lifeline import die_with_parent
from harness.worker.probes.options import UNABLE

POLL_S = 0.1
MAX_OUTPUT_BYTES = 1 << 20
MAX_BITS = 128
"""A larger number is no measurement, and nobody wants to read it."""


def measured(step: Step, command: tuple[str, ...], around: Surroundings) -> StepResult:
    """Run a program whose last line is a JSON object of figures, and hold them against the criterion."""
    title = title_of(step)
    slug = "".join(c if c.isalnum() else "_" for c in Path(step.name).name)[:40]
    try:
        folder = fresh_folder(around.bundles / f"{time.strftime('%Y%m%d-%H%M%S')}-{slug}").resolve()
    except OSError as error:
        return StepResult(title, ItemOutcome.NOT_RUN, f"{around.bundles}: {error.strerror}")
    environ = {**around.job.over(os.environ), **around.extra, "DRILL_PROBE_OUT": str(folder)}
    try:
        code = _run(command, environ, folder, step.timeout_s, around)
    except OSError as error:
        return StepResult(title, ItemOutcome.NOT_RUN, f"{command[0]}: {error.strerror}", bundle=str(folder))
    if code is None:
        why = f"did not end within {step.timeout_s:g} s, and was stopped"
        return StepResult(title, ItemOutcome.INCONCLUSIVE, why, bundle=str(folder))
    figures, says = _read_figures(folder / "stdout.log")
    if code == UNABLE:
        return StepResult(title, ItemOutcome.NOT_RUN, _last_error(folder), bundle=str(folder))
    if code != 0 or figures is None:
        how = f"ended with code {code}" if code else "printed no JSON object with figures"
        why = f"{how}: {_last_error(folder)}"
        return StepResult(title, ItemOutcome.INCONCLUSIVE, why, bundle=str(folder))
    assert step.passes is not None
    wanted = sorted(names_in(step.passes))
    asked = ", ".join(f"{name} {_shown(figures.get(name))}" for name in wanted)
    try:
        passed = holds(step.passes, figures)
    except ExpressionError as error:
        return StepResult(
            title, ItemOutcome.INCONCLUSIVE, str(error), figures, step.passes, step.shows, says, str(folder)
        )
    outcome = ItemOutcome.PASS if passed else ItemOutcome.FAIL
    shown = [name for name in step.shows or wanted if figures.get(name) not in (None, "")]
    why = ", ".join(f"{name} {_shown(figures[name])}" for name in shown)
    if not passed:
        why = f"{asked}; wanted: {step.passes}"
    if not passed and says:
        why = f"{says[0]} ({why})"
    return StepResult(title, outcome, why, figures, step.passes, step.shows, says, str(folder))


def _run(
    command: tuple[str, ...],
    environ: Mapping[str, str],
    folder: Path,
    timeout_s: float,
    around: Surroundings,
) -> int | None:
    """Its exit code, or None where it had to be stopped. Nothing of it is left running."""
    guard = _guard()
    assert guard.stdin is not None
    try:
        with (folder / "stdout.log").open("wb") as out, (folder / "stderr.log").open("wb") as err:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                env=environ,
                start_new_session=True,
                preexec_fn=partial(_begin, os.getpid(), guard.stdin.fileno()),
            )
    except OSError:
        guard.kill()
        guard.communicate()
        raise
    deadline = time.monotonic() + timeout_s
    try:
        while time.monotonic() < deadline and not around.stop.is_set():
            try:
                return process.wait(POLL_S)
            except subprocess.TimeoutExpired:
                continue
    finally:
        _end(process)
        guard.kill()
        guard.communicate()
    if around.stop.is_set():
        raise Interrupted(f"interrupted; {command[0]} was stopped")
    return None


def _begin(parent: int, guard: int) -> None:
    """In the new process, before it becomes the program: from here on somebody watches its session."""
    die_with_parent(parent)
    os.write(guard, b"%d\n" % os.getpid())


def _guard() -> "subprocess.Popen[bytes]":
    """Ends the session that it is told once we are gone: the kernel tells its first process only."""
    script = 'read -r session && { read -r _; kill -s KILL -- "-$session" 2>/dev/null; }'
    return subprocess.Popen(("/bin/sh", "-c", script), stdin=subprocess.PIPE, start_new_session=True)


def _end(process: "subprocess.Popen[bytes]") -> None:
    """Stop what is left of a program and of all that it started in its session."""
    if process.poll() is None:
        kill_tree(process.pid)
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _read_figures(path: Path) -> tuple[dict[str, Figure] | None, tuple[str, ...]]:
    """The figures of the last line that looks like a JSON object, and the sentences under its key ``says``.

    None where that line is none: it may have been cut off, and what stands above it is not the last word.
    """
    try:
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - MAX_OUTPUT_BYTES))
            lines = file.read().decode(errors="replace").splitlines()
    except OSError:
        # The command took its own folder away.
        return None, ()
    for line in reversed(lines):
        if not line.startswith("{"):
            continue
        try:
            document = json.loads(line)
        except (ValueError, RecursionError):
            return None, ()
        said = document.pop("says", [])
        says = tuple(str(_figure(s)) for s in (said[:20] if isinstance(said, list) else [said]))
        return {str(name): _figure(value) for name, value in document.items()}, says
    return None, ()


def _figure(value: object) -> Figure:
    if isinstance(value, int) and value.bit_length() > MAX_BITS:
        return math.inf if value > 0 else -math.inf
    if value is None or isinstance(value, (bool, int, float)):
        return value
    text = value if isinstance(value, str) else json.dumps(value)
    # JSON may hold halves of characters, which no terminal and no file takes.
    return text[:400].encode(errors="replace").decode()


def _last_error(folder: Path) -> str:
    for name in ("stderr.log", "stdout.log"):
        try:
            data = (folder / name).read_bytes()[-MAX_OUTPUT_BYTES:].decode(errors="replace")
        except OSError as error:
            return f"{folder / name}: {error.strerror}"
        lines = [line.strip() for line in data.splitlines() if line.strip()]
        if lines:
            return lines[-1][:400]
    return "it said nothing"


def _shown(value: Figure) -> str:
    return f"{value:.4g}" if isinstance(value, float) else "none" if value == "" else str(value)
