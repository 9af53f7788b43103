"""Bundles of several nodes as one job, and what a snapshot of a running job may say."""

import dataclasses
import json
from pathlib import Path

import pytest

from harness.bundle.codec import write_json
from harness.bundle.layout import Layout
from harness.diagnose.api import diagnose, read_evidence
from harness.diagnose.snapshots import running, while_it_may_yet_move
from harness.diagnose.stalls import stall_by_stacks
from harness.model.bundle import Manifest, RankMap, RankRecord, Uncollected
from harness.model.kinds import Kind
from tests.simulate import Scenario, Shape

WORLD = 8
STANDING = "collect: standing for {} s: the main threads of ranks 0-7 did not move within 3.2 s"
MOVING = "collect: moving: the main threads of ranks 0-7 moved within 0.8 s"

TORCH = "/v/lib/python3.11/site-packages/torch/distributed/distributed_c10d.py"
WAITING = [("all_reduce", TORCH, 3252), ("train", "/job/train.py", 10)]
SAVING = [("save", "/job/train.py", 40), ("train", "/job/train.py", 12)]


def node(
    root: Path,
    ranks: range,
    *,
    created: float = 1000.0,
    attempt: int = 0,
    notice: str = STANDING.format(600),
    culprit: int | None = None,
    host: str | None = None,
) -> Path:
    """What `drill collect` leaves of the ranks of one node, without dumps."""
    layout = Layout(root)
    lacking = (Uncollected("kernel log", f"closed on {root.name}"),)
    manifest = Manifest(WORLD, "gloo", "collected", created, notice=notice, not_collected=lacking)
    write_json(layout.manifest, manifest)
    records = tuple(
        RankRecord(r, host or root.name, 100 + local, local, attempt, WORLD, joined=1.0, started=0.5)
        for local, r in enumerate(ranks)
    )
    write_json(layout.ranks, RankMap(WORLD, records))
    for record in records:
        frames = SAVING if record.rank == culprit else WAITING
        write_json(layout.stack(attempt, 0, record.rank), [sample(record.pid, frames)])
    return root


def sample(pid: int, frames: list[tuple[str, str, int]]) -> dict[str, object]:
    """One process as py-spy prints it."""
    listed = [{"name": name, "filename": file, "line": line} for name, file, line in frames]
    thread = {"thread_name": "MainThread", "frames": listed}
    return {"pid": pid, "role": "rank", "state": "sleeping", "error": None, "threads": [thread]}


def test_two_nodes_are_one_job(tmp_path: Path) -> None:
    """World, ranks, stacks and what is missing come from both; files have the node's folder in front."""
    nodes = [node(tmp_path / "a", range(4)), node(tmp_path / "b", range(4, 8), culprit=5)]

    diagnosis = diagnose(*nodes).diagnosis

    assert (diagnosis.kind, diagnosis.culprits) == (Kind.RANK_STALLED, (5,))
    assert diagnosis.at[5].host == "b"
    assert (diagnosis.job.nodes, diagnosis.ranks.expected, diagnosis.ranks.missing) == (2, 8, "")
    assert "b/stacks/attempt_0/0/rank_5.json" in {c.file for c in diagnosis.evidence}
    assert {"a: kernel log: closed on a", "b: kernel log: closed on b"} <= set(diagnosis.missing_evidence)


def test_one_node_of_two_convicts_nobody(tmp_path: Path) -> None:
    """Half of the ranks unseen: the cause may be on the other node."""
    diagnosis = diagnose(node(tmp_path / "b", range(4, 8), culprit=5)).diagnosis

    assert diagnosis.culprits == ()
    assert diagnosis.ranks.missing == "0-3"


def test_of_a_rank_in_two_bundles_the_newer_counts(tmp_path: Path) -> None:
    """Collected twice: the later look, and that is said."""
    old = node(tmp_path / "old", range(8), created=1000.0, culprit=3)
    new = node(tmp_path / "new", range(8), created=2000.0, culprit=6)

    for order in ((old, new), (new, old)):
        diagnosis = diagnose(*order).diagnosis

        assert diagnosis.culprits == (6,)
        assert any("rank 0-7 is in old and in new: new is newer" in m for m in diagnosis.missing_evidence)


