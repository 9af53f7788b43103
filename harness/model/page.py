"""What came of a page: each link of the chain with its share of the time, and every message."""

from collections.abc import Mapping
from dataclasses import dataclass, field

LINKS = ("last_step", "rule", "alertmanager", "group_wait", "webhook")
"""The chain. last_step: from the last finished step to the break; rule: until the rule fired, its threshold
included; alertmanager: until Alertmanager had it; group_wait: until it sent; webhook: until it came."""


@dataclass(frozen=True)
class Message:
    """One notification. `at`: unix seconds. `text`: what a pager shows."""

    at: float
    firing: bool
    alerts: tuple[str, ...]
    text: str


@dataclass(frozen=True)
class PageReport:
    """`seconds`: from the last sign of life to the page; None if none came. `within_s`: how long it may take.

    `broken_link`: the first link over which nothing came. `expected`: the alert that must page; `pages`: how
    many messages paged; `resolved_after_s`: from moving again to the message that says so. `died`: why the
    drill decides nothing (a monitoring program ended, nobody confirmed). `missing`: what the page lacks.
    `confirmed`: whether a person typed the code that only the page carries; None where nobody was asked.
    """

    scene: str
    expected: str
    within_s: float
    seconds: float | None = None
    links: Mapping[str, float] = field(default_factory=dict)
    broken_link: str | None = None
    pages: int = 0
    resolves: bool = False
    resolved_after_s: float | None = None
    inhibited: bool | None = None
    """Whether Alertmanager held the alert back during a restart; None where there was none."""
    missing: tuple[str, ...] = ()
    messages: tuple[Message, ...] = ()
    confirmed: bool | None = None
    died: str | None = None
    rehearsal: bool = False
    """Whether the threshold was shortened: then the real rule's time was not waited for."""
