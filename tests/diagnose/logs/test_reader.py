"""One file in the order of its lines: who speaks, what belongs together, what is said twice."""

from pathlib import Path

import pytest

from harness.diagnose.logs.catalogue import PATTERNS
from harness.diagnose.logs.event import Event, RankFrom
from harness.diagnose.logs.reader import FOLLOWED_LINES, KEPT_ALIKE, FileLog, LogReader
from harness.diagnose.texts.files import TextFile, find_texts
from harness.diagnose.texts.scan import Scanner

WORK = "WorkNCCL(SeqNum=1371, OpType=ALLREDUCE, NumelIn=4096, NumelOut=4096, Timeout(ms)=600000)"
TIMEOUT = (
    f"Watchdog caught collective operation timeout: {WORK} ran for 600049 milliseconds before timing out."
)


def read(folder: Path, text: str, name: str = "job.log") -> FileLog:
    """What one file says."""
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text.encode(errors="surrogateescape"))
    files, _ = find_texts([folder], folder / "scratch")
    return _read(next(file for file in files if file.name == name))


def _read(file: TextFile) -> FileLog:
    reader, lines = LogReader(file), Scanner(PATTERNS).lines(file)
    for line in lines:
        reader.feed(line)
        lines.follow = reader.follow
    return reader.finish()


def of(log: FileLog, what: str) -> list[Event]:
    return [event for event in log.events if event.what == what]


def test_events_are_in_the_order_of_lines(tmp_path: Path) -> None:
    """Whatever class they are of."""
    log = read(tmp_path, f"[rank1]: {TIMEOUT}\n[rank0]: ValueError: x\n[rank2]: {TIMEOUT}\n")

    assert [event.line for event in log.events] == [1, 2, 3]


@pytest.mark.parametrize("cuts", [(60,), (50, 90), (50, 75, 130)])
def test_a_record_wrapped_by_a_terminal_is_one(cuts: tuple[int, ...], tmp_path: Path) -> None:
    """Over up to four lines."""
    pieces = [TIMEOUT[a:b] for a, b in zip((0, *cuts), (*cuts, None), strict=True)]

    log = read(tmp_path, "[rank3]:[E1129 20:10:00.1 P.cpp:6] " + "\n".join(pieces) + "\n")

    (event,) = of(log, "watchdog_timeout")
    assert (event.rank, event.line) == (3, 1)
    assert event.numbers == {"seq": 1371, "in": 4096, "out": 4096, "limit_ms": 600000, "ran_ms": 600049}


def test_a_record_broken_inside_a_number_is_put_together(tmp_path: Path) -> None:
    """137 and 1 are 1371."""
    at = TIMEOUT.index("1371") + 3

    log = read(tmp_path, f"[rank3]: {TIMEOUT[:at]}\n{TIMEOUT[at:]}\n")

    assert of(log, "watchdog_timeout")[0].numbers["seq"] == 1371


def test_a_broken_record_is_not_finished_by_another_rank(tmp_path: Path) -> None:
    """What stands behind it is another's: the torn number is not believed."""
    at = TIMEOUT.index("1371") + 3

    log = read(tmp_path, f"[rank3]: {TIMEOUT[:at]}\n[rank4]: {TIMEOUT}\n")

    seqs = {event.rank: event.numbers.get("seq") for event in of(log, "watchdog_timeout")}
    assert seqs == {3: None, 4: 1371}


def test_two_ranks_in_one_line_are_two_events(tmp_path: Path) -> None:
    """Writers without a lock put their lines into one another."""
    log = read(tmp_path, f"[rank3]: {TIMEOUT}[rank4]: {TIMEOUT}\n")

    assert [event.rank for event in of(log, "watchdog_timeout")] == [3, 4]


def test_a_line_said_twice_is_one_event(tmp_path: Path) -> None:
    """Two handlers write it: one event that was repeated."""
    log = read(tmp_path, f"[rank3]: {TIMEOUT}\n[rank3]: {TIMEOUT}\n")

    (event,) = of(log, "watchdog_timeout")
    assert event.repeats == 1


def test_timeouts_of_other_numbers_are_other_events(tmp_path: Path) -> None:
    """Only what is equal in all numbers is a repetition."""
    log = read(tmp_path, f"[rank3]: {TIMEOUT}\n[rank3]: {TIMEOUT.replace('1371', '1372')}\n")

    assert [event.numbers["seq"] for event in of(log, "watchdog_timeout")] == [1371, 1372]


