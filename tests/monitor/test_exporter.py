"""The exporter over HTTP, as Prometheus sees it."""

import json
import math
import os
import re
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path

import pytest
from prometheus_client import generate_latest
from prometheus_client.core import Metric
from prometheus_client.parser import text_string_to_metric_families

from harness.model.errors import PrerequisiteError
from harness.monitor import board
from harness.monitor.collector import NodeCollector
from harness.monitor.export import Exporter, is_loopback
from harness.monitor.names import EMITTED
from harness.monitor.node import Node, Sources

from .made import append, rank_file, record

TITAN = Path(__file__).parents[1] / "diagnose" / "signals" / "samples" / "torchtitan" / "structured_logs"


def node(run: Path, **sources: Path) -> Node:
    """A node that follows RUN/signals."""
    return Node("run42", "node7", Sources([run / "signals"], ranks=run / "ranks.json", **sources))


def samples(text: str) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    """A scrape, as prometheus-client reads it: name and labels to value."""
    families = text_string_to_metric_families(text)
    return {(s.name, tuple(sorted(s.labels.items()))): s.value for f in families for s in f.samples}


def value(seen: Node, metric: str, /, **labels: str) -> float:
    """One metric of a node, whatever other labels it has."""
    text = NodeCollector(seen).text().decode()
    found = [
        v for (n, has), v in samples(text).items() if n == metric and labels.items() <= dict(has).items()
    ]
    assert len(found) == 1, (metric, labels, found)
    return found[0]


def until(condition: Callable[[], bool], limit_s: float = 10.0) -> None:
    """Wait for something that another process brings about."""
    deadline = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < deadline, "it never came"
        time.sleep(0.02)


def test_ranks_have_their_host_and_card(tmp_path: Path) -> None:
    """ranks.json says where a rank runs; without it, it is this host's."""
    for rank in (0, 1):
        append(rank_file(tmp_path / "signals", rank), record(3, rank, t=time.time()))
    said = [{"rank": 1, "host": "node3", "local_rank": 5}]
    (tmp_path / "ranks.json").write_text(json.dumps({"world_size": 2, "ranks": said}))
    seen = node(tmp_path)
    seen.poll()

    assert value(seen, "train_step", job="run42", rank="1", host="node3", gpu="5") == 3
    assert value(seen, "train_step", job="run42", rank="0", host="node7", gpu="") == 3


def test_a_file_that_vanishes_is_down(tmp_path: Path) -> None:
    """train_up says of each rank's file whether it is there; its last values stay."""
    file = rank_file(tmp_path / "signals", 0)
    append(file, record(3, t=time.time()))
    seen = node(tmp_path)
    seen.poll()
    before = value(seen, "train_up", rank="0")
    file.unlink()
    seen.poll()

    assert (before, value(seen, "train_up", rank="0"), value(seen, "train_step", rank="0")) == (1, 0, 3)


def test_a_new_start_is_seen_before_its_first_step(tmp_path: Path) -> None:
    """An empty file in the next attempt's folder is a restart whose ranks are there."""
    append(rank_file(tmp_path / "signals", 0), record(9, t=time.time()))
    seen = node(tmp_path)
    seen.poll()
    rank_file(tmp_path / "signals", 0, attempt=1).touch()
    seen.poll()

    assert value(seen, "train_restart_total", rank="0") == 1
    assert value(seen, "train_state", state="resuming") == 1
    assert value(seen, "train_state", state="running") == 0


def test_the_launcher_and_the_kernel_are_heard(tmp_path: Path) -> None:
    """A launcher's exit makes it a restart; a kernel log's XID is counted by card, and the second one too."""
    append(rank_file(tmp_path / "signals", 0), record(9, t=time.time()))
    kernel, events = tmp_path / "kern.log", tmp_path / "events.jsonl"
    xid = b"[ 99.1] NVRM: Xid (PCI:0000:3b:00): 79, pid=7, GPU has fallen off the bus.\n"
    append(kernel, xid)
    seen = node(tmp_path, kernel_log=kernel, events=events)
    seen.xids.indexes = {"3b:00": "5"}
    seen.poll()
    assert "train_gpu_xid" not in NodeCollector(seen).text().decode()

    append(kernel, xid + xid)
    seen.poll()
    assert value(seen, "train_gpu_xid_total", xid="79", gpu="5", pci="0000:3b:00", host="node7") == 2
    assert value(seen, "train_state", state="hardware_fault") == 1

    append(events, json.dumps({"t": time.time(), "what": "exited", "rank": 0}).encode() + b"\n")
    seen.poll()
    assert value(seen, "train_state", state="restarting") == 1


def test_torchtitans_spans_are_metrics(tmp_path: Path) -> None:
    """Its structured logs give spans by name, and the end of a step is a finished step."""
    seen = Node("titan", "node7", Sources([TITAN]))
    seen.poll()

    assert value(seen, "train_span_seconds", rank="0", name="fwd_bwd") > 0
    assert value(seen, "train_step", rank="1") > 0
    assert value(seen, "train_step_time_seconds_p50") > 0


