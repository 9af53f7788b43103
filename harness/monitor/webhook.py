"""A pager's end of the line: takes Alertmanager's notifications over HTTP and notes when they came."""

import json
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

MOST_BYTES = 8 << 20


@dataclass(frozen=True)
class Alert:
    """One alert inside a notification. `started`: when its rule fired, unix seconds."""

    name: str
    firing: bool
    started: float
    labels: Mapping[str, str]
    annotations: Mapping[str, str]


@dataclass(frozen=True)
class Notification:
    """One message. `at`: when it was here as a whole, unix seconds."""

    at: float
    firing: bool
    group: Mapping[str, str]
    alerts: Sequence[Alert]

    @property
    def text(self) -> str:
        """What a pager shows: every firing alert's words, once each; of a resolved message, all."""
        shown = [alert for alert in self.alerts if alert.firing or not self.firing]
        said = [alert.annotations.get("summary", alert.name) for alert in shown]
        said += [alert.annotations.get("situation", "") for alert in shown]
        return "; ".join(dict.fromkeys(part for part in said if part))

    def alert(self, name: str, firing: bool = True) -> Alert | None:
        """The alert of a name in a state, if it is in here."""
        return next((a for a in self.alerts if a.name == name and a.firing is firing), None)


class Webhook:
    """Listens on a free loopback port. Use as a context manager. `answer_after_s`: for a pager that hangs."""

    def __init__(self, answer_after_s: float = 0.0) -> None:
        self.bad = 0
        """Requests that were no notification."""
        self._received: list[Notification] = []
        self._closing = threading.Event()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self, answer_after_s))
        self._server.daemon_threads = True
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(0.05,), name="webhook", daemon=True
        )

    @property
    def url(self) -> str:
        """Where Alertmanager sends."""
        return f"http://127.0.0.1:{self._server.server_address[1]}/page"

    @property
    def received(self) -> Sequence[Notification]:
        """All notifications so far, oldest first."""
        return tuple(self._received)

    def take(self, body: bytes) -> None:
        """Note one request's body; what is no notification is counted."""
        try:
            self._received.append(_read(json.loads(body), time.time()))
        except (ValueError, KeyError, TypeError, RecursionError):
            self.bad += 1

    def hang(self, seconds: float) -> None:
        """Keep a sender waiting."""
        self._closing.wait(seconds)

    def __enter__(self) -> "Webhook":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Stop listening."""
        self._closing.set()
        if self._thread.is_alive():
            self._server.shutdown()
            self._thread.join()
        self._server.server_close()


def _handler(webhook: Webhook, answer_after_s: float) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        timeout = 10.0

        def do_POST(self) -> None:
            size = int(self.headers.get("Content-Length") or 0)
            body = self.rfile.read(min(size, MOST_BYTES))
            if answer_after_s:
                webhook.hang(answer_after_s)
                return
            webhook.take(body)
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: Any) -> None:
            """Notifications are kept, not logged. Any: the base class's signature."""

    return Handler


def _read(said: Mapping[str, Any], at: float) -> Notification:
    """Source: Alertmanager, webhook payload version 4. Any: another program's JSON."""
    alerts = [
        Alert(
            str(a["labels"]["alertname"]),
            a["status"] == "firing",
            _seconds(a["startsAt"]),
            dict(a["labels"]),
            dict(a["annotations"]),
        )
        for a in said["alerts"]
    ]
    return Notification(at, said["status"] == "firing", dict(said["groupLabels"]), alerts)


def _seconds(stamp: str) -> float:
    """RFC 3339 with up to nanoseconds to unix seconds."""
    whole, _, rest = stamp.partition(".")
    if not rest:
        return datetime.fromisoformat(stamp.replace("Z", "+00:00")).timestamp()
    digits = rest.rstrip("Z").partition("+")[0].partition("-")[0]
    zone = rest[len(digits) :].replace("Z", "+00:00")
    return datetime.fromisoformat(f"{whole}{zone}").timestamp() + float(f"0.{digits}")
