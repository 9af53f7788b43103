"""Words that stand for patterns hide none of their matches."""

import re
from collections.abc import Sequence
from functools import cache

import pytest

from harness.diagnose.logs import failures, symptoms
from harness.diagnose.logs.phrases import Phrase
from tests.diagnose.logs.wild import WILD

PHRASES = {
    f"{module.__name__.rsplit('.', 1)[-1]}.{name}": value
    for module in (failures, symptoms)
    for name, value in vars(module).items()
    if isinstance(value, Phrase)
}

# One text for each side of an alternative that no incident of the corpus has.
TEXTS = (
    *("crc mismatch in a.tar", "shard is truncated", "manifest does not match", "schema mismatch"),
    *("OSError: [Errno 28] No space left on device", "Disk quota exceeded", "input/output ERROR"),
    *("Stale file handle", "Read-only file system", "Max retries exceeded", "503 service unavailable"),
    *("SlowDown", "retries exhausted", "torch.save failed", "__0_0.distcp is missing", "unexpected pos 64"),
    *("found NaN in loss", "grad norm is inf", "loss is not finite", "non-finite grad"),
    *("Cannot allocate memory", "MemoryError", "node running low on memory"),
    *("DataLoader worker (pid 7) is killed by signal: Killed.", "Received SIGTERM: 15"),
    *("gloo/transport/tcp/pair.cc", "Read error [10.0.0.1]", "Write error [x]", "DistStoreError: x"),
    *("Timed out waiting 1800000ms for send operation", "NCCL error in: a.cpp", "ncclRemoteError: x"),
    *("TCPStore", "recvValue failed", "RendezvousClosedError", "WorkNCCL(SeqNum=3)", "store based barrier"),
    *(
        "Detected mismatch between collectives on ranks",
        "Socket Timeout",
        "BrokenPipeError: x",
        "Broken pipe",
    ),
    *("ConnectionResetError: x", "Connection reset by peer", "store->get('x')", "the key-value store"),
    *("Process group 3 was destroyed", "NCCL communicator was aborted", "waiting for clients. 1/2"),
    *("monitoredBarrier", "sendBytes failed", "ProcessGroupGloo", "Collective operation timeout: x"),
)


@cache
def of_the_corpus() -> Sequence[str]:
    """Each line once; of some incidents there are ten thousand that differ in their time only."""
    files = (data for case in WILD.values() for data in case.files().values())
    lines = (line for data in files for line in data.decode(errors="replace").splitlines())
    return [*{re.sub(r"\d{2,}", "00", line[:500]): line for line in lines}.values()]


@pytest.mark.parametrize("name", sorted(PHRASES))
def test_a_phrase_finds_what_its_pattern_finds(name: str) -> None:
    """Nothing is passed over for want of a word."""
    phrase = PHRASES[name]
    alone = re.compile(phrase.regex, re.IGNORECASE if phrase.ignore_case else 0)
    fitting = [text for text in (*TEXTS, *of_the_corpus()) if alone.search(text)]

    assert fitting
    assert [text for text in fitting if not phrase.search(text)] == []


def test_a_text_without_a_word_is_not_looked_at() -> None:
    """The pattern is not even compiled."""
    phrase = Phrase(r"b+c", "bc")

    assert phrase.search("abd") is None
    assert "compiled" not in vars(phrase)
    assert phrase.search("abbc")
