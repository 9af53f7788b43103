"""torchrun's failure block and error files, as a real job leaves them."""

import json
from pathlib import Path

from harness.diagnose.launcher.exits import last_exits
from harness.diagnose.launcher.torchrun_log import block_events, read_torchrun_log

BLOCK = """\
W1130 04:18:47.000000 1 site-packages/torch/distributed/elastic/multiprocessing/api.py:871] Sending
============================================================
train.py FAILED
------------------------------------------------------------
Failures:
[1]:
  time      : 2026-11-30_04:18:47
  host      : node1
  rank      : 3 (local_rank: 3)
  exitcode  : -15 (pid: 103)
  error_file: <N/A>
  traceback : Signal 15 (SIGTERM) received by PID 103
------------------------------------------------------------
Root Cause (first observed failure):
[0]:
  time      : 2026-11-30_04:18:46
  host      : node1
  rank      : 5 (local_rank: 5)
  exitcode  : -9 (pid: 105)
  error_file: <N/A>
  traceback : Signal 9 (SIGKILL) received by PID 105
============================================================
"""


def test_the_block_names_who_went_first(tmp_path: Path) -> None:
    """Rank, pid, signal and time; whom torchrun stopped itself is clean-up."""
    (tmp_path / "launcher.log").write_text(BLOCK)

    exits = last_exits(read_torchrun_log(tmp_path / "launcher.log", tmp_path / "logs"))

    assert exits is not None
    assert [(e.rank, e.pid, e.signal) for e in exits.own] == [(5, 105, "SIGKILL")]


def test_only_the_last_block_counts(tmp_path: Path) -> None:
    """A log that a restarted job goes on writing."""
    earlier = BLOCK.replace("rank      : 5 (local_rank: 5)", "rank      : 2 (local_rank: 2)")
    (tmp_path / "launcher.log").write_text(earlier + BLOCK)

    exits = last_exits(read_torchrun_log(tmp_path / "launcher.log", tmp_path / "logs"))

    assert exits is not None
    assert [e.rank for e in exits.own] == [5]


def test_error_files_name_who_raised(tmp_path: Path) -> None:
    """Where no block was written; a damaged file is passed over."""
    for rank, text in ((2, json.dumps({"message": {"extraInfo": {"timestamp": "1796012338"}}})), (4, "{")):
        folder = tmp_path / "logs" / "run_x" / "attempt_0" / str(rank)
        folder.mkdir(parents=True)
        (folder / "error.json").write_text(text)

    record = read_torchrun_log(tmp_path / "launcher.log", tmp_path / "logs")

    assert record is not None
    assert [(e.rank, e.code, e.at) for e in record.attempts[0].exits] == [(2, 1, 1796012338.0)]


def test_nothing_said_is_no_record(tmp_path: Path) -> None:
    """No log, no error files: nothing is made up."""
    assert read_torchrun_log(tmp_path / "launcher.log", tmp_path / "logs") is None


RAISED = BLOCK.replace(
    "  traceback : Signal 9 (SIGKILL) received by PID 105",
    """  traceback : Traceback (most recent call last):
    File "train.py", line 3, in main
      raise CorruptShard("sample 17")
  job.CorruptShard: sample 17
""",
)


def test_the_block_quotes_the_exception(tmp_path: Path) -> None:
    """Where the rank's own log is lost the quoted traceback is what is left, with its line."""
    (tmp_path / "launcher.log").write_text(RAISED)

    (event,) = block_events(tmp_path / "launcher.log", tmp_path)

    assert (event.rank, event.kind, event.text) == (5, "exception", "job.CorruptShard: sample 17")
    assert RAISED.splitlines()[event.line - 1].strip() == event.text
