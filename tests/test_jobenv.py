"""The job's own environment out of env files and launch scripts, which are never executed."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.jobenv import JobEnvironment, read_job_environment, relevant
from harness.model.errors import PrerequisiteError, UsageError


def read(tmp_path: Path, text: str, name: str = "launch.sh") -> JobEnvironment:
    path = tmp_path / name
    path.write_text(text)
    return read_job_environment([path])


def values(job: JobEnvironment) -> dict[str, str]:
    return {name: variable.value for name, variable in job.variables.items()}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("export NCCL_DEBUG=INFO", {"NCCL_DEBUG": "INFO"}),
        ("export A='a b' B=\"c d\"", {"A": "a b", "B": "c d"}),
        ("A=1\nexport A", {"A": "1"}),
        ("A=1", {}),
        ("A=/x\nexport B=$A/y C=${A}z D='$A'", {"B": "/x/y", "C": "/xz", "D": "$A"}),
        ('A=1; export B="${A}2"', {"B": "12"}),
        ("export A=1 # why", {"A": "1"}),
        ("export A=x#y", {"A": "x#y"}),
        ("export A=1 \\\n  B=2", {"A": "1", "B": "2"}),
        ('export A="x\\"y"', {"A": 'x"y'}),
        ("export A=1\nunset A", {}),
        ("export A=1\nexport A+=2", {"A": "12"}),
        ("set -a\nA=1\nset +a\nB=2", {"A": "1"}),
        ("NCCL_DEBUG=INFO torchrun train.py", {"NCCL_DEBUG": "INFO"}),
        ("env A=1 B=2 python train.py", {"A": "1", "B": "2"}),
        ("export A=", {"A": ""}),
        ("cat <<EOF\nexport A=1\nEOF\nexport B=2", {"B": "2"}),
        ("echo x > /tmp/y\nexport A=1 2>/dev/null", {"A": "1"}),
        ("#!/bin/bash\n#SBATCH -N 2\nset -euo pipefail\nexport A=1\nsrun torchrun t.py", {"A": "1"}),
        ("export A=1\r\nexport B=2\r\n", {"A": "1", "B": "2"}),
    ],
)
def test_what_is_set_is_known(tmp_path: Path, text: str, expected: dict[str, str]) -> None:
    """Assignments, quotes, and the expansion of what stands above."""
    job = read(tmp_path, text)

    assert values(job) == expected
    assert job.not_understood == ()


@pytest.mark.parametrize(
    "text",
    [
        "export A=$(hostname)",
        "export A=`hostname`",
        "export A=$1",
        "export A=$HOME/dumps",
        "export A=~/dumps",
        "export A=${B%.*}",
        "A=(1 2)\nexport A",
        "if true; then export A=1; fi",
        "for x in 1 2; do export A=$x; done",
        "case $x in a) export A=1;; esac",
        "f() { export A=1; }",
        "test -d /x && export A=1",
        "false ||\n  export A=1",
        "(export A=1)",
        "export A=1 | cat",
        "source other.sh",
        ". ./other.sh",
        "eval 'export A=1'",
        "module load nccl",
        "conda activate train",
        "read A",
        "export A='1",
        'export A="1',
        "export -f A",
        "declare -A A=1",
    ],
)
def test_what_only_running_would_tell_is_listed(tmp_path: Path, text: str) -> None:
    """Nothing is guessed: the line is named, and the variable is not among the known ones."""
    job = read(tmp_path, text)

    assert "A" not in job.variables
    assert len(job.not_understood) == 1, job
    assert job.not_understood[0].line in (1, 2)


def test_a_variable_that_is_set_again_in_an_unknown_way_is_not_known_any_more(tmp_path: Path) -> None:
    """The earlier value would be a lie."""
    job = read(tmp_path, "export NCCL_DEBUG=INFO\nif x; then\n  export NCCL_DEBUG=WARN\nfi\n")

    assert "NCCL_DEBUG" not in job.variables
    assert [s.line for s in job.doubtful(["NCCL_DEBUG"])] == [3]


def test_a_default_is_taken_and_said(tmp_path: Path) -> None:
    """``${X:-d}`` is how scripts let people override: the default is used, and stated as an assumption."""
    job = read(tmp_path, "export NCCL_DEBUG=${NCCL_DEBUG:-INFO}\nA=1\nexport B=${A:-2}\n")

    assert values(job) == {"NCCL_DEBUG": "INFO", "B": "1"}
    assert [s.line for s in job.assumed] == [1]


def test_other_commands_are_listed_apart(tmp_path: Path) -> None:
    """They cannot set the shell's variables, and nobody looked into them."""
    job = read(tmp_path, "mkdir -p /x\nexport A=1\nif x; then echo y; fi\nsrun torchrun train.py --lr 1\n")

    assert [s.text for s in job.commands] == [
        "mkdir -p /x",
        "if x",
        "then echo y",
        "srun torchrun train.py --lr 1",
    ]
    assert job.not_understood == ()


