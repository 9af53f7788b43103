"""Where the streams of like ranks parted: each rank's recorded order against the others'."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from harness.diagnose.flight.evidence import FlightEvidence, Group
from harness.diagnose.flight.intern import Column, Signature
from harness.diagnose.flight.table import State
from harness.diagnose.flight.uneven import is_uneven

MIN_CONTEXT = 4
"""Calls before a departure that must have been seen before for a rank's own past to speak of it."""

PERMUTATION_LIMIT = 8
"""Completed calls that run-ahead may have issued in another order, at most."""


@dataclass
class Stream:
    """One rank's comparable calls: `tokens` number (group label, signature), `at` are table positions.

    `bare` are tokens without sizes and `sites` callers; all have one length.
    """

    rank: int
    tokens: Column
    bare: Column
    sites: Column
    at: Column

    def __len__(self) -> int:
        return len(self.tokens)

    def call(self, i: int) -> tuple[int, int]:
        """Token and site of one call."""
        return int(self.tokens[i]), int(self.sites[i])

    def without(self, start: int, count: int) -> "Stream":
        """The stream with some calls left out."""
        keep = np.ones(len(self), dtype=bool)
        keep[start : start + count] = False
        return self.take(keep)

    def take(self, which: Column) -> "Stream":
        """The calls that a mask or an order of positions chooses."""
        return Stream(self.rank, self.tokens[which], self.bare[which], self.sites[which], self.at[which])


@dataclass(frozen=True)
class Departure:
    """Ranks that left the common order together.

    `index` is where call sites part, `token_index` where operations part (equal unless a call paired
    silently). `reference` is the rank that stayed and got furthest; `sisters` all that stayed and were
    seen there. A tie has no majority: then `ranks` and `sisters` are its two sides.
    """

    ranks: tuple[int, ...]
    sisters: tuple[int, ...]
    reference: int
    index: int
    token_index: int
    tie: bool = False


