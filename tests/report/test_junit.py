"""JUnit XML: valid whatever a log says, and never a pass that was not one."""

from pathlib import Path

import pytest
from junitparser import Error, JUnitXml

from harness.catalog.selection import RunTitle
from harness.many import RunError, RunOutcome
from harness.model.errors import PrerequisiteError
from harness.report.junit import JUnitFile, junit_xml

TITLES = [RunTitle("fr_hang", "skip", (5,)), RunTitle("control", "none", (), 2, 3)]


def failed(title: RunTitle, code: int, message: str, trace: str | None = None) -> RunOutcome:
    """A run without a verdict."""
    return RunOutcome(title, None, RunError(code, message, trace), Path("runs/x"), 1.23456)


def test_what_has_not_run_is_an_error(tmp_path: Path) -> None:
    """From the first moment the file is whole: no stale pass of yesterday is left in it."""
    path = tmp_path / "deep" / "j.xml"
    file = JUnitFile(path, TITLES)
    (suite,) = JUnitXml.fromfile(str(path))
    assert [(case.classname, case.name) for case in suite] == [
        ("fr_hang", "skip, rank 5"),
        ("control", "none, 2 of 3"),
    ]
    assert (suite.tests, suite.errors) == (2, 2)

    file.ended(0, failed(TITLES[0], 4, "no namespaces here"))
    (suite,) = JUnitXml.fromfile(str(path))
    first, second = suite
    assert (first.result[0].type, first.result[0].message) == ("cannot_run", "no namespaces here")
    assert first.time == 1.235
    assert "runs/x" in first.system_out
    assert second.result[0].type == "not_run"
    assert [entry.name for entry in path.parent.iterdir()] == ["j.xml"]


@pytest.mark.parametrize(("code", "kind"), [(4, "cannot_run"), (5, "internal_error"), (130, "interrupted")])
def test_any_bytes_make_valid_xml(tmp_path: Path, code: int, kind: str) -> None:
    """Control characters, lone surrogates and markup from a log are shown, not fatal."""
    text = "bell \x07 null \x00 esc \x1b[31m <b>&]]> \udcff \U0001f600\nsecond line"
    path = tmp_path / "j.xml"
    path.write_bytes(junit_xml(TITLES, {0: failed(TITLES[0], code, text, text)}))

    (suite,) = JUnitXml.fromfile(str(path))
    (result,) = next(iter(suite)).result

    assert isinstance(result, Error)
    assert result.type == kind
    assert "<b>&]]>" in result.message
    assert "\U0001f600\nsecond line" in result.text


def test_a_file_that_cannot_be_written_is_said_once_it_matters(tmp_path: Path) -> None:
    """At once if it never could be; later the runs go on, and the failure is kept."""
    (tmp_path / "file").write_text("")
    with pytest.raises(PrerequisiteError, match="--junit"):
        JUnitFile(tmp_path / "file" / "j.xml", TITLES)

    file = JUnitFile(tmp_path / "there" / "j.xml", TITLES)
    (tmp_path / "there" / "j.xml").unlink()
    (tmp_path / "there").rmdir()
    (tmp_path / "there").write_text("")
    file.ended(0, failed(TITLES[0], 4, "no namespaces here"))

    assert file.failure is not None
