"""Dumps that ranks leave by themselves: the harness asks nobody, waits, and checks the chain.

gloo has no watchdog, and `drill run --wait-for-watchdog` refuses it. What its ranks do have is a timeout of
their own, which the same variable shortens and at which each leaves its dump: so the wait is real here, and
what is checked afterwards must say that no watchdog spoke.
"""

import dataclasses
import json
from pathlib import Path

import pytest

from harness.catalog.find import find_drill
from harness.catalog.planning import plan_run
from harness.catalog.settings import Sources, settle
from harness.experiment import Experiment
from harness.launch.client import LauncherClient
from harness.model.kinds import Kind
from harness.model.verdict import Outcome


@pytest.mark.ranks
def test_the_harness_waits_for_ranks_that_dump_by_themselves(
    launcher: LauncherClient, tmp_path: Path
) -> None:
    """Nobody is asked, all files arrive, the diagnosis is right; a chain without its first link fails."""
    spec = find_drill("fr_hang")
    flags = {"out": str(tmp_path), "mode": "skip", "nproc": "3", "culprit": "1", "backend": "gloo"}
    plan = plan_run(spec, settle(spec, Sources.read(flags, ["numel=4096"])))
    env = {**plan.env, "DRILL_COLLECTIVE_TIMEOUT_S": "5", "TORCH_NCCL_WAIT_TIMEOUT_DUMP_MILSEC": "500"}

    run = Experiment(dataclasses.replace(plan, watchdog=True, env=env), launcher).run()

    events = [json.loads(line)["what"] for line in (run.bundle / "events.jsonl").read_text().splitlines()]
    assert "noticed" in events
    assert "dump asked" not in events
    assert {p.name for p in (run.bundle / "flight_recorder/attempt_0").iterdir()} == {
        "rank_0",
        "rank_1",
        "rank_2",
    }
    assert (run.result.diagnosis.kind, run.result.diagnosis.culprits) == (Kind.COLLECTIVE_SKIPPED, (1,))
    assert run.verdict.verdict is Outcome.FAIL
    assert [name for name, check in run.verdict.checks.items() if check.ok is False] == ["watchdog_chain"]
    saved = json.loads((run.bundle / "watchdog.json").read_text())
    assert saved["schema"] == "drill/watchdog/1"
    assert saved["links"]["files"]["ok"]
    assert not saved["links"]["timeout"]["ok"]
