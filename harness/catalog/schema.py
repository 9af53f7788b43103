"""The YAML of a drill, validated: a wrong key or type is named with its file and what is allowed."""

import math
from pathlib import Path
from typing import Annotated, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from harness.model.errors import UsageError
from harness.model.kinds import Kind
from harness.model.spec import DrillSpec, Expectation, Mode, Parameter, ParameterValue

Evidence = Literal["flight_recorder", "stacks", "logs", "signals"]
Name = Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]*$")]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class ExpectFile(_Strict):
    """What must be diagnosed."""

    kind: Kind
    accused: Literal["culprits", "suspects", "nobody"] = "culprits"
    site: str | None = None
    how: str | None = None
    signal: str | None = None
    recovered: bool = False
    offsets: tuple[int, ...] = ()


class TraceFile(_Strict):
    """What the fault itself leaves behind, beside the harness's own record; exactly one of these.

    `exit`: signal or code of the culprit; `state`: its state in /proc; `stack`: a function in its stacks;
    `record`: odd, its recorded collectives differ; `log`, `launcher`, `kernel`: words in those logs. Of its
    step records, a field that `grew`, that `differs` from the other ranks', is `not_finite`, or was `rewound`
    after a restart.
    """

    exit: str | None = None
    state: str | None = None
    stack: str | None = None
    record: Literal["odd"] | None = None
    log: str | None = None
    launcher: str | None = None
    kernel: str | None = None
    grew: str | None = None
    differs: str | None = None
    not_finite: str | None = None
    rewound: str | None = None

    @model_validator(mode="after")
    def _exactly_one(self) -> "TraceFile":
        if len(self.model_fields_set) != 1:
            raise ValueError(f"give exactly one of {', '.join(type(self).model_fields)}")
        return self


class ParameterFile(_Strict):
    """One parameter of the drill's script. `shared`: its default where all ranks share one card."""

    type: Literal["int", "float", "str", "bool"] = "int"
    default: bool | int | float | str
    shared: bool | int | float | str | None = None
    help: str = ""
    min: float | None = None
    max: float | None = None
    choices: tuple[bool | int | float | str, ...] = ()
    ours: bool = False


class ModeFile(_Strict):
    """One way to break things; see `harness.model.spec.Mode`."""

    summary: str
    expect: ExpectFile
    tie: ExpectFile | None = None
    detail: ExpectFile | None = None
    evidence: dict[Evidence, Literal["all", "victims"]] = {}
    trace: TraceFile | None = None
    parameters: dict[Name, bool | int | float | str] = {}
    max_restarts: Annotated[int, Field(ge=0)] = 0
    outside: Literal["sigterm", "cancel", "hangup", "lost"] | None = None
    needs: tuple[Literal["network_namespace", "memory_cgroup", "gpu"], ...] = ()
    samples: Annotated[int, Field(ge=0, le=100)] = 0
    page: Literal["stall", "restart", "own", "exporter", "nan", "ckpt", "xid"] | None = None


class DrillFile(_Strict):
    """A whole NAME.yaml."""

    name: Name
    summary: str
    script: str
    tags: tuple[str, ...] = ()
    backends: tuple[Literal["gloo", "nccl"], ...] = ("gloo",)
    stands_in_for: str | None = None
    nproc: Annotated[int, Field(ge=1, le=4096)] = 8
    culprit: tuple[Annotated[int, Field(ge=0)], ...] = ()
    mode: Name
    timeout_s: Annotated[float, Field(gt=0)] = 120.0
    within_s: Annotated[float, Field(gt=0)] | None = None
    parameters: dict[Name, ParameterFile] = {}
    preload: tuple[Annotated[str, Field(pattern=r"^[A-Za-z_][\w.]*$")], ...] = ()
    modes: Annotated[dict[Name, ModeFile], Field(min_length=1)]

    @model_validator(mode="after")
    def _default_mode_exists(self) -> "DrillFile":
        if self.mode not in self.modes:
            raise ValueError(f"mode '{self.mode}' is not among modes: {', '.join(self.modes)}")
        for name, mode in self.modes.items():
            if unknown := set(mode.parameters) - set(self.parameters):
                raise ValueError(f"modes.{name}.parameters: {min(unknown)} is not among parameters")
        return self


def read_drill(path: Path) -> DrillSpec:
    """Read and validate one drill.

    Raises:
        UsageError: not YAML, an unknown key, a wrong type, a missing script.
    """
    try:
        document = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}") from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise UsageError(f"{path}: not YAML: {' '.join(str(error).split())}") from None
    try:
        read = DrillFile.model_validate(document)
    except ValidationError as error:
        raise UsageError(explain(path, error, DrillFile)) from None
    script = path.parent / read.script
    if not script.is_file():
        raise UsageError(f"{path}: script: {script} does not exist")
    if read.name != path.stem:
        raise UsageError(f"{path}: name: '{read.name}' must be the file's own name, '{path.stem}'")
    return _spec(read, path, script)


