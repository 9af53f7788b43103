"""Become a program that dies with the process that started it: a drill must leave nothing behind.

``python -m harness.monitor.child PARENT_PID PROGRAM [ARGS...]``: the kernel keeps the request through exec.
"""

import os
import sys

from harness.worker.lifeline import die_with_parent

if __name__ == "__main__":
    die_with_parent(int(sys.argv[1]))
    os.execv(sys.argv[2], sys.argv[2:])