class StreamSet:
    """Streams of the ranks of one role, cut to start at a collective that all of them still hold.

    With `only` the streams hold nothing but the collectives of that group: its members issue those in
    one order whatever their roles.
    """

    def __init__(self, evidence: FlightEvidence, ranks: Sequence[int], only: int | None = None) -> None:
        self._evidence = evidence
        self._only = only
        self._habits: set[tuple[int, int, int]] = set()
        self._blurred = False
        self._bare, self._uneven = _bare_signatures(evidence)
        self._wrapped = any(evidence.tables[rank].wrapped for rank in ranks)
        self.labels: list[str] = []
        numbers = self._numbers = {rank: self._label_numbers(rank) for rank in ranks}
        starts = _common_start(evidence, ranks, numbers)
        if self._wrapped and only is None and any(_nameless(evidence, rank) for rank in ranks):
            # Which of a rank's nameless groups is whose sister rests on all of them; rings lost some.
            starts = {}
        self.streams = {rank: self._stream(rank, numbers[rank], at) for rank, at in starts.items()}

    def __getitem__(self, rank: int) -> Stream:
        return self.streams[rank]

    def departures(self) -> Iterator[Departure]:
        """All departures from the majority's order, earliest first; stops at a tie."""
        active = sorted(self.streams)
        while len(active) > 1:
            first = self._first_difference(active)
            if first is None:
                return
            seen = [r for r in active if len(self[r]) > first]
            if self._harmless(seen, first):
                continue
            if self._blurred and not all(self[r].sites[first] for r in seen):
                # Neither sizes nor call sites tell one call of an operation from another.
                return
            votes = Counter(int(self[r].tokens[first]) for r in seen)
            ((token, count),) = votes.most_common(1)
            if count * 2 <= len(seen):
                yield self._tie(seen, first)
                return
            stayed = tuple(r for r in seen if self[r].tokens[first] == token)
            sides: dict[int, list[int]] = {}
            for rank in seen:
                if self[rank].tokens[first] != token:
                    sides.setdefault(int(self[rank].tokens[first]), []).append(rank)
            for left in sides.values():
                if self._proven(left, stayed, first):
                    yield self._departure(tuple(left), stayed, first)
            active = [r for r in active if r not in seen or r in stayed]

    def _proven(self, left: Sequence[int], stayed: Sequence[int], first: int) -> bool:
        """Whether a departure is one, and no habit of a group that rings which lost their past hide.

        The members of the groups concerned say so by majority, or the rank's own earlier steps. A whole
        sister group that departs together never does: it may be at another call of its own habit.
        """
        if not self._wrapped or self._only is not None:
            return True
        rank = left[0]
        table, at = self._evidence.tables[rank], int(self[rank].at[first])
        if any(self._is_whole(left, number, first) for number in np.unique(table.group).tolist()):
            return False
        usual = int(self[stayed[0]].tokens[first])
        concerned = [int(table.group[at]), *self._group_of(rank, usual)]
        outvoted = len(concerned) > 1 and all(
            sum(m in stayed for m in members) > sum(m in left for m in members)
            for members in (self._evidence.groups[number].members for number in concerned)
        )
        return outvoted or bool(table.p2p[at]) or self._did_before(rank, first, usual)

    def _is_whole(self, left: Sequence[int], number: int, first: int) -> bool:
        """Whether all members of a group that came as far as a departure are among `left`."""
        members = self._evidence.groups[number].members
        there = {m for m in members if m in self.streams and len(self[m]) > first}
        return len(members) > 1 and bool(there) and there <= set(left)

    def _group_of(self, rank: int, token: int) -> Iterator[int]:
        """The rank's own group that a call of its sisters belongs to."""
        label = token // len(self._evidence.interner.signatures)
        numbers = self._numbers[rank]
        used = np.unique(self._evidence.tables[rank].group)
        return (number for number in used.tolist() if numbers[number] == label)

    def _did_before(self, rank: int, first: int, usual: int) -> bool:
        """Whether a rank made the usual call whenever it had come there by the same calls before."""
        tokens = self[rank].tokens
        if not first or any(habit[0] == rank for habit in self._habits):
            return False
        earlier = 1 + np.flatnonzero(tokens[: first - 1] == tokens[first - 1])
        context = 1
        while len(longer := earlier[earlier > context]) and context < first:
            longer = longer[tokens[longer - context - 1] == tokens[first - context - 1]]
            if not len(longer):
                break
            earlier, context = longer, context + 1
        return context >= MIN_CONTEXT and len(earlier) > 0 and bool((tokens[earlier] == usual).all())

    def _label_numbers(self, rank: int) -> Column:
        """For each group number the number of its label: sisters share one, by description or by order."""
        numbers = np.zeros(len(self._evidence.groups) or 1, dtype=np.int32)
        for number, label in sister_labels(self._evidence, rank).items():
            if label not in self.labels:
                self.labels.append(label)
            numbers[number] = self.labels.index(label)
        return numbers

    def _stream(self, rank: int, numbers: Column, start: int) -> Stream:
        table = self._evidence.tables[rank]
        width = len(self._evidence.interner.signatures)
        at = np.arange(start, len(table), dtype=np.int32)
        if self._only is not None:
            at = at[(table.group[start:] == self._only) & ~table.p2p[start:]]
        labels = numbers[table.group[at]].astype(np.int32)
        signatures = table.signature[at]
        bare, uneven = self._bare[signatures], self._uneven[signatures]
        return Stream(
            rank,
            labels * width + np.where(uneven, bare, signatures),
            labels * width + bare,
            self._evidence.site_of_stack[table.stack[at]],
            at,
        )

    def _first_difference(self, ranks: Sequence[int]) -> int | None:
        """The smallest index at which two streams, as far as both go, differ."""
        longest = max((self[r] for r in ranks), key=len)
        firsts: list[int] = []
        for rank in ranks:
            tokens = self[rank].tokens
            reference = longest.tokens[: len(tokens)]
            if not np.array_equal(tokens, reference):
                firsts.append(int(np.argmax(tokens != reference)))
        return min(firsts, default=None)

    def _harmless(self, seen: Sequence[int], first: int) -> bool:
        """Take a difference that is no departure out of the streams; whether it was one."""
        return (
            self._habit(seen, first)
            or self._sizes_vary_by_group(seen, first)
            or self._only_some_sisters_call(seen, first)
            or self._permuted(seen, first)
        )

    def _sizes_vary_by_group(self, seen: Sequence[int], first: int) -> bool:
        """Sizes that differ between sister groups and nowhere inside one: data decides them.

        From then on sizes of that call count only inside a group (see `only`).
        """
        if len({int(self[r].bare[first]) for r in seen}) > 1:
            return False
        inside: dict[tuple[int, int], set[int]] = {}
        for rank in seen:
            at = int(self[rank].at[first])
            table = self._evidence.tables[rank]
            if table.p2p[at]:
                return False
            place = int(table.group[at]), int(table.seq[at])
            inside.setdefault(place, set()).add(int(table.signature[at]))
        if len(inside) < 2 or any(len(signatures) > 1 for signatures in inside.values()):
            return False
        self._blurred = True
        varying = self[seen[0]].bare[first]
        for rank, stream in self.streams.items():
            tokens = np.where(stream.bare == varying, stream.bare, stream.tokens)
            self.streams[rank] = replace(stream, tokens=tokens)
        return True

    def _only_some_sisters_call(self, seen: Sequence[int], first: int) -> bool:
        """A call that whole sister groups make alike and others do not: no member is at odds with it."""
        votes = Counter(int(self[r].tokens[first]) for r in seen)
        for token in votes:
            callers = [r for r in seen if self[r].tokens[first] == token]
            others = [r for r in seen if self[r].tokens[first] != token]
            if not others or not all(self._whole_group_calls(r, first, others) for r in callers):
                continue
            if any(self._resumes(r, first, other) for r in callers for other in others):
                for rank in callers:
                    self._habits.add((rank, *self[rank].call(first)))
                    self.streams[rank] = self[rank].without(first, 1)
                return True
        return False

    def _habit(self, seen: Sequence[int], first: int) -> bool:
        """A call that its ranks, and not their sisters, have made before without harm."""
        callers = [r for r in seen if (r, *self[r].call(first)) in self._habits]
        for rank in callers:
            self.streams[rank] = self[rank].without(first, 1)
        return bool(callers)

    def _whole_group_calls(self, rank: int, first: int, others: Sequence[int]) -> bool:
        """Whether most members of the call's group issued it alike, none another one, and no other rank.

        A member without a dump speaks neither way; its partners are not held against the others then.
        """
        table, at = self._evidence.tables[rank], int(self[rank].at[first])
        group, seq = int(table.group[at]), int(table.seq[at])
        members = self._evidence.groups[group].members
        if table.p2p[at] or not members or not set(members).isdisjoint(others):
            return False
        known = [member for member in members if member in self._evidence.tables]
        holding = 0
        for member in known:
            there = self._evidence.find(member, group, seq)
            if there is not None:
                if self._evidence.tables[member].signature[there] != table.signature[at]:
                    return False
                holding += 1
        return holding * 2 > len(known) and (holding > 1 or len(known) < len(members))

    def _resumes(self, rank: int, first: int, other: int) -> bool:
        """Whether nothing speaks against the stream agreeing with another one right after its odd call."""
        mine, theirs = self[rank].bare[first + 1 :][:2], self[other].bare[first:][:2]
        common = min(len(mine), len(theirs))
        return np.array_equal(mine[:common], theirs[:common])

    def _permuted(self, seen: Sequence[int], first: int) -> bool:
        """A completed permutation with equal call sites after which the streams agree again."""
        reference = self[seen[0]]
        odd = [r for r in seen if self[r].tokens[first] != reference.tokens[first]]
        for width in range(2, PERMUTATION_LIMIT + 1):
            window = slice(first, first + width)
            wanted = sorted(reference.call(i) for i in range(first, min(first + width, len(reference))))
            if len(wanted) < width or not all(self._done(r, window) for r in (reference.rank, *odd)):
                return False
            same = [
                sorted(self[r].call(i) for i in range(first, min(first + width, len(self[r])))) == wanted
                for r in odd
            ]
            if all(same):
                for rank in odd:
                    self._take_order(rank, reference, window)
                return True
        return False

    def _done(self, rank: int, window: slice) -> bool:
        state = self._evidence.tables[rank].state[self[rank].at[window]]
        return len(state) == window.stop - window.start and bool((state == State.DONE).all())

    def _take_order(self, rank: int, reference: Stream, window: slice) -> None:
        stream = self[rank]
        place = {stream.call(i): i for i in range(window.start, window.stop)}
        order = np.arange(len(stream))
        order[window] = [place[reference.call(i)] for i in range(window.start, window.stop)]
        self.streams[rank] = stream.take(order)

    def _tie(self, seen: Sequence[int], first: int) -> Departure:
        token = self[seen[0]].tokens[first]
        stayed = tuple(r for r in seen if self[r].tokens[first] == token)
        left = tuple(r for r in seen if self[r].tokens[first] != token)
        departure = self._departure(left, stayed, first)
        return replace(departure, tie=True)

    def _departure(self, left: tuple[int, ...], stayed: tuple[int, ...], first: int) -> Departure:
        """Walk back over calls whose operations agree but whose call sites do not: they paired silently.

        Compared are the ranks of either side that got furthest: they left most behind the break.
        """
        reference, odd = self._furthest(stayed), self._furthest(left)
        index = first
        while index and reference.sites[index - 1] != odd.sites[index - 1]:
            index -= 1
        return Departure(left, stayed, reference.rank, index, first)

    def _furthest(self, ranks: Sequence[int]) -> Stream:
        return max((self[rank] for rank in ranks), key=len)


