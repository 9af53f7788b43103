"""A hang as watchdogs tell it of each rank: who is behind, ahead, alone, or nobody (rules 9 to 14)."""

from collections import Counter
from collections.abc import Sequence

from harness.diagnose.logs.effects import hang_chain
from harness.diagnose.logs.event import Event
from harness.diagnose.logs.leads import lead_of
from harness.diagnose.logs.story import Story
from harness.diagnose.logs.waits import UNNAMED, Standing, Wait, by_seq, common_op, group_size, is_even
from harness.diagnose.logs.wording import cite, who
from harness.model.diagnosis import CallSignature, RuledOut, Where
from harness.model.finding import Finding
from harness.model.kinds import Confidence, Kind

AGREEING = 3
"""So many peers that agree convict; two are a suspicion (DIAGNOSIS)."""

TOGETHER_S = 60.0
_FROM_ROOT = ("BROADCAST", "SCATTER", None)
P2P = ("SEND", "RECV", "COALESCED")


def idle_rank(story: Story) -> Finding | None:
    """The one rank with nothing pending while its peers wait in a number that it has not reached."""
    for key in story.waits.stuck_groups():
        peers = [w for w in story.waits.of_group(key) if w.seq is not None]
        if not peers:
            continue
        stuck = Counter(w.seq for w in peers).most_common(1)[0][0]
        assert stuck is not None
        idle = [r for r in _reporting(story) if _is_idle(r, key, stuck, story)]
        agreeing = [w for w in peers if w.seq == stuck]
        if len(idle) == 1 and len(agreeing) >= 2:
            return _idle(idle[0], key, stuck, agreeing, story)
        if len(idle) > 1 and 2 * len(idle) < len(idle) + len(agreeing):
            return _several_idle(idle, stuck, agreeing, story)
    return None


def _reporting(story: Story) -> list[int]:
    return sorted({rank for rank, _ in story.waits.standings})


def _is_idle(rank: int, key: str, stuck: int, story: Story) -> bool:
    """Enqueued is completed in every group that it reports, below the peers' number in theirs, no timeout."""
    if rank in story.waits.waiting:
        return False
    standing = story.waits.standing(rank)
    here = next((s for s in standing if s.key == key), None)
    if here is None or here.enqueued is None or here.completed is None:
        return False
    return all(s.enqueued == s.completed for s in standing) and here.enqueued < stuck


def _idle(rank: int, key: str, stuck: int, peers: Sequence[Wait], story: Story) -> Finding:
    standing = next(s for s in story.waits.standing(rank) if s.key == key)
    group = peers[0].group
    label = group.label if group else "the group"
    op = common_op(peers)
    lead = lead_of(rank, peers, story)
    sure = standing.event.strong and (len(peers) >= AGREEING or story.census.size <= AGREEING)
    doing = f"; around then it logged: {lead.says}" if lead else ""
    summary = (
        f"rank {rank} never entered {op} seq {stuck} of {label}: it had completed all it had enqueued "
        f"({standing.completed}) while {who([w.rank for w in peers])} waited{doing}"
    )
    return Finding(
        source="log",
        kind=Kind.RANK_STALLED,
        confidence=Confidence.LIKELY if sure else Confidence.POSSIBLE,
        summary=summary,
        culprits=(rank,) if sure else (),
        suspects=() if sure else (rank,),
        victims=story.others((rank,)),
        where=_where(peers, stuck, site=lead.site if lead else None),
        evidence=(
            cite(standing.event, says=f"enqueued = completed = {standing.completed}"),
            *((cite(lead.event),) if lead else ()),
            *(cite(w.event) for w in peers[:2]),
        ),
        chain=hang_chain(f"rank {rank} stays in host code", peers, story),
        ruled_out=(
            RuledOut(
                Kind.FABRIC_STALLED, f"rank {rank} never entered the collective: {standing.event.place}"
            ),
        ),
    )


