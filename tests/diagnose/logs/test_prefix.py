"""What stands around a message is taken off in any order, and says who speaks."""

import pytest

from harness.diagnose.logs.event import Group, RankFrom
from harness.diagnose.logs.prefix import take_apart

SAID = "Watchdog caught collective operation timeout"


@pytest.mark.parametrize(
    ("prefix", "attribute", "value"),
    [
        ("[rank3]: ", "rank", 3),
        ("[rank3]:", "rank", 3),
        ("[1,3]<stderr>:", "rank", 3),
        ("[rank: 3] ", "rank", 3),
        ("[default3]:", "local_rank", 3),
        ("[trainer3]:", "local_rank", 3),
        ("11: ", "task", 11),
        (" 3: ", "task", 3),
        ("node-0: ", "host", "node-0"),
        ("10.0.0.1: ", "host", "10.0.0.1"),
        ("job-7.node-0 [stderr] ", "host", "node-0"),
        ("(Trainer pid=123, ip=10.0.0.1) ", "host", "10.0.0.1"),
        ("(Trainer pid=123, ip=10.0.0.1) ", "pid", 123),
        ("(TrainActor pid=123) ", "pid", 123),
        ("node-0:4242:4299 [5] NCCL INFO ", "pid", 4242),
        ("node-0:4242:4299 [5] NCCL INFO ", "device_index", 5),
        ("node-0:4242:4299 [5] NCCL INFO ", "host", "node-0"),
        ("Aug  8 03:12:44 node-0 kernel: ", "host", "node-0"),
    ],
)
def test_a_prefix_says_who_speaks(prefix: str, attribute: str, value: object) -> None:
    """Each launcher's and library's label gives its one attribute."""
    spoken = take_apart(prefix + SAID)

    assert getattr(spoken, attribute) == value
    assert spoken.message.endswith(SAID)


@pytest.mark.parametrize(
    "prefix",
    [
        "2026-08-08T03:12:44Z ",
        "2026-08-08T03:12:44.123456Z ",
        "2026-08-08T03:12:44+02:00 ",
        "2026-08-08 03:12:44 ",
        "2026-08-08 03:12:44,123 ",
        "[2026-08-08 03:12:44,123] ",
        "03:12:44.123 ",
        "E1129 20:10:00.123456789 12345 ProcessGroupNCCL.cpp:685] ",
        "[E1129 20:10:00.123456789 ProcessGroupNCCL.cpp:685] ",
        "[E ProcessGroupNCCL.cpp:475] ",
        "[12345.678901] ",
        "Sat Aug  8 03:12:44 2026 ",
        "[Sat Aug  8 03:12:44 2026] ",
        "Aug  8 03:12:44 ",
        "| 2026-08-08T03:12:44Z | ",
        "[80748] ",
        "[76/904] ",
        "INFO ",
        "[WARNING] ",
        "[NeMo I 2026-08-08 03:12:44 exp_manager:396] ",
    ],
)
def test_times_levels_and_counters_are_no_part_of_the_message(prefix: str) -> None:
    """Whatever form a time has, the message is what is left."""
    spoken = take_apart(f"{prefix}[rank3]: {SAID}")

    assert (spoken.message, spoken.rank) == (SAID, 3)


def test_glog_of_old_torch_has_no_time() -> None:
    """Up to torch 2.3 the bracket holds a level and a place only."""
    spoken = take_apart(f"[E ProcessGroupNCCL.cpp:475] [Rank 3] {SAID}")

    assert (spoken.rank, spoken.rank_from) == (3, RankFrom.GROUP)


@pytest.mark.parametrize(
    "line",
    [
        f"2026-08-08T03:12:44Z (Trainer pid=123, ip=10.0.0.1) [default1]:[rank9]: {SAID}",
        f"(Trainer pid=123, ip=10.0.0.1) 2026-08-08 03:12:44 [rank9]: [default1]:{SAID}",
        f"| 2026-08-08T03:12:44Z | (Trainer pid=123, ip=10.0.0.1) [default1]:[rank9]:{SAID}",
        f"10.0.0.1: (Trainer pid=123) [default1]:[rank9]:[E1129 20:10:00.123 P.cpp:6] {SAID}",
    ],
)
def test_prefixes_nest_in_any_order(line: str) -> None:
    """A cloud export of Ray's output of torchrun's is taken apart to the end."""
    spoken = take_apart(line)

    assert (spoken.rank, spoken.local_rank, spoken.pid, spoken.host) == (9, 1, 123, "10.0.0.1")
    assert spoken.message == SAID


def test_the_role_rank_gives_a_local_rank_before_the_global_one() -> None:
    """``torchrun --role rank`` labels local ranks just as torch labels global ones: torch's comes behind."""
    spoken = take_apart(f"[rank1]:[rank9]: {SAID}")

    assert (spoken.local_rank, spoken.rank) == (1, 9)


