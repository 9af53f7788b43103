"""Who enters each collective last, and by how much: the straggler that step times hide."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from harness.diagnose.flight.describe import SOURCE, others_than
from harness.diagnose.flight.evidence import FlightEvidence
from harness.diagnose.flight.intern import Column
from harness.diagnose.flight.table import State
from harness.model.diagnosis import Citation, Where
from harness.model.finding import Finding
from harness.model.kinds import Confidence, Kind

MIN_COLLECTIVES = 20
"""Fewer common collectives decide nothing (DIAGNOSIS, Flight Recorder rules)."""


@dataclass(frozen=True)
class Arrivals:
    """How the members of one group entered its common collectives, on one clock.

    `late_s` is (members, collectives): seconds after the first to enter. `clocks` says how ranks' clocks
    were made comparable.
    """

    group: int
    members: tuple[int, ...]
    late_s: Column
    clocks: str

    @property
    def collectives(self) -> int:
        """How many collectives were compared."""
        return int(self.late_s.shape[1])

    def last(self) -> Column:
        """For each collective the index of the member that entered last."""
        return np.asarray(self.late_s.argmax(axis=0))

    def margins_s(self) -> Column:
        """For each collective how much later the last entered than the one before it."""
        ordered = np.sort(self.late_s, axis=0)
        return np.asarray(ordered[-1] - ordered[-2])


def arrivals(evidence: FlightEvidence, same_clock: bool = False) -> list[Arrivals]:
    """Arrivals of every group with three members and more whose clocks can be compared.

    Offsets between ranks' clocks are estimated from when each rank saw the common collectives complete:
    they complete everywhere at once. Without completion times only `same_clock` allows a comparison.
    """
    found: list[Arrivals] = []
    for number, group in enumerate(evidence.groups):
        members = [m for m in group.members if m in evidence.tables]
        if len(members) < 3 or len(members) < len(group.members):
            continue
        created, completed = _common(evidence, number, members)
        if created.shape[1] < MIN_COLLECTIVES or (created <= 0).any():
            continue
        if (completed > 0).all():
            offsets = np.median(completed - np.median(completed, axis=0), axis=1)
            clocks = "offsets from common completions"
        elif same_clock:
            offsets, clocks = np.zeros(len(members)), "assuming one clock"
        else:
            continue
        entered = created - offsets[:, None]
        found.append(Arrivals(number, tuple(members), (entered - entered.min(axis=0)) / 1e9, clocks))
    return found


def find_straggler(evidence: FlightEvidence, same_clock: bool = False) -> Finding | None:
    """A rank that is last in more than half of the collectives, by more than the spread of the rest."""
    for seen in arrivals(evidence, same_clock):
        last, margins = seen.last(), seen.margins_s()
        ordered = np.sort(seen.late_s, axis=0)
        clear = margins > ordered[-2] - ordered[0]
        for index, rank in enumerate(seen.members):
            times = int(((last == index) & clear).sum())
            if times * 2 > seen.collectives:
                return _finding(evidence, seen, rank, times, float(np.median(margins[last == index])))
    return None


def _common(evidence: FlightEvidence, group: int, members: Sequence[int]) -> tuple[Column, Column]:
    """Creation and completion times (nanoseconds) of the collectives that all members hold as done."""
    common: Column | None = None
    for member in members:
        seqs, at = evidence.held(member, group)
        done = seqs[evidence.tables[member].state[at] == State.DONE]
        common = done if common is None else np.intersect1d(common, done)
    assert common is not None
    created, completed = [], []
    for member in members:
        seqs, at = evidence.held(member, group)
        rows = at[np.searchsorted(seqs, common)]
        created.append(evidence.tables[member].created_ns[rows])
        completed.append(evidence.tables[member].completed_ns[rows])
    return np.array(created, dtype=np.float64), np.array(completed, dtype=np.float64)


def _finding(evidence: FlightEvidence, seen: Arrivals, rank: int, times: int, margin_s: float) -> Finding:
    group = evidence.groups[seen.group]
    says = (
        f"enters {times} of {seen.collectives} collectives of {group.label} last, by {margin_s * 1e3:.1f} ms"
    )
    return Finding(
        source=SOURCE,
        kind=Kind.STRAGGLER,
        confidence=Confidence.LIKELY,
        summary=f"rank {rank} {says} (median; {seen.clocks})",
        culprits=(rank,),
        victims=others_than(evidence, (rank,)),
        where=Where(group=group.label, group_ranks=group.members, group_rank=group.members.index(rank)),
        evidence=(Citation(SOURCE, f"rank {rank} {says}", evidence.tables[rank].file, rank=rank),),
    )
