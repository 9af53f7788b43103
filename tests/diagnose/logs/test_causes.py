"""What to change and what to run next, for every kind that logs can show."""

import shlex

import pytest

from harness.diagnose.logs.causes import MAX_HOSTS, look_next, recommend
from harness.model.diagnosis import Where
from harness.model.kinds import Kind

SIDES = {"storage", "client", "training", "hardware", "scheduler"}
SHOWN = [
    (Kind.DEVICE_OOM, Where()),
    (Kind.HOST_OOM, Where(how="oom_killed")),
    (Kind.HOST_OOM, Where(how="shared_memory")),
    (Kind.DEVICE_ASSERT, Where()),
    (Kind.DEVICE_ASSERT, Where(how="xid_31")),
    (Kind.HARDWARE_FAULT, Where(how="xid_79")),
    (Kind.HARDWARE_FAULT, Where(how="ecc")),
    (Kind.NODE_LOST, Where()),
    (Kind.STORAGE_FAILURE, Where()),
    (Kind.DATA_CORRUPT, Where()),
    (Kind.EXTERNAL_STOP, Where(how="time_limit")),
    (Kind.EXTERNAL_STOP, Where(how="preempted")),
    (Kind.EXTERNAL_STOP, Where()),
    (Kind.SOFTWARE_ERROR, Where()),
    (Kind.RANK_EXITED, Where(how="signal", signal="SIGSEGV")),
    (Kind.RANK_EXITED, Where(how="finished_early")),
    *(
        (Kind.RANK_STALLED, Where(site=site))
        for site in (
            "dataloader",
            "checkpoint",
            "evaluation",
            "gil",
            "logging",
            "item_sync",
            "lock",
            "io",
            "stopped",
            "cuda_api",
        )
    ),
    (Kind.FABRIC_STALLED, Where()),
    (Kind.GPU_STALLED, Where()),
    (Kind.INIT_STUCK, Where()),
    (Kind.TEARDOWN_HANG, Where()),
    (Kind.RESTART_LOOP, Where()),
    (Kind.COLLECTIVE_SIZE_MISMATCH, Where()),
    (Kind.COLLECTIVE_DTYPE_MISMATCH, Where()),
    (Kind.COLLECTIVE_TYPE_MISMATCH, Where()),
    (Kind.COLLECTIVE_SKIPPED, Where()),
    (Kind.COLLECTIVE_EXTRA, Where()),
    (Kind.MICROBATCH_MISMATCH, Where()),
    (Kind.COLLECTIVE_ORDER_MISMATCH, Where()),
    (Kind.P2P_MISMATCH, Where()),
    (Kind.CHECKPOINT_SLOW, Where()),
    (Kind.CHECKPOINT_FAILED, Where()),
]


def said(kind: Kind, where: Where, framework: str | None = None) -> str:
    return "\n".join(f"{r.side}: {r.do}" for r in recommend(kind, where, framework))


@pytest.mark.parametrize(("kind", "where"), SHOWN)
def test_every_kind_has_something_to_change(kind: Kind, where: Where) -> None:
    """On a known side, each piece once, in a short sentence."""
    found = recommend(kind, where)

    assert found
    assert {r.side for r in found} <= SIDES
    assert len(set(found)) == len(found)
    assert all(len(r.do) < 120 for r in found)


@pytest.mark.parametrize(("kind", "where"), [*SHOWN, (Kind.INCONCLUSIVE, Where())])
@pytest.mark.parametrize("hosts", [(), ("node-3",)])
@pytest.mark.parametrize("framework", [None, "torchtitan", "verl"])
def test_commands_can_be_pasted(
    kind: Kind, where: Where, hosts: tuple[str, ...], framework: str | None
) -> None:
    """Each is one line that a shell can read, and comes once."""
    steps = look_next(kind, (3,), Where(site=where.site, how=where.how, hosts=hosts), framework, (5,))

    assert len(set(steps)) == len(steps)
    for step in steps:
        assert "\n" not in step
        assert step.startswith("#") or shlex.split(step, comments=True)


def test_nothing_to_do_for_the_healthy() -> None:
    """No advice where nothing is wrong, and none that is not meant."""
    assert recommend(Kind.HEALTHY, Where()) == ()
    assert look_next(Kind.HEALTHY, (), Where()) == ()
    assert recommend(Kind.INCONCLUSIVE, Where()) == ()


@pytest.mark.parametrize(
    ("how", "do"),
    [
        ("xid_79", "power-cycle"),
        ("xid_48", "RMA if it comes again"),
        ("xid_63", "no RMA yet"),
        ("xid_64", "RMA if remapping fails again"),
        ("xid_94", "restart the job"),
        ("xid_74", "NVLink"),
        ("xid_119", "stopped answering"),
        ("xid_999", "XID 999: reset"),
        ("ecc", "dcgmi diag"),
    ],
)
def test_a_card_is_treated_by_its_fault(how: str, do: str) -> None:
    """Reset, reboot and replacement are for different faults; the node is drained for all."""
    text = said(Kind.HARDWARE_FAULT, Where(how=how))

    assert do in text
    assert "scheduler: drain the node" in text


def test_two_ways_to_run_out_of_host_memory() -> None:
    """A full /dev/shm is no matter of the memory limit."""
    shared, killed = (said(Kind.HOST_OOM, Where(how=how)) for how in ("shared_memory", "oom_killed"))

    assert "--shm-size" in shared
    assert "--shm-size" not in killed
    assert "--mem" in killed
    assert "df -h /dev/shm" in look_next(Kind.HOST_OOM, (1,), Where(how="shared_memory"))
    assert any("dmesg" in step for step in look_next(Kind.HOST_OOM, (1,), Where(how="oom_killed")))


