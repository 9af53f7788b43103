"""``python -m harness.gpucheck``: what `ci/gpu_check.sh` runs once everything is there."""

import argparse
import sys
from pathlib import Path

from harness.gpucheck.check import Check
from harness.gpucheck.facts import Facts, gather_facts
from harness.gpucheck.worth import chosen, in_order
from harness.model.errors import DrillError


def main(argv: list[str] | None = None) -> int:
    """Run the check. Returns the exit code."""
    parser = argparse.ArgumentParser(prog="gpu_check", description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--budget", type=float, default=480.0, help="seconds, all together")
    parser.add_argument("--nproc", type=int, default=8)
    parser.add_argument("--only", default="", help="comma list of drill or drill-mode")
    parser.add_argument("--without", default="", help="what could not be installed")
    args = parser.parse_args(argv)
    try:
        wanted = chosen(args.only.split(",")) if args.only else in_order()
        facts = gather_facts()
        print("\n".join(_shown(facts)), flush=True)
        check = Check(
            facts,
            args.out,
            args.budget,
            args.nproc,
            tuple(args.without.split()),
            lambda line: print(line, flush=True),
        )
        code = check.run(wanted)
    except DrillError as error:
        print(f"gpu_check: {error}", file=sys.stderr)
        return error.exit_code
    for name, reason in check.left_out.items():
        print(f"{'LEFT OUT':<13} {name:<26} {reason}")
    print(f"summary      {args.out / 'summary.json'}", flush=True)
    return code


def _shown(facts: Facts) -> list[str]:
    cards = f"{facts.gpus}: {', '.join(sorted(set(facts.cards))) or 'unnamed'}" if facts.gpus else "none"
    return [
        f"cards         {cards}",
        f"driver        {facts.driver or 'none'}",
        f"torch         {facts.torch}, CUDA {facts.cuda or 'none'}, NCCL {facts.nccl or 'none'}",
        *(f"doctor        {line}" for line in facts.doctor),
    ]


if __name__ == "__main__":
    sys.exit(main())
