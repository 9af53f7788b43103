"""Every drill and mode once, for real; the fault is proven by a trace that the harness did not write."""

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from harness.catalog.find import drill_files, find_drill
from harness.diagnose.api import diagnose
from harness.experiment import RunResult
from harness.model.errors import PrerequisiteError
from harness.model.kinds import Kind
from harness.model.spec import DrillSpec
from harness.observe.needs import why_not
from tests.conftest import Drill

pytestmark = pytest.mark.ranks

ELSEWHERE = {"fr_hang", "control", "page"}
"""Drills with test files of their own."""


def specs() -> list[DrillSpec]:
    """The built-in drills that are tested here."""
    return [find_drill(name) for name in sorted(drill_files(())) if name not in ELSEWHERE]


MODES = [pytest.param(spec.name, mode, id=f"{spec.name}-{mode}") for spec in specs() for mode in spec.modes]


_MADE_BY = re.compile(r"(?:torch_|drill-)(\d+)")


def leftovers() -> set[str]:
    """What ended processes left on this machine: shared memory, named pipes; and cgroups of ours."""
    places = [*Path("/dev/shm").glob("torch_*"), *Path(tempfile.gettempdir()).glob("drill-*")]
    groups = [p for root in ("/sys/fs/cgroup", "/sys/fs/cgroup/memory") for p in Path(root).glob("drill-*")]
    gone = [p for p in places if (made := _MADE_BY.match(p.name)) and not psutil.pid_exists(int(made[1]))]
    return {str(p) for p in (*gone, *(g for g in groups if g.name.startswith(f"drill-{os.getpid()}-")))}


@pytest.fixture(autouse=True)
def _nothing_is_left() -> Iterator[None]:
    before = leftovers()
    yield
    assert not leftovers() - before


def exit_of(run: RunResult, rank: int) -> dict[str, object]:
    """How a rank of attempt 0 ended, as torch's agent saw it."""
    record = json.loads((run.bundle / "launcher.json").read_text())
    found: dict[str, object] = next(e for e in record["attempts"][0]["exits"] if e["rank"] == rank)
    return found


def stack_of(run: RunResult, rank: int) -> str:
    """All that py-spy saw of a rank."""
    return (run.bundle / "stacks" / "attempt_0" / "0" / f"rank_{rank}.json").read_text()


def log_of(run: RunResult, rank: int) -> str:
    """A rank's standard error."""
    (path,) = (run.bundle / "logs").glob(f"*/attempt_0/{rank}/stderr.log")
    return path.read_text()


TRACES: dict[str, Callable[[RunResult], bool]] = {
    "killed_rank-sigkill": lambda run: exit_of(run, 5)["signal"] == "SIGKILL",
    "killed_rank-segfault": lambda run: exit_of(run, 5)["signal"] == "SIGSEGV",
    "killed_rank-exception": lambda run: "CorruptShard" in log_of(run, 5),
    "killed_rank-exit0": lambda run: exit_of(run, 5)["code"] in (0, None),
    "killed_rank-oom": lambda run: "Killed process" in (run.bundle / "kernel.log").read_text(),
    "killed_rank-restart": lambda run: exit_of(run, 5)["signal"] == "SIGKILL",
    "frozen_rank-sigstop": lambda run: '"stopped"' in stack_of(run, 5),
    "item_stall-item": lambda run: ".item()" in stack_of(run, 5),
    "dataloader_stall-read": lambda run: "_read_shard" in stack_of(run, 5),
    "lock_stall-cycle": lambda run: "metrics-writer" in stack_of(run, 5),
    "lock_stall-logging": lambda run: "_StuckHandler.emit" in stack_of(run, 5),
    "lock_stall-gil": lambda run: '"owns_gil": true' in stack_of(run, 5).replace('":true', '": true'),
    "init_stuck-absent": lambda run: "_prepare_shards" in stack_of(run, 5),
    "init_stuck-store": lambda run: "store" in stack_of(run, 5),
    "teardown-late": lambda run: "_upload_report" in stack_of(run, 5),
    "branch-bad_sample": lambda run: "_check_batch" in str(run.result.diagnosis.where.frames.get(5)),
    "external-cancel": lambda run: "CANCELLED" in (run.bundle / "launcher.log").read_text(),
}
"""What the fault itself left behind, apart from the harness's own record of it."""


