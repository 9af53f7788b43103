"""How lines reach a file: containers, journals, encodings, line ends, sizes."""

import json

from tests.diagnose.logs.wild.lines import NIGHT, at, block, closing, failed, text, timeout, titan, trace
from tests.diagnose.logs.wild.model import Files, Wild

ERROR = ("software_error",)


def _rank1_dies() -> list[str]:
    return [
        *titan(range(1, 30), 0),
        *trace("KeyError: 'labels'", 1, file="/workspace/collate.py"),
        *closing(100, (500, 502, 503)),
        *failed(101, 1, 1, 501),
        *block(101, (1, 1, 1, 501)),
    ]


def _stamp(n: int) -> str:
    return at(n / 10, "%Y-%m-%dT%H:%M:%S.%f") + "456789Z"


def docker_json() -> Files:
    """Docker's json-file driver: every line a JSON object with a log field."""
    rows = [
        json.dumps({"log": f"{row}\n", "stream": "stderr", "time": _stamp(n)})
        for n, row in enumerate(_rank1_dies())
    ]
    return {"3fe1-json.log": text(rows)}


def cri_lines() -> Files:
    """containerd: time, stream, F for a full line."""
    rows = [f"{_stamp(n)} stderr F {row}" for n, row in enumerate(_rank1_dies())]
    return {"train-worker-0.log": text(rows)}


def cri_partial() -> Files:
    """containerd splits long lines: P, P, F."""
    rows: list[str] = []
    for n, row in enumerate(_rank1_dies()):
        pieces = [row[i : i + 40] for i in range(0, len(row), 40)] or [""]
        rows += [
            f"{_stamp(n)} stderr {'F' if i == len(pieces) - 1 else 'P'} {piece}"
            for i, piece in enumerate(pieces)
        ]
    return {"train-worker-0.log": text(rows)}


def journald_short() -> Files:
    """journalctl -u train: month, host, unit and pid in front."""
    rows = [f"Mar 14 02:00:{n % 60:02} gpu-a1 train.sh[4100]: {row}" for n, row in enumerate(_rank1_dies())]
    return {"journal.txt": text(rows)}


def journald_json() -> Files:
    """journalctl -o json: MESSAGE and a time in microseconds."""
    start = int(NIGHT.timestamp() * 1e6)
    rows = [
        json.dumps(
            {
                "__REALTIME_TIMESTAMP": str(start + 100_000 * n),
                "_HOSTNAME": "gpu-a1",
                "_PID": "4100",
                "SYSLOG_IDENTIFIER": "train.sh",
                "MESSAGE": row,
            }
        )
        for n, row in enumerate(_rank1_dies())
    ]
    return {"journal.json": text(rows)}


def kubectl_prefix() -> Files:
    """kubectl logs --prefix --timestamps of two pods into one file: ranks 0-1 and 2-3."""
    rows = [
        f"[pod/train-worker-{n % 2}/pytorch] {_stamp(n)} {row}"
        for n, row in enumerate(titan(range(1, 40), 0))
    ]
    rows += [
        f"[pod/train-worker-1/pytorch] {_stamp(500)} {row}"
        for row in trace("KeyError: 'labels'", 3, file="/workspace/collate.py")
    ]
    return {"all.log": text(rows)}


def windows_ends() -> Files:
    """CR LF line ends throughout."""
    return {"train.log": text(_rank1_dies(), end="\r\n")}


def carriage_returns() -> Files:
    """tqdm's bar rewrites one line for an hour; the timeout stands behind the last carriage return."""
    bar = "".join(f"\r 12%|#2        | {n}/1752 [00:{n % 60:02}<1:22:01,  2.83s/it]" for n in range(20_000))
    rows: list[str] = []
    for rank in (0, 1, 2):
        rows += timeout(rank, 700, 412)
    return {"train.log": bar + text(rows)}


def utf16() -> Files:
    """PowerShell's redirection: UTF-16 with a byte order mark."""
    return {"train.log": text(_rank1_dies(), end="\r\n").encode("utf-16")}


def latin1_and_nul() -> Files:
    """Bytes that are no UTF-8, and a hole of NULs where a node went down while writing."""
    head, tail = text(titan(range(1, 30), 0)).encode(), text(_rank1_dies()).encode()
    return {"train.log": head + "größe = 5 µm\n".encode("latin-1") + b"\0" * 8192 + b"\n" + tail}


def bom() -> Files:
    return {"train.log": b"\xef\xbb\xbf" + text(_rank1_dies()).encode()}