def test_a_line_that_ray_dropped_others_of_stands_for_several(tmp_path: Path) -> None:
    """The evidence that is gone is counted."""
    log = read(tmp_path, f"(Trainer pid=123, ip=10.0.0.1) {TIMEOUT} [repeated 7x across cluster]\n")

    assert of(log, "watchdog_timeout")[0].dropped == 7


def test_a_flood_keeps_its_beginning_and_its_end(tmp_path: Path) -> None:
    """A hundred thousand assertions cost no memory; the rest is counted."""
    lines = [f"x.cu:9: block: [{i},0,0], thread: [0,0,0] Assertion `i < n` failed." for i in range(1000)]

    log = read(tmp_path, "\n".join(lines) + "\n")

    events = of(log, "device_assert")
    assert len(events) == KEPT_ALIKE
    assert (events[0].line, events[-1].line) == (1, 1000)
    assert events[-1].repeats == 1000 - KEPT_ALIKE


def test_one_line_without_a_time_above_the_fallout_is_kept(tmp_path: Path) -> None:
    """A cause said once stays, however much is said after it."""
    oom = "[rank2]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.50 GiB."
    fallout = [
        f"[rank{i % 8}]: {i} sendBytes failed on SocketImpl(fd={i}): Broken pipe" for i in range(20000)
    ]

    log = read(tmp_path, "\n".join([oom, *fallout]) + "\n")

    assert [(event.rank, event.line) for event in of(log, "device_oom")] == [(2, 1)]


def test_a_line_without_a_prefix_goes_on_with_the_speaker(tmp_path: Path) -> None:
    """Up to three lines after it, and known to be weak."""
    text = "[rank3]: some words\nmore words\nstill more\nCUDA error: unspecified launch failure\n"

    (event,) = of(read(tmp_path, text), "cuda_launch")

    assert (event.rank, event.rank_from) == (3, RankFrom.CONTEXT)


def test_after_three_lines_nobody_speaks(tmp_path: Path) -> None:
    """What stands further away is nobody's."""
    text = "[rank3]: some words\n" + "words\n" * 4 + "CUDA error: unspecified launch failure\n"

    (event,) = of(read(tmp_path, text), "cuda_launch")

    assert event.rank is None


def test_a_traceback_without_a_prefix_is_nobodys(tmp_path: Path) -> None:
    """It may be any rank's, whoever spoke before it."""
    text = (
        "[rank3]: some words\nTraceback (most recent call last):\n"
        '  File "/job/train.py", line 7, in main\nValueError: bad\n'
    )

    (event,) = of(read(tmp_path, text), "exception")

    assert event.rank is None


def test_a_traceback_gives_its_innermost_own_frame(tmp_path: Path) -> None:
    """Frames of libraries are where it ended, not where it was written."""
    text = "\n".join(
        f"[rank3]: {line}"
        for line in (
            "Traceback (most recent call last):",
            '  File "/job/train.py", line 7, in main',
            '  File "/job/model.py", line 91, in forward',
            '  File "/x/site-packages/torch/nn/module.py", line 1, in _call_impl',
            "ValueError: bad",
        )
    )

    (event,) = of(read(tmp_path, text + "\n"), "exception")

    assert event.words["site"] == "forward model.py:91"
    assert (event.rank, event.line, event.words["traced"]) == (3, 5, "yes")


@pytest.mark.parametrize(
    ("frame", "site"),
    [
        ('File "/job/checkpoint.py", line 3, in write', "checkpoint"),
        ('File "/x/site-packages/torch/serialization.py", line 3, in save_state_dict', "checkpoint"),
        ('File "/x/site-packages/torch/utils/data/dataloader.py", line 3, in __next__', "dataloader"),
        ('File "/job/my_dataset.py", line 3, in __getitem__', "dataloader"),
    ],
)
def test_frames_tell_data_and_checkpoints(frame: str, site: str, tmp_path: Path) -> None:
    """What was at work when it was raised."""
    text = f"[rank3]: Traceback (most recent call last):\n[rank3]:   {frame}\n[rank3]: OSError: x\n"

    assert of(read(tmp_path, text), "exception")[0].words["in"] == site