def test_an_env_file_exports_everything(tmp_path: Path) -> None:
    """As docker, systemd and Slurm read it: no export is needed, and later files win."""
    first, second = tmp_path / "job.env", tmp_path / "site.env"
    first.write_text("NCCL_DEBUG=INFO\nTORCH_FR_BUFFER_SIZE=20000\n# a comment\n")
    second.write_text("NCCL_DEBUG=WARN\nA=a b\n")

    job = read_job_environment([first, second])

    assert values(job) == {"NCCL_DEBUG": "WARN", "TORCH_FR_BUFFER_SIZE": "20000"}
    assert (job.variables["NCCL_DEBUG"].file, job.variables["NCCL_DEBUG"].line) == (str(second), 1)
    assert "quotes" in job.not_understood[0].why


def test_nothing_is_executed(tmp_path: Path) -> None:
    """A script that would leave a trace leaves none."""
    trace = tmp_path / "trace"

    read(tmp_path, f"touch {trace}\nexport A=$(touch {trace})\n`touch {trace}`\n")

    assert not trace.exists()


@pytest.mark.parametrize(
    ("content", "error"),
    [(b"\xff\xfe\x00", UsageError), (b"export A=1\0", UsageError), (b"#" * (1 << 21), UsageError)],
)
def test_what_is_no_script_is_refused(tmp_path: Path, content: bytes, error: type[Exception]) -> None:
    """Binary files and huge ones: one line, no traceback."""
    path = tmp_path / "x.sh"
    path.write_bytes(content)

    with pytest.raises(error, match=r"x\.sh"):
        read_job_environment([path])
    with pytest.raises(PrerequisiteError, match="no such file"):
        read_job_environment([tmp_path / "absent.env"])


def test_over_keeps_what_the_job_does_not_touch(tmp_path: Path) -> None:
    """Unset variables go, set ones win, the rest stays."""
    job = read(tmp_path, "export NCCL_DEBUG=INFO\nunset NCCL_ALGO\n")

    found = job.over({"NCCL_ALGO": "Ring", "NCCL_DEBUG": "WARN", "OMP_NUM_THREADS": "4"})

    assert found == {"NCCL_DEBUG": "INFO", "OMP_NUM_THREADS": "4"}


def test_only_what_decides_how_a_job_runs_is_relevant() -> None:
    """No names of processes and hosts, no secrets of other tools."""
    found = relevant({"NCCL_DEBUG": "INFO", "NCCL_HOSTID": "x", "AWS_SECRET_ACCESS_KEY": "x", "RANK": "0"})

    assert found == {"NCCL_DEBUG": "INFO"}


_NAMES = st.sampled_from(["A", "B", "NCCL_X"])
_VALUES = st.lists(
    st.one_of(
        st.sampled_from(
            ["x", "1", "/p", "$A", "${B}", "'s q'", '"d $A"', "\\$", '"\\""', "''", "#x", "=", ":"]
        ),
        st.text("abcXYZ09_./-", min_size=1, max_size=4),
    ),
    max_size=4,
).map("".join)
_LINES = st.lists(
    st.one_of(
        st.builds("export {}={}".format, _NAMES, _VALUES),
        st.builds("{}={}".format, _NAMES, _VALUES),
        st.builds("export {}".format, _NAMES),
        st.builds("unset {}".format, _NAMES),
        st.builds("if false; then export {}={}; fi".format, _NAMES, _VALUES),
        st.builds("true && export {}={}".format, _NAMES, _VALUES),
    ),
    max_size=6,
)


