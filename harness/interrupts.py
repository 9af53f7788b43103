"""Signals that ask a run to end: they stop it, instead of killing the process that must clean up."""

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def signals_call(act: Callable[[], None]) -> Iterator[None]:
    """Ctrl-C, SIGTERM and SIGHUP call `act` instead of ending this process; ignored ones stay ignored."""
    signals = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    heeded = [s for s in signals if signal.getsignal(s) is not signal.SIG_IGN]
    before = {s: signal.signal(s, lambda *_: act()) for s in heeded}
    try:
        yield
    finally:
        for signum, handler in before.items():
            signal.signal(signum, handler)
