"""Errors that reach a person. Each says what happened, where, what to do, and owns its exit code.

DrillError
├── UsageError          2   bad arguments, unknown drill, a spec that does not validate
├── PrerequisiteError   4   no such backend, too few GPUs, nothing readable, nowhere to write
└── Interrupted       130   Ctrl-C or SIGTERM; ranks stopped, bundle kept
"""


class DrillError(Exception):
    """Base of all errors with a message for people."""

    exit_code = 5


class UsageError(DrillError):
    """The command or a file that a person wrote is wrong."""

    exit_code = 2


class PrerequisiteError(DrillError):
    """Something that this machine or this path would need is missing."""

    exit_code = 4


class Interrupted(DrillError):
    """The run was interrupted from outside."""

    exit_code = 130