@settings(max_examples=150, deadline=None)
@given(lines=_LINES)
def test_what_is_claimed_is_what_a_shell_would_set(
    tmp_path_factory: pytest.TempPathFactory, lines: list[str]
) -> None:
    """A real shell runs the same lines: every value that we state is its value."""
    path = tmp_path_factory.mktemp("shell") / "launch.sh"
    path.write_text("\n".join(lines) + "\n")

    job = read_job_environment([path])

    clean = {"PATH": os.environ["PATH"], "A": "outside"}
    ran = subprocess.run(
        ("sh", "-c", f". {path} >/dev/null 2>&1; env -0"),
        env={"PATH": clean["PATH"]},
        capture_output=True,
        check=True,
    )
    real = dict(pair.split("=", 1) for pair in ran.stdout.decode().split("\0") if "=" in pair)
    for name, value in values(job).items():
        assert real.get(name) == value, (lines, job)


@pytest.mark.skipif(shutil.which("bash") is None, reason="no bash")
@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("export A=0; export A=1 B=$A", "A B"),
        ("export A=1; unset -f A; unset -v B", "A"),
        ("declare A=5; declare -gx B=6", "B"),
        ("declare -i A=1+1; export A", ""),
        ("export A=1; declare +x A", ""),
        ("export A=x{1,2}", ""),
        ('export A="{1,2}"', "A"),
        ('export A=$"hello"', "A"),
        ("export A=${B:-a\\ b} C=1", "C"),
        ("export A=\"${B:-'q'}\" C=1", "C"),
        ('export A=$(echo ")" )x; export B=1', "B"),
        ("export A=`echo \\`echo x\\``; export B=2", "B"),
        ('A=(a "b)c" d); export B=2', "B"),
        ("export A=1; A[0]=5", ""),
        ("cat <<EOF\n  EOF\nexport A=1\nEOF\nexport B=2", "B"),
        ("cat <<'END MARK'\nexport A=1\nEND MARK\nexport B=2", "B"),
        ("cat <<-E-1\n\texport A=1\n\tE-1\nexport B=2", "B"),
        ("set -eua; A=1; set +a; B=2", "A"),
        ("set -euo pipefail; export A=1", "A"),
        ("command export A=1; time export B=2", "A B"),
        ("A=$(date) export B=1", "B"),
        ("export A=1; for A in 5 6; do :; done", ""),
        ("export A=1; for i in 5 6; do :; done", "A"),
        ("export A=1; let A=5", ""),
        ("export A=1; ((A++)); ((x = 1 << 2)); export B=1", "B"),
        (': ${A:=3} "${B:=4}"; export A B', "A B"),
        ("A=; export B=${A:=x} C=$A; export A", "B A"),
        ("export A=1 & export B=2", "B"),
        ("export A=1; exit 0; export B=2", ""),
    ],
)
def test_what_bash_does_is_claimed_or_listed(tmp_path: Path, text: str, names: str) -> None:
    """Bash runs the same script: what is stated is its value, and what it sets besides is listed."""
    path = tmp_path / "launch.sh"
    path.write_text(f"#!/bin/bash\n{text}\n")

    job = read_job_environment([path])

    # Bash says at its own end what a program would be given then.
    said = tmp_path / "env"
    subprocess.run(
        ("bash", "-c", f"trap 'env -0 >{said}' EXIT; . {path} >/dev/null 2>&1"),
        env={"PATH": os.environ["PATH"]},
        check=True,
    )
    pairs = said.read_bytes().decode().split("\0")
    real = {name: value for name, value in (pair.split("=", 1) for pair in pairs if pair) if len(name) == 1}
    real.pop("_", None)
    listed = {name for skipped in job.not_understood for name in skipped.names}
    stated = values(job)
    assert stated == {name: real[name] for name in stated}
    assert not real.keys() - stated.keys() - listed, job
    assert set(names.split()) <= stated.keys()


def test_variables_of_another_command_are_taken_and_said(tmp_path: Path) -> None:
    """In front of a launcher they are the job's; in front of anything else that is an assumption."""
    job = read(tmp_path, "NCCL_DEBUG=INFO torchrun train.py\nNCCL_ALGO=Ring ./nccl-tests\n")

    assert values(job) == {"NCCL_ALGO": "Ring", "NCCL_DEBUG": "INFO"}
    (assumed,) = job.assumed
    assert "NCCL_ALGO=Ring ./nccl-tests: set for ./nccl-tests alone" in str(assumed)
