"""What broke, one failure a rank: the most specific of its voices speaks."""

from pathlib import Path

import pytest

from harness.diagnose.logs.room import analyse_logs
from harness.model.finding import Finding
from harness.model.kinds import Kind
from tests.diagnose.logs.cases.writing import write

TRACE = "[rank{rank}]: Traceback (most recent call last):\n"


def decide(folder: Path, files: dict[str, str], world: int | None = 4) -> Finding | None:
    return analyse_logs([write({n: t.encode() for n, t in files.items()}, folder)], world).finding


def expect(folder: Path, text: str, world: int | None = 4) -> Finding:
    found = decide(folder, {"job.log": text}, world)
    assert found is not None
    return found


def raised(what: str, rank: int = 2, frame: str = 'File "/job/train.py", line 7, in main') -> str:
    """A traceback of one rank."""
    return f"{TRACE.format(rank=rank)}[rank{rank}]:   {frame}\n[rank{rank}]: {what}\n"


CHECKPOINT = 'File "/job/checkpoint.py", line 7, in save'
DATA = 'File "/x/site-packages/torch/utils/data/dataloader.py", line 7, in __next__'


@pytest.mark.parametrize(
    ("text", "kind", "how"),
    [
        (
            raised("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.50 GiB."),
            Kind.DEVICE_OOM,
            None,
        ),
        (
            raised("RuntimeError: CUDA error: an illegal memory access was encountered"),
            Kind.DEVICE_ASSERT,
            None,
        ),
        (raised("RuntimeError: CUDA error: device-side assert triggered"), Kind.DEVICE_ASSERT, None),
        (raised("RuntimeError: CUDA error: uncorrectable ECC error encountered"), Kind.HARDWARE_FAULT, "ecc"),
        (raised("RuntimeError: CUDA error: unspecified launch failure"), Kind.RANK_EXITED, "exception"),
        (
            raised("RuntimeError: DataLoader worker (pid 9) is killed by signal: Killed. "),
            Kind.HOST_OOM,
            "oom_killed",
        ),
        (
            raised("RuntimeError: DataLoader worker (pid 9) is killed by signal: Bus error. "),
            Kind.HOST_OOM,
            "shared_memory",
        ),
        (
            raised("OSError: [Errno 28] No space left on device", frame=CHECKPOINT),
            Kind.CHECKPOINT_FAILED,
            "exception",
        ),
        (
            raised(
                "RuntimeError: [enforce fail at inline_container.cc:603] . unexpected pos 64 vs 0",
                frame=CHECKPOINT,
            ),
            Kind.CHECKPOINT_FAILED,
            "exception",
        ),
        (raised("OSError: [Errno 5] Input/output error", frame=DATA), Kind.STORAGE_FAILURE, "exception"),
        (raised("ConnectionError: Connection broken", frame=DATA), Kind.STORAGE_FAILURE, "exception"),
        (raised("urllib3.exceptions.MaxRetryError: Max retries exceeded"), Kind.STORAGE_FAILURE, "exception"),
        (raised("PIL.UnidentifiedImageError: cannot identify image file"), Kind.DATA_CORRUPT, "exception"),
        (raised("ValueError: checksum mismatch in shard 7"), Kind.DATA_CORRUPT, "exception"),
        (raised("RuntimeError: found NaN in local grad norm"), Kind.LOSS_NOT_FINITE, "exception"),
        (raised("KeyError: 'loss'"), Kind.SOFTWARE_ERROR, "exception"),
        (raised("ConnectionError: Connection broken"), Kind.SOFTWARE_ERROR, "exception"),
    ],
)
def test_a_failure_by_what_it_says_and_where(text: str, kind: Kind, how: str | None, tmp_path: Path) -> None:
    """Rank 2 is convicted of its own end, of the kind that its words and frames show."""
    found = expect(tmp_path, text)

    assert (found.kind, found.culprits) == (kind, (2,))
    assert how is None or found.where.how == how


def test_the_site_of_a_loader_is_named(tmp_path: Path) -> None:
    """Data was at work."""
    found = expect(tmp_path, raised("RuntimeError: DataLoader worker (pid 9) is killed by signal: Killed. "))

    assert found.where.site == "dataloader"


START = (
    "node-0:{pid}:99 [{r}] NCCL INFO comm 0x7f rank {r} nranks 4 cudaDev {r} busId "
    "{bus}d000 - Init COMPLETE\n"
)
STARTS = "".join(START.format(pid=100 + r, r=r, bus=r + 1) for r in range(4))
KERNEL = "2026-08-08 03:12:43,000 node-0 kernel: "


