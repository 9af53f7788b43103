"""The variables of ranks, for each torch; the table is what the wheels' own headers and libraries read."""

import pytest

from harness.catalog.environment import (
    Conditions,
    compose,
    parse_version,
    ring_without_asking,
    watchdog_limit_s,
)

NEW, OLD = "TORCH_FR_BUFFER_SIZE", "TORCH_NCCL_TRACE_BUFFER_SIZE"


@pytest.mark.parametrize(
    ("torch", "nccl", "gloo"),
    [
        ("2.10.0+cu128", {NEW, OLD}, {NEW}),
        ("2.11.0+cu130", {NEW, OLD}, set()),
        ("2.12.1+cu130", {NEW}, set()),
        ("2.13.0+cpu", {NEW}, set()),
        ("2.14.0a0+gitabc", {NEW}, set()),
        (None, {NEW, OLD}, set()),
    ],
)
def test_the_ring_by_the_names_that_this_torch_looks_at(
    torch: str | None, nccl: set[str], gloo: set[str]
) -> None:
    """2.10 and 2.11 make NCCL's dump pipe by the old name only; 2.10 records nothing unless told to."""
    for backend, names in (("nccl", nccl), ("gloo", gloo)):
        env = compose(Conditions(backend, torch))

        assert {name for name in (NEW, OLD) if name in env} == names
        assert {env[name] for name in names} <= {"20000"}


def test_nccl_dumps_before_it_tears_down_and_waits_are_short() -> None:
    """What torchrun would set to 1 is 3; dump wait, store poll and heartbeat are a drill's."""
    env = compose(Conditions("nccl", "2.13.0"))

    assert env["TORCH_NCCL_ASYNC_ERROR_HANDLING"] == "3"
    assert int(env["TORCH_NCCL_WAIT_TIMEOUT_DUMP_MILSEC"]) < 15_000
    assert int(env["TORCH_NCCL_COORD_CHECK_MILSEC"]) < 1_000
    assert int(env["TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC"]) < 480
    assert "GLOO_SOCKET_IFNAME" not in env


def test_production_fidelity_leaves_torch_as_the_job_has_it() -> None:
    """The job's values count, also what it leaves unset; only dump paths and the launcher's stay ours."""
    job = {
        "TORCH_NCCL_ASYNC_ERROR_HANDLING": "1",
        "NCCL_DEBUG": "INFO",
        "TORCH_FR_DUMP_TEMP_FILE": "/scratch/rank_",
        "RANK": "3",
        "MASTER_ADDR": "node-1",
    }
    env = compose(Conditions("nccl", "2.13.0", job=job))

    assert env["TORCH_NCCL_ASYNC_ERROR_HANDLING"] == "1"
    assert env["NCCL_DEBUG"] == "INFO"
    assert not {"TORCH_FR_DUMP_TEMP_FILE", "RANK", "MASTER_ADDR", NEW, OLD} & set(env)
    assert "TORCH_NCCL_WAIT_TIMEOUT_DUMP_MILSEC" not in env


def test_the_watchdogs_limit_follows_the_environment() -> None:
    """Short in a drill; with the job's own waits, which default to torch's, long enough for them."""
    drill = watchdog_limit_s(compose(Conditions("nccl", "2.13.0", watchdog=True)))
    job = watchdog_limit_s(compose(Conditions("nccl", "2.13.0", watchdog=True, job={})))

    assert 15 < drill < 30
    assert job > 15 + 2 * 15


@pytest.mark.parametrize(
    ("text", "version"),
    [("2.13.0+cu130", (2, 13)), ("2.9", (2, 9)), ("nightly", None), (None, None), ("", None)],
)
def test_versions(text: str | None, version: tuple[int, int] | None) -> None:
    """Major and minor, whatever follows them."""
    assert parse_version(text) == version


def test_the_ring_of_2_10_is_off_unless_asked_for() -> None:
    """The doctor must not call a recorder on that is off."""
    assert ring_without_asking("2.10.0") == 0
    assert ring_without_asking("2.13.0+cpu") == 2000
