"""What clients of AIStore trip over: words in workers' logs or stacks that have a known meaning."""

import re
from dataclasses import dataclass

from harness.model.diagnosis import Recommendation

MAX_CHARS = 16 << 10


@dataclass(frozen=True)
class Pitfall:
    """One known trap. `words`: alternatives, each a set of words that all stand in the text, in any order.

    `role`: ``cause`` (it explains a failure), ``noise`` (it explains the line away), ``context`` (why one
    rank alone). `unless`: what takes the meaning away.
    """

    name: str
    words: tuple[tuple[str, ...], ...]
    what: str
    role: str
    recommendation: Recommendation
    unless: re.Pattern[str] | None = None


PITFALLS = (
    Pitfall(
        "read_without_timeout",
        (
            ("_prepare_for_reading",),
            ("lhotse", "urlopen"),
            ("lhotse", "f.read()"),
            ("lhotse", "http/client.py"),
        ),
        "audio is read from a URL without a timeout: a download that stalls holds the loader for ever, "
        "and every other rank at the next collective",
        "cause",
        Recommendation(
            "client",
            "give reads from URLs a timeout (socket or storage client), and retry instead of waiting",
        ),
    ),
    Pitfall(
        "fault_tolerant",
        (
            ("fault_tolerant=True",),
            ("fault_tolerant: true",),
            ("fault_tolerant: True",),
            ("skip_failed_fetches",),
        ),
        "fault-tolerant loading drops samples that fail without a word, so batch sizes differ between ranks",
        "cause",
        Recommendation(
            "training",
            "load with fault_tolerant=False, or count the dropped samples of each rank and log them",
        ),
    ),
    Pitfall(
        "m4a_in_bytesio",
        (("m4a", "BytesIO"), ("m4a", "AudioBackend"), (".m4a", "ffmpeg")),
        "the extension .m4a is lost in a BytesIO, so every decoder is tried in turn: loading is slow",
        "cause",
        Recommendation(
            "client", "convert .m4a to flac or wav beforehand, or pass the format on to the decoder"
        ),
    ),
    Pitfall(
        "keep_alive_reset",
        (("Connection reset by peer", "retrying 1/"), ("DfltMaxIdleTimeout",)),
        "the storage closes connections that idle for 30 s; the client's pool finds out by a reset, "
        "and the first retry recovers",
        "noise",
        Recommendation("client", "let pooled connections expire before 30 s of idling; otherwise leave it"),
        # Where one retry is all there is, it is the last one.
        unless=re.compile(r"retrying 1/1(?!\d)"),
    ),
    Pitfall(
        "disjoint_shards",
        (("rank::world_size",), ("[rank :: world_size]",), ("split_by_node",), ("split_for_dataloading",)),
        "each rank reads shards of its own: one may have the broken files, the long audio or the slow target",
        "context",
        Recommendation("training", "compare what the slow rank's shards hold and which target serves them"),
    ),
)


def pitfalls_in(text: str) -> tuple[Pitfall, ...]:
    """The traps whose words stand in a line, a traceback or a stack (its first 16 KiB)."""
    text = text[:MAX_CHARS]
    return tuple(
        pitfall
        for pitfall in PITFALLS
        if any(all(word in text for word in row) for row in pitfall.words)
        and not (pitfall.unless and pitfall.unless.search(text))
    )