@pytest.mark.parametrize(
    ("xid", "kind"),
    [
        *((x, Kind.HARDWARE_FAULT) for x in (48, 62, 74, 79, 95, 119)),
        *((x, Kind.DEVICE_ASSERT) for x in (13, 31, 43)),
    ],
)
def test_xids_by_number(xid: int, kind: Kind, tmp_path: Path) -> None:
    """Hardware's, and those that are usually the program's own."""
    found = expect(tmp_path, f"{STARTS}{KERNEL}NVRM: Xid (PCI:0000:3d:00): {xid}, pid=102, words\n")

    assert (found.kind, found.culprits, found.where.how) == (kind, (2,), f"xid_{xid}")


@pytest.mark.parametrize("xid", [45, 63, 64, 92, 94])
def test_xids_that_only_inform_are_no_cause(xid: int, tmp_path: Path) -> None:
    """Clean-up, and rows that are remapped at the next reset, where nothing broke on that card."""
    text = f"{STARTS}{KERNEL}NVRM: Xid (PCI:0000:3d:00): {xid}, pid=102, words\n"

    assert decide(tmp_path, {"job.log": text}) is None


def test_an_xid_classes_a_launch_failure(tmp_path: Path) -> None:
    """Alone it is an exit by exception; with the card's XID it is the card."""
    text = f"{STARTS}{KERNEL}NVRM: Xid (PCI:0000:3d:00): 79, pid=102, GPU has fallen off the bus.\n"

    found = expect(tmp_path, text + raised("RuntimeError: CUDA error: unspecified launch failure"))

    assert (found.kind, found.culprits) == (Kind.HARDWARE_FAULT, (2,))
    assert len(found.evidence) >= 2


def test_an_oom_kill_joins_the_exit_of_its_process(tmp_path: Path) -> None:
    """Signal 9 and the kernel's word are one event, of one rank."""
    labels = "".join(f"[default{r}]:hello\n" for r in range(4))
    text = (
        f"{STARTS}{labels}{KERNEL}Memory cgroup out of memory: Killed process 102 (python) total-vm:1kB\n"
        "2026-08-08 03:12:44,000 failed (exitcode: -9) local_rank: 2 (pid: 102) of binary: "
        "/usr/bin/python3\n"
    )

    found = expect(tmp_path, text)

    assert (found.kind, found.culprits, found.where.how) == (Kind.HOST_OOM, (2,), "oom_killed")


def test_an_oom_kill_of_a_process_that_is_no_rank_convicts_nobody(tmp_path: Path) -> None:
    """Whose it was is not known, at most that memory ran out."""
    text = f"{STARTS}{KERNEL}Out of memory: Killed process 999 (other) total-vm:1kB\n"

    found = decide(tmp_path, {"job.log": text})

    assert found is None or (found.kind, found.culprits, found.suspects) == (Kind.HOST_OOM, (), ())


def test_an_exception_outside_of_a_traceback_is_a_suspicion_at_most(tmp_path: Path) -> None:
    """It may have been handled."""
    found = decide(tmp_path, {"rank_2.log": "ValueError: bad record, skipped\n", "rank_0.log": "hello\n"})

    assert found is None or found.culprits == ()


def test_a_rank_known_by_context_only_is_not_convicted(tmp_path: Path) -> None:
    """A line without a prefix after rank 2's."""
    text = "[rank2]: some words\ntorch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.50 GiB.\n"

    found = expect(tmp_path, text)

    assert (found.kind, found.culprits) == (Kind.DEVICE_OOM, ())


def test_running_out_on_the_card_is_not_running_out_on_the_host(tmp_path: Path) -> None:
    """``OutOfMemoryError`` without a traceback around it is still the card's."""
    found = expect(
        tmp_path, "[rank2]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.50 GiB.\n"
    )

    assert (found.kind, found.culprits) == (Kind.DEVICE_OOM, (2,))


@pytest.mark.parametrize(
    ("text", "fails"),
    [
        ("[rank2]: GET https://store.example/a: retrying 5/5\n", True),
        ("[rank2]: GET https://store.example/a: retrying 1/5\n", False),
        ("[rank2]: GET https://store.example/a: retrying 5/5\n[rank2]: step: 90  loss:  2.1\n", False),
        ("[rank2]: GET https://store.example/a: retrying 1/1\n", False),
        ("[rank2]: Connection reset by peer\n[rank2]: step: 90  loss:  2.1\n", False),
    ],
)
def test_only_retries_that_exhaust_are_failures(text: str, fails: bool, tmp_path: Path) -> None:
    """Those that recover are noise."""
    found = decide(tmp_path, {"job.log": text})

    assert (found is not None and found.kind is Kind.STORAGE_FAILURE) is fails