def sister_labels(evidence: FlightEvidence, rank: int) -> dict[int, str]:
    """For each group that a rank uses a label that it shares with its sister groups.

    The description where there is one; else size and order of creation, which all ranks share. The
    order is that of all groups that a rank is known to belong to, used or not.
    """
    nameless: Counter[int] = Counter()
    labels: dict[Group, str] = {}
    used = [evidence.groups[number] for number in np.unique(evidence.tables[rank].group).tolist()]
    known = {*used, *evidence.rosters.get(rank, ())}
    for group in sorted(known, key=lambda g: (_creation_order(g.name), g.members)):
        labels[group] = group.description
        if not group.described:
            labels[group] = f"?{len(group.members)}:{nameless[len(group.members)]}"
            nameless[len(group.members)] += 1
    return {number: labels[group] for number, group in enumerate(evidence.groups) if group in used}


def _nameless(evidence: FlightEvidence, rank: int) -> bool:
    """Whether a rank uses groups without a description and nothing states which it belongs to."""
    used = [evidence.groups[number] for number in np.unique(evidence.tables[rank].group).tolist()]
    roster = evidence.rosters.get(rank, ())
    return any(not group.described and group not in roster for group in used)


def _creation_order(name: str) -> tuple[int, str]:
    """torch numbers groups as they are made; hashed names have no order but their own."""
    return (int(name), "") if name.isascii() and name.isdigit() else (1 << 30, name)