def test_a_node_of_an_older_attempt_is_left_out(tmp_path: Path) -> None:
    """Its processes are not those of the others: mixed with them they would stand behind."""
    old = node(tmp_path / "a", range(4), attempt=0, culprit=1)
    new = node(tmp_path / "b", range(4, 8), attempt=1)

    gathered = read_evidence((old, new))

    assert sorted(gathered.ranks) == [4, 5, 6, 7]
    assert any("a: holds attempt 0, others 1" in line for line in gathered.complaints)


def test_dumps_of_all_nodes_and_loose_ones_are_one_analysis(tmp_path: Path) -> None:
    """Half of the dumps in each bundle, one of them in a folder of its own."""
    scenario = Scenario("size", Shape(dp=WORLD), 3)
    whole = tmp_path / "whole"
    scenario.write(whole, prefix="rank_")
    nodes = [node(tmp_path / "a", range(4)), node(tmp_path / "b", range(4, 8))]
    (tmp_path / "loose").mkdir()
    for rank in range(WORLD):
        folder = Layout(nodes[rank // 4]).dump(0, rank).parent if rank != 7 else tmp_path / "loose"
        folder.mkdir(parents=True, exist_ok=True)
        (whole / f"rank_{rank}").rename(folder / f"rank_{rank}")

    diagnosis = diagnose(*nodes, tmp_path / "loose").diagnosis

    assert diagnosis.kind is Kind.COLLECTIVE_SIZE_MISMATCH
    assert diagnosis.culprits == (scenario.culprit,)
    files = {c.file for c in diagnosis.evidence if c.source == "flight_recorder" and c.file}
    assert files and all((tmp_path / file).exists() for file in files)


def test_logs_are_named_by_local_rank(tmp_path: Path) -> None:
    """The second node's folder 1 is rank 5, not rank 1."""
    root = node(tmp_path / "b", range(4, 8))
    log = root / "logs" / "job_x" / "attempt_0" / "1" / "stderr.log"
    log.parent.mkdir(parents=True)
    log.write_text("Traceback (most recent call last):\n  File x\nKeyError: 'shard 17'\n")

    (event,) = read_evidence((root,)).logs

    assert event.rank == 5


@pytest.mark.parametrize(("pid", "kept"), [(100, 0), (999, 1)])
def test_a_pid_that_two_machines_have_says_nothing(tmp_path: Path, pid: int, kept: int) -> None:
    """The kernel of one node speaks of its own processes: pid 100 is rank 0 there and rank 4 here."""
    nodes = [node(tmp_path / "a", range(4)), node(tmp_path / "b", range(4, 8))]
    (nodes[0] / "kernel.log").write_text(f"[1.0] Out of memory: Killed process {pid} (python3)\n")

    assert len(read_evidence(nodes).kernel) == kept


def test_movement_on_one_node_speaks_for_all(tmp_path: Path) -> None:
    """Whoever is sampled in its own code just works."""
    nodes = [node(tmp_path / "a", range(4), culprit=2), node(tmp_path / "b", range(4, 8), notice=MOVING)]
    gathered = read_evidence(nodes)

    assert gathered.still_moving
    assert diagnose(*nodes).diagnosis.culprits == ()
    finding = running(gathered)
    assert finding is not None and finding.kind is Kind.HEALTHY


@pytest.mark.parametrize(("stood", "convicted"), [(3.2, False), (600, True)])
def test_a_short_stand_makes_suspects_not_culprits(tmp_path: Path, stood: float, convicted: bool) -> None:
    """A rank that saves for a minute while its peers wait looks like one that stalled."""
    gathered = read_evidence((node(tmp_path / "a", range(8), culprit=3, notice=STANDING.format(stood)),))

    finding = while_it_may_yet_move(stall_by_stacks(gathered), gathered)

    assert gathered.stood_s == stood
    assert finding is not None
    assert (finding.culprits, finding.suspects) == (((3,), ()) if convicted else ((), (3,)))


def test_a_bundle_without_its_manifest_is_still_merged(tmp_path: Path) -> None:
    """A node that died while it wrote: what it has is used."""
    nodes = [node(tmp_path / "a", range(4)), node(tmp_path / "b", range(4, 8), culprit=5)]
    (nodes[1] / "bundle.json").write_text("{")

    gathered = read_evidence(nodes)

    assert sorted(gathered.ranks) == list(range(8))
    assert any(line.startswith("b/bundle.json") for line in gathered.complaints)
    assert json.loads(Layout(nodes[0]).ranks.read_text())["world_size"] == WORLD
    assert dataclasses.asdict(gathered.ranks[5])["host"] == "b"