def test_a_full_disk_that_the_rank_survived_is_no_failure(tmp_path: Path) -> None:
    """It made another step."""
    text = "[rank2]: warning: No space left on device\n[rank2]: step: 90  loss:  2.1\n"

    assert decide(tmp_path, {"job.log": text}) is None


@pytest.mark.parametrize(
    "line",
    [
        "srun: error: Node failure on node-1\n",
        "The node with node id: abc and address: node-1 and node name: node-1 has been marked dead\n",
    ],
)
def test_a_lost_node_has_the_ranks_that_ran_on_it(line: str, tmp_path: Path) -> None:
    """As NCCL's start tells."""
    starts = "".join(
        f"node-{r // 2}:{100 + r}:99 [{r % 2}] NCCL INFO comm 0x7f rank {r} nranks 4 cudaDev "
        f"{r % 2} busId {r}d000 - "
        "Init COMPLETE\n"
        for r in range(4)
    )

    found = expect(tmp_path, starts + line)

    assert (found.kind, found.culprits, found.where.hosts) == (Kind.NODE_LOST, (2, 3), ("node-1",))


def test_who_reports_a_nodes_failure_is_not_the_node(tmp_path: Path) -> None:
    """The step's own node writes the line; which node failed is not said."""
    starts = "".join(START.format(pid=100 + r, r=r, bus=r + 1) for r in range(4))
    line = (
        "slurmstepd: error: *** STEP 1.0 ON node-0 CANCELLED AT 2026-01-01T00:00:00 DUE TO NODE FAILURE ***\n"
    )

    found = expect(tmp_path, starts + line)

    assert (found.kind, found.culprits, found.where.hosts) == (Kind.NODE_LOST, (), ())


@pytest.mark.parametrize(
    "after",
    [
        raised("RuntimeError: CUDA error: unspecified launch failure"),
        "[rank2]: cannot write the dump: No space left on device\n",
    ],
)
def test_what_breaks_after_timeouts_is_what_the_abort_makes(after: str, tmp_path: Path) -> None:
    """A hang is not explained by what its end breaks."""
    timeouts = "".join(
        f"[rank{r}]: [PG ID 0 PG GUID 0(default_pg) Rank {r}] Watchdog caught collective operation timeout: "
        "WorkNCCL(SeqNum=1371, OpType=ALLREDUCE, NumelIn=4, NumelOut=4, Timeout(ms)=600000) ran for 600049 "
        "milliseconds before timing out.\n"
        for r in range(4)
    )

    found = expect(tmp_path, timeouts + after)

    assert (found.kind, found.culprits) == (Kind.FABRIC_STALLED, ())


def test_a_segmentation_fault_is_an_exit_by_signal(tmp_path: Path) -> None:
    """Of the rank that says so."""
    found = expect(tmp_path, "[rank2]: Fatal Python error: Segmentation fault\n")

    assert (found.kind, found.where.signal) == (Kind.RANK_EXITED, "SIGSEGV")


BLOCK = """\
Failures:
[1]:
  time      : 2026-08-08_03:12:50
  host      : node-{node}
  rank      : {other} (local_rank: 1)
  exitcode  : -6 (pid: {node}01)
  traceback : Signal 6 (SIGABRT) received by PID {node}01
Root Cause (first observed failure):
[0]:
  time      : 2026-08-08_03:12:44
  host      : node-{node}
  rank      : {root} (local_rank: 3)
  exitcode  : {code} (pid: {node}03)
  traceback : words
"""


def test_blocks_of_two_agents_in_one_another_convict_nobody_else(tmp_path: Path) -> None:
    """Rank 3 was killed; rank 7's fields stand between."""
    one = BLOCK.format(node=1, other=1, root=3, code=-9).splitlines()
    other = BLOCK.format(node=2, other=5, root=7, code=1).splitlines()
    mixed = "\n".join(line for pair in zip(one, other, strict=True) for line in pair)

    found = decide(tmp_path, {"job.log": mixed}, 8)

    assert found is None or set(found.culprits) <= {3}
