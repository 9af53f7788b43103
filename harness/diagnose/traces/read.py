"""Reading one trace in a stream, however large, compressed or cut short."""

import zlib
from pathlib import Path

import ijson  # type: ignore[import-untyped]

from harness.diagnose.garbage import no_garbage_collection
from harness.diagnose.traces.find import open_trace
from harness.diagnose.traces.header import NotATrace, read_header, reason
from harness.diagnose.traces.recorder import Recorder
from harness.diagnose.traces.recording import Recording

BUFFER_BYTES = 1 << 18


def read_trace(path: Path) -> Recording:
    """Read a trace; one that breaks off gives what came before, and says so in `broken`.

    Raises:
        NotATrace: no event in it could be read.
        OSError: it cannot be opened.
    """
    header = read_header(path)
    recording = Recording(header)
    with no_garbage_collection():
        _fill(path, recording, fast=True)
        if recording.broken is not None and "integer overflow" in recording.broken:
            # ijson's fast numbers hold 63 bits; ids of 64 bits need its slow ones.
            recording = Recording(header)
            _fill(path, recording, fast=False)
    if not recording.events:
        raise NotATrace(f"no events in it ({recording.broken or 'the list is empty'})")
    return recording


def _fill(path: Path, recording: Recording, fast: bool) -> None:
    take = Recorder(recording).take
    try:
        with open_trace(path) as file:
            where = recording.header.events
            for event in ijson.items(file, where, use_float=fast, buf_size=BUFFER_BYTES):
                recording.events += 1
                try:
                    take(event)
                except (KeyError, TypeError, ValueError, AttributeError, OverflowError):
                    recording.skipped += 1
    except ijson.JSONError as error:
        recording.broken = reason(error)
    except (EOFError, zlib.error, OSError) as error:
        recording.broken = str(error)