def test_tracebacks_of_two_ranks_interleaved(tmp_path: Path) -> None:
    """Each line goes to the traceback of its own speaker."""
    lines = [
        "[rank1]: Traceback (most recent call last):",
        "[rank2]: Traceback (most recent call last):",
        '[rank1]:   File "/job/one.py", line 1, in one',
        '[rank2]:   File "/job/two.py", line 2, in two',
        "[rank2]: KeyError: 'b'",
        "[rank1]: ValueError: a",
    ]

    events = of(read(tmp_path, "\n".join(lines) + "\n"), "exception")

    assert [(e.rank, e.words["type"], e.words["site"]) for e in events] == [
        (2, "KeyError", "two two.py:2"),
        (1, "ValueError", "one one.py:1"),
    ]


def test_a_chained_exception_is_marked(tmp_path: Path) -> None:
    """The last of a chain was raised while another was handled."""
    text = (
        "[rank1]: Traceback (most recent call last):\n"
        "[rank1]: ConnectionError: lost\n"
        "[rank1]: \n"
        "[rank1]: During handling of the above exception, another exception occurred:\n"
        "[rank1]: \n"
        "[rank1]: Traceback (most recent call last):\n"
        "[rank1]: ValueError: bad\n"
    )

    events = of(read(tmp_path, text), "exception")

    assert [event.words["type"] for event in events] == ["ConnectionError", "ValueError"]


def test_a_message_of_several_lines_is_one_exception(tmp_path: Path) -> None:
    """What names the cause may stand in the second line."""
    text = (
        "[rank1]: Traceback (most recent call last):\n[rank1]: RuntimeError: failed "
        "in\n[rank1]: NCCL error: x\n"
    )

    event = of(read(tmp_path, text), "exception")[0]

    assert event.words["said"] == "failed inNCCL error: x"


def test_the_end_of_a_file_that_was_cut_is_not_taken_for_an_exception(tmp_path: Path) -> None:
    """``torch.distributed.DistBackendError`` cut to ``torch.distributed.Dist`` would be another one."""
    whole = read(tmp_path, "[rank1]: Traceback (most recent call last):\n[rank1]: KeyError: 'a'\n", "a.log")
    torn = read(tmp_path, "[rank1]: Traceback (most recent call last):\n[rank1]: KeyError: 'a'", "b.log")

    assert len(of(whole, "exception")) == 1
    assert of(torn, "exception") == []


BLOCK = """\
============================================================
train.py FAILED
------------------------------------------------------------
Failures:
[1]:
  time      : 2026-08-08_03:12:50
  host      : node-0
  rank      : 1 (local_rank: 1)
  exitcode  : -6 (pid: 101)
  error_file: <N/A>
  traceback : Signal 6 (SIGABRT) received by PID 101
------------------------------------------------------------
Root Cause (first observed failure):
[0]:
  time      : 2026-08-08_03:12:44
  host      : node-0
  rank      : 3 (local_rank: 3)
  exitcode  : -9 (pid: 103)
  error_file: <N/A>
  traceback : Signal 9 (SIGKILL) received by PID 103
============================================================
"""


def test_the_block_of_failures_gives_an_end_for_each(tmp_path: Path) -> None:
    """Rank, host, process, exit code, time, and which one torchrun calls the root cause."""
    events = of(read(tmp_path, BLOCK), "block_exit")

    assert [(e.rank, e.rank_from, e.host, e.numbers["code"], e.numbers["pid"]) for e in events] == [
        (1, RankFrom.BLOCK, "node-0", -6, 101),
        (3, RankFrom.BLOCK, "node-0", -9, 103),
    ]
    assert [e.words.get("root") for e in events] == [None, "yes"]
    assert events[1].words["time"] == "2026-08-08_03:12:44"


def test_blocks_of_two_agents_interleaved(tmp_path: Path) -> None:
    """Each agent's lines have its label: fields never mix."""
    other = BLOCK.replace("node-0", "node-1").replace("rank      : 3", "rank      : 7").replace("103", "203")
    mixed = "\n".join(
        line
        for pair in zip(BLOCK.splitlines(), other.splitlines(), strict=True)
        for line in (f"0: {pair[0]}", f"1: {pair[1]}")
    )

    events = of(read(tmp_path, mixed + "\n"), "block_exit")

    assert {(e.rank, e.host) for e in events} == {(1, "node-0"), (3, "node-0"), (1, "node-1"), (7, "node-1")}