def _several_idle(ranks: list[int], stuck: int, peers: Sequence[Wait], story: Story) -> Finding:
    summary = f"{who(ranks)} had nothing pending while {who([w.rank for w in peers])} waited in seq {stuck}"
    events = [s.event for r in ranks[:3] for s in story.waits.standing(r)[:1]]
    return Finding(
        source="log",
        kind=Kind.RANK_STALLED,
        confidence=Confidence.POSSIBLE,
        summary=summary,
        suspects=tuple(ranks),
        victims=story.others(ranks),
        where=_where(peers, stuck),
        evidence=tuple(cite(e) for e in (*events, *(w.event for w in peers[:1]))),
        chain=hang_chain(f"{who(ranks)} stay in host code", peers, story),
    )


def unequal_numbers(story: Story) -> Finding | None:
    """One rank waits in another number of one named group than its peers, since the same time."""
    for key in story.waits.stuck_groups():
        waits = [w for w in story.waits.of_group(key) if w.seq is not None and str(w.op) not in P2P]
        numbers = by_seq(waits)
        if len(numbers) < 2:
            continue
        usual, agreeing = max(numbers.items(), key=lambda item: len(item[1]))
        odd = [w for w in waits if w.seq != usual]
        if len(agreeing) <= len(odd) or not _began_together(waits, story):
            continue
        named = key != UNNAMED and _on_one_clock(waits, story)
        sure = named and len(agreeing) >= AGREEING and len(odd) == 1 and all(w.event.strong for w in odd)
        return _unequal(odd, agreeing, usual, sure, story)
    return None


def _began_together(waits: Sequence[Wait], story: Story) -> bool:
    """Whether nobody began to wait more than a minute before another, as far as times tell."""
    if any(w.suspended for w in waits):
        return True
    reference = waits[0]
    for wait in waits[1:]:
        seconds = story.seconds_between(reference.event, wait.event)
        if seconds is None or wait.lasted_s is None or reference.lasted_s is None:
            continue
        if abs(seconds - wait.lasted_s + reference.lasted_s) > TOGETHER_S:
            return False
    return True


def _on_one_clock(waits: Sequence[Wait], story: Story) -> bool:
    """Whether times, where there are any, can be compared: files of two runs look like one job's."""
    dated = [w.event for w in waits if w.event.at is not None]
    return all(story.seconds_between(dated[0], event) is not None for event in dated[1:])


def _unequal(odd: list[Wait], agreeing: list[Wait], usual: int, sure: bool, story: Story) -> Finding | None:
    ranks = tuple(sorted(w.rank for w in odd))
    one = odd[0]
    assert one.seq is not None
    label = one.group.label if one.group else "the group"
    behind = one.seq < usual
    if not behind and (one.op in _FROM_ROOT or any(w.op in _FROM_ROOT for w in agreeing)):
        # A broadcast's root runs ahead of those who receive from it.
        return None
    by = abs(one.seq - usual)
    says = (
        f"behind by {by} while itself waiting: it left {by} out"
        if behind
        else f"ahead by {by}: it issued {by} more"
    )
    summary = (
        f"{who(ranks)} waits in seq {one.seq} of {label} where {who([w.rank for w in agreeing])} "
        f"wait in seq {usual}: {says}"
    )
    return Finding(
        source="log",
        kind=Kind.COLLECTIVE_SKIPPED if behind else Kind.COLLECTIVE_EXTRA,
        confidence=Confidence.LIKELY if sure else Confidence.POSSIBLE,
        summary=summary,
        culprits=ranks if sure else (),
        suspects=() if sure else ranks,
        victims=story.others(ranks),
        where=_where(agreeing, usual),
        evidence=(cite(one.event), *(cite(w.event) for w in agreeing[:2])),
        chain=hang_chain(f"{who(ranks)} {says}", agreeing, story),
    )


