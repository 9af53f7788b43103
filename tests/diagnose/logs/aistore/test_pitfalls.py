"""Known traps of clients, and the commands to fetch daemon logs."""

import shutil
import subprocess

import pytest

from harness.diagnose.logs.aistore.chain import loader_link
from harness.diagnose.logs.aistore.fetch import fetch_commands
from harness.diagnose.logs.aistore.pitfalls import PITFALLS, pitfalls_in


@pytest.mark.parametrize(
    ("text", "name", "role"),
    [
        ('File "lhotse/audio/source.py", line 190, in _prepare_for_reading', "read_without_timeout", "cause"),
        ("AudioSamples(fault_tolerant=True)", "fault_tolerant", "cause"),
        ("cannot open BytesIO of clip.m4a", "m4a_in_bytesio", "cause"),
        ("Connection reset by peer, retrying 1/5", "keep_alive_reset", "noise"),
        ("src[rank::world_size]", "disjoint_shards", "context"),
    ],
)
def test_each_trap_is_known_by_its_words(text: str, name: str, role: str) -> None:
    """The words name the trap and whether it is a cause or noise, and what to change at which side."""
    (found,) = pitfalls_in(text)

    assert (found.name, found.role) == (name, role)
    assert found.recommendation.side in ("storage", "client", "training")


@pytest.mark.parametrize(
    "text",
    [
        "Connection reset by peer",
        "Connection reset by peer, retrying 5/5",
        "Connection reset by peer, retrying 1/1",
        "fault_tolerant=False",
        "step 1 done",
    ],
)
def test_other_lines_are_no_trap(text: str) -> None:
    """A reset without a retry that follows, the last retry, or the other setting explain nothing."""
    assert pitfalls_in(text) == ()


def test_traps_have_names_of_their_own() -> None:
    """No name stands twice, and each trap has words."""
    assert len({pitfall.name for pitfall in PITFALLS}) == len(PITFALLS) == 5
    assert all(all(row) for pitfall in PITFALLS for row in pitfall.words)


@pytest.mark.skipif(not shutil.which("bash"), reason="needs bash to check the syntax")
def test_the_commands_can_be_pasted_once_filled_in() -> None:
    """With the blanks filled, a shell takes them; endpoint, token, certificate come before the download."""
    text = "\n".join(fetch_commands())
    filled = (
        text.replace("<", "").replace(">", "").replace("the workers' logs", "logs").replace("folder of ", "")
    )

    checked = subprocess.run(["bash", "-n"], input=filled, text=True, capture_output=True, check=False)

    assert (checked.returncode, checked.stderr) == (0, "")
    order = [
        text.index(w) for w in ("AIS_ENDPOINT", "AIS_AUTHN_TOKEN", "AIS_SERVER_CRT", "ais log get cluster")
    ]
    assert order == sorted(order)


def test_the_loaders_error_is_the_last_link() -> None:
    """A worker's line about a short batch ends the chain; another line does not."""
    link = loader_link("lhotse.ais.AISBatchLoaderError: iterator exhausted prematurely", "error-1-0.out", 7)

    assert link is not None
    assert (link.file, link.line) == ("error-1-0.out", 7)
    assert loader_link("ValueError: bad batch", "error-1-0.out", 7) is None
