"""What the storage's own logs add to a finding of the workers' logs."""

import dataclasses
from typing import TYPE_CHECKING

from harness.diagnose.logs.story import Story
from harness.model.diagnosis import Where
from harness.model.finding import Finding
from harness.model.kinds import Confidence, Kind

if TYPE_CHECKING:
    from harness.diagnose.logs.aistore.model import StorageReport

EXPLAINED = (Kind.STORAGE_FAILURE, Kind.DATA_CORRUPT)


def with_storage(finding: Finding | None, storage: "StorageReport", story: Story) -> Finding | None:
    """The finding with the storage's chain before its own, where the storage was not calm.

    Storage is blamed only together with what a rank says of it, or where the workers' logs say nothing else.
    """
    if storage.side == "calm":
        return finding
    links = tuple(link.text for link in storage.chain)
    if finding is None:
        if storage.side == "unknown" or not links:
            return None
        return Finding(
            source="log",
            kind=Kind.STORAGE_FAILURE,
            confidence=Confidence.POSSIBLE,
            summary=storage.summary,
            victims=story.everybody,
            where=Where(how=f"{storage.side}s"),
            evidence=storage.citations[:4],
            chain=_arrows(links),
        )
    if finding.kind not in EXPLAINED and finding.where.site != "dataloader":
        return dataclasses.replace(finding, evidence=(*finding.evidence, *storage.citations[:1]))
    return dataclasses.replace(
        finding,
        summary=f"{finding.summary}; {storage.summary}",
        evidence=(*finding.evidence, *storage.citations[:3]),
        chain=_arrows((*links, *finding.chain)),
    )


def _arrows(links: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(link if not n or link.startswith("->") else f"-> {link}" for n, link in enumerate(links))