def _alone(one: Wait, agreeing: Sequence[Wait], completed: Standing, sure: bool, story: Story) -> Finding:
    """One rank waits in what its peers have completed."""
    ahead = next(
        (
            s
            for s in story.waits.standing(one.rank)
            if s.key == one.key
            and s.enqueued is not None
            and one.seq is not None
            and s.enqueued > one.seq + 1
        ),
        None,
    )
    kind = Kind.GPU_STALLED if ahead else Kind.RANK_STALLED
    why = "its host had gone on, its card had not" if ahead else "its peers had completed it"
    summary = (
        f"rank {one.rank} alone waits in seq {one.seq}, which rank {completed.rank} had completed: {why}"
    )
    return Finding(
        source="log",
        kind=kind,
        confidence=Confidence.LIKELY if sure else Confidence.POSSIBLE,
        summary=summary,
        culprits=(one.rank,) if sure else (),
        suspects=() if sure else (one.rank,),
        victims=story.others((one.rank,)),
        where=_where([one], one.seq),
        evidence=(cite(one.event), cite(completed.event), *((cite(ahead.event),) if ahead else ())),
        chain=hang_chain(summary, agreeing, story),
    )


def alone_waiting(story: Story) -> Finding | None:
    """The only rank with a timeout, in a number that its peers say they have completed (rule 10)."""
    for key in story.waits.stuck_groups():
        waits = [w for w in story.waits.of_group(key) if w.seq is not None]
        if len(waits) != 1 or waits[0].seq is None:
            continue
        one = waits[0]
        seq = waits[0].seq
        done = [
            s for (rank, k), s in sorted(story.waits.standings.items())
            if k == key and rank != one.rank and s.completed is not None and s.completed >= seq
        ]  # fmt: skip
        if done:
            named = key != UNNAMED
            sure = named and len(done) >= AGREEING and one.event.strong
            return _alone(one, [], done[0], sure, story)
    return None


def unequal_calls(story: Story) -> Finding | None:
    """Equal numbers in one named group, unequal operations or sizes (rule 11)."""
    for key in story.waits.stuck_groups():
        for seq, waits in sorted(by_seq(story.waits.of_group(key)).items()):
            known = [w for w in waits if w.op is not None]
            ops = Counter(w.op for w in known)
            finding = None
            if len(ops) > 1:
                finding = _odd_call(
                    known, [(w.op,) for w in known], Kind.COLLECTIVE_TYPE_MISMATCH, seq, key, story
                )
            elif len(ops) == 1 and is_even(known[0].op):
                sized = [w for w in known if any(s is not None for s in w.sizes)]
                complete = [
                    w for w in sized if [s is None for s in w.sizes] == [s is None for s in sized[0].sizes]
                ]
                if len({w.sizes for w in complete}) > 1:
                    finding = _odd_call(
                        complete, [w.sizes for w in complete], Kind.COLLECTIVE_SIZE_MISMATCH, seq, key, story
                    )
            if finding:
                return finding
    return None


def _odd_call(
    waits: Sequence[Wait], values: Sequence[tuple[object, ...]], kind: Kind, seq: int, key: str, story: Story
) -> Finding | None:
    votes = Counter(values)
    ((usual, count),) = votes.most_common(1)
    odd = [w for w, value in zip(waits, values, strict=True) if value != usual]
    agreeing = [w for w, value in zip(waits, values, strict=True) if value == usual]
    if any(str(w.op) in P2P for w in waits):
        return None
    decided = 2 * count > len(waits)
    sure = decided and key != UNNAMED and count >= AGREEING and all(w.event.strong for w in odd)
    ranks = tuple(sorted(w.rank for w in (odd if decided else waits)))
    one, peer = odd[0], agreeing[0]
    label = one.group.label if one.group else "the group"
    summary = (
        f"{who(sorted(w.rank for w in odd))} is in {_call(one)} at seq {seq} of {label} where "
        f"{who([w.rank for w in agreeing])} {'is' if len(agreeing) == 1 else 'are'} in {_call(peer)}"
    )
    return Finding(
        source="log",
        kind=kind,
        confidence=Confidence.LIKELY if sure else Confidence.POSSIBLE,
        summary=summary,
        culprits=ranks if sure else (),
        suspects=() if sure else ranks,
        victims=story.others(ranks),
        where=Where(
            group=label,
            seq=seq,
            stuck_seq=seq,
            op=str(peer.op).lower(),
            expected=_signature(peer),
            found={w.rank: _signature(w) for w in odd},
        ),
        evidence=(cite(one.event), *(cite(w.event) for w in agreeing[:2])),
        chain=hang_chain(summary, waits, story),
    )


