"""The metrics of one exporter: as prometheus-client's families, and as text that a thousand ranks can afford.

Rendering 1024 ranks of 20 fields takes prometheus-client 0.35 s, since it escapes every label of every sample
again. Ours escapes a rank's labels once; a test parses both and compares.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from harness.monitor.names import (
    BAD_LINES,
    CLOCK_JUMPS,
    PROBLEMS,
    READ_AT,
    REFUSED,
    SPAN,
    STATE,
    STEP_TIME_P50,
    TASK_GONE,
    XID_AT,
    XID_TOTAL,
    MetricName,
)
from harness.monitor.node import Node
from harness.monitor.states import State

Labels = dict[str, str]


@dataclass(frozen=True)
class Family:
    """One metric with its samples: labels, their text, value."""

    metric: MetricName
    samples: list[tuple[Labels, str, float]]


class NodeCollector(Collector):
    """What one node's exporter has to say. Take `node.lock` around each use."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._rank_labels: dict[int, tuple[Labels, str]] = {}
        self._places_seen = -1

    def collect(self) -> Iterator[Metric]:
        """prometheus-client's interface."""
        for family in self.families():
            name = family.metric.name
            # prometheus-client appends _total to the names of counters.
            metric = Metric(name.removesuffix("_total"), family.metric.help, family.metric.kind)
            for labels, _, value in family.samples:
                metric.add_sample(name, labels, value)
            yield metric

    def text(self) -> bytes:
        """The text format that Prometheus scrapes, version 0.0.4."""
        return render(self.families())

    def families(self) -> Iterator[Family]:
        """All metrics that have samples."""
        board = self._node.board
        for name, table in board.values.items():
            if table:
                yield Family(board.metrics[name], [(*self._of(rank), value) for rank, value in table.items()])
        spans = [
            self._span(rank, name, value)
            for name, table in board.spans.items()
            for rank, value in table.items()
        ]
        if spans:
            yield Family(SPAN, spans)
        yield from self._of_job()

    def _of_job(self) -> Iterator[Family]:
        node = self._node
        job = {"job": node.job, "host": node.host}
        p50 = node.board.step_time_p50()
        if p50 is not None:
            yield _family(STEP_TIME_P50, [(job, p50)])
        if node.seen:
            state = node.state.state
            yield _family(STATE, [({**job, "state": s.value}, float(s is state)) for s in State])
            yield _family(TASK_GONE, [(job, float(node.state.gone))])
        xids = node.xids
        cards = [({**job, "gpu": c.gpu, "pci": c.pci, "xid": c.xid}, c) for c in xids.counts]
        if cards:
            yield _family(XID_AT, [(labels, xids.newest[card]) for labels, card in cards])
            yield _family(XID_TOTAL, [(labels, float(xids.counts[card])) for labels, card in cards])
        yield _family(READ_AT, [(job, node.read_at)])
        yield _family(BAD_LINES, [(job, float(node.bad_lines))])
        yield _family(CLOCK_JUMPS, [(job, float(node.board.clock_jumps))])
        yield _family(PROBLEMS, [(job, float(len(node.problems)))])
        refused = [({**job, "what": what}, float(n)) for what, n in node.refused.items()]
        if refused:
            yield _family(REFUSED, refused)

    def _span(self, rank: int, name: str, value: float) -> tuple[Labels, str, float]:
        labels, text = self._of(rank)
        return {**labels, "name": name}, f'{text},name="{_escape(name)}"', value

    def _of(self, rank: int) -> tuple[Labels, str]:
        if self._places_seen != self._node.places_version:
            self._places_seen = self._node.places_version
            self._rank_labels.clear()
        found = self._rank_labels.get(rank)
        if found is None:
            place = self._node.place(rank)
            labels = {"job": self._node.job, "rank": str(rank), "host": place.host, "gpu": place.gpu}
            found = self._rank_labels[rank] = labels, _text(labels)
        return found


def render(families: Iterable[Family]) -> bytes:
    """The text format of some families."""
    lines: list[str] = []
    for family in families:
        metric = family.metric
        lines.append(f"# HELP {metric.name} {metric.help}\n# TYPE {metric.name} {metric.kind}")
        name = metric.name
        lines.extend(f"{name}{{{text}}} {_number(value)}" for _, text, value in family.samples)
    lines.append("")
    return "\n".join(lines).encode()


def _family(metric: MetricName, samples: Iterable[tuple[Labels, float]]) -> Family:
    return Family(metric, [(labels, _text(labels), value) for labels, value in samples])


def _number(value: float) -> str:
    # repr is what Go parses; only the words for what is not finite differ.
    if value != value:
        return "NaN"
    return repr(value) if -1e300 < value < 1e300 else "+Inf" if value > 0 else "-Inf"


def _text(labels: Labels) -> str:
    return ",".join(f'{name}="{_escape(value)}"' for name, value in labels.items())


def _escape(value: str) -> str:
    return value.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")
