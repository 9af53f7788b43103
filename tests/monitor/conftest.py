"""The real Prometheus and Alertmanager, or a reason why not."""

import pytest

from harness.model.errors import PrerequisiteError
from harness.monitor.binaries import Binaries, find_binaries


@pytest.fixture(scope="session")
def binaries() -> Binaries:
    """The programs; skipped where they are missing, which in CI they are not."""
    try:
        return find_binaries()
    except PrerequisiteError as error:
        pytest.skip(str(error))
