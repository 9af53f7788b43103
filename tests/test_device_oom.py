"""A rank whose card has no room: real ranks, torch's own exception, no card."""

from pathlib import Path

import pytest

from harness.testing import assert_passed, run_drill

SCRIPT = """
import argparse, torch
import torch.distributed as dist
from harness.model.ranks import parse_ranks
from harness.worker import Session

p = argparse.ArgumentParser()
p.add_argument("--culprit", type=parse_ranks)
p.add_argument("--backend")
a = p.parse_args()
with Session.join(a.backend) as session:
    fault = session.arm("full", a.culprit, 2)
    for step in session.steps(6):
        if fault.due(step):
            fault.fire()
            raise torch.OutOfMemoryError(
                "CUDA out of memory. Tried to allocate 256.00 MiB. GPU 0 has a total capacity of 139.72 GiB "
                "of which 61.00 MiB is free. Including non-PyTorch memory, this process has 1.44 GiB in use."
            )
        dist.all_reduce(torch.ones(4))
"""


@pytest.mark.ranks
def test_an_allocator_that_says_no_is_device_oom(tmp_path: Path) -> None:
    """The exception's own words make it the device's memory, not just any error; its peers are victims."""
    (tmp_path / "full.py").write_text(SCRIPT)
    (tmp_path / "full.yaml").write_text(
        "name: full\nsummary: s\nscript: full.py\nmode: full\nnproc: 4\nculprit: [2]\n"
        "modes: {full: {summary: f, expect: {kind: device_oom}, evidence: {flight_recorder: victims}}}\n"
    )

    run = run_drill("full", drills_dir=tmp_path, out=tmp_path / "runs")

    assert_passed(run)
    assert run.result.diagnosis.victims == (0, 1, 3)
