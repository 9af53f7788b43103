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
from harness.shell import ELEMENT, Assumed, Literal, Reference, Statement, Unclear, Word, expand, statements

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

SCRIPT_SUFFIXES = (".sh", ".bash", ".sbatch", ".slurm", ".ksh", ".zsh")
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
            "let",
        ),
    )
)
_DECLARE = ("export", "declare", "typeset")
_PREFIXES = ("command", "builtin", "exec", "nohup")
_LAUNCHERS = frozenset(
    (
        *("torchrun", "python", "python3", "srun", "mpirun", "mpiexec", "deepspeed", "accelerate", "torchx"),
        *("exec", "nohup", "env", "bash", "sh", "sudo", "singularity", "apptainer", "docker", "ray"),
    )
)
"""What stands in front of these is the job's; of another command it may be that command's alone."""


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


def options_of(paths: Iterable[str | Path]) -> tuple[str, ...]:
    """The options that name these files to `drill checklist` and `drill gate`."""
    names = [str(path) for path in paths]
    scripts = [name for name in names if Path(name).suffix in SCRIPT_SUFFIXES]
    return (
        *(word for name in names if name not in scripts for word in ("--env-file", name)),
        *(word for name in scripts for word in ("--env-from-script", name)),
    )


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
            if not statement.conditional and _ends_script(statement):
                return

    def _take(self, file: str, statement: Statement) -> None:
        if statement.conditional or statement.broken:
            why = statement.broken or "under a condition, in a loop, a function or a pipe"
            self._skip(file, statement, why)
            return
        if statement.changes:
            self._skip(file, statement, "arithmetic is not understood")
            return
        words = list(statement.words)
        self._assign_defaults(file, statement, words)
        assignments = []
        while words and (assigned := words[0].assignment()) is not None:
            assignments.append(assigned)
            words.pop(0)
        command = words[0].plain() if words else None
        while len(words) > 1 and command in _PREFIXES:
            words.pop(0)
            command = words[0].plain()
        if statement.background and (not words or command in (*_DECLARE, "unset")):
            self._skip(file, statement, "in the background, in a shell of its own")
            return
        if command in _DECLARE:
            self._export(file, statement, command or "", words[1:])
            return
        if command == "unset" and not assignments:
            self._unset([word.plain() or "" for word in words[1:]])
            return
        if words and words[0].parts and not assignments and _is_element(words[0]):
            self._skip(file, statement, "an array is no environment variable")
            return
        if words and assignments and self._env_file:
            self._skip(file, statement, "there are words behind the value: put it in quotes")
            return
        for name, value in assignments:
            # In front of a command they are that command's environment: the job's, as far as can be told.
            self._set(file, statement, name, value, export=bool(words) or self._all_exported)
        if not words:
            return
        if assignments and (command or "").rpartition("/")[2] not in _LAUNCHERS:
            why = f"set for {command or 'this command'} alone, and taken to be the job's, too"
            names = tuple(name for name, _ in assignments)
            self.assumed.append(Skipped(file, statement.line, statement.shown(), why, names))
        options = [word.plain() or "" for word in words[1:]]
        if command == "set" and (turned := _all_export(options)) is not None:
            self._all_exported = turned
        elif command == "env":
            self._env(file, statement, words[1:])
        elif command in _ENVIRONMENT_COMMANDS and not _harmless(statement):
            self._skip(file, statement, "may set variables; it was not executed")
        else:
            self.commands.append(Skipped(file, statement.line, statement.shown(), "not executed"))

    def _export(self, file: str, statement: Statement, command: str, words: Sequence[Word]) -> None:
        options = "".join(text for word in words if (text := word.plain() or "")[:1] in ("-", "+"))
        if not set(options) <= set("-xgr" if command != "export" else "-"):
            self._skip(file, statement, f"this form of {command} is not understood")
            return
        export = command == "export" or "x" in options
        # All words are expanded before the first is assigned.
        known = self._known()
        for word in words:
            if (assigned := word.assignment()) is not None:
                self._set(file, statement, *assigned, export=export, known=known)
            elif (name := word.plain()) is not None and name.isidentifier():
                if export:
                    self.exported.add(name)
            elif (word.plain() or "")[:1] != "-":
                self._skip(file, statement, f"this form of {command} is not understood")
                return

    def _unset(self, words: Sequence[str]) -> None:
        if "-f" in words:
            return
        for name in (word for word in words if word[:1] != "-"):
            self.shell.pop(name, None)
            self.exported.discard(name)
            self.unset.add(name)

    def _assign_defaults(self, file: str, statement: Statement, words: Sequence[Word]) -> None:
        """``${NAME:=default}`` sets NAME where it is not set yet, wherever it stands."""
        for part in (part for word in words for part in word.parts):
            if not isinstance(part, Reference) or not part.assigns:
                continue
            before = self.shell.get(part.name)
            if before is not None and (before.value or not part.empty_too):
                continue
            if before is None:
                why = f"taken to be {part.default!r}: ${part.name} is not set above"
                self.assumed.append(Skipped(file, statement.line, statement.shown(), why, (part.name,)))
            self.shell[part.name] = Variable(part.name, part.default or "", file, statement.line)
            if self._all_exported:
                self.exported.add(part.name)

    def _known(self) -> dict[str, str]:
        return {name: variable.value for name, variable in self.shell.items()}

    def _env(self, file: str, statement: Statement, words: Sequence[Word]) -> None:
        """``env NAME=value command``: variables of that command."""
        for word in words:
            if (assigned := word.assignment()) is None:
                break
            self._set(file, statement, *assigned, export=True)
        self.commands.append(Skipped(file, statement.line, statement.shown(), "not executed"))

    def _set(
        self,
        file: str,
        statement: Statement,
        name: str,
        value: object,
        *,
        export: bool,
        known: Mapping[str, str] | None = None,
    ) -> None:
        found = expand(value, self._known() if known is None else known)
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
        first = statement.words[0].plain() if statement.words else None
        of_loop = set(statement.changes) and not set(statement.changes) & (self.shell.keys() | self.exported)
        if not of_loop and (names or not statement.conditional or first in _DECLARE):
            self.not_understood.append(Skipped(file, statement.line, statement.shown(), why, names))
            for name in names:
                self.shell.pop(name, None)
        else:
            self.commands.append(Skipped(file, statement.line, statement.shown(), "not executed"))


def _harmless(statement: Statement) -> bool:
    """``set -e`` and the like, and a printf that does not write into a variable, set nothing."""
    words = [word.plain() or "" for word in statement.words]
    if words[0] == "set":
        # Without options it sets the positional parameters, which no environment has.
        return True
    return words[0] in ("printf", "trap", "alias") and "-v" not in words


def _all_export(options: Sequence[str]) -> bool | None:
    """Whether options of `set` turn ``-a`` on or off; None where they do neither."""
    found = None
    for option, after in zip(options, [*options[1:], ""], strict=True):
        if option == "--":
            break
        if option[:1] in ("-", "+") and ("a" in option or (option[-1:] == "o" and after == "allexport")):
            found = option[0] == "-"
    return found


def _is_element(word: Word) -> bool:
    """``NAME[1]=value``."""
    first = word.parts[0]
    return isinstance(first, Literal) and ELEMENT.match(first.text) is not None


def _ends_script(statement: Statement) -> bool:
    """Whether nothing behind it is run."""
    words = [word.plain() for word in statement.words]
    return words[:1] == ["exit"] or (words[:1] == ["exec"] and len(words) > 1)


def _is_script(path: Path, text: str) -> bool:
    return text.startswith("#!") or path.suffix in SCRIPT_SUFFIXES


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
