"""What people and tools put around or into a whole log: quotations, numbers, pages, holes, objects."""

import html
import json

from tests.diagnose.logs.wild.lines import (
    at,
    block,
    closing,
    failed,
    megatron,
    text,
    titan,
    trace,
)
from tests.diagnose.logs.wild.model import Files, Wild

OOM = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.50 GiB."
KEY = "KeyError: 'labels'"
COLLATE = "/workspace/collate.py"


def hole_glued() -> Files:
    """The text goes on right behind a hole, which is larger than any buffer."""
    rows = text(titan(range(1, 40), 0)).encode()
    return {"train.log": rows + b"\0" * (700 << 10) + text(trace(OOM, 3)).encode()}


def hole_in_a_line() -> Files:
    """A hole tears two lines, and the second half is another rank's."""
    rows = text(titan(range(1, 60), 0)).encode()
    torn = rows[: len(rows) - 70] + b"\0" * 20_000
    return {"train.log": torn + text(trace(KEY, 2, file=COLLATE)).encode()}


def mail_quoted_twice() -> Files:
    """A forwarded mail: the log of srun with labels, quoted twice, under a few words."""
    rows = [f"{r}: {row}" for r in range(4) for row in titan(range(1, 9), 0)]
    rows += [f"3: {row}" for row in trace(OOM, 3)]
    return {"mail.txt": text(["Forwarded:", "> On Friday they wrote:", *(f">> {row}" for row in rows)])}


def megatron_marks() -> Files:
    """Megatron begins some lines of its own with such a mark: they are no quotation."""
    rows = ["> initializing torch distributed ...", "> initialized tensor model parallel with size 2"]
    return {"train.log": text(rows, megatron(range(1, 20), 0), trace(OOM, 1))}


def grep_numbered() -> Files:
    """grep -n of one file: numbers without a blank, with gaps, before a time of day."""
    rows = [f"{at(n, '%H:%M:%S')} INFO step={n} loss=2.1" for n in range(1, 60)]
    rows += [f"{at(61, '%H:%M:%S')} {row}" for row in trace(KEY, 5, file=COLLATE)]
    return {"grep.txt": text([f"{100 + 7 * n}:{row}" for n, row in enumerate(rows)])}


def cat_numbered() -> Files:
    """cat -n: right-aligned numbers and a tab."""
    rows = [*titan(range(1, 40), 0), *trace(OOM, 2)]
    return {"numbered.txt": text([f"{n:6}\t{row}" for n, row in enumerate(rows, 1)])}


def labels_rise() -> Files:
    """srun's labels rise at first, too: they are no numbers of lines, and say who speaks."""
    rows = [f"{r}: ready" for r in range(24)] + [f"{r}: [rank{r}]: step=1 loss=2" for r in range(24)]
    return {"srun.out": text(rows, [f"17: {row}" for row in trace(OOM, 17)])}


def jenkins_page() -> Files:
    """A build server's page: times in tags of their own, mpirun's labels escaped."""
    rows = [f"[1,{r}]<stdout>:step={n} loss=2.1" for n in range(1, 20) for r in range(4)]
    rows += [f"[1,2]<stderr>:{row}" for row in trace(KEY, file=COLLATE)]
    shown = [
        f'<span class="timestamp"><b>{at(n, "%H:%M:%S")}</b> </span>{html.escape(row)}'
        for n, row in enumerate(rows)
    ]
    head = ["<!DOCTYPE html>", '<html class=""><head><title>train #88 Console</title></head><body>']
    return {"console.txt": text(head, '<pre class="console-output">', shown, "</pre></body></html>")}


def innards_copied() -> Files:
    """Only the element that holds the log was copied from a page."""
    rows = [html.escape(row) for row in (*titan(range(1, 30), 0), *trace(OOM, 3))]
    return {"copied.txt": text(["<pre><code>" + rows[0], *rows[1:], "</code></pre>"])}


def loguru_json() -> Files:
    """loguru: the text as it was printed, traceback and all, and the rank among what was bound."""

    def row(rank: int, n: int, said: str) -> str:
        when = at(n)
        record = {"extra": {"rank": rank}, "level": {"name": "INFO", "no": 20}, "time": {"repr": when}}
        return json.dumps({"text": f"{when} | INFO | train:main:88 - {said}\n", "record": record})

    rows = [row(rank, 30 * n, "ready") for n in range(8) for rank in range(4)]
    return {"train.log": text(rows, row(3, 700, "uncaught\n" + text(trace(OOM))))}


def exc_info_json() -> Files:
    """python-json-logger on several hosts, with global and local ranks."""
    rows = [
        {
            "asctime": at(30 * n),
            "message": "ready",
            "rank": r,
            "local_rank": r % 4,
            "hostname": f"gpu-a{r // 4}",
        }
        for n in range(8)
        for r in range(8)
    ]
    raised = {"message": "uncaught exception", "exc_info": "\n".join(trace(KEY, file=COLLATE))}
    rows.append({"asctime": at(700), "rank": 6, "local_rank": 2, "hostname": "gpu-a1", **raised})
    return {"all.jsonl": text([json.dumps(row) for row in rows])}


def json_rank_is_local() -> Files:
    """Two nodes whose loggers call the local rank `rank`: rank 2 of node 1 is rank 6."""
    files: Files = {}
    for node in range(2):
        rows = [{"event": "ready", "level": "info", "rank": r, "timestamp": at(r)} for r in range(4)]
        if node == 1:
            raised = "\n".join(trace(KEY, file=COLLATE))
            rows.append({"event": "uncaught", "level": "error", "rank": 2, "exception": raised})
        files[f"worker-{node}.jsonl"] = text([json.dumps(row) for row in rows])
    return files