def assert_logs_alone_accuse_nobody_else(bundle: Path, folder: Path, spec: DrillSpec, run: RunResult) -> None:
    """What ranks and launcher printed, without dumps, stacks and records: the right answer, or none."""
    folder.mkdir()
    for name in ("logs", "launcher.log"):
        if (bundle / name).is_dir():
            shutil.copytree(bundle / name, folder / name)
        elif (bundle / name).exists():
            shutil.copy(bundle / name, folder / name)
    try:
        found = diagnose(folder).diagnosis
    except PrerequisiteError:
        return
    right = run.result.diagnosis
    assert found.kind in (Kind.INCONCLUSIVE, right.kind), (spec.name, found)
    assert set(found.culprits) <= set(right.culprits), found
    assert not found.suspects or set(right.culprits or right.suspects) & set(found.suspects), found


@pytest.mark.parametrize(("name", "mode"), MODES)
def test_every_drill_and_mode_passes(drill: Drill, tmp_path: Path, name: str, mode: str) -> None:
    """The right kind and ranks, the fault on record, and the same answer from a copy without the answers."""
    for need in find_drill(name).modes[mode].needs:
        if reason := why_not(need):
            pytest.skip(reason)

    on_card = {"backend": "auto"} if "gpu" in find_drill(name).modes[mode].needs else {}
    run = drill(name, mode=mode, **on_card)

    assert run.verdict.verdict.value == "pass", (run.result.diagnosis, run.verdict)
    trace = TRACES.get(f"{name}-{mode}")
    assert trace is None or trace(run)
    copy = tmp_path / "copy"
    shutil.copytree(
        run.bundle, copy, ignore=shutil.ignore_patterns("run.json", "injection.jsonl", "events.jsonl")
    )
    again = diagnose(copy).diagnosis
    assert again == run.result.diagnosis
    assert_logs_alone_accuse_nobody_else(copy, tmp_path / "logs", find_drill(name), run)


@pytest.mark.parametrize("workload", ["ddp", "fsdp"])
def test_any_fault_in_any_workload(drill: Drill, workload: str) -> None:
    """The fault names the drill, not the workload that it was armed in."""
    run = drill("item_stall", f"workload={workload}", culprit="2", nproc="4")

    diagnosis = run.result.diagnosis
    assert run.verdict.verdict.value == "pass", (diagnosis, run.verdict)
    assert (diagnosis.culprits, diagnosis.where.site) == ((2,), "item_sync")


def test_a_restarted_job_goes_on_where_its_checkpoint_was(drill: Drill) -> None:
    """Recovery time, the step that it resumed from, and losses that are equal to the last digit."""
    run = drill("killed_rank", "at=3", mode="restart", nproc="4", culprit="1")

    diagnosis = run.result.diagnosis
    assert run.verdict.verdict.value == "pass", (diagnosis, run.verdict)
    assert diagnosis.where.recovered is not None
    assert diagnosis.where.recovered > 0
    assert "went on from step 2" in diagnosis.summary
    assert any("is equal in both attempts" in c.says for c in diagnosis.evidence)
    losses = [
        {r["step"]: r["loss"] for r in map(json.loads, path.read_text().splitlines())}
        for path in (run.bundle / "signals").glob("attempt_*/rank_0.jsonl")
    ]
    assert len(losses) == 2
    assert sorted({*losses[0], *losses[1]}) == list(range(10))


@pytest.mark.parametrize("workload", ["collectives", "ddp", "fsdp", "mlp", "pipeline"])
def test_a_healthy_workload_is_healthy(drill: Drill, workload: str) -> None:
    """Nothing broken, checkpoints and loader workers included: nobody is accused."""
    saves = ["save_every=3"] if workload in ("ddp", "fsdp", "mlp") else []
    run = drill("control", "steps=4", f"workload={workload}", "loader_workers=1", *saves, nproc="4")

    assert run.verdict.verdict.value == "pass", (run.result.diagnosis, run.verdict)


@pytest.mark.parametrize("mode", ["size", "skip", "extra"])
def test_debug_level_detail_names_the_same_rank(drill: Drill, tmp_path: Path, mode: str) -> None:
    """torch's own comparison stops the job before anything hangs; dumps are not even needed."""
    run = drill("fr_hang", "numel=4096", mode=mode, nproc="4", culprit="2", detail="true")

    assert run.verdict.verdict.value == "pass", (run.result.diagnosis, run.verdict)
    shutil.rmtree(run.bundle / "flight_recorder")
    diagnosis = diagnose(run.bundle).diagnosis
    assert diagnosis.culprits == (2,)
    assert any("DETAIL" in c.says for c in diagnosis.evidence)


