"""The job's own environment, read from the files that set it. Scripts are parsed, never executed.

Understood: ``NAME=value`` and ``export NAME=value`` with quotes, ``export NAME``, ``unset NAME``, variables
in front of a command, and the expansion of names that were set above. All that might set variables another
way (conditions, command substitution, ``source``, ``module load``) is listed as not understood.
"""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from harness.model.errors import PrerequisiteError, UsageError
from harness.shell import Assumed, Statement, Unclear, expand, statements

MAX_BYTES = 1 << 20

PREFIXES = (
    *("NCCL_", "TORCH_", "TORCHINDUCTOR_", "PYTORCH_", "GLOO_", "UCX_", "UCC_", "FI_", "RDMAV_", "MELLANOX_"),
    *(
        "OMP_NUM_THREADS",
        "CUDA_DEVICE",
        "CUDA_LAUNCH",
        "CUBLAS_",
        "CUDNN_",
        "XDG_CACHE_HOME",
        "TITAN_",
        "NVTE_",
    ),
)
"""Variables that decide how ranks compute, communicate and leave evidence: drills get them too."""

PER_PROCESS = frozenset(("NCCL_HOSTID", "TORCH_NCCL_RANKS_PER_ROOT_FILE"))

_ENVIRONMENT_COMMANDS = frozenset(
    (
        *("source", ".", "eval", "module", "ml", "conda", "mamba", "micromamba", "spack", "set", "declare"),
        *(
            "typeset",
            "readonly",
            "local",
            "read",
            "mapfile",
            "readarray",
            "getopts",
            "alias",
            "trap",
            "printf",
        ),
    )
)


@dataclass(frozen=True)
class Variable:
    """One variable and where it was set last."""

    name: str
    value: str
    file: str
    line: int


@dataclass(frozen=True)
class Skipped:
    """A line that was not turned into variables, and why. `names`: variables that it may set."""

    file: str
    line: int
    text: str
    why: str
    names: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.text}: {self.why}"


@dataclass(frozen=True)
class JobEnvironment:
    """What the job will have.

    `not_understood`: lines that may set variables; `assumed`: expansions that rest on a default;
    `commands`: everything else that a script does, which was not looked into; `files`: path -> sha256.
    """

    variables: Mapping[str, Variable] = field(default_factory=dict)
    unset: frozenset[str] = frozenset()
    not_understood: tuple[Skipped, ...] = ()
    assumed: tuple[Skipped, ...] = ()
    commands: tuple[Skipped, ...] = ()
    files: Mapping[str, str] = field(default_factory=dict)

    def over(self, environ: Mapping[str, str]) -> dict[str, str]:
        """An environment as the job would see it that is started from `environ`."""
        kept = {name: value for name, value in environ.items() if name not in self.unset}
        return {**kept, **{name: variable.value for name, variable in self.variables.items()}}

    def doubtful(self, names: Iterable[str]) -> tuple[Skipped, ...]:
        """Lines that may set one of these variables in a way that was not understood."""
        wanted = set(names)
        return tuple(skipped for skipped in self.not_understood if wanted & set(skipped.names))


def relevant(environ: Mapping[str, str]) -> dict[str, str]:
    """Those variables of an environment that decide how a job runs; none that differ by process."""
    return {
        name: value
        for name, value in environ.items()
        if name.startswith(PREFIXES) and name not in PER_PROCESS and not name.endswith("_PIPE_FILE")
    }


def read_job_environment(paths: Sequence[Path]) -> JobEnvironment:
    """Read env files and launch scripts one after the other, the later over the earlier.

    Raises:
        PrerequisiteError: a file cannot be read.
        UsageError: it is not a text, or has no end.
    """
    reader = _Reader()
    for path in paths:
        reader.read(path)
    return JobEnvironment(
        {name: v for name, v in sorted(reader.shell.items()) if name in reader.exported},
        frozenset(reader.unset - set(reader.shell)),
        tuple(reader.not_understood),
        tuple(reader.assumed),
        tuple(reader.commands),
        reader.files,
    )


