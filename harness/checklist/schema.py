"""The YAML of a checklist, validated: what is wrong is named with its file, line, key and what is allowed."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator
from pydantic_core import ErrorDetails

from harness.catalog.find import builtin
from harness.checklist.catalogue import PROBES
from harness.checklist.expressions import ExpressionError, names_in
from harness.model.checklist import Checklist, FileDemand, Item, Step
from harness.model.errors import PrerequisiteError, UsageError
from harness.model.spec import ParameterValue

FORMAT = "drill/checklist-file/1"
KINDS = ("drill", "probe", "command", "manual")

_UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0, "w": 7 * 86400.0}
_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*([smhdw])")
_ID = r"^[a-z][a-z0-9_-]*$"

Value = bool | int | float | str
Duration = Annotated[str, Field(pattern=rf"^{_DURATION.pattern}$")]
HARDWARE_VALID = "24h"
"""How long a hardware result holds: cards that passed yesterday may throttle today."""


def seconds(text: str) -> float:
    """A duration such as 90m, 24h or 7d in seconds.

    Raises:
        ValueError: it is none.
    """
    found = _DURATION.fullmatch(text.strip())
    if found is None:
        raise ValueError(f"'{text}' is not a duration: give it as 90m, 24h or 7d")
    return float(found[1]) * _UNITS[found[2]]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


Text = Annotated[str, Field(min_length=1, pattern=r"^[^\x00]*$")]
"""What can be handed to a program: a NUL cannot."""


class FileFile(_Strict):
    """A document that a person's signature rests on."""

    path: Text
    newer_than: Text | None = None
    max_age: Duration | None = None


class RehearsalFile(_Strict):
    """What differs where the real thing is not there."""

    mode: str | None = None
    culprit: int | str | None = None
    set: dict[str, Value] = {}
    with_: Annotated[dict[str, Value], Field(alias="with")] = {}
    command: tuple[Text, ...] | None = None
    pass_: Annotated[str | None, Field(alias="pass")] = None
    takes: Duration | None = None


class StepFile(_Strict):
    """One thing that an item does: exactly one of drill, probe, command, manual."""

    drill: str | None = None
    probe: str | None = None
    command: tuple[Text, ...] | None = None
    manual: str | None = None
    mode: str | None = None
    culprit: int | str | None = None
    set: dict[str, Value] = {}
    with_: Annotated[dict[str, Value], Field(alias="with")] = {}
    pass_: Annotated[str | None, Field(alias="pass")] = None
    show: tuple[str, ...] = ()
    timeout: Duration = "5m"
    takes: Duration = "10s"
    files: tuple[FileFile, ...] = ()
    rehearsal: RehearsalFile | Literal[False] | None = None

    @model_validator(mode="after")
    def _one_kind(self) -> "StepFile":
        given = [kind for kind in KINDS if getattr(self, kind) is not None]
        if len(given) != 1:
            raise ValueError(f"give exactly one of {', '.join(KINDS)}")
        kind = given[0]
        if kind in ("probe", "command") and self.pass_ is None:
            raise ValueError("a probe or command needs 'pass', an expression over its figures")
        if kind not in ("probe", "command") and self.pass_ is not None:
            raise ValueError(f"'pass' is for a probe or command; a {kind} decides by itself")
        if kind != "drill" and (self.mode or self.culprit is not None or self.set):
            raise ValueError("'mode', 'culprit' and 'set' are a drill's")
        if kind != "probe" and self.with_:
            raise ValueError("'with' is a probe's")
        if kind != "manual" and self.files:
            raise ValueError("'files' is a manual step's")
        if kind == "command" and not self.command:
            raise ValueError("'command' is empty")
        if kind not in ("probe", "command") and {"timeout", "show"} & self.model_fields_set:
            raise ValueError("'timeout' and 'show' are for a probe or command; a drill has its own")
        if isinstance(self.rehearsal, RehearsalFile) and (wrong := _foreign(kind, self.rehearsal)):
            raise ValueError(f"rehearsal: '{wrong}' is not for a {kind}")
        return self


def _foreign(kind: str, rehearsal: RehearsalFile) -> str | None:
    """A key of a rehearsal that would change nothing of this kind of step."""
    own = {"drill": {"mode", "culprit", "set"}, "probe": {"with_", "pass_"}, "command": {"command", "pass_"}}
    return next(
        (
            RehearsalFile.model_fields[name].alias or name
            for name in RehearsalFile.model_fields
            if name in rehearsal.model_fields_set and name not in own.get(kind, set()) | {"takes"}
        ),
        None,
    )


class ItemFile(_Strict):
    """One item."""

    id: Annotated[str, Field(pattern=_ID)]
    title: str
    does: str
    criterion: str
    source: str = ""
    needs: Literal["gpu", "gpus"] | None = None
    valid_for: Duration | None = None
    whole_machine: bool = False
    steps: Annotated[tuple[StepFile, ...], Field(min_length=1)]


