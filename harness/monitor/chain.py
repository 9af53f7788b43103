"""From the last sign of life to the page: what each link took, measured where it happened."""

from collections.abc import Mapping

from harness.model.page import LINKS
from harness.monitor.stack import Stack
from harness.monitor.webhook import Notification


class Chain:
    """The links of one page, each timed by the program that it ends at."""

    def __init__(self, stack: Stack, alert: str) -> None:
        self._stack, self._alert = stack, alert
        self._last: float | None = None
        self._broke: float | None = None

    def begin(self, last_sign: float, broke: float) -> None:
        """When the job last showed life, and when it was broken; unix seconds."""
        self._last, self._broke = last_sign, broke

    @property
    def page(self) -> Notification | None:
        """The first message in which the alert fires."""
        received = self._stack.webhook.received
        return next((n for n in received if n.alert(self._alert) is not None), None)

    @property
    def arrived(self) -> float | None:
        """When it came, unix seconds."""
        return self.page.at if self.page else None

    @property
    def seconds(self) -> float | None:
        """From the last sign of life to the page."""
        return self.arrived - self._last if self.arrived is not None and self._last is not None else None

    def links(self) -> Mapping[str, float]:
        """Seconds of each link that was passed, in order. They add up to `seconds`."""
        found: dict[str, float] = {}
        before = self._last
        for name, at in zip(LINKS, self._moments(), strict=True):
            if at is None or before is None:
                break
            # Clocks of one machine, read by different programs, may cross by a millisecond.
            found[name] = max(0.0, at - before)
            before = max(at, before)
        return found

    def broken_link(self) -> str | None:
        """The first link over which nothing came; None if the page came."""
        passed = self.links()
        return None if self.arrived is not None else next((n for n in LINKS if n not in passed), None)

    def _moments(self) -> tuple[float | None, ...]:
        page, manager, since = self.page, self._stack.alertmanager, self._last or 0.0
        alert = page.alert(self._alert) if page else None
        received = next((at for at in manager.received(self._alert) if at >= since), None)
        flushed = next((at for at in manager.flushed(self._alert) if at >= since), None)
        fired = alert.started if alert else received
        return self._broke, fired, received, flushed, self.arrived
