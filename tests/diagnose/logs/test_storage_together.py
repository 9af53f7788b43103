"""Workers' logs beside the storage's: the chain from pressure to the loader's error, and what to fetch."""

from pathlib import Path

import pytest

from harness.diagnose.api import diagnose
from harness.model.diagnosis import Diagnosis
from harness.model.kinds import Kind
from tests.diagnose.logs.aistore.made import BROKEN, DROPPED, LOST, PRESSURE, Log, unix

ERROR = "aistore.pytorch.errors.AISBatchLoaderError: got 12 of 64 objects"


def worker(raised: str = ERROR, more: str = "") -> str:
    """Rank 3 makes steps, then raises at half past eight."""
    at = "2025-11-19T20:30:01Z [rank3]: "
    return (
        "2025-11-19T20:00:00Z [rank3]: step: 90  loss:  2.1\n"
        f"{at}Traceback (most recent call last):\n"
        f'{at}  File "/x/site-packages/aistore/pytorch/dataset.py", line 7, in __iter__\n'
        f"{at}{raised}\n{more}"
    )


def target(bad: bool = True) -> Log:
    """A storage target; a bad one comes under pressure, loses a stream, and then objects of batches."""
    log = Log(unix("2025-11-19 19:00:00"), "target", 1)
    log.run("2025-11-19 20:28:00", get_n=100, getbatch_n=50)
    if bad:
        log.say(PRESSURE, "W")
        log.run("2025-11-19 20:29:00", every_s=30, get_n=10)
        log.say(BROKEN, "E")
        log.say(LOST, "E")
        log.run("2025-11-19 20:30:00", every_s=30, get_n=10, err_getbatch_n=200)
        log.say(DROPPED, "W")
        log.run("2025-11-19 20:32:00", every_s=30, get_n=10, err_getbatch_n=200)
    return log.run("2025-11-19 21:30:00", get_n=100, getbatch_n=50)


def answer(folder: Path, text: str, *daemons: Log) -> Diagnosis:
    """The diagnosis of one worker's log and the daemons' beside it."""
    (folder / "rank_3.log").write_text(text)
    for daemon in daemons:
        daemon.write(folder / "ais_logs")
    return diagnose(folder).diagnosis


def test_the_chain_goes_from_pressure_to_the_loaders_error(tmp_path: Path) -> None:
    """Each link as it was seen, in its order, and the worker's own at the end."""
    found = answer(tmp_path, worker(), target())

    words = ("pressure", "stream between targets", "lost objects", "batch GETs fail", "AISBatchLoaderError")
    places = [next(n for n, link in enumerate(found.chain) if word in link) for word in words]
    assert places == sorted(places)
    assert found.chain[-1].startswith("-> ")
    assert "rank 3" in found.chain[-1]


def test_the_kind_is_the_storages(tmp_path: Path) -> None:
    """Rank 3 failed, and the summary says of what."""
    found = answer(tmp_path, worker(), target())

    assert (found.kind, found.category.value, found.culprits) == (Kind.STORAGE_FAILURE, "storage_io", (3,))
    assert "ais-target-1" in found.summary


def test_both_sides_are_cited(tmp_path: Path) -> None:
    """The worker's line first, then the daemons'."""
    found = answer(tmp_path, worker(), target())

    assert (found.evidence[0].file, found.evidence[0].line) == ("rank_3.log", 4)
    assert any("aistarget" in str(c.file) and c.line for c in found.evidence[1:])


def test_cited_lines_of_daemons_hold_what_is_said(tmp_path: Path) -> None:
    """The line on lost objects is the one that is cited for them."""
    log = target()

    found = answer(tmp_path, worker(), log)

    (lost,) = [c for c in found.evidence if "lost objects" in c.says]
    assert lost.line is not None
    assert LOST in log.lines[lost.line - 1]


def test_recommendations_of_both_sides(tmp_path: Path) -> None:
    """What to change in the storage, and in its client."""
    found = answer(tmp_path, worker(), target())

    assert {"storage", "client"} <= {r.side for r in found.recommendations}
    assert any("ais-target-1" in r.do for r in found.recommendations)


def test_without_daemon_logs_they_are_fetched(tmp_path: Path) -> None:
    """Commands to paste, up to the one that unpacks what came."""
    found = answer(tmp_path, worker())

    assert (found.kind, found.culprits) == (Kind.STORAGE_FAILURE, (3,))
    assert any(step.startswith("ais log get cluster") for step in found.next_steps)
    assert any("tar xzf" in step for step in found.next_steps)


def test_with_daemon_logs_nothing_more_is_fetched_with_ais(tmp_path: Path) -> None:
    """They are here."""
    found = answer(tmp_path, worker(), target())

    assert not any(step.startswith("ais log get cluster") for step in found.next_steps)


def test_a_calm_storage_is_not_blamed(tmp_path: Path) -> None:
    """Its logs tell of the window and show nothing: the finding stays the worker's alone."""
    alone = answer(tmp_path, worker())
    found = answer(tmp_path, worker(), target(bad=False))

    assert (found.summary, found.chain, found.evidence) == (alone.summary, alone.chain, alone.evidence)


def test_another_failure_is_not_put_on_the_storage(tmp_path: Path) -> None:
    """A KeyError keeps its chain; what the storage did is cited, not blamed."""
    text = worker("KeyError: 'loss'").replace("/x/site-packages/aistore/pytorch/dataset.py", "/job/train.py")

    found = answer(tmp_path, text, target())

    assert (found.kind, found.culprits) == (Kind.SOFTWARE_ERROR, (3,))
    assert not any("ais-target" in link for link in found.chain)


def test_a_loader_that_recovered_is_no_failure(tmp_path: Path) -> None:
    """The rank made another step."""
    text = worker(more="2025-11-19T20:31:00Z [rank3]: step: 91  loss:  2.1\n")

    found = answer(tmp_path, text, target(bad=False))

    assert found.culprits == ()


@pytest.mark.parametrize(
    "raised",
    [
        ERROR,
        "urllib3.exceptions.MaxRetryError: Max retries exceeded with url: /v1/ml/data",
        "OSError: [Errno 5] Input/output error",
    ],
)
def test_what_a_client_says_of_a_failing_storage(raised: str, tmp_path: Path) -> None:
    """Whatever its words: the daemons' chain stands before it."""
    found = answer(tmp_path, worker(raised), target())

    assert found.kind is Kind.STORAGE_FAILURE
    assert any("ais-target-1" in link for link in found.chain)


def test_clocks_that_could_not_be_compared_are_said(tmp_path: Path) -> None:
    """No event that both sides saw: the window rests on equal clocks."""
    found = answer(tmp_path, worker(), target())

    assert "could not be compared" in found.summary
    assert any("time zones" in step for step in found.next_steps)


@pytest.mark.parametrize("junk", [b"", b"\0" * 4000, b"Started up at 20", b"\xff" * 4000])
def test_a_damaged_daemon_log_is_no_obstacle(junk: bytes, tmp_path: Path) -> None:
    """The worker's answer stands."""
    folder = tmp_path / "ais_logs"
    folder.mkdir()
    (folder / "aistarget.ais-target-7.INFO.1119-190000.1").write_bytes(junk)

    found = answer(tmp_path, worker())

    assert (found.kind, found.culprits) == (Kind.STORAGE_FAILURE, (3,))
