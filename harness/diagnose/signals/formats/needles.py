"""What is looked for in every file of kind ``text``: lines that may hold a step's record, or a part."""

import re

from harness.diagnose.texts.patterns import Pattern

STEP_RECORD = "STEP_RECORD"
"""The tag of those lines, which go to `FileReaders`."""

_NEEDLES = (
    *("loss: ", "the checkpoint", "iteration ", "ranks (ms)", "/Rnk: ", "Ranks with "),
    *("world size", "world_size ", "step=", "time (ms) |"),
)
"""One of them is in each line that a parser wants."""

PATTERNS = tuple(Pattern(STEP_RECORD, re.escape(needle)) for needle in _NEEDLES)
