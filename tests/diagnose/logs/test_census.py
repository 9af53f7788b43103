"""Which global rank a speaker is: only where something ties a local rank, task, process or card to it."""

import json
from pathlib import Path

import pytest

from harness.diagnose.logs.census import Census, short_bus
from harness.diagnose.logs.event import Event, RankFrom
from harness.diagnose.logs.room import analyse_logs
from harness.diagnose.logs.story import Story
from tests.diagnose.logs.cases.writing import write

OOM = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.50 GiB."
EXIT = "failed (exitcode: -9) local_rank: {local} (pid: {pid}) of binary: /usr/bin/python3"


def story(folder: Path, files: dict[str, str], world: int | None = None) -> Story:
    """What all files say, with ranks placed."""
    told = analyse_logs([write({n: t.encode() for n, t in files.items()}, folder)], world).story
    assert told is not None
    return told


def the(told: Story, what: str) -> Event:
    (event,) = told.of(what)
    return event


def test_every_line_counts_for_who_was_heard(tmp_path: Path) -> None:
    """A rank that says nothing of interest was there."""
    told = story(tmp_path, {"job.log": "".join(f"[rank{r}]: hello\n" for r in range(3))}, 4)

    assert set(told.census.heard) == {0, 1, 2}
    assert told.census.silent == (3,)


def test_without_a_stated_size_nobody_is_missed(tmp_path: Path) -> None:
    """Only the ranks that speak are known."""
    told = story(tmp_path, {"job.log": "[rank0]: hello\n[rank2]: hello\n"})

    assert (told.census.silent, told.census.size) == ((), 3)


def test_a_rank_beyond_the_stated_world_is_none(tmp_path: Path) -> None:
    """It is garbage, or another job's."""
    text = f"using world size: 4, data-parallel size: 2\n[rank0]: hello\n[rank9]: {OOM}\n"

    told = story(tmp_path, {"job.log": text})

    assert the(told, "device_oom").rank is None
    assert 9 not in told.census.heard


def test_one_agent_with_all_ranks_counts_as_they_do(tmp_path: Path) -> None:
    """Its local ranks are the global ones."""
    told = story(tmp_path, {"job.log": f"[default0]:hello\n[default3]:{OOM}\n"}, 4)

    event = the(told, "device_oom")
    assert (event.rank, event.rank_from) == (3, RankFrom.FILE)


def test_a_rank_beyond_the_local_range_shows_another_agent(tmp_path: Path) -> None:
    """Then local rank 3 may be anybody's."""
    told = story(tmp_path, {"job.log": f"[rank12]: hello\n[default3]:{OOM}\n"})

    assert the(told, "device_oom").rank is None


def test_a_world_beyond_the_local_range_shows_other_agents(tmp_path: Path) -> None:
    """Sixteen ranks, and labels up to 7 only."""
    lines = "".join(f"[default{r}]:hello\n" for r in range(8))

    told = story(tmp_path, {"job.log": f"{lines}[default3]:{OOM}\n"}, 16)

    assert the(told, "device_oom").rank is None
    assert told.census.unplaced


def test_lines_with_both_labels_tell_the_shift(tmp_path: Path) -> None:
    """Local rank 1 is global rank 9: so local rank 3 is 11."""
    told = story(tmp_path, {"b.log": f"[default1]:[rank9]: hello\n[default3]:{OOM}\n"}, 16)

    assert the(told, "device_oom").rank == 11


def test_labels_that_contradict_each_other_tell_nothing(tmp_path: Path) -> None:
    """Local rank 1 was 9 and was 1: two agents write into one file."""
    text = f"[default1]:[rank9]: hello\n[default1]:[rank1]: hello\n[default3]:{OOM}\n"

    assert the(story(tmp_path, {"b.log": text}, 16), "device_oom").rank is None


def test_an_exit_is_the_agents_local_rank(tmp_path: Path) -> None:
    """With one agent it is the global one."""
    told = story(
        tmp_path, {"job.log": f"[rank0]: hello\n[default3]:hello\n{EXIT.format(local=3, pid=103)}\n"}, 4
    )

    assert the(told, "exit").rank == 3


def test_an_exit_of_one_node_of_several_has_no_rank(tmp_path: Path) -> None:
    """The second agent counts from 0 as well."""
    files = {f"node_{n}.log": f"[default0]:hello\n{EXIT.format(local=3, pid=100 + n)}\n" for n in range(2)}

    told = story(tmp_path, files, 8)

    assert [event.rank for event in told.of("exit")] == [None, None]


BLOCK = (
    "  time      : 2026-08-08_03:12:44\n  host      : node-1\n  rank      : 11 (local_rank: 3)\n"
    "  exitcode  : -9 (pid: 203)\n"
)


