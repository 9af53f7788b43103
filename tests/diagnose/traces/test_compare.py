"""Each part grown in turn, on all ranks and on few: the right kind, and nobody innocent accused."""

import dataclasses
from collections.abc import Mapping
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from harness.diagnose.comparing import compare
from harness.model.comparison import ComparedResult
from harness.model.diagnosis import Diagnosis
from harness.model.errors import PrerequisiteError, UsageError
from harness.model.kinds import Category, Confidence, Kind
from tests.diagnose.traces.generate import Work, generated, write, write_side

PLAIN = Work()
SAMPLES = Path(__file__).parent / "samples"


def but(**changed: float) -> Work:
    return dataclasses.replace(PLAIN, **changed)  # type: ignore[arg-type]


def alike(work: Work, ranks: int = 4) -> dict[int, Work]:
    return dict.fromkeys(range(ranks), work)


def compared(
    tmp_path: Path, now: Mapping[int, Work], then: Mapping[int, Work] | None = None, world: int | None = None
) -> ComparedResult:
    write_side(tmp_path / "then", dict(then or dict.fromkeys(now, PLAIN)), 1, world)
    write_side(tmp_path / "now", dict(now), 2, world)
    return compare([tmp_path / "now"], tmp_path / "then")


def diagnosed(tmp_path: Path, now: Mapping[int, Work], world: int | None = None) -> Diagnosis:
    return compared(tmp_path, now, world=world).diagnosis


@pytest.mark.parametrize(
    ("changed", "kind", "word"),
    [
        ({}, Kind.HEALTHY, "nothing grew"),
        ({"data_us": 560.0}, Kind.DATA_STARVED, "DataLoader"),
        ({"transfer_us": 800.0}, Kind.COMM_SLOW, "compute unchanged"),
        ({"wait_us": 520.0}, Kind.INCONCLUSIVE, "late in turns"),
        ({"matrix_us": 2600.0}, Kind.INCONCLUSIVE, "lower clock"),
        ({"slow_kernel": 2.0}, Kind.INCONCLUSIVE, "ampere_bf16_s16816gemm"),
        ({"recompute_us": 1000.0}, Kind.INCONCLUSIVE, "recomputing activations (nvjet"),
        ({"other_us": 1300.0}, Kind.INCONCLUSIVE, "vectorized_elementwise_kernel"),
        ({"bubble_us": 650.0}, Kind.INCONCLUSIVE, "pipeline stage"),
        ({"host_us": 700.0}, Kind.INCONCLUSIVE, "outside the DataLoader"),
        ({"host_us": 700.0, "mallocs": 12}, Kind.MEMORY_FRAGMENTATION, "12 times a step instead of 0"),
        ({"host_us": 700.0, "logging_us": 450.0}, Kind.LOG_FLOOD, "writing output"),
    ],
)
def test_what_grew_on_all_ranks(tmp_path: Path, changed: dict[str, float], kind: Kind, word: str) -> None:
    """One part grown on all ranks alike: its kind, said with what grew, and nobody is accused."""
    found = diagnosed(tmp_path, alike(but(**changed)))

    assert found.kind is kind
    assert word in found.summary
    assert found.culprits == found.suspects == ()
    assert found.evidence
    if kind is Kind.INCONCLUSIVE:
        assert found.next_steps


@pytest.mark.parametrize("late", range(3))
@pytest.mark.parametrize(
    ("changed", "kind", "site", "category"),
    [
        ({"matrix_us": 2600.0}, Kind.STRAGGLER, "throttle", Category.GPU),
        ({"slow_kernel": 3.4}, Kind.STRAGGLER, "compute", Category.SOFTWARE),
        ({"other_us": 1300.0}, Kind.STRAGGLER, "compute", Category.SOFTWARE),
        ({"data_us": 660.0}, Kind.DATA_STARVED, None, Category.DATA),
    ],
)
def test_one_late_rank_is_named(
    tmp_path: Path, late: int, changed: dict[str, float], kind: Kind, site: str | None, category: Category
) -> None:
    """Its own work grew, and the others wait for it."""
    ranks = {**alike(but(wait_us=620.0), 3), late: but(**changed)}

    found = diagnosed(tmp_path, ranks)

    assert (found.kind, found.where.site, found.category) == (kind, site, category)
    assert found.culprits == (late,)
    assert found.victims == tuple(sorted({0, 1, 2} - {late}))
    assert found.confidence is Confidence.LIKELY
    assert any(cited.rank == late and cited.file == f"rank{late}_trace.json" for cited in found.evidence)


