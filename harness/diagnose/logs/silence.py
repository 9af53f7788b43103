"""Whether a rank that was not heard in samples of large files is really silent: looked for by name."""

import re
from collections.abc import Sequence

from harness.diagnose.logs.census import Census
from harness.diagnose.logs.reader import FileLog
from harness.diagnose.texts.blocks import Blocks

MAX_LOOKED_FOR = 4096

_FIELD = re.compile(rb'"(?:global_)?rank": ?"?(\d{1,7})\b')


def heard_after_all(census: Census, logs: Sequence[FileLog]) -> None:
    """Look for the prefixes of silent ranks in files that name ranks so; note those that are found.

    A pass over a file gives lines with something in them, and samples: a rank that never complained may be
    in none of them. Absence is claimed only after this.
    """
    silent = set(census.silent)
    if not silent or len(silent) > MAX_LOOKED_FOR:
        return
    for log in logs:
        if log.file.rank is not None or not any(s.rank_from == "prefix" for s in log.speakers):
            continue
        if log.rank_fields:
            _in_fields(census, log, silent)
            continue
        needles = {rank: f"[rank{rank}]:".encode() for rank in silent}
        for block in Blocks(log.file.path):
            if block.data.find(b"[rank", 0, block.end) < 0:
                continue
            for rank, needle in list(needles.items()):
                if block.data.find(needle, 0, block.end) >= 0:
                    census.heard.setdefault(rank, set()).add(log.file.name)
                    silent.discard(rank)
                    del needles[rank]
            if not needles:
                break


def _in_fields(census: Census, log: FileLog, silent: set[int]) -> None:
    """The same in a logger's JSON, whose objects have a field for the rank."""
    for block in Blocks(log.file.path):
        for found in _FIELD.finditer(block.data, 0, block.end):
            if (rank := int(found[1])) in silent:
                census.heard.setdefault(rank, set()).add(log.file.name)
                silent.discard(rank)
