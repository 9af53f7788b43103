"""Repeated sampling of real processes, without harm to any."""

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.bundle.layout import Layout
from harness.bundle.writer import BundleWriter
from harness.model.bundle import Manifest
from harness.observe.repeated import RepeatedSampling

SLEEPS = "print('up', flush=True)\nimport time\ntime.sleep(600)\n"


@pytest.fixture
def pids(tag: str) -> Iterator[dict[int, int]]:
    """Three Python processes that sleep."""
    started = [
        subprocess.Popen((sys.executable, "-c", SLEEPS), stdout=subprocess.PIPE, text=True) for _ in range(3)
    ]
    for process in started:
        assert process.stdout is not None
        process.stdout.readline()
    yield {rank: process.pid for rank, process in enumerate(started)}
    for process in started:
        process.kill()
        process.communicate()


def writer(root: Path) -> BundleWriter:
    """A bundle to write into."""
    root.mkdir()
    return BundleWriter(root, Manifest(3, "gloo", "collected", 0.0))


def order(layout: Layout, sampling: int) -> list[int]:
    """Ranks in the order in which their files were written."""
    return sorted(range(3), key=lambda rank: layout.stack(0, sampling, rank).stat().st_mtime_ns)


def test_every_rank_in_every_sampling(
    pids: dict[int, int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Numbered from `first` on, each begun with another rank, with state, switches and source lines."""
    monkeypatch.setattr("harness.observe.repeated.os.cpu_count", lambda: 1)
    bundle = writer(tmp_path / "bundle")
    counts: list[int] = []
    sampling = RepeatedSampling(bundle.layout, 0, pids, samples=3, over_s=0.0, first=4)

    sampling.run(counts.append)
    sampling.report(bundle)

    assert counts == [1, 2, 3]
    assert [order(bundle.layout, number) for number in (4, 5, 6)] == [[0, 1, 2], [1, 2, 0], [2, 0, 1]]
    (process,) = json.loads(bundle.layout.stack(0, 4, 1).read_bytes())
    assert (process["pid"], process["role"], process["state"]) == (pids[1], "rank", "sleeping")
    assert isinstance(process["switches"], int)
    assert process["threads"][0]["frames"][0]["name"] == "<module>"
    assert any(what.startswith("stacks, 3 samplings over") for what in bundle.manifest.collected)
    assert bundle.manifest.not_collected == ()


def test_in_a_thread(pids: dict[int, int], tmp_path: Path) -> None:
    """It is done once all samplings are taken; whoever polls goes on meanwhile."""
    sampling = RepeatedSampling(Layout(tmp_path), 0, pids, samples=2, over_s=0.0)
    before = sampling.done

    sampling.start()
    while not sampling.done:
        time.sleep(0.01)

    assert not before
    assert sampling.taken == 2


def test_stopped_early(pids: dict[int, int], tmp_path: Path) -> None:
    """A sampling planned for an hour ends when it is told to."""
    sampling = RepeatedSampling(Layout(tmp_path), 0, pids, samples=2, over_s=3600.0)

    sampling.start()
    sampling.stop()

    assert sampling.done
    assert sampling.taken <= 1


def test_what_cannot_be_sampled(
    pids: dict[int, int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A rank that was never read is missing evidence, once and with the reason."""
    bundle = writer(tmp_path / "bundle")
    gone = subprocess.Popen((sys.executable, "-c", ""))
    gone.wait()
    sampling = RepeatedSampling(bundle.layout, 0, {**pids, 3: gone.pid}, samples=2, over_s=0.0)

    sampling.run()
    sampling.report(bundle)

    (lacking,) = bundle.manifest.not_collected
    assert lacking.what == "repeated stacks of rank 3"
    assert lacking.why.startswith("py-spy")


def test_without_py_spy(pids: dict[int, int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where py-spy is not installed, the remedy is said."""
    monkeypatch.setattr("harness.observe.stacks.find_py_spy", lambda: None)
    bundle = writer(tmp_path / "bundle")
    sampling = RepeatedSampling(bundle.layout, 0, pids, samples=1, over_s=0.0)

    sampling.run()
    sampling.report(bundle)

    (lacking,) = bundle.manifest.not_collected
    assert (lacking.what, lacking.why) == (
        "repeated stacks of rank 0-2",
        "py-spy is not installed: pip install py-spy",
    )
