"""Records from whatever files there are: plain or gzipped, damaged or not, rotated or copied."""

import gzip
from pathlib import Path

import pytest

from harness.diagnose.signals.formats.read import read_foreign
from harness.diagnose.texts import blocks
from tests.diagnose.signals.formats.reading import SAMPLES, by_step, of_rank, read_bytes

PIPELINE = (SAMPLES / "deepspeed" / "pipeline.log").read_bytes()


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16"])
def test_encodings_of_redirected_output(tmp_path: Path, encoding: str) -> None:
    """A byte order mark says which."""
    text = PIPELINE.decode().replace("\n", "\r\n")

    foreign = read_bytes(tmp_path, text.encode(encoding))

    assert of_rank(foreign, 0).line.tolist() == [1, 2, 3]


def test_a_gzipped_log_is_read_as_far_as_it_goes(tmp_path: Path) -> None:
    """What stands before the break counts, and the break is complained of."""
    line = "steps: %d loss: 2.3125 iter time (s): 1.234 samples/sec: 25.932\n"
    packed = gzip.compress("".join(line % step for step in range(3000)).encode())

    foreign = read_bytes(tmp_path, packed[:-2000], "a.gz")

    assert 1000 < len(of_rank(foreign, 0)) < 3000
    assert foreign.complaints == ("a.gz: the gzipped file is cut off",)


def test_what_cannot_be_opened_is_complained_of(tmp_path: Path) -> None:
    """A path that is not there."""
    assert read_foreign([tmp_path / "gone.log"]).complaints == ("gone.log: No such file or directory",)


def test_a_file_reached_twice_counts_once(tmp_path: Path) -> None:
    """By a link, or by two paths."""
    (tmp_path / "job.log").write_bytes(PIPELINE)
    (tmp_path / "latest.log").symlink_to("job.log")

    foreign = read_foreign([tmp_path, tmp_path / "job.log"])

    assert [len(c) for c in foreign.columns] == [3, 2]


def test_a_rotated_log_is_one_attempt(tmp_path: Path) -> None:
    """The second file goes on where the first ends; its steps cite no line of the first."""
    lines = PIPELINE.splitlines(keepends=True)
    (tmp_path / "job.1.log").write_bytes(b"".join(lines[:2]))
    (tmp_path / "job.2.log").write_bytes(lines[2])

    columns = of_rank(read_foreign([tmp_path]), 0)

    assert (columns.file, columns.step.tolist(), columns.line.tolist()) == (
        "job.1.log",
        [10, 20, 30],
        [1, 2, 0],
    )


def test_a_copy_of_a_log_is_no_second_attempt(tmp_path: Path) -> None:
    """The same steps with the same numbers."""
    lines = PIPELINE.splitlines(keepends=True)[:3]
    for name in ("a.log", "b.log"):
        (tmp_path / name).write_bytes(b"".join(lines))

    assert [len(c) for c in read_foreign([tmp_path]).columns] == [3]


def test_torchrun_s_folders_name_attempt_and_rank(tmp_path: Path) -> None:
    """The local rank serves where nothing states the global one."""
    for attempt, line in ((0, 0), (1, 1)):
        folder = tmp_path / "logs" / "run_x" / f"attempt_{attempt}" / "2"
        folder.mkdir(parents=True)
        step = b"step: %d  loss: 2.5  memory: 1.00GiB(2%%)  tps: 10  mfu: N/A\n" % (10 + line)
        (folder / "stdout.log").write_bytes(step)

    assert [(c.rank, c.attempt, c.step[0]) for c in read_foreign([tmp_path]).columns] == [
        (2, 0, 10),
        (2, 1, 11),
    ]


def test_lines_are_numbered_right_over_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """However the file is cut while it is read."""
    wanted = read_foreign([SAMPLES / "megatron" / "all.log"])
    monkeypatch.setattr(blocks, "BLOCK_BYTES", 600)

    found = read_foreign([SAMPLES / "megatron" / "all.log"])

    assert [(c.line.tolist(), by_step(c)) for c in found.columns] == [
        (c.line.tolist(), by_step(c)) for c in wanted.columns
    ]
