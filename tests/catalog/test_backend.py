"""gloo or NCCL, on how many cards, and why: decided before anything starts."""

import dataclasses

import pytest

from harness.catalog.backend import choose_backend
from harness.catalog.find import find_drill
from harness.catalog.planning import plan_run
from harness.catalog.settings import Sources, settle
from harness.model.errors import PrerequisiteError, UsageError
from harness.model.plan import RunPlan
from harness.observe.machine import Machine

NONE = Machine(0, "2.13.0+cpu")
CPU_BUILD = Machine(8, "2.13.0+cpu")


def cards(count: int) -> Machine:
    """A machine with a CUDA build and so many cards."""
    return Machine(count, "2.13.0+cu130", "13.0", "2.29.7")


def plan(machine: Machine, *sets: str, drill: str = "fr_hang", **flags: str) -> RunPlan:
    """A drill's plan on such a machine."""
    spec = find_drill(drill)
    return plan_run(
        spec, settle(spec, dataclasses.replace(Sources.read(flags, sets), environ={})), machine=machine
    )


@pytest.mark.parametrize(
    ("machine", "nproc", "name", "shared", "reason"),
    [
        (NONE, 8, "gloo", False, "no GPU on this machine"),
        (CPU_BUILD, 8, "gloo", False, "8 GPUs, but torch 2.13.0+cpu is built without CUDA"),
        (Machine(1), 8, "gloo", False, "1 GPU, but torch is not installed"),
        (cards(8), 8, "nccl", False, "8 GPUs for 8 ranks"),
        (cards(1), 1, "nccl", False, "1 GPU for 1 ranks"),
        (cards(1), 8, "nccl", True, "1 GPU for 8 ranks, which share it"),
        (cards(4), 8, "gloo", False, "4 GPUs for 8 ranks are too few; --share-gpu puts all on one"),
    ],
)
def test_auto_takes_what_fits_and_says_why(
    machine: Machine, nproc: int, name: str, shared: bool, reason: str
) -> None:
    """NCCL with a card a rank or one for all, gloo otherwise; the reason names what was found."""
    chosen = choose_backend(find_drill("fr_hang"), "auto", False, nproc, machine)

    assert (chosen.name, chosen.shared, chosen.reason) == (name, shared, reason)


@pytest.mark.parametrize(
    ("wanted", "share", "machine", "says"),
    [
        ("nccl", False, NONE, "8 ranks need 8 GPUs and this machine has 0; use --backend gloo"),
        ("nccl", False, cards(1), "this machine has 1; use --share-gpu to put all on one"),
        ("nccl", False, CPU_BUILD, "built without CUDA"),
        ("auto", True, NONE, "--share-gpu: no GPU on this machine"),
        ("nccl", True, CPU_BUILD, "--share-gpu: 8 GPUs, but torch 2.13.0.cpu is built without CUDA"),
    ],
)
def test_what_is_missing_is_named(wanted: str, share: bool, machine: Machine, says: str) -> None:
    """Exit code 4, with what is there, what is needed and what to do instead."""
    with pytest.raises(PrerequisiteError, match=says):
        choose_backend(find_drill("fr_hang"), wanted, share, 8, machine)


@pytest.mark.parametrize(
    ("drill", "wanted", "share"),
    [("fr_hang", "gloo", True), ("fabric", "nccl", False), ("fabric", "auto", True)],
)
def test_wishes_that_contradict_are_usage_errors(drill: str, wanted: str, share: bool) -> None:
    """gloo ranks share no card, and a drill runs only on what it says."""
    with pytest.raises(UsageError):
        choose_backend(find_drill(drill), wanted, share, 8, cards(8))


def test_share_gpu_puts_all_on_one_even_where_there_are_more() -> None:
    """Asked for is asked for; the plan then says that links were not exercised."""
    planned = plan(cards(8), share_gpu="true")

    assert planned.shared
    assert (planned.backend, planned.launcher) == ("nccl", "torchrun")
    assert planned.env["DRILL_SHARE_GPU"] == "1"
    assert any("links between cards" in note for note in planned.notes)


def test_tensors_scale_down_on_a_shared_card_unless_chosen() -> None:
    """The default of a shared card counts where nobody said otherwise, and nowhere else."""
    assert plan(cards(1)).parameters["numel"] == 1 << 14
    assert plan(cards(8)).parameters["numel"] == 1 << 20
    assert plan(NONE).parameters["numel"] == 1 << 20
    assert plan(cards(1), "numel=4096").parameters["numel"] == 4096
    assert "16384" in plan(cards(1)).argv


def test_waiting_for_the_watchdog_needs_one() -> None:
    """gloo has no watchdog: exit code 4 with the reason; on NCCL the plan shortens the timeout."""
    with pytest.raises(PrerequisiteError, match=r"gloo has no watchdog.*no GPU"):
        plan(NONE, wait_for_watchdog="true")
    planned = plan(cards(1), wait_for_watchdog="true")

    assert planned.watchdog
    assert planned.env["DRILL_COLLECTIVE_TIMEOUT_S"] == "15"
    assert planned.env["TORCH_CPP_LOG_LEVEL"] == "INFO"


def test_fork_and_cuda_do_not_go_together() -> None:
    """A forked rank cannot use CUDA: said before it hangs."""
    with pytest.raises(UsageError, match="CUDA does not survive a fork"):
        plan(cards(8), launcher="fork")
