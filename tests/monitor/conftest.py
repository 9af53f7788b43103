"""The real Prometheus and Alertmanager, or a reason why not."""

import os

import pytest

from harness.model.errors import PrerequisiteError
from harness.monitor.binaries import Binaries, find_binaries


@pytest.fixture(scope="session")
def binaries() -> Binaries:
    """The programs; tests that need them are skipped where they are missing, but never in CI."""
    try:
        return find_binaries()
    except PrerequisiteError as error:
        if os.environ.get("CI"):
            raise
        pytest.skip(str(error))
