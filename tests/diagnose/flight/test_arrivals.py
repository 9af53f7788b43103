"""Stragglers by who enters last, on clocks that disagree."""

import pickle
import random

import pytest

from harness.diagnose.flight.arrivals import arrivals
from harness.diagnose.flight.room import FlightResult, analyse_dumps
from harness.diagnose.flight.sources import DumpSource
from harness.model.kinds import Kind

RANKS = 6


def dumps(late_ms: float, count: int = 40, completions: bool = True, seed: int = 1) -> FlightResult:
    """Six ranks, all-reduces every 100 ms; rank 2 enters each `late_ms` after the others. Clocks are off."""
    rng = random.Random(seed)
    offsets = [rng.uniform(-5, 5) for _ in range(RANKS)]
    entered = [
        [100.0 * k + rng.uniform(0, 2) + (late_ms if r == 2 else 0) for k in range(count)]
        for r in range(RANKS)
    ]
    done = [max(entered[r][k] for r in range(RANKS)) + 1 for k in range(count)]
    sources = []
    for rank in range(RANKS):
        entries = [
            {
                "record_id": k,
                "process_group": ("0", "default_pg"),
                "profiling_name": "nccl:all_reduce",
                "input_sizes": [[4]],
                "output_sizes": [[4]],
                "input_dtypes": ["Float"],
                "output_dtypes": ["Float"],
                "state": "completed",
                "frames": [],
                "time_created_ns": int((1.7e9 + offsets[rank] + entered[rank][k] / 1e3) * 1e9),
                "time_discovered_completed_ns": int(
                    (1.7e9 + offsets[rank] + (done[k] + rng.uniform(0, 3)) / 1e3) * 1e9
                )
                if completions
                else None,
                "retired": True,
                "is_p2p": False,
                "collective_seq_id": k + 1,
                "p2p_seq_id": 0,
            }
            for k in range(count)
        ]
        data = pickle.dumps({"version": "2.10", "entries": entries})
        sources.append(DumpSource(f"rank_{rank}", rank, 1.8e9, len(data), lambda d=data: d))  # type: ignore[misc]
    return analyse_dumps(sources, world_size=RANKS)


@pytest.mark.parametrize("seed", range(10))
def test_a_rank_that_is_always_late_is_a_straggler(seed: int) -> None:
    """Seconds between the clocks do not hide 15 milliseconds."""
    (finding,) = dumps(15.0, seed=seed).findings

    assert (finding.kind, finding.culprits) == (Kind.STRAGGLER, (2,))
    assert "by 1" in finding.summary


@pytest.mark.parametrize("seed", range(10))
def test_jitter_is_nobody(seed: int) -> None:
    """Somebody is always last; nobody drags."""
    assert dumps(0.0, seed=seed).findings == ()


def test_too_few_collectives_decide_nothing() -> None:
    """Nineteen are not enough."""
    assert dumps(15.0, count=19).findings == ()
    assert dumps(15.0, count=20).findings != ()


def test_without_completions_clocks_cannot_be_compared() -> None:
    """Unless all ranks share one."""
    result = dumps(15.0, completions=False)

    assert result.findings == ()
    assert arrivals(result.evidence) == []
    assert arrivals(result.evidence, same_clock=True) != []
