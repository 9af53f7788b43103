"""`drill monitor export | rules | panels`."""

import os
import platform
import signal
import threading
from pathlib import Path

import click

_FOLDER = click.Path(path_type=Path, file_okay=False)
_FILE = click.Path(path_type=Path, dir_okay=False)


@click.group("monitor")
def command() -> None:
    """Metrics, alert rules and panels of a training job."""


_thresholds = click.option(
    "--threshold",
    "settings",
    multiple=True,
    metavar="NAME=VALUE",
    help="hang_s=60, restarts=5, ... Repeatable.",
)


@command.command("export")
@click.option(
    "--dir",
    "folders",
    multiple=True,
    required=True,
    type=_FOLDER,
    metavar="DIR",
    help="Step records: RUN/signals, or torchtitan's structured_logs. Repeatable.",
)
@click.option("--port", type=click.IntRange(0, 65535), default=9400, show_default=True, help="0: a free one.")
@click.option(
    "--listen",
    "address",
    default="127.0.0.1",
    show_default=True,
    metavar="ADDRESS",
    help="0.0.0.0 lets a Prometheus on another machine scrape.",
)
@click.option("--job", metavar="NAME", help="Label of every metric. [TRAIN_JOB, or the run's folder]")
@click.option("--host", metavar="NAME", help="Label of ranks whose host nobody wrote down. [this machine]")
@click.option(
    "--events",
    type=_FILE,
    metavar="FILE",
    help="What the launcher does, a JSON object a line. [events.jsonl beside the first DIR]",
)
@click.option("--kernel-log", type=_FILE, metavar="FILE", help="A kernel log that grows, for XIDs.")
@click.option(
    "--ranks", type=_FILE, metavar="FILE", help="Where ranks are. [ranks.json beside the first DIR]"
)
@click.option(
    "--interval",
    "interval_s",
    type=click.FloatRange(min=0.05),
    default=0.5,
    show_default=True,
    metavar="S",
    help="How often the files are read.",
)
@_thresholds
def export(
    folders: tuple[Path, ...],
    port: int,
    address: str,
    job: str | None,
    host: str | None,
    events: Path | None,
    kernel_log: Path | None,
    ranks: Path | None,
    interval_s: float,
    settings: tuple[str, ...],
) -> None:
    """Serve the newest step records of all ranks on this node as Prometheus metrics; one exporter a node.

    Exit code 4: the port is in use. Ctrl-C ends it.
    """
    from harness.diagnose.signals.thresholds import ALERTS
    from harness.monitor.export import Exporter, is_loopback
    from harness.monitor.node import Node, Sources
    from harness.monitor.xids import Xids
    from harness.observe.gpus import gpu_indexes

    run = folders[0].resolve().parent
    sources = Sources(
        folders,
        events or run / "events.jsonl",
        kernel_log,
        ranks or run / "ranks.json",
        run / "live",
    )
    name = job or os.environ.get("TRAIN_JOB") or run.name
    node = Node(name, host or platform.node(), sources, ALERTS.with_values(settings), Xids(gpu_indexes()))
    with Exporter(node, address, port, interval_s) as exporter:
        shown = f"[{address}]" if ":" in address else address
        click.echo(
            f"http://{shown}:{exporter.port}/metrics  job {name}, {sum(1 for _ in node.board.ranks())} ranks"
        )
        if not is_loopback(address):
            click.echo("anybody who reaches this machine can read it", err=True)
        _wait_for_signal()


@command.command("rules")
@click.option("--out", type=_FOLDER, required=True, metavar="DIR", help="Where the files go.")
@_thresholds
@click.option("--runbook", default="docs/runbook.md", show_default=True, help="Where pages link to.")
@click.option(
    "--exporter", "exporters", multiple=True, metavar="HOST:PORT", help="[127.0.0.1:9400] Repeatable."
)
@click.option(
    "--dcgm", multiple=True, metavar="HOST:PORT", help="dcgm-exporters, for the rules of the cards."
)
@click.option("--alertmanager", default="http://127.0.0.1:9093", show_default=True, metavar="URL")
@click.option(
    "--pager",
    default="http://127.0.0.1:9095/page",
    show_default=True,
    metavar="URL",
    help="Webhook that pages go to.",
)
@click.option("--notes", metavar="URL", help="Webhook for what wakes nobody. [nowhere]")
def rules(
    out: Path,
    settings: tuple[str, ...],
    runbook: str,
    exporters: tuple[str, ...],
    dcgm: tuple[str, ...],
    alertmanager: str,
    pager: str,
    notes: str | None,
) -> None:
    """Write alert rules, their unit tests, and configurations of Prometheus and Alertmanager."""
    from harness.diagnose.signals.thresholds import ALERTS
    from harness.monitor.rule_files import Notifying, Scraping, write_files

    written = write_files(
        out,
        ALERTS.with_values(settings),
        Scraping(exporters or ("127.0.0.1:9400",), dcgm, (alertmanager,)),
        Notifying(pager, notes),
        runbook,
    )
    for path in written:
        click.echo(str(path))
    click.echo(f"check   promtool test rules {out / 'drill-rules.test.yml'}")


def _wait_for_signal() -> None:
    stop = threading.Event()
    for signum in (signal.SIGTERM, signal.SIGINT):
        signal.signal(signum, lambda *_: stop.set())
    while not stop.wait(1.0):
        pass


@command.command("panels")
@click.option("--out", type=_FILE, metavar="FILE", help="Write a Grafana dashboard, to be imported.")
@click.option("--html", "page", type=_FILE, metavar="FILE", help="Write one page of heat maps, rank by step.")
@click.option(
    "--dir",
    "folders",
    multiple=True,
    type=_FOLDER,
    metavar="DIR",
    help="Step records for --html. Repeatable.",
)
def panels(out: Path | None, page: Path | None, folders: tuple[Path, ...]) -> None:
    """Write a Grafana dashboard of the exporter's metrics, or a page from step records alone.

    Exit code 4: no step records under DIR.
    """
    from harness.bundle.codec import write_atomically
    from harness.model.errors import PrerequisiteError, UsageError

    if out is None and page is None:
        raise UsageError("say what to write: --out FILE (Grafana), or --html FILE --dir DIR")
    if page is not None and not folders:
        raise UsageError("--html needs --dir DIR, for instance RUN/signals")
    documents: list[tuple[Path, str]] = []
    if out is not None:
        from harness.monitor.panels import dashboard

        documents.append((out, dashboard()))
    if page is not None:
        from harness.monitor import heatmap

        documents.append((page, heatmap.page(str(folders[0]), heatmap.read_maps(folders))))
    for path, text in documents:
        try:
            write_atomically(path, text.encode())
        except OSError as error:
            raise PrerequisiteError(f"{path}: {error.strerror}: give another file") from None
        click.echo(str(path))
