"""JUnit XML of a `drill run`: one suite, a case a run. Whoever reads it late never sees a stale pass."""

import io
import platform
import re
from collections.abc import Mapping, Sequence
from datetime import datetime, timezone
from pathlib import Path

from junitparser import Error, Failure, JUnitXml, TestCase, TestSuite

from harness.bundle.codec import write_atomically
from harness.catalog.selection import RunTitle
from harness.many import INTERNAL, RunOutcome
from harness.model.errors import PrerequisiteError
from harness.model.verdict import Outcome
from harness.report.summary import misses

_NOT_XML = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""Characters that XML 1.0 cannot hold, even escaped; logs are full of them."""

_ERRORS = {INTERNAL: "internal_error", 130: "interrupted"}


class JUnitFile:
    """The file of one command, whole at every moment: a run without an outcome stands in it as an error.

    A spectator of `harness.many`. `failure` is why the last write failed.
    """

    def __init__(self, path: Path, titles: Sequence[RunTitle]) -> None:
        """Write the file, with every run still to come.

        Raises:
            PrerequisiteError: it cannot be written.
        """
        self._path = path
        self._titles = titles
        self._started = datetime.now(timezone.utc)
        self._outcomes: dict[int, RunOutcome] = {}
        self.failure: PrerequisiteError | None = None
        self._write()
        if self.failure is not None:
            raise self.failure

    def started(self, title: RunTitle) -> None:
        """Nothing to write yet."""

    def phase(self, title: RunTitle, name: str, detail: str) -> None:
        """Nothing to write yet."""

    def ended(self, number: int, outcome: RunOutcome) -> None:
        """Write the file again, with this outcome."""
        self._outcomes[number] = outcome
        self._write()

    def _write(self) -> None:
        try:
            write_atomically(self._path, junit_xml(self._titles, self._outcomes, self._started))
            self.failure = None
        except OSError as error:
            self.failure = PrerequisiteError(f"--junit {self._path}: {error.strerror}")


def junit_xml(
    titles: Sequence[RunTitle], outcomes: Mapping[int, RunOutcome], started: datetime | None = None
) -> bytes:
    """The document. `outcomes` by the position of their title; a title without one did not run."""
    suite = TestSuite("drill")
    suite.hostname = platform.node()
    if started is not None:
        suite.timestamp = started.isoformat(timespec="seconds")
    for number, title in enumerate(titles):
        suite.add_testcase(_case(title, outcomes.get(number)))
    document = JUnitXml()
    document.add_testsuite(suite)
    document.update_statistics()  # type: ignore[no-untyped-call]
    buffer = io.BytesIO()
    document.write(buffer, pretty=True)
    return buffer.getvalue()


def _case(title: RunTitle, outcome: RunOutcome | None) -> TestCase:
    case = TestCase(title.case, title.drill, round(outcome.seconds, 3) if outcome else 0.0)
    if outcome is None:
        case.result = [_element(Error("did not run", "not_run"), "ended before this run came to its end")]
        return case
    if outcome.bundle is not None:
        case.system_out = _printable(f"bundle: {outcome.bundle}")
    if outcome.error is not None:
        kind = _ERRORS.get(outcome.error.exit_code, "cannot_run")
        message = _printable(outcome.error.message.partition("\n")[0])
        case.result = [_element(Error(message, kind), outcome.error.trace or outcome.error.message)]
        return case
    assert outcome.run is not None
    verdict = outcome.run.verdict.verdict
    if verdict is not Outcome.PASS:
        lines = misses(outcome.run)
        result = Failure if verdict is Outcome.FAIL else Error
        message = _printable(f"{verdict.value}: {lines[0]}")
        case.result = [_element(result(message, verdict.value), "\n".join(lines))]
    return case


def _element(result: Error | Failure, text: str) -> Error | Failure:
    result.text = _printable(text)
    return result


def _printable(text: str) -> str:
    return _NOT_XML.sub("\ufffd", text)
