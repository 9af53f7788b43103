"""What runs inside a rank. Needs torch and the standard library; inert unless a harness started the rank."""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from harness.worker.session import Session
    from harness.worker.signals import Signals

__all__ = ["Session", "Signals"]

_HOMES = {"Session": "harness.worker.session", "Signals": "harness.worker.signals"}


def __getattr__(name: str) -> object:
    # Lazy, so that a rank can tie its life to its parent's before the seconds of importing torch.
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