def _call(wait: Wait) -> str:
    sizes = [str(s) for s in wait.sizes if s is not None]
    return f"{wait.op} [{', '.join(sizes)}]" if sizes else str(wait.op)


def _signature(wait: Wait) -> CallSignature:
    def size(n: int | str | None) -> tuple[tuple[int, ...], ...]:
        return ((n,),) if isinstance(n, int) else ()

    shape = wait.sizes[2]
    if isinstance(shape, str) and shape:
        dims = tuple(int(d) for d in shape.split(",") if d.isdigit())
        return CallSignature(str(wait.op).lower(), (dims,), (), seq=wait.seq)
    return CallSignature(str(wait.op).lower(), size(wait.sizes[0]), size(wait.sizes[1]), seq=wait.seq)


def stuck_fabric(story: Story) -> Finding | None:
    """All members of a group of known size wait in one number with equal arguments (rule 12)."""
    for key in story.waits.stuck_groups():
        waits = [w for w in story.waits.of_group(key) if w.seq is not None]
        numbers = {w.seq for w in waits}
        if len(numbers) != 1 or len(waits) < 2 or len({w.op for w in waits}) != 1:
            continue
        if is_even(waits[0].op) and len({w.sizes for w in waits}) != 1:
            continue
        size = group_size(waits, story.world_size, story.layout)
        seq = waits[0].seq
        if size is None or len(waits) < size or seq is None or any(str(w.op) in P2P for w in waits):
            continue
        if seq <= 1 and not _anything_done(story):
            continue
        label = waits[0].group.label if waits[0].group else "the group of all"
        summary = (
            f"all {size} ranks of {label} entered {waits[0].op} seq {seq} with equal arguments "
            f"and it does not "
            "complete: no rank is behind, messages do not arrive; a card that hangs is not ruled out"
        )
        return Finding(
            source="log",
            kind=Kind.FABRIC_STALLED,
            confidence=Confidence.LIKELY,
            summary=summary,
            victims=tuple(w.rank for w in waits),
            where=_where(waits, seq),
            evidence=tuple(cite(w.event) for w in waits[:3]),
            chain=hang_chain("the fabric, or one card, stands still", waits, story),
            ruled_out=(
                RuledOut(Kind.RANK_STALLED, f"each of the {size} ranks has a timeout of its own there"),
            ),
        )
    return None


def heartbeat(story: Story) -> Finding | None:
    """A heartbeat that stopped on one rank before any timeout: it holds the GIL or sits in CUDA."""
    beats = story.of("heartbeat")
    gil = [e for e in story.of("gil") if "on exit" not in e.text]
    speaking = beats or gil
    ranks = {e.rank for e in speaking}
    if len(ranks) != 1 or None in ranks or story.of("watchdog_timeout"):
        return None
    event = speaking[0]
    assert event.rank is not None
    site = "gil" if gil else "cuda_api"
    summary = f"rank {event.rank}'s watchdog got no answer from its own process: it sits in native code" + (
        " and holds the GIL" if gil else ", most likely in a CUDA call"
    )
    return Finding(
        source="log",
        kind=Kind.RANK_STALLED,
        confidence=Confidence.POSSIBLE,
        summary=summary,
        # That no other rank said so may only mean that its lines are lost.
        suspects=(event.rank,),
        victims=story.others((event.rank,)),
        where=Where(site=site),
        evidence=tuple(cite(e) for e in (*beats[:1], *gil[:1])),
        chain=(summary, "-> the others wait for it"),
    )


