"""What the one pass over all text files looks for: events for this room, steps for the room of signals."""

from harness.diagnose.logs.catalogue import PATTERNS
from harness.diagnose.signals.formats.needles import PATTERNS as STEP_PATTERNS

WANTED = (*PATTERNS, *STEP_PATTERNS)