def test_blocks_of_two_agents_interleaved_without_labels(tmp_path: Path) -> None:
    """Then no exit code goes to a rank whose field stands elsewhere."""
    other = BLOCK.replace("node-0", "node-1").replace("rank      : 3", "rank      : 7").replace("-9", "1")
    pairs = zip(BLOCK.splitlines(), other.splitlines(), strict=True)
    mixed = "\n".join(line for pair in pairs for line in pair)

    events = of(read(tmp_path, mixed + "\n"), "block_exit")

    right = {(1, -6), (3, -9), (7, 1)}
    assert events
    assert {(e.rank, e.numbers["code"]) for e in events if e.rank is not None} <= right


def test_a_block_with_a_hole_is_known_to_be_damaged(tmp_path: Path) -> None:
    """Entry 3 behind entry 1: what was between is lost, and nothing there convicts."""
    lines = BLOCK.splitlines()
    more = [line.replace("[1]:", "[3]:").replace(": 1 (", ": 5 (") for line in lines[4:11]]

    events = of(read(tmp_path, "\n".join([*lines[:11], *more]) + "\n"), "block_exit")

    assert [event.words.get("damaged") for event in events][:1] == ["yes"]


def test_an_exit_code_whose_rank_is_lost_is_nobodys(tmp_path: Path) -> None:
    """Without the line between, the next entry's code does not go to the rank before."""
    text = BLOCK.replace("  exitcode  : -6 (pid: 101)\n", "").replace("  rank      : 3 (local_rank: 3)\n", "")

    assert of(read(tmp_path, text), "block_exit") == []


def test_the_next_entry_of_a_block_is_not_the_rank_before(tmp_path: Path) -> None:
    """Though only its exit code is left of it."""
    text = "  rank      : 1 (local_rank: 1)\n[2]:\n  exitcode  : -9 (pid: 103)\n"

    assert of(read(tmp_path, "  time      : 2026-08-08_03:12:44\n" + text), "block_exit") == []


def test_an_exception_nested_in_the_block_is_the_listed_ranks(tmp_path: Path) -> None:
    """torchrun quotes the traceback of the rank that it lists."""
    nested = (
        "  traceback : Traceback (most recent call last):\n"
        '    File "/job/train.py", line 7, in main\n'
        "      f()\n"
        "  ValueError: bad\n"
    )
    text = BLOCK.replace("  traceback : Signal 9 (SIGKILL) received by PID 103\n", nested)

    events = [e for e in read(tmp_path, text).events if e.words.get("type") == "ValueError"]

    assert [(event.rank, event.rank_from) for event in events] == [(3, RankFrom.BLOCK)]


@pytest.mark.parametrize("name", ["rank_3.log", "logs/rank_3.err"])
def test_the_name_of_a_file_is_a_rank(name: str, tmp_path: Path) -> None:
    """Where no line says it."""
    (event,) = of(read(tmp_path, TIMEOUT + "\n", name), "watchdog_timeout")

    assert (event.rank, event.rank_from) == (3, RankFrom.FILE)


def test_torchruns_folders_give_local_ranks_and_attempts(tmp_path: Path) -> None:
    """``attempt_<n>/<local_rank>/stderr.log``."""
    (event,) = of(read(tmp_path, TIMEOUT + "\n", "run/attempt_2/3/stderr.log"), "watchdog_timeout")

    assert (event.rank, event.local_rank, event.attempt) == (None, 3, 2)


def test_a_rank_in_a_group_is_not_stronger_than_the_files_name(tmp_path: Path) -> None:
    """``Rank 1`` of some group in rank 3's file is rank 3."""
    (event,) = of(
        read(tmp_path, f"[PG ID 2 PG GUID 7(tp) Rank 1] {TIMEOUT}\n", "rank_3.log"), "watchdog_timeout"
    )

    assert (event.rank, event.rank_from) == (3, RankFrom.FILE)
    assert event.group is not None
    assert event.group.rank == 1


def test_a_stated_restart_begins_an_attempt(tmp_path: Path) -> None:
    """torchrun counts its restarts."""
    text = f"[rank3]: {TIMEOUT}\n[agent] restart_count=1 group_rank=0\n[rank3]: {TIMEOUT}\n"

    log = read(tmp_path, text)

    assert [event.attempt for event in of(log, "watchdog_timeout")] == [0, 1]
    assert (log.attempts, log.restarts) == (2, [(1, 2)])


