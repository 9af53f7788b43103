"""Evidence that a drill's spec asks for and that its bundle does not have."""

from collections.abc import Callable

from harness.bundle.writer import BundleWriter
from harness.model.plan import RunPlan
from harness.model.ranks import format_ranks


def lacking(writer: BundleWriter, plan: RunPlan) -> tuple[str, ...]:
    """What is missing, by kind and rank."""
    missing = [f"{lost.what}: {lost.why}" for lost in writer.lost]
    layout = writer.layout
    everybody = set(range(plan.nproc))
    for requirement in plan.expectation.evidence:
        what, _, whose = requirement.partition(":")
        wanted = everybody - set(plan.culprits) if whose == "victims" else everybody
        there: Callable[[int], bool] = {
            "flight_recorder": lambda rank: layout.dump(0, rank).exists(),
            "stacks": lambda rank: layout.stack(0, 0, rank).exists(),
            "signals": lambda rank: layout.signal_file(0, rank).exists(),
            "logs": lambda rank: any(layout.logs.glob(f"*/attempt_0/{rank}/stderr.log")),
        }[what]
        absent = [rank for rank in wanted if not there(rank)]
        if absent:
            missing.append(f"{what} of rank {format_ranks(absent)}")
    return tuple(missing)