def pasted_numbered() -> Files:
    """A log pasted into a ticket: quoted, with numbers and a code fence."""
    rows = [
        "Hi team, job died, see below",
        "```",
        *(f"> {n:4}: {row}" for n, row in enumerate(_rank1_dies())),
        "```",
        "any idea? rank 7 looked slow yesterday",
    ]
    return {"ticket.txt": text(rows)}


def indented() -> Files:
    """Every line indented by four, as a wiki keeps it."""
    return {"page.txt": text(["    " + row for row in _rank1_dies()])}


def json_logger() -> Files:
    """structlog: one JSON object a line, with the traceback in a field and the rank in another."""
    rows = [
        json.dumps({"event": "step", "step": n, "rank": r, "timestamp": _stamp(30 * n), "level": "info"})
        for n in range(1, 20)
        for r in range(4)
    ]
    rows += [
        json.dumps(
            {
                "event": "uncaught",
                "rank": 2,
                "level": "critical",
                "timestamp": _stamp(700),
                "exception": text(trace("KeyError: 'labels'", file="/workspace/collate.py")),
            }
        )
    ]
    return {"train.jsonl": text(rows)}


def html_escaped() -> Files:
    """Saved from a web console: `&lt;` and tags around."""
    rows = [
        "<html><body><pre>",
        *(row.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;") for row in _rank1_dies()),
        "</pre></body></html>",
    ]
    return {"console.html": text(rows), "console.log": text(rows)}


def one_huge_line() -> Files:
    """A tensor printed in one line of 3 MiB in front of the exception."""
    return {"train.log": text(titan(range(1, 9), 0), "tensor([" + "0.1234, " * 400_000 + "])", _rank1_dies())}


def tail_only() -> Files:
    """tail -c 400 of rank 1's file: the end of a traceback without its beginning."""
    return {"rank1.log": text(_rank1_dies()[29:33])[-120:]}


def empty_and_binary() -> Files:
    """An empty log beside a core file."""
    return {
        "rank0.log": b"",
        "core.1234": bytes(range(256)) * 64,
        "rank1.log": text(trace("KeyError: 'labels'", 1, file="/workspace/collate.py")),
    }


def yaml_in_log() -> Files:
    """The job's config printed with `rank: 3` and `exitcode: 1` as keys."""
    rows = [
        "expected_failures:",
        "  - rank      : 3 (local_rank: 3)",
        "    exitcode  : 1 (pid: 999)",
        *titan(range(1, 60), 0),
        "Training completed",
    ]
    return {"train.log": text(rows)}


INCIDENTS = (
    Wild("docker_json", docker_json, ERROR, culprits=(1,)),
    Wild("cri_lines", cri_lines, ERROR, culprits=(1,)),
    Wild("cri_partial", cri_partial, (*ERROR, "rank_exited"), may_convict=(1,), suspects=(1,)),
    Wild("journald_short", journald_short, ERROR, culprits=(1,)),
    Wild("journald_json", journald_json, ERROR, culprits=(1,)),
    Wild("kubectl_prefix", kubectl_prefix, ERROR, culprits=(3,)),
    Wild("windows_ends", windows_ends, ERROR, culprits=(1,)),
    Wild("carriage_returns", carriage_returns, ("inconclusive",), may_convict=(), world=4, suspects=(3,)),
    Wild("utf16", utf16, ERROR, culprits=(1,)),
    Wild("latin1_and_nul", latin1_and_nul, ERROR, culprits=(1,)),
    Wild("bom", bom, ERROR, culprits=(1,)),
    Wild("pasted_numbered", pasted_numbered, (*ERROR, "rank_exited"), may_convict=(1,), suspects=(1,)),
    Wild("indented", indented, (*ERROR, "rank_exited"), may_convict=(1,), suspects=(1,)),
    Wild("json_logger", json_logger, (*ERROR, "inconclusive"), may_convict=(2,)),
    Wild("html_escaped", html_escaped, (*ERROR, "rank_exited"), may_convict=(1,), suspects=(1,)),
    Wild("one_huge_line", one_huge_line, ERROR, culprits=(1,)),
    Wild("tail_only", tail_only, (*ERROR, "inconclusive"), may_convict=(1,)),
    Wild("empty_and_binary", empty_and_binary, ERROR, culprits=(1,)),
    Wild("yaml_in_log", yaml_in_log, ("healthy", "inconclusive"), calm=True),
)