def test_the_block_ties_a_process_to_its_rank(tmp_path: Path) -> None:
    """What the kernel of that host says of the process is the rank's."""
    kernel = "Aug  8 03:12:43 node-1 kernel: Out of memory: Killed process 203 (python) total-vm:1kB\n"

    event = the(story(tmp_path, {"job.log": BLOCK, "kern.log": kernel}, 16), "kernel_oom")

    assert (event.rank, event.rank_from) == (11, RankFrom.PID)


def test_a_process_of_another_host_is_another(tmp_path: Path) -> None:
    """Numbers of processes repeat on other machines."""
    kernel = "Aug  8 03:12:43 node-0 kernel: Out of memory: Killed process 203 (python) total-vm:1kB\n"

    assert the(story(tmp_path, {"job.log": BLOCK, "kern.log": kernel}, 16), "kernel_oom").rank is None


def test_a_process_that_two_ranks_have_is_nobodys(tmp_path: Path) -> None:
    """The kernel's line does not choose between them."""
    other = BLOCK.replace("rank      : 11 (local_rank: 3)", "rank      : 10 (local_rank: 2)")
    kernel = "Aug  8 03:12:43 node-1 kernel: Out of memory: Killed process 203 (python) total-vm:1kB\n"

    told = story(tmp_path, {"a.log": BLOCK, "b.log": other, "kern.log": kernel}, 16)

    assert the(told, "kernel_oom").rank is None


COMM = (
    "{host}:{pid}:99 [{dev}] NCCL INFO comm 0x7f rank {rank} nranks {n} cudaDev {dev} "
    "busId {bus} - Init COMPLETE\n"
)
XID = "Aug  8 03:12:43 {host} kernel: NVRM: Xid (PCI:0000:9d:00): 79, pid=1, GPU has fallen off the bus.\n"


def communicators(n: int, nranks: int) -> str:
    """NCCL's start on two hosts whose cards have the same bus ids."""
    return "".join(
        COMM.format(
            host=f"node-{r // 2}", pid=100 + r, dev=r % 2, rank=r, n=nranks, bus="3b000" if r % 2 else "9d000"
        )
        for r in range(n)
    )


def test_a_bus_id_ties_an_xid_to_its_rank(tmp_path: Path) -> None:
    """On the host of the kernel, though other hosts have such a card, too."""
    event = the(
        story(tmp_path, {"job.log": communicators(4, 4), "k.log": XID.format(host="node-1")}, 4), "xid"
    )

    assert (event.rank, event.rank_from) == (2, RankFrom.DEVICE)


def test_a_bus_id_in_a_smaller_communicator_is_no_global_rank(tmp_path: Path) -> None:
    """Its ranks count inside of it."""
    told = story(tmp_path, {"job.log": communicators(2, 2), "k.log": XID.format(host="node-0")}, 16)

    assert the(told, "xid").rank is None


def test_a_kernel_of_an_unknown_host_names_no_rank(tmp_path: Path) -> None:
    """Four cards of that bus id are in the job."""
    told = story(tmp_path, {"job.log": communicators(4, 4), "k.log": XID.format(host="node-7")}, 4)

    assert the(told, "xid").rank is None


def test_a_kernel_of_an_unknown_host_names_no_rank_by_a_card_of_its_own(tmp_path: Path) -> None:
    """Though only one card of the job is known to have that bus id: the job runs on two other machines."""
    buses = ("1b000", "9d000", "2b000", "3b000")
    starts = "".join(
        COMM.format(host=f"node-{r // 2}", pid=100 + r, dev=r % 2, rank=r, n=4, bus=buses[r])
        for r in range(4)
    )

    told = story(tmp_path, {"job.log": starts, "k.log": XID.format(host="node-7")}, 4)

    assert the(told, "xid").rank is None


def test_a_process_in_which_two_ranks_speak_is_nobodys(tmp_path: Path) -> None:
    """A number that came again: the kernel's line does not choose."""
    starts = "".join(COMM.format(host="node-0", pid=100, dev=r, rank=r, n=4, bus=f"{r}b000") for r in (1, 2))
    kernel = "Aug  8 03:12:43 node-0 kernel: Out of memory: Killed process 100 (python) total-vm:1kB\n"

    told = story(tmp_path, {"job.log": starts, "k.log": kernel}, 4)

    assert the(told, "kernel_oom").rank is None


@pytest.mark.parametrize(
    ("one", "other"),
    [("9d000", "0000:9d:00"), ("9d000", "0000:9d:00.0"), ("1b000", "0000:1B:00"), ("100000", "0000:100:00")],
)
def test_bus_ids_in_two_spellings(one: str, other: str) -> None:
    """NCCL's number and the kernel's colons."""
    assert short_bus(one) == short_bus(other)


def test_bus_ids_of_two_cards_differ() -> None:
    """However they are spelt."""
    assert short_bus("9d000") != short_bus("0000:9e:00")


def test_sruns_tasks_are_ranks_where_each_is_one(tmp_path: Path) -> None:
    """As many labels as ranks, and no agent among them."""
    lines = "".join(f"{r}: hello\n" for r in range(8))

    event = the(story(tmp_path, {"job.log": f"{lines}5: {OOM}\n"}, 8), "device_oom")

    assert (event.rank, event.rank_from) == (5, RankFrom.TASK)