def init_stuck(story: Story) -> Finding | None:
    """The group never formed: a store barrier that timed out, or the first collective of all (rule 14)."""
    told = story.of("init_timeout")
    if told:
        return _store_barrier(told, story)
    waits = [w for (_, _), w in sorted(story.waits.waits.items()) if w.seq is not None]
    if (
        not waits
        or any(w.seq is None or w.seq > 1 or str(w.op) in P2P for w in waits)
        or _anything_done(story)
    ):
        return None
    silent = tuple(r for r in story.others([w.rank for w in waits]))
    label = waits[0].group.label if waits[0].group else "the group"
    absent = f"; {who(silent)} left no timeout" if silent else ""
    return Finding(
        source="log",
        kind=Kind.INIT_STUCK,
        confidence=Confidence.POSSIBLE,
        summary=f"{label} never formed: {who([w.rank for w in waits])} wait in its first collective, "
        f"nothing was ever completed{absent}",
        suspects=silent if 2 * len(silent) < story.census.size else (),
        victims=tuple(w.rank for w in waits),
        where=_where(waits, waits[0].seq),
        evidence=tuple(cite(w.event) for w in waits[:3]),
        chain=("the communicator of the first collective is not created", "-> its members time out"),
    )


def _store_barrier(told: Sequence[Event], story: Story) -> Finding:
    event = next((e for e in told if "workers" in e.numbers), told[0])
    world, workers = event.numbers.get("world"), event.numbers.get("workers")
    stale = world is not None and workers is not None and workers > world
    requeued = next(
        (
            e
            for e in (*story.events, *(e for es in story.earlier.values() for e in es))
            if "REQUEUE" in e.words.get("reason", "")
        ),
        None,
    )
    speaking = {e.rank for e in told if e.rank is not None} | {
        e.numbers["rank"] for e in told if "rank" in e.numbers
    }
    absent = tuple(r for r in range(story.world_size or world or 0) if r not in speaking)
    lacking = world - workers if world is not None and workers is not None and not stale else None
    if stale and requeued:
        summary = (
            f"the group never formed: {workers} workers had registered in a store of {world}: "
            f"it is left from before the job was requeued"
        )
        return Finding(
            source="log", kind=Kind.EXTERNAL_STOP, confidence=Confidence.LIKELY, summary=summary,
            victims=story.everybody, where=Where(how="job_requeue"),
            evidence=(cite(requeued), cite(event)),
            chain=("the job was requeued", "-> its store is stale", "-> the group does not form"),
        )  # fmt: skip
    sure = (
        lacking is not None
        and len(absent) == lacking
        and 0 < 2 * lacking < (world or 0)
        and bool(story.world_size)
    )
    why = (
        f"{workers} workers had registered where {world} belong: the store is stale" if stale
        else f"{workers} of {world} came" if lacking is not None else "not all ranks came"
    )  # fmt: skip
    names = absent if lacking is not None and len(absent) == lacking else ()
    summary = f"the process group never formed: {why}" + (f"; {who(names)} did not" if names else "")
    return Finding(
        source="log",
        kind=Kind.INIT_STUCK,
        confidence=Confidence.LIKELY if sure or stale else Confidence.POSSIBLE,
        summary=summary,
        culprits=(),
        suspects=names,
        victims=story.others(names),
        where=Where(how="stale_store" if stale else None),
        evidence=tuple(cite(e) for e in told[:3]),
        chain=(summary,),
    )


def _anything_done(story: Story) -> bool:
    """Whether any collective or step was ever completed."""
    return any((s.completed or 0) > 0 for s in story.waits.standings.values()) or bool(story.of("step"))


def _where(waits: Sequence[Wait], seq: int | None, site: str | None = None) -> Where:
    group = next((w.group for w in waits if w.group), None)
    op = common_op(waits)
    return Where(
        group=group.label if group else None,
        seq=seq,
        stuck_seq=seq,
        op=op.lower() if op != "a collective" else None,
        site=site,
    )
