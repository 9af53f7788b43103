"""Coalesced calls match as sets, whatever the order inside."""

import pickle

import pytest

from harness.diagnose.flight.room import FlightResult, analyse_dumps
from harness.diagnose.flight.sources import DumpSource
from harness.model.kinds import Kind

RANKS = 4


def analyse(sizes: dict[int, list[int]], done: bool) -> FlightResult:
    """Three plain all-reduces, then a coalesced set of all-reduces of the given sizes, by rank."""
    sources = []
    for rank in range(RANKS):
        calls = [(1, 16), (2, 16), (3, 16), *((4, n) for n in sizes[rank])]
        entries = [
            {
                "record_id": i,
                "process_group": ("0", "default_pg"),
                "profiling_name": "nccl:all_reduce",
                "input_sizes": [[n]],
                "output_sizes": [[n]],
                "input_dtypes": ["Float"],
                "output_dtypes": ["Float"],
                "state": "completed" if seq < 4 or done else "scheduled",
                "frames": [{"name": "step", "filename": "/job/train.py", "line": 7}],
                "time_created_ns": 1_700_000_000_000_000_000 + i,
                "retired": True,
                "is_p2p": False,
                "collective_seq_id": seq,
                "p2p_seq_id": 0,
            }
            for i, (seq, n) in enumerate(calls)
        ]
        data = pickle.dumps({"version": "2.10", "entries": entries})
        sources.append(DumpSource(f"rank_{rank}", rank, 1.7e9 + 600, len(data), lambda d=data: d))  # type: ignore[misc]
    return analyse_dumps(sources, world_size=RANKS)


def test_order_inside_a_set_does_not_matter() -> None:
    """Two ranks listed the members of the set in another order."""
    sizes = {0: [8, 32], 1: [32, 8], 2: [8, 32], 3: [32, 8]}

    assert analyse(sizes, done=True).findings == ()
    (finding,) = analyse(sizes, done=False).findings
    assert (finding.kind, finding.culprits) == (Kind.FABRIC_STALLED, ())


@pytest.mark.parametrize("odd", [[8], [8, 33], [8, 32, 64]])
def test_another_set_is_a_mismatch(odd: list[int]) -> None:
    """A member missing, of another size, or too many."""
    (finding,) = analyse({0: [8, 32], 1: [8, 32], 2: odd, 3: [8, 32]}, done=False).findings

    assert finding.kind is Kind.COLLECTIVE_SIZE_MISMATCH
    assert finding.culprits == (2,)
