"""The exporter as a process: a thread that reads, a server that answers scrapes."""

import errno
import ipaddress
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from prometheus_client import CollectorRegistry

from harness.model.errors import PrerequisiteError
from harness.monitor.collector import NodeCollector
from harness.monitor.node import Node

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
SLOW_CLIENT_S = 10.0
MOST_SAID = 100


class Exporter:
    """Serves one node's metrics on ``http://ADDRESS:PORT/metrics``. Use as a context manager.

    Raises:
        PrerequisiteError: the port is in use or the address is not this machine's.
    """

    def __init__(
        self, node: Node, address: str = "127.0.0.1", port: int = 0, interval_s: float = 0.5
    ) -> None:
        self.node = node
        self._interval_s = interval_s
        self._stop = threading.Event()
        self._said: set[str] = set()
        collector = NodeCollector(node)
        self.registry = CollectorRegistry()
        """For whoever serves metrics of their own: prometheus-client's registry with this node in it."""
        self.registry.register(collector)
        try:
            self._server = _Server((address, port), _handler(node, collector))
        except OSError as error:
            raise PrerequisiteError(_why(address, port, error)) from None
        self.port: int = self._server.server_address[1]
        self._threads = (
            threading.Thread(target=self._read, name="exporter-reads", daemon=True),
            threading.Thread(
                target=self._server.serve_forever, args=(0.1,), name="exporter-serves", daemon=True
            ),
        )

    def __enter__(self) -> "Exporter":
        self.node.poll()
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._server.shutdown()
        for thread in self._threads:
            thread.join(2 * SLOW_CLIENT_S)
        self._server.server_close()

    def _read(self) -> None:
        while not self._stop.is_set():
            begun = time.monotonic()
            try:
                self.node.poll()
            except (
                Exception
            ) as error:  # a bug of ours: metrics grow old, and the rule for that wakes somebody
                self._say(f"internal error: {type(error).__name__}: {error}")
            self._say_once()
            self._stop.wait(max(self._interval_s / 2, self._interval_s - (time.monotonic() - begun)))

    def _say_once(self) -> None:
        """What a person should know, once: metrics say it again at every scrape."""
        node = self.node
        news = [f"{path}: {why}" for path, why in node.problems.items()]
        news += [f"too many {what}: no more are taken" for what in node.refused]
        if node.bad_lines:
            news.append("some lines are no records; they are passed over")
        if node.board.clock_jumps:
            news.append("some records' own time is far from when they arrived; their arrival counts")
        for line in news:
            self._say(line)

    def _say(self, line: str) -> None:
        if line not in self._said and len(self._said) < MOST_SAID:
            self._said.add(line)
            print(f"drill monitor export: {line}", file=sys.stderr, flush=True)


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    # A port that another exporter serves must not be taken a second time.
    allow_reuse_port = False


def _handler(node: Node, collector: NodeCollector) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        timeout = SLOW_CLIENT_S

        def do_GET(self) -> None:
            path = self.path.partition("?")[0]
            if path == "/metrics":
                with node.lock:
                    body = collector.text()
                self._answer(200, CONTENT_TYPE, body)
            elif path == "/":
                self._answer(200, "text/html", b'<a href="/metrics">metrics</a>\n')
            else:
                self._answer(404, "text/plain", b"there is /metrics\n")

        def _answer(self, code: int, kind: str, body: bytes) -> None:
            self.send_response(code)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:
            """A line a scrape would be a flood. Any: the base class's signature."""

    return Handler


def _why(address: str, port: int, error: OSError) -> str:
    if error.errno == errno.EADDRINUSE:
        return f"port {port} of {address} is in use: give another with --port, or --port 0 for a free one"
    if error.errno == errno.EACCES:
        return f"port {port} of {address}: ports under 1024 are root's: give another with --port"
    return f"{address}:{port}: {error.strerror}: is that an address of this machine?"


def is_loopback(address: str) -> bool:
    """Whether nobody outside this machine can reach an address."""
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return address == "localhost"
