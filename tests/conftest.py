"""Fixtures for tests that start real ranks, and a proof that they leave nothing behind."""

import os
import secrets
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from harness.catalog.find import find_drill
from harness.catalog.planning import plan_run
from harness.catalog.settings import Sources, settle
from harness.experiment import Experiment, RunResult
from harness.launch.client import LauncherClient
from harness.observe.machine import look

TAG = "DRILL_TEST_TAG"

if look().why_no_nccl is None:
    # With cards, too, the suite means gloo: ci/gpu_check.sh is for what runs on them.
    os.environ.setdefault("DRILL_BACKEND", "gloo")

Drill = Callable[..., RunResult]


def tagged(tag: str) -> list[psutil.Process]:
    """Processes that carry a tag in their environment, zombies aside."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.environ().get(TAG) == tag and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
        except psutil.Error:
            continue
    return found


def survivors(tag: str, limit_s: float = 2.0) -> list[psutil.Process]:
    """Tagged processes other than this one that still run after `limit_s`."""
    deadline = time.monotonic() + limit_s
    while True:
        left = [p for p in tagged(tag) if p.pid != os.getpid()]
        if not left or time.monotonic() > deadline:
            return left
        time.sleep(0.02)


def heed_signals() -> None:
    """For `preexec_fn`: a shell's background jobs ignore Ctrl-C, nohup ignores SIGHUP, and hand that down."""
    for signum in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(signum, signal.SIG_DFL)


@pytest.fixture
def tag(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A tag that every process started in this test inherits; none may outlive the test."""
    name = secrets.token_hex(8)
    monkeypatch.setenv(TAG, name)
    yield name
    left = survivors(name)
    for process in left:
        process.kill()
    assert not left, f"left running: {left}"


@pytest.fixture(scope="session")
def launcher() -> Iterator[LauncherClient]:
    """One launcher process for all drills of this test process: torch is imported once."""
    with LauncherClient() as client:
        yield client


@pytest.fixture
def drill(launcher: LauncherClient, tmp_path: Path) -> Drill:
    """Run a drill for real: `drill("fr_hang", "hang_at=3", culprit="5", mode="size")`."""

    def run(name: str, *sets: str, **flags: str) -> RunResult:
        spec = find_drill(name)
        sources = Sources.read({"out": str(tmp_path / "runs"), **flags}, sets)
        result = Experiment(plan_run(spec, settle(spec, sources)), launcher).run()
        assert_nothing_left(result.bundle)
        return result

    return run


def assert_nothing_left(bundle: Path) -> None:
    """No rank of a bundle still runs, and its pipes are gone."""
    root = str(bundle.resolve())
    left = []
    for process in psutil.process_iter():
        try:
            if process.environ().get("DRILL_BUNDLE") == root and process.is_running():
                left.append(process)
        except psutil.Error:
            continue
    _, alive = psutil.wait_procs(left, timeout=2)
    assert not alive, f"left running: {alive}"
    assert not (bundle / "live").exists()