def explain(path: Path, error: ValidationError, model: type[BaseModel]) -> str:
    """The first complaint of pydantic as one line: file, key, what is allowed."""
    first = error.errors()[0]
    key = ".".join(str(part) for part in first["loc"]) or "the document"
    message = first["msg"]
    if first["type"] == "extra_forbidden":
        allowed = ", ".join(_keys_at(model, first["loc"][:-1]))
        message = f"unknown key; allowed here: {allowed}" if allowed else "unknown key"
    return f"{path}: {key}: {message}"


def _keys_at(model: type[BaseModel], loc: tuple[int | str, ...]) -> tuple[str, ...]:
    nested: dict[str, type[BaseModel]] = {
        "parameters": ParameterFile,
        "modes": ModeFile,
        "expect": ExpectFile,
        "tie": ExpectFile,
        "detail": ExpectFile,
        "trace": TraceFile,
    }
    for part in loc:
        model = nested.get(str(part), model)
    return tuple(model.model_fields)


def _spec(read: DrillFile, path: Path, script: Path) -> DrillSpec:
    return DrillSpec(
        name=read.name,
        summary=read.summary,
        script=script.resolve(),
        source=path.resolve(),
        modes={name: _mode(name, mode, read) for name, mode in read.modes.items()},
        default_mode=read.mode,
        parameters={name: _parameter(name, p) for name, p in read.parameters.items()},
        tags=read.tags,
        backends=read.backends,
        nproc=read.nproc,
        culprit=read.culprit,
        timeout_s=read.timeout_s,
        stands_in_for=read.stands_in_for,
        preload=read.preload,
    )


def _mode(name: str, mode: ModeFile, drill: DrillFile) -> Mode:
    expect = _expectation(mode.expect, mode, drill)
    return Mode(
        name,
        mode.summary,
        expect,
        _expectation(mode.tie, mode, drill) if mode.tie else None,
        _expectation(mode.detail, mode, drill) if mode.detail else None,
        mode.parameters,
        mode.max_restarts,
        mode.outside,
        mode.needs,
        mode.samples,
        mode.page,
    )


def _expectation(expect: ExpectFile, mode: ModeFile, drill: DrillFile) -> Expectation:
    return Expectation(
        kind=expect.kind,
        accused=expect.accused,
        site=expect.site,
        how=expect.how,
        signal=expect.signal,
        recovered=expect.recovered,
        offsets=expect.offsets,
        trace=_trace(mode.trace),
        evidence=tuple(f"{what}:{whose}" for what, whose in mode.evidence.items()),
        within_s=drill.within_s,
        fault=expect.kind is not Kind.HEALTHY,
    )


def _trace(trace: TraceFile | None) -> tuple[str, str] | None:
    """Which kind of trace and its value."""
    return next(iter(trace.model_dump(exclude_none=True).items())) if trace else None


def _parameter(name: str, read: ParameterFile) -> Parameter:
    return Parameter(
        name, read.type, read.default, read.help, read.min, read.max, read.choices, read.shared, read.ours
    )


def convert(parameter: Parameter, text: ParameterValue, where: str) -> ParameterValue:
    """Turn what a person wrote into a parameter's type, within its bounds.

    Raises:
        UsageError: the type, a bound or the choices do not fit; `where` says who wrote it.
    """
    value = _typed(parameter, text, where)
    low, high = parameter.minimum, parameter.maximum
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        if not math.isfinite(value):
            raise UsageError(f"{where}: {parameter.name}={value}: a finite number is allowed")
        if low is not None and value < low:
            raise UsageError(f"{where}: {parameter.name}={value:g}: at least {low:g} is allowed")
        if high is not None and value > high:
            raise UsageError(f"{where}: {parameter.name}={value:g}: at most {high:g} is allowed")
    if parameter.choices and value not in parameter.choices:
        allowed = ", ".join(str(choice) for choice in parameter.choices)
        raise UsageError(f"{where}: {parameter.name}={value}: allowed are {allowed}")
    return value


def _typed(parameter: Parameter, text: ParameterValue, where: str) -> ParameterValue:
    words = {"true": True, "false": False, "1": True, "0": False}
    try:
        if parameter.type == "bool":
            return words[str(text).lower()]
        if parameter.type == "int":
            return int(str(text))
        return float(str(text)) if parameter.type == "float" else str(text)
    except (ValueError, KeyError):
        raise UsageError(
            f"{where}: {parameter.name}={text}: allowed is a value of type {parameter.type}"
        ) from None
