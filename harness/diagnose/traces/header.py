"""What a trace says about itself before its events: rank, world size, clock, whether it has a device."""

import zlib
from dataclasses import dataclass
from pathlib import Path

import ijson  # type: ignore[import-untyped]

from harness.diagnose.traces.find import open_trace

_HEADER_BYTES = 1 << 16


class NotATrace(ValueError):
    """The file holds no events of a profiler; the message says why, in one line."""


@dataclass(frozen=True)
class Header:
    """`events` is where the events are, as ijson names it. `base_ns` is what times count from, unix.

    None where the trace does not say.
    """

    events: str
    rank: int | None = None
    world_size: int | None = None
    base_ns: int = 0
    has_device: bool = False


def read_header(path: Path) -> Header:
    """Read a file up to its first event.

    Raises:
        NotATrace: it is no Chrome trace, or ends before its events.
        OSError: it cannot be read.
    """
    rank = world_size = None
    base_ns, has_device = 0, False
    try:
        with open_trace(path) as file:
            for prefix, event, value in ijson.parse(file, buf_size=_HEADER_BYTES):
                if event == "start_array" and prefix in ("", "traceEvents"):
                    where = "traceEvents.item" if prefix else "item"
                    return Header(where, rank, world_size, base_ns, has_device)
                if event == "number":
                    if prefix == "distributedInfo.rank":
                        rank = int(value)
                    elif prefix == "distributedInfo.world_size":
                        world_size = int(value)
                    elif prefix == "baseTimeNanoseconds":
                        base_ns = int(value)
                elif event == "start_map" and prefix == "deviceProperties.item":
                    has_device = True
    except ijson.JSONError as error:
        raise NotATrace(f"ends or breaks before its events ({reason(error)})") from None
    except (EOFError, zlib.error) as error:
        raise NotATrace(f"broken gzip ({error})") from None
    raise NotATrace("no 'traceEvents' in it: not a trace")


def reason(error: Exception) -> str:
    """The first line of what a parser complains about."""
    text = error.args[0] if error.args else ""
    plain = text.decode(errors="replace") if isinstance(text, bytes) else str(text)
    return plain.strip().partition("\n")[0].removeprefix("parse error: ") or type(error).__name__