class ChecklistFile(_Strict):
    """A whole checklist."""

    schema_: Annotated[Literal["drill/checklist-file/1"], Field(alias="schema")]
    name: Annotated[str, Field(pattern=_ID)]
    summary: str = ""
    job: Literal["gpu", "cpu"] = "gpu"
    items: Annotated[tuple[ItemFile, ...], Field(min_length=1)]


_NESTED: Mapping[str, type[BaseModel]] = {
    "items": ItemFile,
    "steps": StepFile,
    "rehearsal": RehearsalFile,
    "files": FileFile,
}


def is_checklist(path: Path) -> bool:
    """Whether a YAML file says that it is a checklist."""
    try:
        with path.open(encoding="utf-8") as file:
            return any(FORMAT in line for line in file.readlines(1 << 16)[:40])
    except (OSError, UnicodeDecodeError):
        return False


def find_checklist(path: Path) -> Path:
    """The file itself, or the one that ships under a bare name."""
    if path.exists() or path.name != str(path) or path.suffix:
        return path
    shipped = builtin("checklists") / f"{path}.yaml"
    return shipped if shipped.is_file() else path


def read_checklist(path: Path) -> Checklist:
    """Read and validate one checklist.

    Raises:
        PrerequisiteError: there is no such file, or it cannot be read.
        UsageError: not YAML, an unknown key, a wrong type, a criterion over figures that are not measured.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise PrerequisiteError(f"{path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise UsageError(f"{path}: not a text in UTF-8") from None
    try:
        node = yaml.compose(text, Loader=yaml.CSafeLoader)
        document = yaml.load(text, Loader=yaml.CSafeLoader)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise UsageError(f"{path}: not YAML: {' '.join(str(error).split())}") from None
    lines = _Lines(node)
    _refuse_double_keys(path, node)
    try:
        read = ChecklistFile.model_validate(document)
    except ValidationError as error:
        raise UsageError(_explained(path, error, lines)) from None
    _refuse_twice(path, read.items, lines)
    items = tuple(_item(path, item, ("items", i), lines) for i, item in enumerate(read.items))
    return Checklist(read.name, path, read.job, read.summary, items)


class _Lines:
    """From a key's place in the document to its line."""

    def __init__(self, node: Any) -> None:
        self._node = node

    def of(self, place: Sequence[int | str]) -> int:
        """The line of the deepest part of a place that is there, from 1."""
        node, line = self._node, 1
        for part in place:
            if isinstance(node, yaml.MappingNode):
                pair = next((p for p in node.value if p[0].value == str(part)), None)
                if pair is None:
                    continue
                line, node = pair[0].start_mark.line + 1, pair[1]
            elif isinstance(node, yaml.SequenceNode) and isinstance(part, int) and part < len(node.value):
                node = node.value[part]
                line = node.start_mark.line + 1
        return line


def _explained(path: Path, error: ValidationError, lines: _Lines) -> str:
    """The first complaint of pydantic as one line: file, line, key, what is allowed."""
    # A list of which nothing is valid is also too short: that is no news.
    news = [e for e in error.errors() if e["type"] != "too_short"] or [max(error.errors(), key=_depth)]
    first = min(news, key=lambda e: lines.of(e["loc"]))
    place = [part for part in first["loc"] if part not in ("RehearsalFile", "literal[False]")]
    key = ".".join(str(part) for part in place) or "the document"
    message = first["msg"].removeprefix("Value error, ")
    if first["type"] == "extra_forbidden":
        message = f"unknown key; allowed here: {', '.join(_keys_at(place[:-1]))}"
    return f"{path}:{lines.of(place)}: {key}: {message}"


def _depth(error: ErrorDetails) -> int:
    return len(error["loc"])


def _keys_at(place: Sequence[int | str]) -> list[str]:
    model: type[BaseModel] = ChecklistFile
    for part in place:
        model = _NESTED.get(str(part), model)
    return [field.alias or name for name, field in model.model_fields.items()]


def _refuse_double_keys(path: Path, root: Any) -> None:
    """YAML takes the last of two like keys: of two criteria the first would be lost without a word."""
    todo, seen = [root], set()
    while todo:
        node = todo.pop()
        if id(node) in seen:
            continue
        seen.add(id(node))
        if isinstance(node, yaml.SequenceNode):
            todo += node.value
        elif isinstance(node, yaml.MappingNode):
            keys: dict[str, int] = {}
            for key, value in node.value:
                line = key.start_mark.line + 1
                if key.value in keys and isinstance(key, yaml.ScalarNode):
                    raise UsageError(f"{path}:{line}: {key.value}: there already, in line {keys[key.value]}")
                if isinstance(key, yaml.ScalarNode):
                    keys[key.value] = line
                todo.append(value)