def _fingerprint(op: str, dtype: str) -> str:
    return (
        f"CollectiveFingerPrint(SequenceNumber=17, OpType={op}, TensorShape=[4096], TensorDtypes={dtype}, "
        "TensorDeviceTypes=TensorOptions(dtype=float (default), device=cuda))"
    )


def _compared(odd: int, members: tuple[int, ...]) -> Files:
    files: Files = {}
    for inside, rank in enumerate(members):
        other = odd if inside != odd else 0
        mine, its = (_fingerprint("ALLREDUCE", "Half" if who == odd else "Float") for who in (inside, other))
        said = (
            "RuntimeError: Detected mismatch between collectives on ranks. "
            f"Rank {inside} is running collective: {mine}, but Rank {other} is running collective: {its}."
        )
        files[f"rank{rank}.log"] = text(titan(range(1, 9), 0), trace(said, rank))
    return files


def detail_strided() -> Files:
    """The group of odd ranks of eight; its rank 3, global rank 7, has another type."""
    quiet: Files = {f"rank{r}.log": text(titan(range(1, 9), 0)) for r in (0, 2, 4, 6)}
    return {**quiet, **_compared(3, (1, 3, 5, 7))}


def detail_member_silent() -> Files:
    """The odd one's own log is missing: which global rank it is, nobody says."""
    files = _compared(2, (4, 5, 6, 7))
    del files["rank6.log"]
    return files


def segv_of_eight() -> Files:
    """One agent closes seven processes, more than are kept of lines that are alike."""
    others = tuple(500 + r for r in range(8) if r != 5)
    return {
        "log": text(
            titan(range(1, 9), 0), closing(40, others), failed(41, -11, 5, 505), block(40, (5, 5, -11, 505))
        )
    }


def two_ends_of_one_agent() -> Files:
    """An agent's membership changes, and much later its new processes die: they are not added to the old."""
    rows = [
        *titan(range(1, 60), 0),
        *closing(200, (500, 501, 502, 503)),
        *titan(range(60, 160), 300),
        *closing(900, (600, 601, 603)),
        *failed(901, -11, 2, 602),
        *block(901, (2, 2, -11, 602)),
    ]
    return {"log": text(rows)}


def srun_tasks_one_by_one() -> Files:
    """srun ends each rank by its own line, as a preemption takes them."""
    rows = [
        *megatron(range(1, 20), 0),
        f"slurmstepd: error: *** STEP 9.0 ON n1 CANCELLED AT {at(200, '%Y-%m-%dT%H:%M:%S')} "
        "DUE TO PREEMPTION ***",
        *(f"srun: error: n{1 + r // 3}: task {r}: Terminated" for r in range(6)),
    ]
    return {"slurm-9.out": text(rows)}


def srun_agents() -> Files:
    """srun starts an agent a node: its two tasks are no ranks, of which there are sixteen."""
    rows = [f"[rank{r}]: step=1 loss=2.1" for r in range(16)]
    rows += [
        f"slurmstepd: error: *** STEP 9.0 ON n1 CANCELLED AT {at(200, '%Y-%m-%dT%H:%M:%S')} "
        "DUE TO PREEMPTION ***",
        "srun: error: n1: task 0: Terminated",
        "srun: error: n2: task 1: Terminated",
    ]
    return {"slurm-9.out": text(rows)}


ERROR = ("software_error",)
INCIDENTS = (
    Wild("hole_glued", hole_glued, ("device_oom",), culprits=(3,)),
    Wild("hole_in_a_line", hole_in_a_line, ERROR, culprits=(2,)),
    Wild("mail_quoted_twice", mail_quoted_twice, ("device_oom",), culprits=(3,)),
    Wild("megatron_marks", megatron_marks, ("device_oom",), culprits=(1,)),
    Wild("grep_numbered", grep_numbered, ERROR, culprits=(5,)),
    Wild("cat_numbered", cat_numbered, ("device_oom",), culprits=(2,)),
    Wild("labels_rise", labels_rise, ("device_oom",), culprits=(17,)),
    Wild("jenkins_page", jenkins_page, ERROR, culprits=(2,)),
    Wild("innards_copied", innards_copied, ("device_oom",), culprits=(3,)),
    Wild("loguru_json", loguru_json, ("device_oom",), culprits=(3,)),
    Wild("exc_info_json", exc_info_json, ERROR, culprits=(6,)),
    Wild("json_rank_is_local", json_rank_is_local, (*ERROR, "inconclusive"), never=(2,)),
    Wild(
        "detail_strided",
        detail_strided,
        ("collective_dtype_mismatch",),
        culprits=(7,),
        world=8,
        said=("[4096] Half", "[4096] Float"),
    ),
    Wild(
        "detail_member_silent",
        detail_member_silent,
        ("collective_dtype_mismatch", "inconclusive"),
        may_convict=(6,),
        never=(2,),
        world=8,
    ),
    Wild("segv_of_eight", segv_of_eight, ("rank_exited",), culprits=(5,)),
    Wild("two_ends_of_one_agent", two_ends_of_one_agent, ("rank_exited",), culprits=(2,)),
    Wild("srun_tasks_one_by_one", srun_tasks_one_by_one, ("external_stop",), calm=True),
    Wild("srun_agents", srun_agents, ("external_stop",), calm=True),
)