class _Reader:
    def __init__(self) -> None:
        self.shell: dict[str, Variable] = {}
        self.exported: set[str] = set()
        self.unset: set[str] = set()
        self.not_understood: list[Skipped] = []
        self.assumed: list[Skipped] = []
        self.commands: list[Skipped] = []
        self.files: dict[str, str] = {}
        self._all_exported = self._env_file = False

    def read(self, path: Path) -> None:
        data = _content(path)
        self.files[str(path)] = hashlib.sha256(data).hexdigest()
        try:
            text = data.decode()
        except UnicodeDecodeError:
            raise UsageError(f"{path}: not a text in UTF-8: give an env file or a shell script") from None
        if "\0" in text:
            raise UsageError(f"{path}: not a text: give an env file or a shell script")
        # An env file is exported as a whole by whoever reads it; a script exports what it says.
        self._env_file = self._all_exported = not _is_script(path, text)
        for statement in statements(text):
            self._take(str(path), statement)

    def _take(self, file: str, statement: Statement) -> None:
        if statement.conditional or statement.broken:
            why = statement.broken or "under a condition, in a loop, a function or a pipe"
            self._skip(file, statement, why)
            return
        words = list(statement.words)
        assignments = []
        while words and (assigned := words[0].assignment()) is not None:
            assignments.append(assigned)
            words.pop(0)
        command = words[0].plain() if words else None
        if words and command in ("export", "declare", "typeset") and not assignments:
            self._export(file, statement)
            return
        if command == "unset" and not assignments:
            for word in words[1:]:
                name = word.plain() or ""
                self.shell.pop(name, None)
                self.exported.discard(name)
                self.unset.add(name)
            return
        if words and assignments and self._env_file:
            self._skip(file, statement, "there are words behind the value: put it in quotes")
            return
        for name, value in assignments:
            # In front of a command they are that command's environment: the job's, as far as can be told.
            self._set(file, statement, name, value, export=bool(words) or self._all_exported)
        if not words:
            return
        options = [word.plain() or "" for word in words[1:]]
        if command == "set" and (options[:1] == ["-a"] or options == ["-o", "allexport"]):
            self._all_exported = True
        elif command == "set" and (options[:1] == ["+a"] or options == ["+o", "allexport"]):
            self._all_exported = False
        elif command == "env":
            self._env(file, statement)
        elif command in _ENVIRONMENT_COMMANDS and not _harmless(statement):
            self._skip(file, statement, "may set variables; it was not executed")
        else:
            self.commands.append(Skipped(file, statement.line, statement.shown(), "not executed"))

    def _export(self, file: str, statement: Statement) -> None:
        for word in statement.words[1:]:
            if (assigned := word.assignment()) is not None:
                self._set(file, statement, *assigned, export=True)
            elif (name := word.plain()) is not None and name.isidentifier():
                self.exported.add(name)
            elif (word.plain() or "") not in ("-x", "-gx"):
                self._skip(file, statement, "this form of export is not understood")
                return

    def _env(self, file: str, statement: Statement) -> None:
        """``env NAME=value command``: variables of that command."""
        for word in statement.words[1:]:
            if (assigned := word.assignment()) is None:
                break
            self._set(file, statement, *assigned, export=True)
        self.commands.append(Skipped(file, statement.line, statement.shown(), "not executed"))

    def _set(self, file: str, statement: Statement, name: str, value: object, *, export: bool) -> None:
        known = {n: v.value for n, v in self.shell.items()}
        found = expand(value, known)
        if isinstance(found, Unclear):
            self.not_understood.append(Skipped(file, statement.line, statement.shown(), found.why, (name,)))
            # What it was before is not what it is now.
            self.shell.pop(name, None)
            return
        if isinstance(found, Assumed):
            self.assumed.append(Skipped(file, statement.line, statement.shown(), found.why, (name,)))
            found = found.value
        self.shell[name] = Variable(name, found, file, statement.line)
        if export or self._all_exported:
            self.exported.add(name)

    def _skip(self, file: str, statement: Statement, why: str) -> None:
        names = tuple(sorted(set(statement.assigned())))
        if names or not statement.conditional:
            self.not_understood.append(Skipped(file, statement.line, statement.shown(), why, names))
            for name in names:
                self.shell.pop(name, None)
        else:
            self.commands.append(Skipped(file, statement.line, statement.shown(), "not executed"))


def _harmless(statement: Statement) -> bool:
    """``set -e`` and the like, and a printf that does not write into a variable, set nothing."""
    words = [word.plain() or "" for word in statement.words]
    if words[0] == "set":
        return all(word[:1] in "-+" or word in ("pipefail", "errexit", "nounset") for word in words[1:])
    return words[0] in ("printf", "trap", "alias") and "-v" not in words


def _is_script(path: Path, text: str) -> bool:
    return text.startswith("#!") or path.suffix in (".sh", ".bash", ".sbatch", ".slurm", ".ksh", ".zsh")


def _content(path: Path) -> bytes:
    try:
        if not path.is_file():
            why = "no such file" if not path.exists() else "not a file"
            raise PrerequisiteError(f"{path}: {why}")
        with path.open("rb") as file:
            data = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise PrerequisiteError(f"{path}: {error.strerror}") from None
    if len(data) > MAX_BYTES:
        raise UsageError(f"{path}: larger than {MAX_BYTES >> 20} MiB: that is no env file or launch script")
    return data