def test_of_two_ranks_one_is_late(tmp_path: Path) -> None:
    """One witness is enough to name the late one, not to be sure."""
    found = diagnosed(tmp_path, {0: but(wait_us=620.0), 1: but(matrix_us=2600.0)})

    assert (found.kind, found.culprits, found.confidence) == (Kind.STRAGGLER, (1,), Confidence.POSSIBLE)


def test_unnamed_host_time_makes_a_suspect(tmp_path: Path) -> None:
    """What the CPU does without an annotation may be waiting for others: no conviction."""
    found = diagnosed(tmp_path, {0: but(wait_us=620.0), 1: but(host_us=800.0), 2: but(wait_us=620.0)})

    assert (found.kind, found.where.site) == (Kind.STRAGGLER, "host")
    assert (found.culprits, found.suspects) == ((), (1,))


def test_a_busier_rank_that_holds_up_nobody_is_not_late(tmp_path: Path) -> None:
    """Rank 1 computes more but waits as long as all others: somebody else is late."""
    found = diagnosed(tmp_path, {**alike(but(wait_us=900.0), 3), 1: but(wait_us=900.0, other_us=1300.0)}, 8)

    assert found.culprits == found.suspects == ()


@pytest.mark.parametrize(
    ("changed", "kind", "word"),
    [
        ({"wait_us": 520.0}, Kind.STRAGGLER, "none of those traced"),
        ({"transfer_us": 800.0}, Kind.COMM_SLOW, "would look the same"),
        ({"matrix_us": 2600.0}, Kind.INCONCLUSIVE, "the only rank that was traced"),
        ({"data_us": 560.0}, Kind.DATA_STARVED, "DataLoader"),
    ],
)
def test_one_rank_of_many_accuses_nobody(
    tmp_path: Path, changed: dict[str, float], kind: Kind, word: str
) -> None:
    """With one trace of eight ranks the kind may be clear; who it is, is not."""
    found = diagnosed(tmp_path, {3: but(**changed)}, world=8)

    assert found.kind is kind
    assert word in found.summary
    assert found.culprits == found.suspects == ()
    assert found.ranks.missing == "0-2,4-7"
    assert Kind.STRAGGLER not in {ruled.kind for ruled in found.ruled_out}, "it may be late itself"
    if kind in (Kind.STRAGGLER, Kind.COMM_SLOW):
        assert found.confidence is Confidence.POSSIBLE
        assert any("traces of" in step for step in found.next_steps)


def test_a_rank_without_an_old_trace_is_never_late(tmp_path: Path) -> None:
    """A last pipeline stage does more than a first: without its own past that is no fault."""
    now = {0: but(wait_us=620.0), 1: but(wait_us=620.0), 2: but(matrix_us=2600.0)}
    found = compared(tmp_path, now, {0: PLAIN, 1: PLAIN}).diagnosis

    assert found.culprits == found.suspects == ()
    assert any("no old trace of rank 2" in missing for missing in found.missing_evidence)


def test_more_communication_is_no_slow_network(tmp_path: Path) -> None:
    """Three times the elements take longer on any network."""
    found = diagnosed(tmp_path, alike(but(transfer_us=800.0, nelems=3 << 20)))

    assert found.kind is Kind.INCONCLUSIVE
    assert "communicates differently" in found.summary


def test_another_world_size_is_no_slow_network(tmp_path: Path) -> None:
    """Sixteen ranks reduce more slowly than four."""
    write_side(tmp_path / "then", alike(PLAIN), 1, 4)
    write_side(tmp_path / "now", alike(but(transfer_us=800.0)), 2, 16)
    found = compare([tmp_path / "now"], tmp_path / "then").diagnosis

    assert found.kind is Kind.INCONCLUSIVE
    assert "4 ranks then, 16 now" in found.summary


@pytest.mark.parametrize("changed", [{"matrix_us": 1500.0}, {"matrix_us": 1500.0, "transfer_us": 800.0}])
def test_a_step_that_takes_no_longer_is_healthy(tmp_path: Path, changed: dict[str, float]) -> None:
    """Time that moved from one part to another is no regression."""
    assert diagnosed(tmp_path, alike(but(**changed))).kind is Kind.HEALTHY


