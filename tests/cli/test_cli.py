"""The command itself: what it imports, what it prints."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

DRILL = (sys.executable, "-m", "harness.cli")

ALLOWED_BY_HELP = {"click", "harness"}


def test_help_imports_next_to_nothing() -> None:
    """--help must be fast: click and our own names, no torch, no pydantic, no rich."""
    code = (
        "import sys; before = set(sys.modules); sys.argv = ['drill', '--help']\n"
        "from harness.cli import main\n"
        "try: main()\n"
        "except SystemExit: pass\n"
        "new = {m.partition('.')[0] for m in set(sys.modules) - before} - set(sys.stdlib_module_names)\n"
        "print(sorted(n for n in new if not n.startswith('_')), file=sys.stderr)"
    )
    done = subprocess.run((sys.executable, "-c", code), capture_output=True, text=True, check=True)

    assert set(eval(done.stderr)) == ALLOWED_BY_HELP  # our own list of names


@pytest.mark.parametrize("args", [("diagnose", "."), ("list",), ("doctor",), ("run", "control", "--dry-run")])
def test_no_command_imports_torch(tmp_path: Path, args: tuple[str, ...]) -> None:
    """The process that a person talks to never imports torch."""
    code = (
        f"import sys; sys.argv = ['drill', *{args!r}]\n"
        "from harness.cli import main\n"
        "try: main()\n"
        "except SystemExit: pass\n"
        "assert 'torch' not in sys.modules"
    )
    subprocess.run((sys.executable, "-c", code), cwd=tmp_path, capture_output=True, check=True)


def test_list_is_one_line_each() -> None:
    """Names and summaries."""
    done = subprocess.run((*DRILL, "list"), capture_output=True, text=True, check=True)

    names = [line.split()[0] for line in done.stdout.splitlines()]
    assert names == sorted(names)
    assert {"control", "fr_hang"} <= set(names)


def test_show_prints_values_with_origin(tmp_path: Path) -> None:
    """A value from drill.toml says so."""
    (tmp_path / "drill.toml").write_text("nproc = 4\n")
    done = subprocess.run(
        (*DRILL, "show", "fr_hang"), cwd=tmp_path, capture_output=True, text=True, check=True
    )

    (line,) = (line for line in done.stdout.splitlines() if line.startswith("nproc"))
    assert line.split()[:3] == ["nproc", "4", "drill.toml"]


def test_dry_run_starts_nothing(tmp_path: Path) -> None:
    """The launch and the fault plan are printed, no bundle is made."""
    done = subprocess.run(
        (*DRILL, "run", "fr_hang", "--culprit", "2", "--dry-run"),
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )

    assert "breaks   rank 2" in done.stdout
    assert "collective_size_mismatch" in done.stdout
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["empty", "missing", "other"])
def test_nothing_readable_is_exit_4(tmp_path: Path, name: str) -> None:
    """A path without evidence: what was expected, no traceback."""
    (tmp_path / "empty").mkdir()
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "notes.txt").write_text("hello")
    done = subprocess.run((*DRILL, "diagnose", name), cwd=tmp_path, capture_output=True, text=True)

    assert done.returncode == 4
    assert name in done.stderr
    assert "Traceback" not in done.stderr


def test_doctor_prints_every_line_with_a_remedy(tmp_path: Path) -> None:
    """Each line is OK, WARN or FAIL, and what is not OK says how to mend it."""
    env = {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), "TORCH_NCCL_ASYNC_ERROR_HANDLING": "1"}
    done = subprocess.run((*DRILL, "doctor", "--json"), capture_output=True, text=True, env=env)

    document = json.loads(done.stdout)
    assert document["schema"] == "drill/doctor/1"
    for line in document["lines"]:
        assert set(line) == {"check", "status", "found", "remedy"}
        assert line["status"] in ("OK", "WARN", "FAIL")
        assert line["remedy"] or line["status"] == "OK"
    warned = [line for line in document["lines"] if line["check"] == "environment"]
    assert "TORCH_NCCL_ASYNC_ERROR_HANDLING=1" in warned[0]["found"]
    assert done.returncode == (4 if any(x["status"] == "FAIL" for x in document["lines"]) else 0)


@pytest.fixture
def dumps(tmp_path: Path) -> Path:
    """Dumps of eight ranks, one of which has another size."""
    from tests.simulate import Scenario, Shape

    Scenario("size", Shape(dp=8), 1).write(tmp_path / "dumps")
    return tmp_path / "dumps"


def test_show_rank_filters_by_group_and_state(dumps: Path) -> None:
    """One rank's records as a table or as JSON."""
    base = (*DRILL, "diagnose", str(dumps), "--show-rank", "3")
    table = subprocess.run((*base, "--group", "mesh_dp"), capture_output=True, text=True, check=True)
    assert "mesh_dp" in table.stdout
    assert "default_pg" not in table.stdout

    command = (*base, "--state", "scheduled", "--json")
    document = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    assert document["schema"] == "drill/records/1"
    assert {record["state"] for record in document["records"]} == {"scheduled"}

    wrong = subprocess.run((*base, "--group", "nope"), capture_output=True, text=True)
    assert wrong.returncode == 2
    assert "it has:" in wrong.stderr
    nobody = subprocess.run((*base[:-1], "99"), capture_output=True, text=True)
    assert nobody.returncode == 2
    assert "there are: 0-7" in nobody.stderr


def test_diagnose_dumps_as_json_html_and_arrivals(dumps: Path, tmp_path: Path) -> None:
    """One document on stdout, the page beside it, and the arrival view."""
    page = tmp_path / "report.html"
    command = (*DRILL, "diagnose", str(dumps), "--json", "--html", str(page))
    document = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)

    assert document["kind"] == "collective_size_mismatch"
    assert len(document["culprits"]) == 1
    assert page.read_text().startswith("<!doctype html>")
    assert "collective_size_mismatch" in page.read_text()
    arrivals = subprocess.run(
        (*DRILL, "diagnose", str(dumps), "--arrivals"), capture_output=True, text=True, check=True
    )
    assert "collectives" in arrivals.stdout
    full = subprocess.run(
        ("bash", "-c", f"{' '.join(DRILL)} diagnose {dumps} > /dev/full"), capture_output=True, text=True
    )
    assert full.returncode == 4
    assert "Traceback" not in full.stderr
