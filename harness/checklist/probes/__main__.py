"""``python -m harness.checklist.probes NAME``: run one probe; its figures are the last line of its output."""

import importlib
import json
import sys

from harness.worker.probes.options import UNABLE, Unable, parse

NAMES = ("dump_path", "rank_logs", "configuration")


def main(argv: list[str]) -> int:
    """Run a probe. Returns the exit code: 4 where something is missing that it needs."""
    if not argv or argv[0] not in NAMES:
        print(f"give one of: {', '.join(NAMES)}", file=sys.stderr)
        return 2
    module = importlib.import_module(f"harness.checklist.probes.{argv[0]}")
    try:
        figures = module.measure(parse(argv[0], module.DEFAULTS, argv[1:]))
    except Unable as error:
        print(error, file=sys.stderr)
        return UNABLE
    print(json.dumps(figures))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