def test_a_progress_bar_may_be_glued_in_front() -> None:
    """The rank is searched for, not anchored."""
    spoken = take_apart(f"Epoch 0:  12%|#2        | 12/100 [00:07<00:51,  1.7it/s][rank3]: {SAID}")

    assert (spoken.rank, spoken.rank_from) == (3, RankFrom.PREFIX)


@pytest.mark.parametrize(
    ("tag", "group"),
    [
        ("[PG ID 2 PG GUID 7(tp) Rank 1]", Group("7", "tp", 1)),
        ("[PG ID 0 PG GUID 0(default_pg) Rank 1]", Group("0", "default_pg", 1)),
        ("[PG 2 Rank 1]", Group("2", "", 1)),
        ("[PG 2 (tp) Rank 1]", Group("2", "tp", 1)),
        ("[PG ID 0 PG GUID 0 Rank 1]", Group("0", "", 1)),
    ],
)
def test_tags_name_a_group_and_the_rank_in_it(tag: str, group: Group) -> None:
    """All wordings since torch 2.1; the GUID is what other ranks know the group by."""
    assert take_apart(f"[rank5]:[E1129 20:10:00.1 P.cpp:685] {tag} {SAID}").group == group


def test_the_prefix_is_the_global_rank_and_the_tag_the_one_in_the_group() -> None:
    """Rank 1 of a group may be any rank of the job."""
    spoken = take_apart(f"[rank9]:[E1129 20:10:00.1 P.cpp:685] [PG ID 2 PG GUID 7(tp) Rank 1] {SAID}")

    assert (spoken.rank, spoken.rank_from) == (9, RankFrom.PREFIX)


@pytest.mark.parametrize(
    ("tag", "source"),
    [
        ("[PG ID 0 PG GUID 0(default_pg) Rank 1]", RankFrom.DEFAULT_GROUP),
        ("[PG 0 (default_pg) Rank 1]", RankFrom.DEFAULT_GROUP),
        ("[PG ID 2 PG GUID 7(tp) Rank 1]", RankFrom.GROUP),
        ("[PG 2 Rank 1]", RankFrom.GROUP),
        ("[Rank 1]", RankFrom.GROUP),
        ("[Rank 1]:", RankFrom.GROUP),
    ],
)
def test_without_a_prefix_only_the_default_group_gives_a_global_rank(tag: str, source: RankFrom) -> None:
    """What any other tag says is a rank inside a group, which convicts nobody."""
    spoken = take_apart(f"[E1129 20:10:00.1 P.cpp:685] {tag} {SAID}")

    assert (spoken.rank, spoken.rank_from) == (1, source)


def test_the_group_of_all_has_one_label() -> None:
    """Its name may be missing; its number then says it."""
    labels = [Group("0").label, Group("0", "default_pg").label, Group("0", "undefined").label]

    assert labels == ["default_pg"] * 3


def test_ray_says_how_many_lines_it_dropped() -> None:
    """The note is no part of the message, and evidence that it dropped is counted."""
    spoken = take_apart(f"(Trainer pid=123, ip=10.0.0.1) {SAID} [repeated 7x across cluster]")

    assert (spoken.dropped, spoken.message) == (7, SAID)


@pytest.mark.parametrize(
    "line",
    [
        "RuntimeError: CUDA error: unspecified launch failure",
        "torch.OutOfMemoryError: CUDA out of memory",
        "srun: error: node-0: task 3: Killed",
        "slurmstepd: error: *** STEP 1.0 CANCELLED ***",
        "utf8Error: bad",
        "Traceback (most recent call last):",
        "step: 1370  loss:  2.10412",
        "(most recent call last)",
        "[0,1,2] finished collective #9, but didn't join collective #10",
    ],
)
def test_messages_are_not_taken_for_prefixes(line: str) -> None:
    """An exception's type, a tool's name, a list of ranks belong to what is said."""
    spoken = take_apart(line)

    assert spoken.message == line
    assert spoken.host is None
    assert spoken.rank is None


def test_an_indent_is_the_messages_own() -> None:
    """The one blank behind a label is the label's; the rest tells a body of a traceback from its end."""
    inside = take_apart('[rank3]:   File "/job/train.py", line 7, in main')
    last = take_apart("[rank3]: ValueError: bad")

    assert (inside.indent, last.indent) == (2, 0)


@pytest.mark.parametrize(
    "line",
    [
        "[" * 5000,
        "[rank" + "1" * 5000,
        "(" + "a " * 3000 + "pid=1",
        "| " + " " * 6000 + "|",
        "[PG ID 1 PG GUID 2(" + "x" * 6000,
        "a." * 4000 + ": ",
        "1" * 8000 + ": ",
        "2026-08-08 " * 700,
        "[repeated " * 700,
        "",
        "\x00\udc80[rank3]: x",
    ],
)
def test_hostile_lines_are_only_text(line: str) -> None:
    """Nothing raises, and nothing longer than a label becomes a rank."""
    spoken = take_apart(line)

    assert spoken.rank in (None, 3)
    assert len(spoken.message) <= len(line)
