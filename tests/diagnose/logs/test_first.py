"""Which of several failures came first: only across clocks that can be compared, else all are suspects."""

from pathlib import Path

import pytest

from harness.diagnose.logs.room import analyse_logs
from harness.model.finding import Finding
from harness.model.kinds import Confidence, Kind
from tests.diagnose.logs.cases.writing import write


def decide(folder: Path, files: dict[str, str], world: int | None = 8) -> Finding:
    found = analyse_logs([write({n: t.encode() for n, t in files.items()}, folder)], world).finding
    assert found is not None
    return found


def raised(rank: int, what: str = "KeyError: 'loss'", stamp: str = "") -> str:
    """A traceback of one rank."""
    return f"{stamp}[rank{rank}]: Traceback (most recent call last):\n{stamp}[rank{rank}]: {what}\n"


def test_one_failure_is_the_first(tmp_path: Path) -> None:
    """Certain: it has its own traceback, and nothing else failed."""
    found = decide(tmp_path, {"job.log": raised(2)})

    assert (found.kind, found.culprits, found.confidence) == (Kind.SOFTWARE_ERROR, (2,), Confidence.CERTAIN)
    assert found.victims == (0, 1, 3, 4, 5, 6, 7)


@pytest.mark.parametrize(("first", "second"), [(2, 5), (5, 2)])
def test_in_one_file_the_earlier_line_is_first(first: int, second: int, tmp_path: Path) -> None:
    """Lines of one file are in order; the later failure is said to be explained."""
    found = decide(tmp_path, {"job.log": raised(first) + raised(second, "ValueError: bad")})

    assert found.culprits == (first,)
    assert [f"rank {second} " in ruled.because for ruled in found.ruled_out] == [True]


def test_files_without_times_leave_both_as_suspects(tmp_path: Path) -> None:
    """The name of a file is no time."""
    found = decide(tmp_path, {"a.log": raised(2), "b.log": raised(5)})

    assert (found.culprits, found.suspects, found.confidence) == ((), (2, 5), Confidence.POSSIBLE)


def on(node: int, rank: int, at: str) -> str:
    hello = f"2026-08-08 03:00:00,000 node-{node}:42:99 [0] NCCL INFO hello\n"
    return hello + raised(rank, stamp=f"2026-08-08 {at},000 ")


def test_times_on_one_host_decide(tmp_path: Path) -> None:
    """The later named file holds the earlier failure."""
    found = decide(tmp_path, {"a.log": on(0, 2, "03:12:40"), "b.log": on(0, 5, "03:12:20")})

    assert found.culprits == (5,)


def test_times_on_two_hosts_do_not_decide(tmp_path: Path) -> None:
    """Unless an event that both saw anchors their clocks."""
    found = decide(tmp_path, {"a.log": on(0, 2, "03:12:40"), "b.log": on(1, 5, "03:12:20")})

    assert (found.culprits, found.suspects) == ((), (2, 5))


def test_equal_times_are_a_tie(tmp_path: Path) -> None:
    """A second's resolution does not order what lies inside it."""
    found = decide(tmp_path, {"a.log": on(0, 2, "03:12:40"), "b.log": on(0, 5, "03:12:40")})

    assert (found.culprits, found.suspects) == ((), (2, 5))


ENTRY = (
    "[{index}]:\n  time      : 2026-08-08_03:12:{second}\n  host      : node-{node}\n"
    "  rank      : {rank} (local_rank: {local})\n  exitcode  : {code} (pid: {pid})\n  error_file: <N/A>\n"
    "  traceback : words\n"
)


def entry(rank: int, second: int, index: int, code: int = -9, node: int = 0) -> str:
    return ENTRY.format(
        index=index, second=second, node=node, rank=rank, local=rank % 4, code=code, pid=100 + rank
    )


def block(others: str, root: str) -> str:
    return f"Failures:\n{others}Root Cause (first observed failure):\n{root}"


def test_the_root_cause_of_a_block_came_first(tmp_path: Path) -> None:
    """Where its time is the earliest, too."""
    text = block(entry(1, 50, 1, code=-11), entry(3, 44, 0, code=-11))

    assert decide(tmp_path, {"job.log": text}).culprits == (3,)