def _bare_signatures(evidence: FlightEvidence) -> tuple[Column, Column]:
    """For each signature a number that it shares with those that differ only in sizes.

    And whether its operation's sizes may differ between members by design.
    """
    known: dict[object, int] = {}
    signatures = evidence.interner.signatures
    numbers = [known.setdefault(_without_sizes(s), i) for i, s in enumerate(signatures)]
    uneven = [is_uneven(s) for s in signatures]
    return np.array(numbers or [0], dtype=np.int32), np.array(uneven or [False], dtype=np.bool_)


def _without_sizes(s: Signature) -> tuple[object, ...]:
    """What is left of a signature without sizes; uneven calls have one tensor a peer, or none."""
    if is_uneven(s):
        return s.op, frozenset(s.input_dtypes + s.output_dtypes), s.src, s.dst
    return s.op, s.input_dtypes, s.output_dtypes, s.src, s.dst


def _common_start(
    evidence: FlightEvidence, ranks: Sequence[int], numbers: dict[int, Column]
) -> dict[int, int]:
    """For each rank the position of one collective, by group label and sequence number, that it holds.

    The collective that most ranks still hold, the earliest of those; ranks whose rings do not reach it
    are left out: what does not overlap cannot be compared.
    """
    if not any(evidence.tables[rank].wrapped for rank in ranks):
        return dict.fromkeys(ranks, 0)
    anchors = [_anchor(evidence, spans) for spans in _spans(evidence, ranks, numbers).values()]
    sound = [a for a in anchors if not any(_shifted(a, other) for other in anchors if other is not a)]
    return max((a.starts for a in sound), key=lambda s: (len(s), -sum(s.values())), default={})


@dataclass(frozen=True)
class _Anchor:
    """One label's best common collective: where each rank holds it, and in which of the sister groups."""

    starts: dict[int, int]
    groups: dict[int, int]


def _anchor(evidence: FlightEvidence, spans: dict[int, tuple[int, int, int]]) -> _Anchor:
    """The collective of one label that most ranks hold, the earliest of those."""
    best: dict[int, int] = {}
    for seq in sorted({oldest for oldest, _, _ in spans.values()}):
        holding = {r: g for r, (oldest, newest, g) in spans.items() if oldest <= seq <= newest}
        starts = {r: at for r, g in holding.items() if (at := evidence.find(r, g, seq)) is not None}
        if (len(starts), -sum(starts.values())) > (len(best), -sum(best.values())):
            best = starts
    return _Anchor(best, {rank: spans[rank][2] for rank in best})


def _shifted(anchor: _Anchor, other: _Anchor) -> bool:
    """Whether whole sister groups of an anchor are out of step with another anchor.

    Then those groups made more or fewer calls before, and equal sequence numbers are not equal calls. A
    single rank out of step is a break, and what we look for.
    """
    common = sorted(set(anchor.starts) & set(other.starts))
    if len(set(anchor.groups.values())) < 2 or not common:
        return False
    steps = {rank: anchor.starts[rank] - other.starts[rank] for rank in common}
    ((usual, _),) = Counter(steps.values()).most_common(1)
    odd = {rank for rank in common if steps[rank] != usual}
    whole = {g for g in anchor.groups.values() if all(r in odd for r in common if anchor.groups[r] == g)}
    return any(anchor.groups[rank] in whole for rank in odd)


def _spans(
    evidence: FlightEvidence, ranks: Sequence[int], numbers: dict[int, Column]
) -> dict[int, dict[int, tuple[int, int, int]]]:
    """For each group label and rank: oldest and newest held sequence number, and the group."""
    spans: dict[int, dict[int, tuple[int, int, int]]] = {}
    for rank in ranks:
        table = evidence.tables[rank]
        for group in np.unique(table.group[~table.p2p]).tolist():
            seqs, _ = evidence.held(rank, group)
            label = int(numbers[rank][group])
            spans.setdefault(label, {})[rank] = (int(seqs[0]), int(seqs[-1]), group)
    return spans
