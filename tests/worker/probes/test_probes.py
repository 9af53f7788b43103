"""Every probe passes what is sound and fails what is broken: on real processes, with the shipped criteria."""

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from harness.checklist.catalogue import PROBES
from harness.checklist.expressions import holds
from harness.checklist.schema import read_checklist
from harness.model.checklist import Figure
from harness.worker.probes.smi import parse_smi

ROOT = Path(__file__).parent.parent.parent.parent

Figures = Mapping[str, Figure]

SMALL: dict[str, dict[str, object]] = {
    "memory": {"mib": 16, "rounds": 1},
    "gemm": {"size": 256, "dtype": "float32", "seconds": 0.6},
    "links": {"mib": 8, "nproc": 3, "limit": 0.15},
    "bandwidth": {"mib": 4, "rounds": 5, "limit": 0.15},
    "clocks": {"seconds": 2.4},
    "memory_account": {},
    "baseline": {"nproc": 2, "steps": 40, "step_ms": 10.0},
    "checkpoint": {"nproc": 2, "steps": 5, "save_at": 1},
    "reshard": {},
}
"""Each probe as it is run here: as in a rehearsal, and smaller."""

BROKEN = {
    "memory": ["flip"],
    "gemm": ["1"],
    "links": ["1-0"],
    "bandwidth": ["rank:2", "pair:1-2"],
    "clocks": ["slow"],
    "memory_account": ["leak"],
    "baseline": ["jitter"],
    "checkpoint": ["byte", "order", "count", "rng"],
    "reshard": ["weights"],
}
"""Each way in which the measured thing itself is broken."""


def rehearsed(name: str) -> str:
    """The criterion of the shipped checklist for a probe's rehearsal."""
    steps = [
        step.rehearsal
        for item in read_checklist(ROOT / "checklists" / "pretrain.yaml").items
        for step in item.steps
        if step.name == name
    ]
    assert steps[0] is not None and steps[0].passes is not None
    return steps[0].passes


def run_all(wanted: list[tuple[str, dict[str, object]]], tmp_path: Path) -> list[dict[str, Figure]]:
    done = subprocess.run(
        (sys.executable, "-m", "tests.worker.probes.run_all"),
        input=json.dumps(wanted),
        cwd=ROOT,
        env={"PATH": "/usr/bin:/bin", "DRILL_PROBE_OUT": str(tmp_path), "HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=170,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    found: list[dict[str, Figure]] = json.loads(done.stdout.splitlines()[-1])
    return found


@pytest.mark.ranks
def test_sound_things_pass_and_leave_what_they_promise(tmp_path: Path) -> None:
    """All probes, by the criteria that ship; figures as in the catalogue; the baseline keeps its trace."""
    names = list(SMALL)

    found = dict(zip(names, run_all([(name, SMALL[name]) for name in names], tmp_path), strict=True))

    for name, figures in found.items():
        assert set(PROBES[name].figures) <= set(figures), name
        assert holds(rehearsed(name), figures), (name, figures)
    assert found["checkpoint"]["compared_steps"] == 3
    assert (tmp_path / "trace_rank_0.json").stat().st_size > 1000
    assert found["bandwidth"]["named"] == 0


@pytest.mark.ranks
def test_broken_things_fail(tmp_path: Path) -> None:
    """A slowed multiply, a wrong bit, a slow rank, a byte of a checkpoint, a sample too few: none passes."""
    wanted = [(name, how) for name, ways in BROKEN.items() for how in ways]

    found = run_all([(name, {**SMALL[name], "broken": how}) for name, how in wanted], tmp_path)

    results = dict(zip(wanted, found, strict=True))
    for (name, how), figures in results.items():
        assert not holds(rehearsed(name), figures), (name, how, figures)
        assert figures["says"], (name, how)
    assert results["bandwidth", "rank:2"]["slow_ranks"] == "2"
    # The way between two ranks is neither rank's fault.
    assert results["bandwidth", "pair:1-2"]["slow_ranks"] == ""
    assert results["bandwidth", "pair:1-2"]["slow_pairs"] == "1-2"
    assert results["checkpoint", "byte"]["state_equal"] is False
    assert results["checkpoint", "order"]["order_equal"] is False
    assert results["checkpoint", "count"]["counts_equal"] is False
    assert results["checkpoint", "rng"]["losses_equal"] is False


def test_options_are_those_of_the_catalogue() -> None:
    """Same names, same types: read from the source, since importing a probe imports torch."""
    names = [name for name, probe in PROBES.items() if probe.torch]
    assert set(SMALL) == set(BROKEN) == set(names)
    done = subprocess.run(
        (
            sys.executable,
            "-c",
            "import importlib, json, sys\n"
            "print(json.dumps({n: dict(importlib.import_module('harness.worker.probes.' + n).DEFAULTS)"
            " for n in sys.argv[1:]}))",
            *names,
        ),
        capture_output=True,
        text=True,
        check=True,
        cwd=ROOT,
    )
    defaults = json.loads(done.stdout)
    for name in names:
        expected = {"broken": "", **PROBES[name].arguments}
        assert defaults[name] == expected, name
        assert {k: type(v) for k, v in defaults[name].items()} == {k: type(v) for k, v in expected.items()}


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("bandwidth", "--nproc", "2"), 4, "at least 4 ranks"),
        (("checkpoint", "--save-at", "9"), 4, "--save-at 9: allowed is a step from 0 to 6"),
        (("checkpoint", "--broken", "x"), 4, "allowed are byte, order, count, rng"),
        (("memory_account", "--signals", "none"), 4, "needs --computed-mib"),
        (("memory", "--mib", "0"), 4, "nothing would be tested"),
        (("gemm", "--dtype", "float7"), 4, "torch has no such type"),
        (("reshard", "--nproc", "3"), 4, "an even number"),
    ],
)
@pytest.mark.sweep
def test_what_cannot_be_measured_is_said(arguments: tuple[str, ...], code: int, said: str) -> None:
    """One line, and the exit code of a missing prerequisite."""
    done = subprocess.run(
        (sys.executable, "-m", "harness.worker.probes", *arguments),
        capture_output=True,
        text=True,
        timeout=60,
    )

    assert (done.returncode, done.stdout) == (code, "")
    assert said in done.stderr.splitlines()[-1]


def test_rows_of_nvidia_smi_are_read() -> None:
    """Clock to its maximum, and which reasons are active on which card."""
    text = (
        "1980, 1980, Not Active, Not Active\n1305, 1980, Active, Not Active\n[N/A], 0, Not Active, Active\n"
    )

    ratios, active = parse_smi(text, ("hw_slowdown", "sw_power_cap"))

    assert ratios == [1.0, pytest.approx(0.659, abs=0.001)]
    assert active == {"hw_slowdown on card 1", "sw_power_cap on card 2"}