def test_equal_times_in_a_block_are_a_tie(tmp_path: Path) -> None:
    """The agent polls: whom it lists as the root is then chance."""
    text = block(entry(1, 44, 1, code=-11), entry(3, 44, 0, code=-11))

    found = decide(tmp_path, {"job.log": text})

    assert (found.culprits, found.suspects) == ((), (1, 3))


def test_the_root_causes_of_two_agents_are_compared(tmp_path: Path) -> None:
    """Each agent prints its own block: two roots on two hosts are suspects."""
    one = block(entry(1, 50, 1, code=-11), entry(3, 44, 0, code=-11))
    other = block(entry(5, 50, 1, code=-11, node=1), entry(7, 46, 0, code=-11, node=1))

    found = decide(tmp_path, {"node-0.log": one, "node-1.log": other})

    assert found.culprits == ()
    assert {3, 7} <= set(found.suspects)


def test_hardware_explains_what_cannot_be_ordered(tmp_path: Path) -> None:
    """A card that fell off the bus outranks another's exception in a file of its own."""
    found = decide(
        tmp_path,
        {
            "a.log": raised(2),
            "b.log": raised(5, "RuntimeError: CUDA error: uncorrectable ECC error encountered"),
        },
    )

    assert (found.kind, found.culprits) == (Kind.HARDWARE_FAULT, (5,))


def test_what_all_ranks_do_alike_is_nobodys(tmp_path: Path) -> None:
    """A broken configuration fails everywhere at once."""
    files = {f"rank_{r}.log": raised(r, "FileNotFoundError: /data/index.json") for r in range(8)}

    found = decide(tmp_path, files)

    assert (found.kind, found.culprits, found.suspects) == (Kind.SOFTWARE_ERROR, (), ())
    assert "ranks 0-7 all failed alike" in found.summary


@pytest.mark.parametrize("closed", [True, False])
def test_an_exit_code_alone_is_a_suspicion(closed: bool, tmp_path: Path) -> None:
    """Why it ended nobody says, whether or not the others still lived."""
    labels = "".join(f"[default{r}]:hello\n" for r in range(8))
    exit_ = "failed (exitcode: 1) local_rank: 3 (pid: 103) of binary: /usr/bin/python3\n"
    closing = "".join(f"Sending process {100 + r} closing signal SIGTERM\n" for r in range(8) if r != 3)

    found = decide(tmp_path, {"job.log": labels + (closing if closed else "") + exit_})

    assert (found.kind, found.culprits, found.suspects) == (Kind.RANK_EXITED, (), (3,))


@pytest.mark.parametrize(("closed", "culprits"), [(True, (3,)), (False, ())])
def test_a_kill_convicts_where_others_still_lived(
    closed: bool, culprits: tuple[int, ...], tmp_path: Path
) -> None:
    """Of ranks that died together a launcher names one, by chance."""
    labels = "".join(f"[default{r}]:hello\n" for r in range(8))
    exit_ = "failed (exitcode: -9) local_rank: 3 (pid: 103) of binary: /usr/bin/python3\n"
    closing = "".join(f"Sending process {100 + r} closing signal SIGTERM\n" for r in range(8) if r != 3)

    found = decide(tmp_path, {"job.log": labels + (closing if closed else "") + exit_})

    assert (found.kind, found.where.signal) == (Kind.RANK_EXITED, "SIGKILL")
    assert found.culprits == culprits


def test_one_oom_without_a_time_above_the_fallout(tmp_path: Path) -> None:
    """It was said once, has no time, and everybody else speaks much louder after it."""
    oom = raised(2, "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.50 GiB.")
    lost = "".join(
        raised(
            r,
            "torch.distributed.DistBackendError: NCCL error: remote process exited",
            "2026-08-08 03:12:40,000 ",
        )
        for r in range(8)
        if r != 2
    )
    noise = "".join(
        f"2026-08-08 03:12:40,000 [rank{i % 8}]: sendBytes failed on SocketImpl(fd={i}): Broken pipe\n"
        for i in range(3000)
    )

    found = decide(tmp_path, {"job.log": oom + lost + noise})

    assert (found.kind, found.culprits) == (Kind.DEVICE_OOM, (2,))


def test_a_conviction_cites_its_lines(tmp_path: Path) -> None:
    """The line of the exception, by file and number."""
    found = decide(tmp_path, {"job.log": "hello\n" + raised(2)})

    assert [(c.file, c.line, c.rank) for c in found.evidence] == [("job.log", 3, 2)]
