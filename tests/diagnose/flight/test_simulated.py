"""Thousands of simulated incidents: the culprit where the evidence decides, and never an innocent."""

import os
import random
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from harness.diagnose.flight.room import FlightResult, analyse_dumps
from harness.model.finding import Finding
from harness.model.kinds import Kind
from tests.simulate import FAULTS, Scenario, Shape

SHAPES = {
    "dp8": Shape(dp=8),
    "dp3": Shape(dp=3),
    "tp4dp4": Shape(tp=4, dp=4),
    "tp2dp4": Shape(tp=2, dp=4),
    "tp2dp2pp2": Shape(tp=2, dp=2, pp=2),
    "dp4pp3": Shape(dp=4, pp=3),
    "tp4dp2pp2": Shape(tp=4, dp=2, pp=2),
}
SMALL = {
    "tp2": Shape(tp=2),
    "pp4": Shape(pp=4),
    "dp2pp2": Shape(dp=2, pp=2),
    "tp2pp2": Shape(tp=2, pp=2),
}
SEEDS = 40


def seeds(count: int) -> range:
    """So many seeds in a sweep (DRILL_ALL_SEEDS), a quarter of them in every run."""
    return range(count if os.environ.get("DRILL_ALL_SEEDS") else max(2, count // 4))


KINDS = {
    "skip": Kind.COLLECTIVE_SKIPPED,
    "extra": Kind.COLLECTIVE_EXTRA,
    "duplicate": Kind.COLLECTIVE_EXTRA,
    "size": Kind.COLLECTIVE_SIZE_MISMATCH,
    "dtype": Kind.COLLECTIVE_DTYPE_MISMATCH,
    "type": Kind.COLLECTIVE_TYPE_MISMATCH,
    "order": Kind.COLLECTIVE_ORDER_MISMATCH,
    "stall": Kind.RANK_STALLED,
    "gpu": Kind.GPU_STALLED,
    "microbatch": Kind.MICROBATCH_MISMATCH,
    "fewer": Kind.MICROBATCH_MISMATCH,
    "p2p_missing": Kind.P2P_MISMATCH,
    "p2p_size": Kind.P2P_MISMATCH,
}
BLOCKED_AT_ONCE = {"order", "duplicate", "skip"}
"""Faults whose kind a rank that blocks at its odd call may leave open (skip against order against extra)."""


def possible(fault: str, shape: Shape) -> bool:
    """Whether a fault can happen in a shape at all."""
    if fault.startswith("p2p"):
        return shape.pp > 1
    if fault in ("microbatch", "fewer"):
        return shape.tp > 1
    if fault == "order":
        return (shape.tp > 1) + (shape.dp > 1) + (shape.pp > 1) > 1 and shape.tp * shape.dp > 1
    return not (fault == "gpu" and shape.world < 3)


def answer(scenario: Scenario, **options: Any) -> FlightResult:
    """The analysis of a scenario's dumps."""
    waited = 0.001 if scenario.still_running else 600.0
    options = {"timing": scenario.fault == "gpu", "waited_s": waited, **options}
    return analyse_dumps(scenario.sources(**options), world_size=scenario.shape.world)


def first(result: FlightResult) -> Finding | None:
    """The finding that explains the block, if any."""
    return result.findings[0] if result.findings else None


def assert_nobody_innocent(scenario: Scenario, result: FlightResult) -> None:
    """No finding convicts a rank that was not broken."""
    for finding in result.findings:
        assert set(finding.culprits) <= {scenario.culprit}, (scenario.fault, scenario.shape, finding)


CASES = [
    pytest.param(fault, shape, id=f"{fault}-{name}")
    for fault in KINDS
    for name, shape in SHAPES.items()
    if possible(fault, shape)
]


@pytest.mark.parametrize(("fault", "shape"), CASES)
def test_the_culprit_is_exact_and_the_kind_right(fault: str, shape: Shape) -> None:
    """Roles of three and more: the broken rank is convicted in at least 98 %, the rest are suspects."""
    outcomes: Counter[str] = Counter()
    kinds: Counter[Kind] = Counter()
    for seed in seeds(SEEDS):
        scenario = Scenario(fault, shape, seed)
        result = answer(scenario)
        assert_nobody_innocent(scenario, result)
        finding = first(result)
        if finding is None:
            outcomes["nothing stood still"] += 1
        elif finding.culprits:
            outcomes["convicted"] += 1
            kinds[finding.kind] += 1
        else:
            outcomes["suspected" if scenario.culprit in finding.suspects else "missed"] += 1
    assert not outcomes["missed"], outcomes
    if fault != "order":
        # Two groups' calls in another order need not block at all.
        assert not outcomes["nothing stood still"], outcomes
    decided = outcomes["convicted"] + outcomes["suspected"]
    if shape.role_size() >= 3:
        assert outcomes["convicted"] >= 0.98 * decided, outcomes
        assert kinds[KINDS[fault]] >= (0.5 if fault in BLOCKED_AT_ONCE else 0.9) * decided or (
            fault == "order"
        ), kinds


@pytest.mark.parametrize("name", SHAPES | SMALL)
def test_healthy_runs_and_snapshots_accuse_nobody(name: str) -> None:
    """A finished run has nothing to explain; a job that just runs is told from a hang."""
    shape = (SHAPES | SMALL)[name]
    for fault in ("healthy", "snapshot"):
        for seed in seeds(SEEDS):
            result = answer(Scenario(fault, shape, seed))
            for finding in result.findings:
                assert finding.kind is Kind.HEALTHY, (fault, seed, finding)
                assert not finding.culprits + finding.suspects


@pytest.mark.parametrize("name", SHAPES)
def test_a_stuck_fabric_accuses_nobody(name: str) -> None:
    """All joined with equal arguments and nothing completes."""
    for seed in seeds(SEEDS):
        finding = first(answer(Scenario("fabric", SHAPES[name], seed)))
        assert finding is not None
        assert (finding.kind, finding.culprits, finding.suspects) == (Kind.FABRIC_STALLED, (), ())


@pytest.mark.parametrize("name", SHAPES)
def test_a_lost_rank_is_a_suspect(name: str) -> None:
    """A rank that stopped and left no dump: the dumps alone do not decide."""
    for seed in seeds(SEEDS):
        scenario = Scenario("lost", SHAPES[name], seed)
        finding = first(answer(scenario))
        assert finding is not None
        assert not finding.culprits
        assert scenario.culprit in finding.suspects


@pytest.mark.parametrize("name", SMALL)
@pytest.mark.parametrize("fault", FAULTS)
def test_roles_of_one_and_two_never_convict_an_innocent(fault: str, name: str) -> None:
    """Where nobody can tell, both sides are suspects."""
    if not possible(fault, SMALL[name]):
        pytest.skip("cannot happen in this shape")
    for seed in seeds(SEEDS):
        try:
            scenario = Scenario(fault, SMALL[name], seed)
        except IndexError:
            continue
        result = answer(scenario)
        assert_nobody_innocent(scenario, result)
        finding = first(result)
        if finding is not None and not finding.culprits and finding.suspects:
            assert scenario.culprit in finding.suspects


VARIANTS = {
    "short rings": {"ring": 20},
    "shorter rings": {"ring": 11},
    "no stacks": {"stacks": False},
    "no skew": {"skew": False},
}


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("fault", FAULTS)
def test_poor_evidence_never_convicts_an_innocent(fault: str, variant: str) -> None:
    """Rings that wrapped, records without stacks, skewed record ids."""
    for shape in (SHAPES | SMALL).values():
        for seed in seeds(6):
            if possible(fault, shape):
                try:
                    scenario = Scenario(fault, shape, seed)
                except IndexError:
                    continue
                assert_nobody_innocent(scenario, answer(scenario, **VARIANTS[variant]))


@pytest.mark.parametrize("fault", FAULTS)
def test_a_missing_dump_never_convicts_an_innocent(fault: str) -> None:
    """An innocent's dump may be the one that is lost; so may two."""
    for shape in (SHAPES | SMALL).values():
        for seed in seeds(8):
            if possible(fault, shape):
                try:
                    scenario = Scenario(fault, shape, seed)
                except IndexError:
                    continue
                innocent = [r for r in range(shape.world) if r != scenario.culprit]
                scenario.lost |= set(random.Random(seed).sample(innocent, 1 + (seed % 2) * (shape.world > 3)))
                assert_nobody_innocent(scenario, answer(scenario))


@pytest.mark.parametrize("fault", ["skip", "size", "extra", "stall", "p2p_missing"])
@pytest.mark.parametrize("change", ["undescribed", "even"])
def test_nameless_groups_and_shared_sites(fault: str, change: str) -> None:
    """Groups without a description, and loops of equal calls at one site, do not change who it was."""
    for shape in (SHAPES["tp4dp4"], SHAPES["tp2dp2pp2"], SHAPES["dp4pp3"]):
        altered = replace(shape, described=False) if change == "undescribed" else replace(shape, even=True)
        for seed in seeds(10):
            if possible(fault, altered):
                scenario = Scenario(fault, altered, seed)
                finding = first(answer(scenario))
                assert finding is not None
                assert finding.culprits == (scenario.culprit,), (shape, seed, finding)


@pytest.mark.parametrize("fault", ["skip", "type", "extra", "stall", "fewer"])
def test_more_healthy_history_changes_nothing(fault: str) -> None:
    """The last calls decide: a ring that kept less of the past gives the same culprit and kind."""
    shape = replace(SHAPES["tp4dp4"], steps=5)
    for seed in seeds(10):
        scenario = Scenario(fault, shape, seed)
        longest = max(len(e) for e in scenario.job.entries)
        whole, cut = first(answer(scenario)), first(answer(scenario, ring=max(30, longest - 12)))
        assert whole is not None
        assert cut is not None
        assert (whole.kind, whole.culprits) == (cut.kind, cut.culprits)


@pytest.mark.parametrize("fault", ["skip", "size", "extra", "stall", "microbatch", "p2p_size", "fabric"])
def test_file_order_and_rank_numbers_change_nothing(fault: str) -> None:
    """Renumbered ranks give the renumbered answer; shuffled files the same one."""
    for shape in (SHAPES["tp4dp4"], SHAPES["tp2dp2pp2"]):
        for seed in seeds(6):
            if not possible(fault, shape):
                continue
            scenario = Scenario(fault, shape, seed)
            before = first(answer(scenario))
            numbers = list(range(shape.world))
            random.Random(seed).shuffle(numbers)
            after = first(analyse_dumps(renumbered(scenario, numbers), world_size=shape.world))
            assert before is not None
            assert after is not None
            assert after.kind is before.kind
            assert set(after.culprits) == {numbers[r] for r in before.culprits}
            assert set(after.suspects) == {numbers[r] for r in before.suspects}


def renumbered(scenario: Scenario, numbers: list[int]) -> list[Any]:
    """The same dumps as if ranks had other numbers; groups keep their order."""
    import pickle

    from harness.diagnose.flight.sources import DumpSource

    sources = []
    for rank, dump in scenario.dumps(timing=scenario.fault == "gpu").items():
        config = dump["pg_config"]
        assert isinstance(config, dict)
        for group in config.values():
            members = [int(r) for r in group["ranks"].strip("[]").split(",")]
            group["ranks"] = str([numbers[r] for r in members])
        data = pickle.dumps(dump)
        sources.append(
            DumpSource(
                f"r{numbers[rank]}", numbers[rank], scenario.job.clock + 600, len(data), lambda d=data: d
            )
        )
    return sources


def test_the_number_of_processes_changes_nothing() -> None:
    """One process or three: the same findings."""
    for fault in ("skip", "order", "p2p_missing", "fabric"):
        scenario = Scenario(fault, SHAPES["tp2dp2pp2"], 3)
        sources = scenario.sources()
        world = scenario.shape.world
        alone = analyse_dumps(sources, world_size=world, workers=1).findings
        assert analyse_dumps(sources, world_size=world, workers=3).findings == alone


@pytest.mark.sweep
@pytest.mark.parametrize("fault", KINDS)
def test_a_thousand_seeds(fault: str) -> None:
    """At least 98 % exact over a thousand seeds where roles have three ranks and more."""
    outcomes: Counter[bool] = Counter()
    shapes = [s for s in SHAPES.values() if s.role_size() >= 3 and possible(fault, s)]
    for seed in range(1000):
        scenario = Scenario(fault, shapes[seed % len(shapes)], seed)
        result = answer(scenario)
        assert_nobody_innocent(scenario, result)
        finding = first(result)
        if finding is not None:
            outcomes[finding.culprits == (scenario.culprit,)] += 1
    assert outcomes[True] >= 0.98 * outcomes.total(), outcomes


HARD = {
    "experts": {"experts": True},
    "data decides sizes": {"moody": True},
    "calls of one group only": {"lonely": True},
    "all of it": {"experts": True, "moody": True, "lonely": True},
}


@pytest.mark.parametrize("hard", HARD)
@pytest.mark.parametrize("fault", FAULTS)
def test_what_makes_it_hard_convicts_no_innocent(fault: str, hard: str) -> None:
    """Uneven all-to-alls, sizes that data decide, calls that only one sister group makes."""
    right = total = 0
    for base in (SHAPES["tp4dp4"], SHAPES["tp2dp4"], SHAPES["tp2dp2pp2"], SHAPES["tp4dp2pp2"]):
        shape = replace(base, **HARD[hard])
        for seed in seeds(6):
            if possible(fault, shape):
                scenario = Scenario(fault, shape, seed)
                result = answer(scenario)
                assert_nobody_innocent(scenario, result)
                finding = first(result)
                if shape.role_size() >= 3 and finding is not None:
                    total += 1
                    right += finding.culprits == (scenario.culprit,)
    if fault in KINDS and fault != "order":
        assert right >= 0.5 * total, (right, total)


def random_incident(seed: int) -> tuple[Scenario, dict[str, Any]] | None:
    """Any fault in any shape with any poverty of evidence at once."""
    rng = random.Random(f"hunt {seed}")
    fault = rng.choice(sorted(FAULTS))
    shape = Shape(
        tp=rng.choice((1, 2, 2, 4)),
        dp=rng.choice((1, 2, 3, 4)),
        pp=rng.choice((1, 1, 2, 3)),
        steps=rng.choice((2, 3, 4)),
        microbatches=rng.choice((1, 2, 3)),
        layers=rng.choice((1, 2, 3)),
        described=rng.random() < 0.5,
        even=rng.random() < 0.3,
        experts=rng.random() < 0.3,
        moody=rng.random() < 0.3,
        lonely=rng.random() < 0.3,
    )
    if not 2 <= shape.world <= 32 or not possible(fault, shape):
        return None
    options = {"ring": rng.choice((2000, 60, 30, 20, 15)), "stacks": rng.random() < 0.7}
    try:
        scenario = Scenario(fault, shape, seed)
    except IndexError:
        return None
    innocent = [r for r in range(shape.world) if r != scenario.culprit]
    scenario.lost |= set(rng.sample(innocent, min(len(innocent) - 1, rng.choice((0, 0, 0, 1, 2)))))
    return scenario, options


def hunt(seeds: range) -> int:
    """Look for a convicted innocent; returns how many incidents were looked at."""
    incidents = [found for seed in seeds if (found := random_incident(seed)) is not None]
    for scenario, options in incidents:
        assert_nobody_innocent(scenario, answer(scenario, **options))
    return len(incidents)


def test_hunt_for_a_convicted_innocent() -> None:
    """A few of the incidents of the sweep below, and those that once convicted one."""
    assert hunt(range(150)) > 100


@pytest.mark.sweep
@pytest.mark.parametrize("part", range(20))
def test_hunt_long_for_a_convicted_innocent(part: int) -> None:
    """Forty thousand incidents in all."""
    assert hunt(range(1000 + part * 2500, 1000 + (part + 1) * 2500)) > 1500


@pytest.mark.parametrize(
    ("fault", "shape", "seed", "lost", "options"),
    [
        (
            "type",
            Shape(tp=2, dp=3, pp=2, microbatches=3, layers=3, described=False, experts=True),
            541665,
            set(),
            {"ring": 15},
        ),
        (
            "extra",
            Shape(4, 4, 2, 3, 2, 1, described=False, experts=True, moody=True, lonely=True),
            353440,
            {27, 23},
            {"ring": 15},
        ),
        (
            "order",
            Shape(tp=4, dp=2, pp=3, layers=1, lonely=True),
            1003131,
            set(),
            {"ring": 15, "stacks": False},
        ),
        (
            "dtype",
            Shape(tp=2, dp=4, steps=4, microbatches=3, layers=3, described=False, experts=True),
            2003971,
            {4},
            {"ring": 15},
        ),
        (
            "order",
            Shape(tp=2, dp=3, steps=4, microbatches=1, layers=3, moody=True, lonely=True),
            4002743,
            set(),
            {"ring": 20},
        ),
        (
            "duplicate",
            Shape(tp=2, dp=2, steps=2, microbatches=3, layers=3, even=True, moody=True),
            10000723,
            set(),
            {"ring": 15},
        ),
        (
            "lost",
            Shape(tp=2, dp=4, pp=3, steps=2, microbatches=3, layers=3, moody=True, lonely=True),
            10014540,
            {8},
            {"ring": 20},
        ),
        (
            "skip",
            Shape(tp=2, dp=4, described=False, moody=True, lonely=True),
            10027856,
            set(),
            {"ring": 30},
        ),
        (
            "p2p_missing",
            Shape(tp=2, dp=3, pp=3, steps=2, microbatches=3, layers=3, described=False, lonely=True),
            20007188,
            {6},
            {"ring": 20},
        ),
    ],
)
def test_incidents_that_once_convicted_an_innocent(
    fault: str, shape: Shape, seed: int, lost: set[int], options: dict[str, Any]
) -> None:
    """Rings shorter than a step, in which a habit of one group looked like a departure."""
    scenario = Scenario(fault, shape, seed)
    scenario.lost |= lost

    assert_nobody_innocent(scenario, answer(scenario, **options))


def test_equal_names_with_different_members_are_kept_apart() -> None:
    """Sister groups that all go by one name and description are still several groups."""
    import pickle

    from harness.diagnose.flight.sources import DumpSource

    for fault in ("skip", "size", "stall"):
        for seed in seeds(10):
            scenario = Scenario(fault, SHAPES["tp4dp4"], seed)
            sources = []
            for rank, dump in scenario.dumps().items():
                names = {"default_pg": "0", "mesh_tp": "5fe1", "mesh_dp": "77ab"}
                config = dump["pg_config"]
                assert isinstance(config, dict)
                dump["pg_config"] = {
                    names[g["desc"]]: {**g, "name": names[g["desc"]]} for g in config.values()
                }
                for entry in dump["entries"]:  # type: ignore[attr-defined]
                    entry["process_group"] = (names[entry["process_group"][1]], entry["process_group"][1])
                data = pickle.dumps(dump)
                written = scenario.job.clock + 600
                sources.append(DumpSource(f"r{rank}", rank, written, len(data), lambda d=data: d))  # type: ignore[misc]
            finding = first(analyse_dumps(sources, world_size=scenario.shape.world))
            assert finding is not None
            assert finding.culprits == (scenario.culprit,), (fault, seed, finding)


def test_a_whole_replica_that_deviates_convicts_nobody_else() -> None:
    """One of four replicas runs a micro-batch more: its ranks, or suspects; never another replica's."""
    for seed in range(20):
        scenario = Scenario("healthy", SHAPES["tp4dp4"], seed)
        replica = range(4 * (seed % 4), 4 * (seed % 4) + 4)
        for rank in replica:
            program = scenario.job.programs[rank]
            length = len(program) // scenario.shape.steps
            program[length:length] = program[:2]
        scenario.job.run()
        for finding in answer(scenario).findings:
            assert set(finding.culprits) <= set(replica), finding


def test_all_to_all_parts_must_fit_pair_by_pair() -> None:
    """What one sends the other must receive; the odd one is among the accused, nobody else convicted."""
    shape = Shape(dp=4, experts=True)
    for seed in range(20):
        scenario = Scenario("healthy", shape, seed)
        odd = seed % 4
        program = scenario.job.programs[odd]
        at = next(i for i, c in enumerate(program) if c.uneven and i > len(program) // 2)
        sent, received = program[at].parts
        other = (odd + 1) % 4
        program[at] = replace(
            program[at], parts=(tuple(n + 9 * (i == other) for i, n in enumerate(sent)), received)
        )
        group = program[at].group.name
        seq = sum(c.group.name == group for c in program[: at + 1])
        scenario.job.stuck.add((group, seq))
        scenario.job.run()
        finding = first(answer(scenario))
        assert finding is not None
        assert finding.kind is Kind.COLLECTIVE_SIZE_MISMATCH, finding
        assert set(finding.culprits) <= {odd}
        assert odd in (*finding.culprits, *finding.suspects)


@settings(max_examples=150, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
@given(
    fault=st.sampled_from(sorted(FAULTS)),
    tp=st.sampled_from([1, 2, 4]),
    dp=st.sampled_from([1, 2, 3, 4]),
    pp=st.sampled_from([1, 2, 3]),
    microbatches=st.integers(1, 3),
    layers=st.integers(1, 3),
    flags=st.fixed_dictionaries(
        {}, optional={k: st.just(True) for k in ("even", "experts", "moody", "lonely")}
    ),
    described=st.booleans(),
    seed=st.integers(0, 10_000),
    ring=st.sampled_from([2000, 40, 15]),
    stacks=st.booleans(),
    lost=st.integers(0, 2),
)
def test_whatever_breaks_no_innocent_is_convicted(
    fault: str,
    tp: int,
    dp: int,
    pp: int,
    microbatches: int,
    layers: int,
    flags: dict[str, bool],
    described: bool,
    seed: int,
    ring: int,
    stacks: bool,
    lost: int,
) -> None:
    """Any shape, any fault, any evidence left."""
    if dp == 1:
        flags = {k: v for k, v in flags.items() if k != "experts"}
    shape = Shape(tp, dp, pp, 3, microbatches, layers, described=described, **flags)
    if shape.world < 2 or not possible(fault, shape):
        return
    try:
        scenario = Scenario(fault, shape, seed)
    except IndexError:
        return
    innocent = [r for r in range(shape.world) if r != scenario.culprit]
    scenario.lost |= set(random.Random(seed).sample(innocent, min(lost, len(innocent) - 1)))
    assert_nobody_innocent(scenario, answer(scenario, ring=ring, stacks=stacks))


def test_the_chain_leads_over_the_groups() -> None:
    """From the rank that stalled, through its tensor group, to the data groups and the world."""
    scenario = Scenario("stall", replace(SHAPES["tp4dp4"], steps=2), 5)
    finding = first(answer(scenario))

    assert finding is not None
    assert finding.chain[0] == f"rank {scenario.culprit} does not arrive"
    waiting = " ".join(finding.chain[1:])
    assert "mesh_tp" in waiting or "mesh_dp" in waiting
    assert all(link.startswith("-> ranks") for link in finding.chain[1:])