def test_text_and_prometheus_clients_own_say_the_same(tmp_path: Path) -> None:
    """Our rendering parses to what prometheus-client's own of the same collector parses to."""
    nasty = {"loss": "NaN", "lr": math.inf, "my field": 1, "ünï": 2}
    append(rank_file(tmp_path / "signals", 0), record(3, t=time.time(), **nasty))
    seen = Node('a "quoted"\\ job\n', "h", Sources([tmp_path / "signals", TITAN]))
    seen.poll()
    exporter = Exporter(seen)
    ours, theirs = NodeCollector(seen).text().decode(), generate_latest(exporter.registry).decode()
    exporter._server.server_close()

    one, other = samples(ours), samples(theirs)
    assert one.keys() == other.keys()
    assert [str(float(v)) for v in one.values()] == [str(float(other[key])) for key in one]
    assert [*text_string_to_metric_families(ours)] and isinstance(next(NodeCollector(seen).collect()), Metric)


def test_only_known_names_are_emitted(tmp_path: Path) -> None:
    """What rules and panels are checked against is what comes out."""
    append(rank_file(tmp_path / "signals", 0), record(3, t=time.time(), ckpt_duration_s=1, num_ooms=0))
    seen = node(tmp_path)
    seen.poll()
    names = {name for name, _ in samples(NodeCollector(seen).text().decode())}

    assert names <= set(EMITTED)
    assert {"train_num_ooms_total", "train_ckpt_duration_s", "train_up", "train_state"} <= names


def test_the_command_follows_a_growing_run(tmp_path: Path, tag: str) -> None:
    """Started before there is anything; records, garbage and a second start show up in its scrapes."""
    command = (sys.executable, "-m", "harness.cli", "monitor", "export", "--dir", "signals", "--port", "0")
    command = (*command, "--job", "run42", "--interval", "0.05")
    process = subprocess.Popen(
        command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=dict(os.environ)
    )
    assert process.stdout is not None and process.stderr is not None
    said = process.stdout.readline()
    url = re.match(r"http://127\.0\.0\.1:\d+/metrics", said)
    assert url is not None, said

    def scraped() -> str:
        with urllib.request.urlopen(url[0], timeout=5) as answer:
            return str(answer.read().decode())

    append(rank_file(tmp_path / "signals", 3), record(1, 3, t=time.time()) + b"garbage\n")
    until(lambda: 'train_step{job="run42",rank="3"' in scraped())
    until(lambda: "bad_lines_total" in scraped() and "bad_lines_total{" in scraped())
    append(rank_file(tmp_path / "signals", 3, attempt=1), record(2, 3, t=time.time()))
    until(lambda: "} 2" in next(line for line in scraped().splitlines() if line.startswith("train_step{")))
    with pytest.raises(urllib.error.HTTPError, match="404"):
        urllib.request.urlopen(url[0].replace("metrics", "secrets"), timeout=5)
    process.send_signal(signal.SIGTERM)
    _, errors = process.communicate(timeout=10)

    assert process.returncode == 0
    assert "some lines are no records" in errors and "signals: No such file or directory" in errors


def test_what_is_refused_is_said_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A hundred thousand ranks: the first ones are served, the rest is counted, and a person is told once."""
    monkeypatch.setattr(board, "MOST_RANKS", 10)
    file = rank_file(tmp_path / "signals", 0)
    append(file, record(1, 0, t=time.time()))
    seen = node(tmp_path)
    with Exporter(seen, interval_s=0.05):
        append(file, b"".join(record(1, rank, t=time.time()) for rank in range(1, 100_000)))
        until(lambda: seen.refused.get("ranks", 0) >= 99_990, 60)
        append(file, record(2, 200_000, t=time.time()))
        until(lambda: seen.refused["ranks"] > 99_990)
    said = [line for line in capsys.readouterr().err.splitlines() if "too many ranks" in line]

    assert len(said) == 1 and len(list(seen.board.ranks())) == 10


def test_a_port_in_use_is_said(tmp_path: Path) -> None:
    """Exit code 4, the port, and what to do."""
    (tmp_path / "signals").mkdir()
    with (
        Exporter(node(tmp_path)) as first,
        pytest.raises(PrerequisiteError, match=rf"port {first.port} .*is in use.*--port"),
    ):
        Exporter(node(tmp_path), port=first.port)


@pytest.mark.parametrize(
    ("address", "ours"), [("127.0.0.1", 1), ("::1", 1), ("localhost", 1), ("0.0.0.0", 0)]
)
def test_what_is_loopback(address: str, ours: int) -> None:
    """Who else can reach an address is known before it is said."""
    assert is_loopback(address) == bool(ours)
