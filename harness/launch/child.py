"""The first instructions of an exec'd rank: tie its life to the agent's, register, become the script.

``python -m harness.launch.child AGENT_PID SCRIPT [ARGS...]``
"""

import runpy
import sys
from pathlib import Path

from harness.worker.environment import RankEnvironment
from harness.worker.lifeline import children_die_with_us, die_with_parent
from harness.worker.registration import Registration


def run_script(script: str, argv: tuple[str, ...]) -> None:
    """Run a file as ``python SCRIPT ARGS`` would."""
    sys.argv = [script, *argv]
    sys.path.insert(0, str(Path(script).parent))
    runpy.run_path(script, run_name="__main__")


if __name__ == "__main__":
    die_with_parent(int(sys.argv[1]))
    children_die_with_us()
    Registration(RankEnvironment.read())
    run_script(sys.argv[2], tuple(sys.argv[3:]))
