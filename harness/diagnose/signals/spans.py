"""What each rank had entered and not left when its records end: a hang as torchtitan's spans show it."""

from collections import Counter
from collections.abc import Mapping

from harness.diagnose.signals.formats.foreign import OpenSpan
from harness.diagnose.signals.wording import verb, who
from harness.model.diagnosis import Citation, Where
from harness.model.finding import Finding
from harness.model.kinds import Confidence, Kind

_SITES = {
    "fetching_batch": "dataloader",
    "post_dataloading_process": "dataloader",
    "checkpoint_save": "checkpoint",
    "save-checkpoint": "checkpoint",
    "eval": "evaluation",
    "validate": "evaluation",
}
LEAST_RANKS = 3


def left_open(spans: Mapping[int, OpenSpan]) -> Finding | None:
    """Few ranks in one span while most are in another of the same step or a later one: suspects.

    Most ranks wait where they exchange; whoever is in its loader, a save or an evaluation of its own has not
    come there. A job that merely ran when its files were copied looks alike: nobody is convicted.
    """
    if len(spans) < LEAST_RANKS:
        return None
    (usual, count), *_ = Counter(span.name for span in spans.values()).most_common()
    few = {r: s for r, s in sorted(spans.items()) if s.name != usual and s.name in _SITES}
    if not few or 2 * count <= len(spans) or usual in _SITES or count + len(few) < len(spans):
        return None
    ranks = tuple(few)
    first = next(iter(few.values()))
    peer = next(r for r, s in spans.items() if s.name == usual)
    return Finding(
        source="signal",
        kind=Kind.RANK_STALLED,
        confidence=Confidence.POSSIBLE,
        summary=(
            f"{who(ranks)} entered {first.name} in step {first.step} and "
            f"{verb(ranks, 'has', 'have')} not left it; {count} ranks are in {usual}"
        ),
        suspects=ranks,
        victims=tuple(r for r in spans if r not in few),
        where=Where(step=first.step, site=_SITES[first.name]),
        evidence=(
            *(
                Citation("signal", f"rank {r}: {s.name} of step {s.step} is open", s.file, s.line, rank=r)
                for r, s in list(few.items())[:3]
            ),
            Citation(
                "signal", f"rank {peer}: {usual} is open", spans[peer].file, spans[peer].line, rank=peer
            ),
        ),
        chain=(f"{who(ranks)}: in {first.name}", f"-> {count} ranks wait in {usual}"),
    )
