"""Stats lines as they were before something garbled them."""

import itertools
from collections.abc import Sequence
from dataclasses import replace

from harness.diagnose.logs.aistore.counters import stepped_back
from harness.diagnose.logs.aistore.model import Sample

_JITTER_S = 60.0


def cleaned(samples: Sequence[Sample]) -> list[Sample]:
    """The samples without garbled stamps and numbers.

    A stamp later than its successor's is dropped. A number that leaves its course for one line alone, so
    that the next line goes on from the line before, was misread: counters only grow, and after a restart
    they do not come back to where they were.
    """
    kept = [
        sample
        for index, sample in enumerate(samples)
        if index + 1 == len(samples) or sample.at <= samples[index + 1].at + _JITTER_S
    ]
    for index in range(1, len(kept) - 1):
        before, now, after = (kept[i].values for i in (index - 1, index, index + 1))
        values = tuple(
            old if old <= new and not old <= value <= new else value
            for old, value, new in zip(before, now, after, strict=True)
        )
        if values != now:
            kept[index] = replace(kept[index], values=values)
    return kept


def falls(samples: Sequence[Sample]) -> list[Sample]:
    """The samples below the one before: the daemon had restarted."""
    return [now for before, now in itertools.pairwise(samples) if stepped_back(before.values, now.values)]
