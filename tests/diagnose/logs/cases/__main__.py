"""`python -m tests.diagnose.logs.cases NAME DRESS OUT` writes one case into a folder, for looking at."""

import sys
from pathlib import Path

from tests.diagnose.logs.cases import CASES, DRESSES
from tests.diagnose.logs.cases.writing import write


def main(arguments: list[str]) -> int:
    if len(arguments) != 3 or arguments[0] not in CASES or arguments[1] not in DRESSES:
        print("usage: NAME DRESS OUT; cases and their dresses:", file=sys.stderr)
        for case in CASES.values():
            print(f"  {case.name}: {' '.join(case.dresses)}", file=sys.stderr)
        return 2
    case = CASES[arguments[0]]
    write(case.build(DRESSES[arguments[1]]), Path(arguments[2]))
    print(f"rule {case.rule}\n{case.expect}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
