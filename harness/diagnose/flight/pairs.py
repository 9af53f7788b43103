"""Sends and receives, paired one to one by (source, destination, order); never whole-group collectives."""

from dataclasses import dataclass

import numpy as np

from harness.diagnose.flight.evidence import FlightEvidence
from harness.diagnose.flight.intern import Column, Signature
from harness.diagnose.flight.table import State


@dataclass(frozen=True)
class Channel:
    """One direction between two ranks of a group. `src` and `dst` are global ranks."""

    group: int
    src: int
    dst: int


@dataclass(frozen=True)
class Side:
    """One end's calls on a channel, oldest first: table positions, and how many of them are done."""

    at: Column
    done: int


class Pairs:
    """All channels of the evidence, with both ends aligned."""

    def __init__(self, evidence: FlightEvidence) -> None:
        self._evidence = evidence
        self._sides: dict[tuple[Channel, int], Side] = {}
        self._channels: dict[tuple[int, int, int], Channel | None] = {}
        for rank, table in evidence.tables.items():
            if table.p2p.any():
                self._add(rank)

    def channel(self, rank: int, at: int) -> Channel | None:
        """The channel of one recorded send or receive; None for a coalesced parent or an unknown group."""
        table = self._evidence.tables[rank]
        key = (rank, int(table.group[at]), int(table.signature[at]))
        if key not in self._channels:
            signature = self._evidence.interner.signatures[key[2]]
            self._channels[key] = self._channel_of(key[1], signature)
        return self._channels[key]

    def peer(self, rank: int, at: int) -> int | None:
        """The other end of one send or receive."""
        channel = self.channel(rank, at)
        if channel is None:
            return None
        return channel.dst if rank == channel.src else channel.src

    def match(self, rank: int, at: int) -> int | None:
        """The position of the matching call in the peer's table, None if the peer has not issued it."""
        channel = self.channel(rank, at)
        if channel is None:
            return None
        other = channel.dst if rank == channel.src else channel.src
        mine = self._sides[channel, rank]
        theirs = self._sides.get((channel, other))
        if theirs is None:
            return None
        i = int(np.searchsorted(mine.at, at))
        if self._evidence.tables[rank].wrapped or self._evidence.tables[other].wrapped:
            # The rings do not go back to the first call: what is done on one side is done on the other.
            i += theirs.done - mine.done
        return int(theirs.at[i]) if 0 <= i < len(theirs.at) else None

    def gone(self, rank: int, at: int) -> bool:
        """Whether the peer's ring has lost the matching call, so that nothing can be said."""
        channel = self.channel(rank, at)
        if channel is None:
            return True
        other = channel.dst if rank == channel.src else channel.src
        mine, theirs = self._sides[channel, rank], self._sides.get((channel, other))
        if theirs is None:
            return False
        i = int(np.searchsorted(mine.at, at))
        wrapped = self._evidence.tables[rank].wrapped or self._evidence.tables[other].wrapped
        return wrapped and i + theirs.done - mine.done < 0

    def _channel_of(self, group: int, signature: Signature) -> Channel | None:
        members = self._evidence.groups[group].members
        if signature.src < 0 or max(signature.src, signature.dst) >= len(members):
            return None
        return Channel(group, members[signature.src], members[signature.dst])

    def _add(self, rank: int) -> None:
        table = self._evidence.tables[rank]
        calls: dict[Channel, list[int]] = {}
        for at in np.flatnonzero(table.p2p).tolist():
            channel = self.channel(rank, at)
            if channel is not None and rank in (channel.src, channel.dst):
                calls.setdefault(channel, []).append(at)
        for channel, positions in calls.items():
            at_array = np.array(positions, dtype=np.int64)
            done = int((table.state[at_array] == State.DONE).sum())
            self._sides[channel, rank] = Side(at_array, done)


def pair_agrees(send: Signature, receive: Signature) -> bool:
    """Whether element counts and types of both ends fit."""
    sent = (_numel(send.input_sizes or send.output_sizes), send.input_dtypes or send.output_dtypes)
    got = (_numel(receive.output_sizes or receive.input_sizes), receive.output_dtypes or receive.input_dtypes)
    return sent == got


def _numel(sizes: tuple[tuple[int, ...], ...]) -> int:
    total = 0
    for shape in sizes:
        count = 1
        for n in shape:
            count *= n
        total += count
    return total
