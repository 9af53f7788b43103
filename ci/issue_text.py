"""The text of an issue about a nightly run that failed: what, why, and where the evidence is.

python ci/issue_text.py drills.xml checklist.xml > issue.md
python ci/issue_text.py --nothing-ran drills.xml checklist.xml    names those of which every test was skipped
"""

import os
import platform
import sys
from pathlib import Path

from junitparser import Error, Failure, JUnitXml, Properties, Skipped, TestCase

from harness.report.markdown import code, prose

MAX_CHARS = 1500
"""Of one test's message; the whole is in the JUnit file and in the bundle."""


def problems(path: Path) -> tuple[list[TestCase], int, int]:
    """Failed and broken tests of a file, how many there were, and how many of them were skipped."""
    cases = [case for suite in JUnitXml.fromfile(str(path)) for case in suite]
    bad = [case for case in cases if any(isinstance(r, (Failure, Error)) for r in case.result)]
    skipped = [case for case in cases if any(isinstance(r, Skipped) for r in case.result)]
    return bad, len(cases), len(skipped)


def describe(case: TestCase) -> str:
    """One test: its name, what it said, its bundle."""
    result = next(r for r in case.result if isinstance(r, (Failure, Error)))
    kind = "failed" if isinstance(result, Failure) else "inconclusive, or an error"
    text = (result.text or result.message or "").strip()[:MAX_CHARS]
    fence = "`" * 4
    lines = [f"### {prose(case.name or 'a test')}: {kind}", f"{fence}text\n{text}\n{fence}"]
    properties = case.child(Properties)
    bundles = [p.value for p in properties or () if p.name == "bundle"]
    lines += [f"bundle: {code(bundle)}" for bundle in bundles]
    return "\n\n".join(lines)


def nothing_ran(paths: list[str]) -> list[str]:
    """Files without a test that ran, each with why the first was skipped."""
    found = []
    for path in paths:
        cases = [case for suite in JUnitXml.fromfile(path) for case in suite]
        skips = [next((r for r in case.result if isinstance(r, Skipped)), None) for case in cases]
        if all(skip is not None for skip in skips):
            why = next((skip.text or skip.message or "" for skip in skips if skip is not None), "no tests")
            found.append(f"{path}: {' '.join(why.split())[:MAX_CHARS]}")
    return found


def main(arguments: list[str]) -> None:
    """Write the text to standard output."""
    if arguments[:1] == ["--nothing-ran"]:
        print("\n".join(nothing_ran(arguments[1:])))
        return
    blocks = [
        f"Nightly run on {code(platform.node())}, commit {code(os.environ.get('GITHUB_SHA', 'not stated'))}."
    ]
    for argument in arguments:
        path = Path(argument)
        try:
            bad, count, skipped = problems(path)
        except Exception as error:
            # A file that pytest never wrote is the first thing to say.
            blocks.append(f"{code(str(path))} cannot be read: {prose(str(error))}")
            continue
        blocks.append(f"## {path.stem}: {len(bad)} of {count} failed, {skipped} skipped")
        blocks += [f"Nothing ran: {prose(why)}" for why in nothing_ran([argument])]
        blocks += [describe(case) for case in bad]
    print("\n\n".join(blocks))


if __name__ == "__main__":
    main(sys.argv[1:])