def test_growth_within_the_spread_is_healthy(tmp_path: Path) -> None:
    """A part that varies by a third from step to step may be a tenth longer by chance."""
    wild = but(matrix_us=4000.0, jitter=0.35)
    found = compared(tmp_path, alike(wild), alike(wild)).diagnosis

    assert found.kind is Kind.HEALTHY


def test_few_steps_are_never_sure(tmp_path: Path) -> None:
    """One step a side says nothing about chance: what it shows is possible."""
    for side, work in (("then", PLAIN), ("now", but(data_us=560.0))):
        write(tmp_path / side / "rank0.json", generated(work, steps=1), 1)
    found = compare([tmp_path / "now"], tmp_path / "then").diagnosis

    assert (found.kind, found.confidence) == (Kind.DATA_STARVED, Confidence.POSSIBLE)


def test_a_cut_trace_counts_and_is_told(tmp_path: Path) -> None:
    """The profiler of the new run was killed: its whole steps decide, less surely."""
    write_side(tmp_path / "then", alike(PLAIN), 1)
    write_side(tmp_path / "now", alike(but(data_us=560.0)), 2)
    cut = tmp_path / "now" / "rank1_trace.json"
    cut.write_bytes(cut.read_bytes()[: cut.stat().st_size * 7 // 10])
    found = compare([tmp_path / "now"], tmp_path / "then").diagnosis

    assert (found.kind, found.confidence) == (Kind.DATA_STARVED, Confidence.POSSIBLE)
    assert any("now: rank1_trace.json: breaks off" in missing for missing in found.missing_evidence)


def test_the_later_of_two_traces_of_a_rank_counts(tmp_path: Path) -> None:
    """A profiler that runs every hundred steps leaves several: the last one is now."""
    write(tmp_path / "then" / "rank0.json", generated(PLAIN), 1)
    early, late = generated(PLAIN, seed=1), generated(but(data_us=560.0), seed=2)
    for event in late.events:
        event["ts"] += 1e9  # type: ignore[operator]
    write(tmp_path / "now" / "iteration_200" / "rank0.json", late, 1)
    write(tmp_path / "now" / "iteration_900" / "rank0.json", early, 1)
    found = compare([tmp_path / "now"], tmp_path / "then").diagnosis

    assert found.kind is Kind.DATA_STARVED
    assert any("iteration_900/rank0.json: older" in missing for missing in found.missing_evidence)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_nobody_innocent_is_accused(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    """Whoever is accused did grow in its own work, whatever mixture of work changed on whom."""
    changes = st.fixed_dictionaries(
        {
            "matrix_us": st.sampled_from([2000.0, 2000.0, 2500.0]),
            "data_us": st.sampled_from([60.0, 60.0, 600.0]),
            "host_us": st.sampled_from([200.0, 200.0, 700.0]),
            "wait_us": st.sampled_from([20.0, 500.0, 900.0]),
            "transfer_us": st.sampled_from([300.0, 300.0, 700.0]),
        }
    )
    ranks = {rank: but(**data.draw(changes)) for rank in range(data.draw(st.integers(1, 5)))}
    found = diagnosed(tmp_path_factory.mktemp("sides"), ranks, world=5)

    own = {r for r, w in ranks.items() if (w.matrix_us, w.data_us, w.host_us) != (2000.0, 60.0, 200.0)}
    assert set(found.culprits) | set(found.suspects) <= own
    assert not (found.culprits and len(ranks) == 1)


def test_the_table_has_every_part_and_the_step(tmp_path: Path) -> None:
    """Overall and rank by rank: eight parts in one order, then the step that they make up."""
    table = compared(tmp_path, alike(but(data_us=560.0), 2)).comparison

    names = ["compute", "bubble", "comm_exposed", "recompute", "data_wait", "kernel_eff", "cpu_launch"]
    assert [row.name for row in table.rows] == [*names, "straggler", "step"]
    assert [r.rank for r in table.ranks] == [0, 1]
    for rows in (table.rows, *(r.rows for r in table.ranks)):
        *parts, step = rows
        assert step.now_s is not None
        assert sum(p.now_s or 0.0 for p in parts) == pytest.approx(step.now_s, rel=0.01)
    assert next(r for r in table.rows if r.name == "data_wait").grew_s == pytest.approx(500e-6, rel=0.01)


def test_reading_on_several_cores_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Large traces are read by several processes: the same answer, the unreadable file told as well."""
    write_side(tmp_path / "then", alike(PLAIN), 1)
    write_side(tmp_path / "now", {**alike(but(wait_us=620.0)), 2: but(matrix_us=2600.0)}, 2)
    (tmp_path / "now" / "rank9.json").write_text('{"schemaVersion": 1, "traceEvents": []}')
    alone = compare([tmp_path / "now"], tmp_path / "then")
    monkeypatch.setattr("harness.diagnose.traces.sides.PARALLEL_FROM_BYTES", 0)
    monkeypatch.setattr("os.sched_getaffinity", lambda pid: {0, 1})
    seen: list[tuple[int, int]] = []

    together = compare(
        [tmp_path / "now"], tmp_path / "then", None, lambda done, total: seen.append((done, total))
    )

    assert together == alone
    assert together.diagnosis.culprits == (2,)
    assert any("rank9.json: no events" in missing for missing in together.diagnosis.missing_evidence)
    assert seen[-1] == (5, 5)


@pytest.mark.parametrize(
    ("now", "kind", "culprits"),
    [
        ("slow_loader", Kind.DATA_STARVED, ()),
        ("late_rank", Kind.STRAGGLER, (1,)),
        ("again", Kind.HEALTHY, ()),
    ],
)
def test_traces_recorded_for_real(now: str, kind: Kind, culprits: tuple[int, ...]) -> None:
    """torch.profiler on two gloo ranks: a loader slowed down, a rank that computes more, nothing changed."""
    found = compare([SAMPLES / now], SAMPLES / "then").diagnosis

    assert (found.kind, found.culprits) == (kind, culprits)
    assert found.ranks.expected == 2


def test_recorded_checkpoints_are_seen() -> None:
    """The sample's checkpoints do not reenter; the late rank recomputes sixteen layers instead of one."""
    table = compare([SAMPLES / "late_rank"], SAMPLES / "then").comparison

    rank1 = next(r for r in table.ranks if r.rank == 1)
    recompute = next(row for row in rank1.rows if row.name == "recompute")
    assert recompute.then_s is not None
    assert recompute.now_s is not None
    assert 8 * recompute.then_s < recompute.now_s < 32 * recompute.then_s


def test_a_device_on_one_side_only_is_refused(tmp_path: Path) -> None:
    """The parts of a CPU trace and of a GPU trace do not mean the same."""
    write_side(tmp_path / "then", alike(PLAIN), 1)

    with pytest.raises(UsageError, match="kernels"):
        compare([SAMPLES / "then"], tmp_path / "then")


def test_traces_and_a_run_do_not_compare(tmp_path: Path) -> None:
    """The message says what each side is and what would fit."""
    (tmp_path / "run" / "signals").mkdir(parents=True)
    (tmp_path / "run" / "signals" / "rank_0.jsonl").write_text('{"t": 1.0, "step": 3, "rank": 0}\n')

    with pytest.raises(UsageError) as raised:
        compare([SAMPLES / "then"], tmp_path / "run")

    assert f"{SAMPLES / 'then'} is profiler traces" in str(raised.value)
    assert f"{tmp_path / 'run'} is a run" in str(raised.value)
    assert "on both sides" in str(raised.value)


@pytest.mark.parametrize("name", ["missing", "empty", "other"])
@pytest.mark.parametrize("is_now", [True, False])
def test_nothing_readable_on_a_side(tmp_path: Path, name: str, is_now: bool) -> None:
    """Missing, empty, or other files: which side, and what was expected."""
    (tmp_path / "empty").mkdir()
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "notes.txt").write_text("hello")
    now, then = (tmp_path / name, SAMPLES / "then") if is_now else (SAMPLES / "then", tmp_path / name)

    with pytest.raises(PrerequisiteError, match=name):
        compare([now], then)


def test_traces_of_which_none_is_usable(tmp_path: Path) -> None:
    """It starts like a trace and ends before its events: the reason is told."""
    (tmp_path / "rank0.json").write_text('{"schemaVersion": 1, "traceEvents": [{"ph"')

    with pytest.raises(PrerequisiteError, match="no events in it"):
        compare([tmp_path], SAMPLES / "then")
