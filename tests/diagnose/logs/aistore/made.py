"""A small generator of daemon logs: a clock that writes stamps, stats lines and messages."""

import calendar
import datetime
from dataclasses import dataclass, field
from pathlib import Path

from harness.diagnose.logs.aistore.assess import assess
from harness.diagnose.logs.aistore.model import Daemons, StorageReport
from harness.diagnose.logs.aistore.read import read_daemons

LOST = "x-get-batch[Kq3v]: out-of-bounds index 17 (recv'd len=0, wid=w1)"
BROKEN = "shared-dm[t2]: terminated, err: write tcp: broken pipe"
DROPPED = "shared-dm: xid Kq3v not found, dropping recv [oname: a/b.tar]"
PRESSURE = "x-get-batch[Kq3v]: resource pressure: load=critical(dsk=critical)"
DISK = "lcache[hk]: skipping, dsk=critical"
OOM = "oom: forcing GC, free to OS"


def unix(text: str) -> float:
    """Unix seconds of ``2025-11-19 20:00:00``, read as UTC."""
    return float(calendar.timegm(datetime.datetime.strptime(text, "%Y-%m-%d %H:%M:%S").timetuple()))


@dataclass
class Log:
    """One daemon's file as it is being written; `now` is the wall clock of the daemon."""

    now: float
    role: str = "target"
    number: int = 1
    header: str | None = "Started up"
    markers: bool = True
    zone: str = "UTC"
    counters: dict[str, int] = field(default_factory=dict)
    lines: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.began = self.now
        self.id = f"ais-{self.role}-{self.number}"
        self._marked = self.now
        if self.header:
            at = self._text("%Y/%m/%d %H:%M:%S")
            self.lines.append(f"{self.header} at {at}, host {self.id}, go1.24.3 for linux/amd64")

    @property
    def name(self) -> str:
        """The name under which the daemon writes it."""
        return f"ais{self.role}.{self.id}.INFO.{_text(self.began, '%m%d-%H%M%S')}.1"

    def say(self, message: str, level: str = "I") -> int:
        """Write one stamped line; returns its number."""
        self.lines.append(f"{level} {self._text('%H:%M:%S')}.123456 {message}")
        return len(self.lines)

    def stats(self) -> int:
        """Write the counters as the daemon does: sorted, without zeros, and the marker once an hour."""
        body = ",".join(f"{name}:{value}" for name, value in sorted(self.counters.items()) if value)
        if self.markers and self.now - self._marked >= 3600:
            self._marked = self.now
            self.say(f"common:512 {self._text('%d %b %y %H:%M')} {self.zone} =============")
        return self.say("{" + body + ",up.ns:1}")

    def run(self, until: str, every_s: float = 180.0, **each: int) -> "Log":
        """Let time pass: at each step the counters grow (``err_get_n=3``) and a stats line is written."""
        end = unix(until)
        while self.now + every_s <= end:
            self.now += every_s
            for name, by in each.items():
                key = name.replace("_", ".")
                self.counters[key] = self.counters.get(key, 0) + by
            self.stats()
        self.now = end
        return self

    def text(self) -> str:
        """The whole file."""
        return "\n".join(self.lines) + "\n"

    def write(self, folder: Path, name: str | None = None) -> tuple[str, Path]:
        """Put it into a folder; returns what `read_daemons` takes."""
        path = folder / (name or self.name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(self.text())
        return name or self.name, path

    def _text(self, form: str) -> str:
        return _text(self.now, form)


def _text(moment: float, form: str) -> str:
    return datetime.datetime.fromtimestamp(moment, datetime.timezone.utc).strftime(form)


def read(folder: Path, *logs: Log) -> Daemons:
    """Write logs and read them back."""
    return read_daemons([log.write(folder) for log in logs])


def report(
    folder: Path, logs: list[Log], window: tuple[str, str] | None, death: str | None = None
) -> StorageReport:
    """Write logs, read them, and assess the window."""
    span = (unix(window[0]), unix(window[1])) if window else None
    return assess(read(folder, *logs), span, unix(death) if death else None)
