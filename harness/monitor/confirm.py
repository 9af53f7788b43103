"""Asking the person whom the page should have reached."""

import os
import select
import sys
import threading
import time
from dataclasses import dataclass

LOOK_S = 0.2


@dataclass(frozen=True)
class Answer:
    """`confirmed`: the code was typed. `why_not`: why it cannot be said."""

    confirmed: bool | None
    why_not: str | None = None


def ask_person(code: str, limit_s: float, ending: threading.Event, fd: int | None = None) -> Answer:
    """Read lines until one is the code. Other lines do not count: a person mistypes, and may still look.

    `fd`: where to read, standard input unless given.
    """
    try:
        fd = sys.stdin.fileno() if fd is None else fd
    except (OSError, ValueError):
        return Answer(None, "nobody can be asked: there is no standard input")
    deadline, text = time.monotonic() + limit_s, b""
    while time.monotonic() < deadline and not ending.is_set():
        if not select.select([fd], [], [], LOOK_S)[0]:
            continue
        read = os.read(fd, 1 << 10)
        if not read:
            return Answer(None, "nobody confirmed the page: standard input is closed")
        *lines, text = (text + read).split(b"\n")
        if any(line.strip().lower() == code.encode() for line in lines):
            return Answer(True)
    return Answer(None, f"nobody confirmed the page within {limit_s:g} s")
