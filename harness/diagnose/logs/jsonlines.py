"""Lines that a container runtime or a journal wraps into JSON, unwrapped."""

import json

MESSAGES = ("log", "MESSAGE", "message", "msg")
TIMES = ("time", "timestamp", "ts", "@timestamp", "asctime")
HOSTS = ("_HOSTNAME", "hostname", "host")
EXCEPTIONS = ("exception", "exc_info", "stack_trace", "traceback")


def unwrapped(text: str) -> str:
    """What a line says inside its JSON, its time and host in front; any other line as it is.

    Docker writes ``{"log": ..., "stream": ..., "time": ...}``, journald ``MESSAGE`` and ``_HOSTNAME``,
    loggers ``message`` and perhaps the traceback under a key of its own, of which the last line counts.
    """
    if not text.startswith("{") or not text.rstrip().endswith("}"):
        return text
    try:
        said = json.loads(text)
    except (ValueError, RecursionError):
        return text
    if not isinstance(said, dict):
        return text
    message = next((said[key] for key in MESSAGES if isinstance(said.get(key), str)), None)
    if message is None:
        return text
    raised = next((said[key] for key in EXCEPTIONS if isinstance(said.get(key), str)), "")
    if raised.strip():
        message = raised.strip().splitlines()[-1]
    at = next((said[key] for key in TIMES if isinstance(said.get(key), str)), "")
    host = next((said[key] for key in HOSTS if isinstance(said.get(key), str)), "")
    front = f"{at} " if at[:2].isdigit() else ""
    return f"{front}{host}: {message}" if host else f"{front}{message}"
