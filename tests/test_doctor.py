"""Each check of doctor, on environments that are wrong in one way."""

from pathlib import Path

import pytest

from harness.doctor import dump_prefix, examine


def lines(environ: dict[str, str], check: str) -> list[tuple[str, str]]:
    """Status and finding of one check."""
    return [(line.status, line.found) for line in examine(environ) if line.check == check]


def test_dump_path_on_a_temporary_file_system() -> None:
    """A path that is gone with the container is a warning."""
    ((status, found),) = lines({"TORCH_FR_DUMP_TEMP_FILE": "/dev/shm/dumps/rank_"}, "dump path")

    assert status == "WARN"
    assert "tmpfs" in found


def test_dump_path_that_cannot_be_written() -> None:
    """/proc refuses even root."""
    ((status, _),) = lines({"TORCH_FR_DUMP_TEMP_FILE": "/proc/dumps/rank_"}, "dump path")

    assert status == "FAIL"


def test_dump_path_not_set_says_where_dumps_would_go(tmp_path: Path) -> None:
    """torch's default is the cache folder of whoever runs."""
    environ = {"HOME": str(tmp_path)}

    assert dump_prefix(environ) == f"{tmp_path}/.cache/torch/comm_lib_trace_rank_"
    assert lines(environ, "dump path")[0][0] == "WARN"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("TORCH_NCCL_ASYNC_ERROR_HANDLING", "1"),
        ("TORCH_NCCL_DUMP_ON_TIMEOUT", "false"),
        ("TORCH_NCCL_ENABLE_MONITORING", "0"),
        ("TORCH_INCLUDE_STACK_TRACE", "0"),
        ("TORCH_INCLUDE_ONLY_ACTIVE", "1"),
    ],
)
def test_variables_that_defeat_dumps(name: str, value: str) -> None:
    """Each is named with its value."""
    environ = {"TORCH_NCCL_ASYNC_ERROR_HANDLING": "3", name: value}

    assert any(f"{name}={value}" in found for _, found in lines(environ, "environment"))


def test_unset_error_handling_is_as_bad_as_one() -> None:
    """torchrun sets 1 where it is not set."""
    assert lines({}, "environment")[0][0] == "WARN"
    assert lines({"TORCH_NCCL_ASYNC_ERROR_HANDLING": "3"}, "environment") == [
        ("OK", "nothing that defeats dumps")
    ]


def test_a_recorder_that_is_off() -> None:
    """Buffer size 0 records nothing."""
    assert lines({"TORCH_FR_BUFFER_SIZE": "0"}, "torch")[0][0] == "FAIL"
