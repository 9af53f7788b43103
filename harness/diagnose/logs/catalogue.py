"""All classes of lines, and what a scan looks for."""

from harness.diagnose.logs import code_lines, comm_lines, launch_lines, machine_lines, nccl_lines
from harness.diagnose.logs.classes import LineClass
from harness.diagnose.texts.patterns import Pattern

CLASSES: tuple[LineClass, ...] = (
    *nccl_lines.CLASSES,
    *comm_lines.CLASSES,
    *launch_lines.CLASSES,
    *machine_lines.CLASSES,
    *code_lines.CLASSES,
)

BY_NAME = {line_class.what: line_class for line_class in CLASSES}

TAG = "log."
PATTERNS = tuple(Pattern(TAG + c.what, c.regex, c.ignore_case) for c in CLASSES)
