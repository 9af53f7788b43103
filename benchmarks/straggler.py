"""The smallest straggler that is still found: real drills of `slow_rank` over factors.

    python benchmarks/straggler.py [--runs 5]

Each run breaks another rank. Found: that rank and nobody else. With factor 1 nothing is broken, and nobody
may be named.
"""

import argparse
import statistics
import tempfile
from pathlib import Path

from harness.model.kinds import Kind
from harness.testing import run_drill

FACTORS = (1.0, 1.1, 1.15, 1.2, 1.25, 1.3, 1.5, 2.0, 5.0)
COMPUTE_MS = 30.0


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runs", type=int, default=5)
    runs = parser.parse_args().runs
    print("| factor | found | an innocent named | factor as diagnosed, median | cost of a step, median |")
    print("|---|---|---|---|---|")
    for factor in FACTORS:
        found, innocents, factors, costs = 0, 0, [], []
        for turn in range(runs):
            culprit = turn % 8
            with tempfile.TemporaryDirectory() as folder:
                run = run_drill(
                    "slow_rank",
                    mode=("forward", "backward")[turn % 2],
                    culprit=culprit,
                    parameters={"factor": factor, "compute_ms": COMPUTE_MS},
                    out=Path(folder),
                )
            diagnosis = run.result.diagnosis
            right = (diagnosis.kind, diagnosis.culprits) == (Kind.STRAGGLER, (culprit,))
            found += right
            innocents += bool({*diagnosis.culprits, *diagnosis.suspects} - {culprit})
            if right and diagnosis.where.factor and diagnosis.where.cost:
                factors.append(diagnosis.where.factor)
                costs.append(diagnosis.where.cost)
        said = f"{statistics.median(factors):.2f}" if factors else "-"
        cost = f"{statistics.median(costs):.0%}" if costs else "-"
        print(f"| {factor:g} | {found} of {runs} | {innocents} | {said} | {cost} |", flush=True)


if __name__ == "__main__":
    main()