def _refuse_twice(path: Path, items: Sequence[ItemFile], lines: _Lines) -> None:
    first: dict[str, int] = {}
    for i, item in enumerate(items):
        if item.id in first:
            here, there = lines.of(("items", i, "id")), lines.of(("items", first[item.id], "id"))
            raise UsageError(f"{path}:{here}: items.{i}.id: '{item.id}' is there already, in line {there}")
        first[item.id] = i


def _item(path: Path, read: ItemFile, place: tuple[int | str, ...], lines: _Lines) -> Item:
    steps = tuple(
        _step(path, step, (*place, "steps", i), lines, needs=read.needs) for i, step in enumerate(read.steps)
    )
    valid = read.valid_for or (HARDWARE_VALID if read.needs else "7d")
    return Item(
        id=read.id,
        title=read.title,
        does=" ".join(read.does.split()),
        criterion=" ".join(read.criterion.split()),
        source=read.source,
        line=lines.of(place),
        steps=steps,
        needs=read.needs,
        valid_s=seconds(valid),
        whole_machine=read.whole_machine,
    )


def _step(path: Path, read: StepFile, place: tuple[int | str, ...], lines: _Lines, needs: str | None) -> Step:
    kind = next(kind for kind in KINDS if getattr(read, kind) is not None)
    name = read.command[0] if read.command else str(getattr(read, kind))
    step = Step(
        kind=kind,
        name=name,
        line=lines.of(place),
        mode=read.mode,
        culprit=None if read.culprit is None else str(read.culprit),
        parameters=read.set,
        arguments=read.with_,
        command=read.command or (),
        passes=read.pass_,
        shows=read.show,
        timeout_s=seconds(read.timeout),
        seconds=seconds(read.takes),
        rehearsal=None,
        files=tuple(
            FileDemand(f.path, f.newer_than, seconds(f.max_age) if f.max_age else None) for f in read.files
        ),
    )
    _check(path, step, place, lines)
    if needs is None and isinstance(read.rehearsal, RehearsalFile):
        raise UsageError(
            f"{path}:{lines.of((*place, 'rehearsal'))}: rehearsal: this item needs nothing special, "
            "so it is never rehearsed; say 'needs: gpu' or leave it out"
        )
    return step if needs is None else _rehearsed(path, step, read.rehearsal, place, lines)


def _rehearsed(
    path: Path,
    step: Step,
    read: RehearsalFile | Literal[False] | None,
    place: tuple[int | str, ...],
    lines: _Lines,
) -> Step:
    """A step with what takes its place where the real thing is not there, if anything may."""
    # A drill rehearses by itself, on gloo; a person's look is the same everywhere.
    by_itself = RehearsalFile() if step.kind in ("drill", "manual") and read is None else None
    rehearsal = read or by_itself
    if not rehearsal:
        return step
    other = replace(
        step,
        mode=rehearsal.mode or step.mode,
        culprit=step.culprit if rehearsal.culprit is None else str(rehearsal.culprit),
        parameters={**step.parameters, **rehearsal.set},
        arguments={**step.arguments, **rehearsal.with_},
        command=rehearsal.command or step.command,
        passes=rehearsal.pass_ or step.passes,
        seconds=seconds(rehearsal.takes) if rehearsal.takes else step.seconds,
        line=lines.of((*place, "rehearsal")),
    )
    _check(path, other, (*place, "rehearsal"), lines)
    return replace(step, rehearsal=other)


def _check(path: Path, step: Step, place: tuple[int | str, ...], lines: _Lines) -> None:
    """That a probe exists, takes these options, and measures what the criterion asks for."""
    wanted: frozenset[str] = frozenset()
    if step.passes is not None:
        try:
            wanted = names_in(step.passes)
        except ExpressionError as error:
            raise UsageError(f"{path}:{lines.of((*place, 'pass'))}: pass: {error}") from None
    if step.kind != "probe":
        return
    probe = PROBES.get(step.name)
    if probe is None:
        raise UsageError(
            f"{path}:{lines.of((*place, 'probe'))}: probe: there is no '{step.name}'; "
            f"there are: {', '.join(PROBES)}"
        )
    for name, value in step.arguments.items():
        if problem := _wrong_argument(probe.arguments, name, value):
            raise UsageError(f"{path}:{lines.of((*place, 'with', name))}: with.{name}: {problem}")
    for key, names in (("pass", wanted), ("show", frozenset(step.shows))):
        if unknown := sorted(names - set(probe.figures)):
            raise UsageError(
                f"{path}:{lines.of((*place, key))}: {key}: probe {step.name} does not measure {unknown[0]}; "
                f"it measures: {', '.join(probe.figures)}"
            )


def _wrong_argument(known: Mapping[str, ParameterValue], name: str, value: Value) -> str | None:
    if name not in known:
        return f"the probe has no such option; it has: {', '.join(known) or 'none'}"
    default = known[name]
    if isinstance(default, float) and isinstance(value, (int, float)) and not isinstance(value, bool):
        return None
    if type(value) is type(default):
        return None
    return f"{value!r}: allowed is a value of type {type(default).__name__}"