@pytest.mark.parametrize("name", ["item_stall", "dataloader_stall", "lock_stall"])
def test_stacks_alone_convict_a_stalled_rank(drill: Drill, name: str) -> None:
    """Without any dump the big cluster waits, and the one outside of it is the suspect."""
    run = drill(name, nproc="4", culprit="1")

    shutil.rmtree(run.bundle / "flight_recorder")
    diagnosis = diagnose(run.bundle).diagnosis
    assert diagnosis.culprits == (1,), diagnosis
    assert diagnosis.where.site == run.result.diagnosis.where.site


def test_a_stalled_loaders_worker_is_cited(drill: Drill) -> None:
    """The worker's own stack, with the line that it blocks in, and the category of the desk it lands on."""
    diagnosis = drill("dataloader_stall", nproc="4", culprit="1").result.diagnosis

    assert diagnosis.category.value == "data_loading_stall"
    assert any("child process" in c.says and "os.read(fd, 1)" in c.says for c in diagnosis.evidence)


def test_torchruns_own_words_stand_in_for_ours(drill: Drill) -> None:
    """Without launcher.json the failure block and the error files still convict who raised."""
    run = drill("killed_rank", mode="exception", nproc="4", culprit="1")

    (run.bundle / "launcher.json").unlink()
    diagnosis = diagnose(run.bundle).diagnosis
    assert (diagnosis.kind, diagnosis.culprits) == (run.result.diagnosis.kind, (1,)), diagnosis


def test_ranks_that_ended_meanwhile_are_not_accused(drill: Drill, tmp_path: Path) -> None:
    """A zombie has lost its peers; it is not one who does not arrive."""
    run = drill("p2p", mode="size")
    for path in (run.bundle / "stacks" / "attempt_0" / "0").glob("*.json"):
        document = json.loads(path.read_text())
        document[0].update(state="zombie", threads=None, error="the process has ended")
        path.write_text(json.dumps(document))

    assert diagnose(run.bundle).diagnosis.suspects == run.result.diagnosis.suspects


@pytest.mark.sweep
@pytest.mark.parametrize("culprit", range(8))
@pytest.mark.parametrize(("name", "mode"), MODES)
def test_every_culprit(drill: Drill, name: str, mode: str, culprit: int) -> None:
    """Whichever rank it is, that one and nobody else."""
    spec = find_drill(name)
    if any(why_not(need) for need in spec.modes[mode].needs):
        pytest.skip("not permitted on this machine")
    nobody = not spec.culprit or spec.modes[mode].expect.accused == "nobody"
    if nobody and culprit:
        pytest.skip("breaks no rank: once is enough")
    run = drill(name, mode=mode, **({} if nobody else {"culprit": str(culprit)}))

    assert run.verdict.verdict.value == "pass", (run.result.diagnosis, run.verdict)


@contextmanager
def spinning(count: int) -> Iterator[None]:
    """Busy neighbours: `count` processes that do nothing but take a core."""
    busy = [subprocess.Popen((sys.executable, "-c", "while True: pass")) for _ in range(count)]
    try:
        yield
    finally:
        for process in busy:
            process.kill()
            process.wait()


@pytest.mark.sweep
@pytest.mark.parametrize("workload", ["collectives", "ddp", "fsdp", "pipeline"])
def test_fifty_healthy_runs(drill: Drill, workload: str) -> None:
    """Healthy every time, the last ten on a busy machine."""
    for turn in range(50):
        with spinning(2 if turn >= 40 else 0):
            run = drill("control", "steps=4", f"workload={workload}")
        assert run.verdict.verdict.value == "pass", (turn, run.result.diagnosis, run.verdict)


@pytest.mark.sweep
@pytest.mark.parametrize("busy", [0, 2])
def test_fifty_long_healthy_runs(drill: Drill, busy: int) -> None:
    """Long enough for slopes: jitter, a slow first step, saves, evaluations; half on a busy machine."""
    for turn in range(25):
        with spinning(busy):
            run = drill(
                "control", "steps=80", "workload=mlp", "jitter=0.02", "save_every=10", "eval_every=25"
            )
        assert run.verdict.verdict.value == "pass", (turn, run.result.diagnosis, run.verdict)


@pytest.mark.sweep
@pytest.mark.parametrize("mode", ["forward", "backward"])
@pytest.mark.parametrize("factor", ["1.3", "2", "5"])
def test_stragglers_of_any_size(drill: Drill, mode: str, factor: str) -> None:
    """Little slower, twice, five times: the rank and nobody else."""
    run = drill("slow_rank", f"factor={factor}", "compute_ms=30", mode=mode, culprit="2")

    assert run.verdict.verdict.value == "pass", (run.result.diagnosis, run.verdict)
