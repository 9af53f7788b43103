"""The stack without ranks: a storm of a thousand, and a pager that hangs."""

import json
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from harness.monitor.binaries import Binaries
from harness.monitor.chain import Chain
from harness.monitor.page_drill import XID_LINE
from harness.monitor.rule_files import INHIBITIONS, write_files
from harness.monitor.services import Alertmanager
from harness.monitor.stack import Pace, Stack
from harness.monitor.webhook import Webhook

from .made import append, rank_file, record

RANKS = 1024


def until(condition: Callable[[], object], limit_s: float = 30.0) -> None:
    """Wait for what other programs do."""
    deadline = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < deadline, "it never came"
        time.sleep(0.05)


@contextmanager
def running(stack: Stack) -> Iterator[Stack]:
    """A stack that is up."""
    try:
        stack.start()
        yield stack
    finally:
        stack.stop()


def all_ranks_step(run: Path, ranks: int, step: int, attempt: int = 0) -> float:
    """Every rank finishes a step now; returns when."""
    now = time.time()
    for rank in range(ranks):
        append(rank_file(run / "signals", rank, attempt), record(step, rank, t=now))
    return now


def test_a_storm_is_one_message(tmp_path: Path, binaries: Binaries, tag: str) -> None:
    """A card's XID, then 1024 ranks stand still: one message with job, step, host, card, XID and restart."""
    all_ranks_step(tmp_path, RANKS, 51300, attempt=1)
    # Production's interval between two messages of one job: five minutes.
    pace = Pace(0.5, 1.0, 300.0, 0.2)
    with running(Stack(binaries, tmp_path, tmp_path / "page", "run42", 3.0, pace=pace)) as stack:
        until(lambda: stack.prometheus.value("count(train_up == 1)") == RANKS)
        append(stack.kernel_log, XID_LINE % 99)
        until(lambda: stack.webhook.received)
        until(lambda: stack.alertmanager.alerts("TrainingStepStalled"))
        stalled = stack.prometheus.value('count(ALERTS{alertstate="firing", severity="page"})')
        flushes = len(stack.alertmanager.flushed("GpuXidError"))
    (message,) = stack.webhook.received

    assert stalled == 2 and flushes == 1
    assert message.group == {"job": "run42"}
    for word in ("run42", "XID 79", "gpu 0000:3b:00", "at step 51300", "restart 1"):
        assert word in message.text
    assert any(alert.labels.get("host") for alert in message.alerts)


def test_each_inhibition_holds_back_its_target_and_no_other(
    tmp_path: Path, binaries: Binaries, tag: str
) -> None:
    """The second alert of the same job or host is held back; another job's or host's is not."""
    write_files(tmp_path)
    alertmanager = Alertmanager(binaries.alertmanager, tmp_path)
    sent = []
    for number, (source, target, (label,)) in enumerate(INHIBITIONS):
        mine, other = f"mine{number}", f"other{number}"
        sent += [{"alertname": source, label: mine}, {"alertname": target, label: mine, "pair": str(number)}]
        sent += [{"alertname": target, label: other, "pair": str(number)}]
    try:
        alertmanager.start()
        body = json.dumps([{"labels": {**labels, "severity": "page"}} for labels in sent]).encode()
        request = urllib.request.Request(
            f"{alertmanager.url}/api/v2/alerts", body, {"Content-Type": "application/json"}
        )
        urllib.request.urlopen(request, timeout=5).close()
        targets = {target for _, target, _ in INHIBITIONS}
        until(lambda: all(alertmanager.inhibited(name) for name in targets))
        found = [alert for name in targets for alert in alertmanager.alerts(name)]
    finally:
        alertmanager.stop()
    held = {(a["labels"]["pair"], "mine" in str(a["labels"])) for a in found if a["status"]["inhibitedBy"]}
    free = {
        (a["labels"]["pair"], "mine" in str(a["labels"])) for a in found if not a["status"]["inhibitedBy"]
    }

    assert held == {(str(n), True) for n in range(len(INHIBITIONS))}
    assert free == {(str(n), False) for n in range(len(INHIBITIONS))}


def test_a_pager_that_hangs_is_the_broken_link(tmp_path: Path, binaries: Binaries, tag: str) -> None:
    """Every link up to Alertmanager's sending is timed; the one that broke is the webhook."""
    with running(
        Stack(binaries, tmp_path, tmp_path / "page", "run42", 3.0, webhook=Webhook(answer_after_s=60))
    ) as stack:
        chain = Chain(stack, "TrainingStepStalled")
        last = all_ranks_step(tmp_path, 2, 7)
        chain.begin(last, last)
        until(lambda: stack.alertmanager.flushed("TrainingStepStalled"))
        links, broken, seconds = chain.links(), chain.broken_link(), chain.seconds

    assert list(links) == ["last_step", "rule", "alertmanager", "group_wait"] and links["rule"] > 2
    assert (broken, seconds) == ("webhook", None)
