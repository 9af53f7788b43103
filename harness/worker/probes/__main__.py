"""``python -m harness.worker.probes NAME``: run one probe."""

import argparse
import importlib
import json
import math
import sys
from collections.abc import Mapping

NAMES = (
    *("memory", "gemm", "links", "bandwidth", "clocks"),
    *("memory_account", "baseline", "checkpoint", "reshard"),
)


def main(argv: list[str] | None = None) -> int:
    """Run a probe; its figures are the last line of standard output. Returns the exit code."""
    from harness.worker.probes.devices import require_gpus
    from harness.worker.probes.options import UNABLE, Unable, parse

    parser = argparse.ArgumentParser(prog="python -m harness.worker.probes", add_help=False)
    parser.add_argument("name", choices=NAMES)
    name, rest = parser.parse_known_args(argv)
    module = importlib.import_module(f"harness.worker.probes.{name.name}")
    try:
        require_gpus()
        figures: Mapping[str, object] = module.measure(parse(name.name, module.DEFAULTS, rest))
    except Unable as error:
        print(error, file=sys.stderr)
        return UNABLE
    if figures:
        print(json.dumps({key: _plain(value) for key, value in figures.items()}), flush=True)
    return 0


def _plain(value: object) -> object:
    """JSON has no NaN and no infinity: they are no figures."""
    return None if isinstance(value, float) and not math.isfinite(value) else value


if __name__ == "__main__":
    sys.exit(main())