def test_a_loader_that_stalls_gets_time_limits() -> None:
    """On the loader and on the client's reads; the collective's limit is left alone."""
    text = said(Kind.RANK_STALLED, Where(site="dataloader"))

    assert "training: DataLoader(timeout=" in text
    assert "client: connect and read timeouts" in text
    assert "raise the limit" not in text


@pytest.mark.parametrize(
    ("framework", "switch"),
    [
        ("torchtitan", "--comm.train_timeout_seconds"),
        ("Megatron", "--distributed-timeout-minutes"),
        ("Lightning", "DDPStrategy"),
        (None, "init_process_group"),
        ("unheard-of", "init_process_group"),
    ],
)
def test_the_limit_is_spelt_as_the_framework_does(framework: str | None, switch: str) -> None:
    """A long save or evaluation is raised above, with the switch that exists."""
    for site in ("checkpoint", "evaluation"):
        assert switch in said(Kind.RANK_STALLED, Where(site=site), framework)


def test_a_stop_from_outside_by_its_reason() -> None:
    """A time limit, a preemption and a cancel are mended in three ways."""
    texts = {
        how: said(Kind.EXTERNAL_STOP, Where(how=how)) for how in ("DUE TO TIME LIMIT", "PREEMPTION", None)
    }

    assert "longer limit" in texts["DUE TO TIME LIMIT"]
    assert "without preemption" in texts["PREEMPTION"]
    assert "who cancelled" in texts[None]


def test_an_assertion_is_found_with_blocking_launches() -> None:
    """And nowhere else, since it slows everything."""
    assert any("CUDA_LAUNCH_BLOCKING=1" in step for step in look_next(Kind.DEVICE_ASSERT, (1,), Where()))
    assert not any("CUDA_LAUNCH_BLOCKING" in step for step in look_next(Kind.DEVICE_OOM, (1,), Where()))


@pytest.mark.parametrize("kind", [Kind.RANK_STALLED, Kind.FABRIC_STALLED, Kind.INCONCLUSIVE])
def test_a_hang_is_recorded_next_time(kind: Kind) -> None:
    """The recorder's size and place, and stacks of the ranks in question."""
    steps = "\n".join(look_next(kind, (), Where()))

    assert "TORCH_FR_BUFFER_SIZE" in steps
    assert "TORCH_FR_DUMP_TEMP_FILE" in steps
    assert "py-spy dump --nonblocking" in steps
    assert "every rank, while it hangs" in steps


def test_torchtitan_sizes_the_recorder_itself() -> None:
    """It sets the variable from its own configuration, over what was exported."""
    steps = "\n".join(look_next(Kind.RANK_STALLED, (3,), Where(), "torchtitan"))

    assert "--comm.trace_buf_size" in steps
    assert "TORCH_FR_" not in steps


def test_mismatches_are_compared_by_torch_itself() -> None:
    """DETAIL names who differs; a hang of another kind does not need it."""
    assert any("DETAIL" in step for step in look_next(Kind.COLLECTIVE_SKIPPED, (3,), Where()))
    assert not any("DETAIL" in step for step in look_next(Kind.RANK_STALLED, (3,), Where()))


def test_missing_logs_come_first() -> None:
    """From the hosts of those ranks, where they are known."""
    known = look_next(Kind.INCONCLUSIVE, (), Where(), None, (5, 6), {5: "node-0", 6: "node-0", 7: "node-1"})
    unknown = look_next(Kind.INCONCLUSIVE, (), Where(), None, (5,))

    assert known[0] == "scp 'node-0:/path/to/logs/*' logs/   # nothing of rank 5-6 is here"
    assert unknown[0].startswith("scp 'HOST:")
    assert sum(step.startswith("scp") for step in known) == 1


def test_commands_run_where_the_accused_is() -> None:
    """The host is in the command, quoted for a remote shell."""
    steps = look_next(Kind.HARDWARE_FAULT, (9,), Where(how="xid_79"), None, (), {9: "node-1"})

    assert "ssh node-1 'nvidia-smi -q -d ECC,ROW_REMAPPER'" in steps
    (kernel,) = [step for step in steps if "dmesg" in step]
    assert shlex.split(kernel)[2] == "dmesg -T | grep -i -E 'xid|nvrm|killed|oom'"


@pytest.mark.parametrize(
    "host", ["a;reboot", "$(reboot)", "-oProxyCommand=x", "a b", "a\nreboot", "a'b", "", "é"]
)
def test_no_name_from_a_log_becomes_a_command(host: str) -> None:
    """What is no host name is left out of commands, wherever it came from."""
    where = Where(hosts=(host,))

    steps = look_next(Kind.HARDWARE_FAULT, (3,), where, None, (3,), {3: host})

    assert not any("ssh" in step or "reboot" in step or "Proxy" in step for step in steps)
    assert steps[0].startswith("scp 'HOST:")


def test_many_hosts_are_cut() -> None:
    """A thousand hosts are not a thousand commands."""
    where = Where(hosts=tuple(f"node-{i}" for i in range(1000)))

    steps = look_next(Kind.FABRIC_STALLED, (), where)

    assert len({step.split()[1] for step in steps if step.startswith("ssh")}) == MAX_HOSTS
