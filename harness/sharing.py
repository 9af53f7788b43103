"""Ranks that shared a card and that NCCL would not have: what is run instead, and what is said of it."""

import dataclasses
import re
from pathlib import Path

from harness.catalog.planning import plan_run
from harness.experiment import RunResult
from harness.model.errors import PrerequisiteError, UsageError
from harness.model.plan import RunPlan, Setting
from harness.observe.machine import Machine, look

_REFUSED = re.compile(
    rb"Duplicate GPU detected|Multiple Ranks are using the same GPU|communicator has multiple ranks using"
    rb"|all CUDA-capable devices are busy or unavailable|CUDA-capable device\(s\) is/are busy"
)
"""Source: NCCL's init.cc to 2.29 and since 2.30, its transport/nvls.cc, and CUDA in exclusive mode."""

_TAIL_BYTES = 1 << 20


def refusal(bundle: Path) -> str | None:
    """The words with which NCCL or CUDA refused to let ranks share a card; None if it did not."""
    for log in sorted(bundle.glob("logs/*/attempt_*/*/std*.log")):
        with log.open("rb") as file:
            file.seek(max(0, log.stat().st_size - _TAIL_BYTES))
            for line in file:
                if _REFUSED.search(line):
                    return line.decode(errors="replace").strip()[:200]
    return None


def without_sharing(run: RunResult, machine: Machine | None = None) -> RunPlan | None:
    """The same drill with as many ranks as there are cards, if its ranks were not let onto one; else None.

    Raises:
        PrerequisiteError: they were not, and with so few ranks the drill shows nothing.
    """
    plan = run.plan
    if not plan.shared or (said := refusal(run.bundle)) is None:
        return None
    return fewer_ranks(plan, said, look() if machine is None else machine)


def fewer_ranks(plan: RunPlan, said: str, machine: Machine) -> RunPlan:
    """The plan with a card a rank. `said`: the refusal.

    Raises:
        PrerequisiteError: with so few ranks the drill shows nothing.
    """
    gpus = max(machine.gpus, 1)
    settings = {
        **plan.settings,
        "nproc": Setting(gpus, "as many as cards"),
        "share_gpu": Setting(False, "refused"),
        "backend": Setting("nccl", "--backend"),
    }
    why = f"NCCL refused {plan.nproc} ranks on one card ({said})"
    try:
        fewer = plan_run(plan.spec, settings, plan.job_env, machine)
    except (UsageError, PrerequisiteError) as error:
        ranks = "1 rank" if gpus == 1 else f"{gpus} ranks"
        raise PrerequisiteError(
            f"{why}, and with {ranks}, one a card, {plan.spec.name} shows nothing: {error}"
        ) from None
    return dataclasses.replace(fewer, notes=(*fewer.notes, f"{why}: run with {fewer.nproc} instead"))
