"""A drill's script in one call: parse, arm the fault, join, train."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from harness.worker.environment import RankEnvironment
from harness.worker.faults import Act, Fault
from harness.worker.workloads.options import Options, parse_options

if TYPE_CHECKING:
    from harness.worker.session import Session


def run_workload(description: str | None, acts: Mapping[str, Act], argv: list[str] | None = None) -> None:
    """Train the workload that ``--workload`` names, with the act of ``--mode`` armed on ``--culprit``.

    `acts`: mode -> what is broken, the default mode first.
    """
    from harness.worker.session import Session

    options = parse_options(description, acts, argv)
    env = RankEnvironment.read()
    at = options.at if options.at < options.steps else -1
    acts[options.mode].configure(options)
    fault = Fault(options.mode, options.culprit, at, env, acts[options.mode])
    with Session.join(options.backend, options.collective_timeout_s, fault) as session:
        train(session, options)


def train(session: "Session", options: Options) -> None:
    """Run one workload to its end."""
    if options.workload == "collectives":
        from harness.worker.workloads import collectives

        collectives.train(session, options)
    elif options.workload == "mlp":
        from harness.worker.workloads import mlp

        mlp.train(session, options)
    elif options.workload == "pipeline":
        from harness.worker.workloads import pipeline

        pipeline.train(session, options)
    else:
        from harness.worker.workloads import transformer

        transformer.train(session, options)
