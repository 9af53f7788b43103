"""Run several probes in one process, since importing torch is what most of them cost.

python -m tests.worker.probes.run_all < JSON [[name, {option: value}], ...]   prints their figures as JSON
"""

import importlib
import json
import os
import sys


def main() -> None:
    figures = []
    cores = os.sched_getaffinity(0)
    for name, given in json.load(sys.stdin):
        # Where there is no card a probe binds its process to a core.
        os.sched_setaffinity(0, cores)
        module = importlib.import_module(f"harness.worker.probes.{name}")
        figures.append(module.measure({**module.DEFAULTS, **given}))
    json.dump([dict(found) for found in figures], sys.stdout)


if __name__ == "__main__":
    main()