def test_sruns_tasks_are_agents_where_ranks_are_more(tmp_path: Path) -> None:
    """Two tasks for sixteen ranks."""
    told = story(tmp_path, {"job.log": f"0: hello\n1: [rank9]: hello\n1: {OOM}\n"}, 16)

    assert the(told, "device_oom").rank is None


def test_files_of_one_task_each_are_ranks(tmp_path: Path) -> None:
    """As many files as ranks, alike but for a number."""
    files = {f"task-{r}.out": f"hello\n{OOM if r == 2 else ''}\n" for r in range(4)}

    event = the(story(tmp_path, files, 4), "device_oom")

    assert (event.rank, event.rank_from) == (2, RankFrom.FILE)


def test_files_in_which_others_speak_are_not_of_one_rank(tmp_path: Path) -> None:
    """A prefix against the number of the file."""
    files = {
        f"task-{r}.out": f"[rank{(r + 1) % 4}]: hello\nwords\nwords\nwords\nwords\n{OOM if r == 2 else ''}\n"
        for r in range(4)
    }

    assert the(story(tmp_path, files, 4), "device_oom").rank is None


def test_whom_a_kernel_speaks_of_is_not_the_rank_of_its_file(tmp_path: Path) -> None:
    """A kernel's line in rank 3's file need not be about rank 3."""
    line = "[12345.678] Out of memory: Killed process 999 (python) total-vm:1kB\n"

    assert the(story(tmp_path, {"rank_3.log": line, "rank_0.log": "hello\n"}, 4), "kernel_oom").rank is None


def test_whom_a_scheduler_speaks_of_is_not_the_task_of_its_file(tmp_path: Path) -> None:
    """Nor in files of one task each."""
    line = "[12345.678] Out of memory: Killed process 999 (python) total-vm:1kB"
    files = {f"task-{r}.out": f"hello\n{line if r == 2 else ''}\n" for r in range(4)}

    assert the(story(tmp_path, files, 4), "kernel_oom").rank is None


def test_a_rank_in_a_large_file_is_searched_for_before_it_is_missed(tmp_path: Path) -> None:
    """It speaks once, far from all that is looked at."""
    lines = ["[rank0]: all is well"] * 20001
    lines[9003] = "[rank3]: all is well"

    told = story(tmp_path, {"job.log": "\n".join(lines) + "\n"}, 4)

    assert told.census.silent == (1, 2)


def test_a_process_without_a_host_is_known_only_on_one_machine() -> None:
    """With two machines the number says nothing."""
    one = Census(2, hosts={0: "a", 1: "a"}, pids={("", 7): 1}, heard={0: set(), 1: set()})
    two = Census(2, hosts={0: "a", 1: "b"}, pids={("", 7): 1}, heard={0: set(), 1: set()})

    assert (one.rank_of_pid(None, 7), two.rank_of_pid(None, 7)) == (1, None)


def _logged(rank: int, **more: object) -> str:
    return json.dumps({"event": "ready", "level": "info", "rank": rank, **more}) + "\n"


def test_the_rank_in_an_object_is_who_speaks(tmp_path: Path) -> None:
    """One file, no two machines with one rank: it is the global one."""
    told = story(tmp_path, {"a.jsonl": "".join(_logged(r, message=OOM if r == 2 else "") for r in range(4))})

    assert the(told, "device_oom").rank == 2
    assert told.census.size == 4


@pytest.mark.parametrize(
    "files",
    [
        {f"w-{node}.jsonl": "".join(_logged(r) for r in range(4)) for node in (0, 1)},
        {"all.jsonl": "".join(_logged(r, host=f"gpu-{node}") for node in (0, 1) for r in range(4))},
    ],
)
def test_a_rank_that_two_machines_have_is_a_local_one(files: dict[str, str], tmp_path: Path) -> None:
    """Torch's prefix is global by definition, a field by custom only."""
    name, text = files.popitem()
    told = story(tmp_path, {**files, name: text + _logged(2, host="gpu-1", message=OOM)})

    event = the(told, "device_oom")
    assert (event.rank, event.local_rank) == (None, 2)


def test_a_log_that_was_rotated_is_one_writers(tmp_path: Path) -> None:
    """The same ranks go on in the next piece."""
    told = story(tmp_path, {"a.jsonl.1": _logged(0) + _logged(1), "a.jsonl": _logged(1, message=OOM)})

    assert the(told, "device_oom").rank == 1


def test_a_rank_in_no_sample_of_a_large_file_is_looked_for(tmp_path: Path) -> None:
    """Also where it is a field, of which `local_rank` is another."""
    rows = [_logged(0)] * 300
    rows[201] = _logged(2)
    rows[202] = _logged(0, local_rank=3)
    told = story(tmp_path, {"a.jsonl": "".join(rows)}, 4)

    assert told.census.silent == (1, 3)