def test_attempts_that_are_left_begin_one(tmp_path: Path) -> None:
    """``2/3 attempts left; will restart worker group``."""
    text = f"[rank3]: {TIMEOUT}\n[agent] 2/3 attempts left; will restart worker group\n[rank3]: {TIMEOUT}\n"

    assert read(tmp_path, text).attempts == 2


def test_a_step_that_goes_back_behind_a_failure_begins_an_attempt(tmp_path: Path) -> None:
    """Though nobody says so: the numbers of collectives begin anew there."""
    text = f"[rank3]: step: 90  loss:  2.1\n[rank3]: {TIMEOUT}\n[rank3]: step: 80  loss:  2.1\n"

    assert read(tmp_path, text).attempts == 2


def test_a_step_that_goes_back_without_a_failure_begins_none(tmp_path: Path) -> None:
    """Evaluation counts its own steps."""
    text = "[rank3]: step: 90  loss:  2.1\n[rank3]: step: 1  loss:  2.1\n"

    assert read(tmp_path, text).attempts == 1


def test_processes_that_take_anothers_place_begin_an_attempt(tmp_path: Path) -> None:
    """The same rank of a communicator in a new process, behind a failure."""
    line = "node-0:{pid}:99 [5] NCCL INFO comm 0x7f rank 13 nranks 16 cudaDev 5 busId 9d000 - Init COMPLETE"
    text = f"{line.format(pid=42)}\n[rank13]: {TIMEOUT}\n{line.format(pid=77)}\n"

    assert read(tmp_path, text).attempts == 2


def test_a_file_that_was_cut_inside_a_label(tmp_path: Path) -> None:
    """``1: 11: text``, cut from ``11: 11: text``, is task 11's."""
    log = read(tmp_path, f"1: 11: {TIMEOUT}\n11: x\n")

    assert of(log, "watchdog_timeout")[0].task == 11


def test_of_lines_that_nothing_is_in_only_some_are_looked_at(tmp_path: Path) -> None:
    """Who speaks in a large file is known from samples."""
    log = read(tmp_path, "".join(f"[rank{i % 4}]: all is well {i}\n" for i in range(4000)))

    seen = sum(seen.lines for seen in log.speakers.values())
    assert {speaker.rank for speaker in log.speakers} >= {0}
    assert 0 < seen < 2000


def test_a_traceback_is_not_followed_for_ever(tmp_path: Path) -> None:
    """After some lines of others the reader leaves the rest of the file to the scan."""
    path = tmp_path / "job.log"
    path.write_text("[rank1]: Traceback (most recent call last):\n" + "[rank2]: words\n" * 600)
    reader = LogReader(TextFile("job.log", path, "text"))
    lines = Scanner(PATTERNS).lines(reader.log.file)
    fed = []
    for line in lines:
        reader.feed(line)
        lines.follow = reader.follow
        fed.append(line.number)

    followed = [number for number in fed if number > 200 and number <= 580]
    assert followed == []
    assert FOLLOWED_LINES < 200


@pytest.mark.parametrize(
    "text",
    [
        "",
        "\n\n\n",
        "[rank3]: " + "x" * 200000 + "\n",
        "[rank1]:" * 20000 + "\n",
        "Traceback (most recent call last):\n" * 2000,
        "\udcff\udcfe[rank3]: " + TIMEOUT + "\n",
        "[rank3]: Watchdog caught collective operation timeout: WorkNCCL(\n" * 500,
        BLOCK[: len(BLOCK) // 2],
        "\r".join(["Epoch 1:  12%|#2 | 12/100 [00:07<00:51,  1.70it/s]"] * 500),
        "\x1b[31m" * 5000,
    ],
)
def test_damaged_files_are_read_to_their_end(text: str, tmp_path: Path) -> None:
    """Nothing raises, and what is kept is bounded."""
    path = tmp_path / "job.log"
    path.write_bytes(text.encode(errors="surrogateescape"))

    log = _read(TextFile("job.log", path, "text"))

    assert log.attempts >= 1
    assert all(len(event.text) <= 4000 for event in log.events)
    assert len(log.events) <= 20000
