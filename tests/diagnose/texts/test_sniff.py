"""What a file is by its first bytes."""

import json
import random

import pytest

from harness.diagnose.texts.sniff import BINARY, ELSE, EMPTY, SPANS, TEXT, sniff

OURS = json.dumps({"t": 1.0, "step": 1, "rank": 0, "log_type_name": "step_end"}).encode()


@pytest.mark.parametrize(
    ("head", "kind"),
    [
        (b"steps: 10 loss: 2.3", TEXT),
        (b'{"rank": 0, "log_type_name": "step_start"}\n', SPANS),
        (b'{"torn\n{"rank": 0, "log_type_name": "step_start"}\n', SPANS),
        (OURS + b"\n", ELSE),
        (b'{\n  "verdict": "pass"\n}', ELSE),
        (b'{"log":"Traceback (most recent call last):\\n","stream":"stderr"}\n', TEXT),
        (b"<!DOCTYPE html>", ELSE),
        (b"\x80\x04\x95abc", ELSE),
        (b"a\x00b\x01\x02\x00\x00", BINARY),
        (b"\0" * 5000 + b"step 1 of a log that was truncated while it was written\n", TEXT),
        (b"step 1\nstep 2\nstep 3\n" + b"\0" * 5000 + b"step 4\n", TEXT),
        (b"\x93NUMPY\x01\0v\0{'descr': '<f4', 'shape': (9000,)}\n" + b"\0" * 5000, BINARY),
        (b"one line\n" + b"\0" * 5000, TEXT),
        (b"SWAPSPACE2" + b"\0" * 5000, BINARY),
        (b"<!DOCTYPE html>\n<html><body><pre>\nstep 1\n</pre></body></html>", TEXT),
        (b"<html><title>drill: healthy</title><body><pre>rank 1 raised</pre></body></html>", ELSE),
        (b'{"event": "ready", "level": "info"}\n{"event": "step", "level": "info"}\n', TEXT),
        (b'{"text": "ready", "record": {}}\n{"text": "step", "record": {}}\n', TEXT),
        (b'{"event": "NODE_ADDED", "id": 1}\n{"event": "NODE_ADDED", "id": 2}\n', ELSE),
        (random.Random(0).randbytes(8192), BINARY),
        ("训练开始\n".encode("gbk") * 1000, TEXT),
        (b"", EMPTY),
        (b" \n\n", EMPTY),
        ("steps: 10 loss".encode("utf-16"), TEXT),
    ],
)
def test_a_file_is_known_by_its_first_bytes(head: bytes, kind: str) -> None:
    """Logs in any encoding are text; records, documents, dumps and binaries are somebody else's."""
    assert sniff(head) == kind
