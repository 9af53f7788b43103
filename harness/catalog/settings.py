"""Which value wins: flags beat ``DRILL_*`` beat ``drill.toml`` beat the drill's own defaults."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tomli

from harness.catalog.schema import convert
from harness.model.errors import UsageError
from harness.model.plan import Setting
from harness.model.ranks import parse_ranks
from harness.model.spec import DrillSpec, Parameter, ParameterValue

CONFIG = Path("drill.toml")

OPTIONS = {
    "nproc": Parameter("nproc", "int", 8, "number of ranks", minimum=1, maximum=4096),
    "culprit": Parameter("culprit", "str", "", "rank or comma list"),
    "mode": Parameter("mode", "str", "", "which way to break it"),
    "backend": Parameter("backend", "str", "auto", choices=("auto", "gloo", "nccl")),
    "share_gpu": Parameter("share_gpu", "bool", False, "all ranks on one card, over sockets"),
    "launcher": Parameter("launcher", "str", "auto", choices=("auto", "fork", "torchrun")),
    "timeout": Parameter("timeout", "float", 120.0, "bound on the whole run, seconds", minimum=1),
    "max_restarts": Parameter("max_restarts", "int", 0, "restarts that torchrun may make", minimum=0),
    "detail": Parameter("detail", "bool", False, "TORCH_DISTRIBUTED_DEBUG=DETAIL"),
    "wait_for_watchdog": Parameter(
        "wait_for_watchdog", "bool", False, "dumps by the watchdog's own timeout, not by pipe (nccl)"
    ),
    "out": Parameter("out", "str", "runs", "folder for bundles"),
}
"""Options of every drill; all other keys are a drill's own parameters."""


@dataclass(frozen=True)
class Sources:
    """What people wrote, by source: command-line flags, ``--set``, environment, drill.toml."""

    flags: Mapping[str, str]
    sets: Mapping[str, str]
    environ: Mapping[str, str]
    config: Mapping[str, ParameterValue]
    config_tables: Mapping[str, Mapping[str, ParameterValue]]

    @classmethod
    def read(cls, flags: Mapping[str, str | None], sets: Sequence[str], config: Path = CONFIG) -> "Sources":
        """Collect all sources.

        Raises:
            UsageError: a ``--set`` without ``=``, or a drill.toml that is not TOML.
        """
        document = _read_toml(config)
        drills: Any = document.pop("drills", {})
        if not isinstance(drills, dict) or not all(isinstance(t, dict) for t in drills.values()):
            raise UsageError(f"{config}: drills: allowed are tables such as [drills.fr_hang]")
        if unknown := set(document) - set(OPTIONS):
            allowed = ", ".join((*OPTIONS, "[drills.NAME]"))
            raise UsageError(f"{config}: {min(unknown)}: unknown key; allowed are {allowed}")
        return cls(
            {k: v for k, v in flags.items() if v is not None},
            dict(_pair(text) for text in sets),
            os.environ,
            document,
            drills,
        )


def settle(spec: DrillSpec, sources: Sources) -> dict[str, Setting]:
    """Every option and parameter of one drill with its value and origin.

    Raises:
        UsageError: an unknown parameter, or a value that does not fit.
    """
    defaults: dict[str, ParameterValue] = {
        **{name: option.default for name, option in OPTIONS.items()},
        "nproc": spec.nproc,
        "culprit": ",".join(map(str, spec.culprit)),
        "mode": spec.default_mode,
        "timeout": spec.timeout_s,
    }
    _refuse_unknown(spec, sources)
    settled = {"mode": _settle(OPTIONS["mode"], defaults["mode"], sources.flags.get("mode"), spec, sources)}
    mode = spec.modes.get(str(settled["mode"].value))
    if mode is not None:
        defaults["max_restarts"] = mode.max_restarts
    for name, option in OPTIONS.items():
        settled[name] = _settle(option, defaults[name], sources.flags.get(name), spec, sources)
    for name, parameter in spec.parameters.items():
        default = mode.parameters.get(name, parameter.default) if mode else parameter.default
        settled[name] = _settle(parameter, default, sources.sets.get(name), spec, sources)
    culprit = settled["culprit"]
    settled["culprit"] = Setting(_ranks(str(culprit.value), culprit.origin), culprit.origin)
    return settled


def _settle(
    parameter: Parameter,
    default: ParameterValue,
    given: str | None,
    spec: DrillSpec,
    sources: Sources,
) -> Setting:
    name = parameter.name
    flag = f"--{name.replace('_', '-')}" if name in OPTIONS else f"--set {name}"
    variable = f"DRILL_{name.upper()}"
    table = sources.config_tables.get(spec.name, {})
    candidates: tuple[tuple[ParameterValue | None, str], ...] = (
        (given, flag),
        (sources.environ.get(variable), variable),
        (table.get(name), f"drill.toml [drills.{spec.name}]"),
        (sources.config.get(name) if name in OPTIONS else None, "drill.toml"),
    )
    for value, origin in candidates:
        if value is not None and _applies(parameter, value, origin, spec):
            return Setting(convert(parameter, value, origin), origin)
    return Setting(default, "default")


def _applies(parameter: Parameter, value: ParameterValue, origin: str, spec: DrillSpec) -> bool:
    """Whether a value that was set for all drills means this one: it may have no culprit or no such mode."""
    if origin not in ("drill.toml", f"DRILL_{parameter.name.upper()}"):
        return True
    if parameter.name == "culprit":
        return bool(spec.culprit)
    return parameter.name != "mode" or value in spec.modes


def _refuse_unknown(spec: DrillSpec, sources: Sources) -> None:
    allowed = ", ".join(spec.parameters) or "none"
    for name in sources.sets:
        if name not in spec.parameters:
            raise UsageError(f"--set {name}: {spec.name} has no such parameter; it has: {allowed}")
    for name in sources.config_tables.get(spec.name, {}):
        if name not in spec.parameters and name not in OPTIONS:
            raise UsageError(
                f"drill.toml: drills.{spec.name}.{name}: no such parameter; "
                f"there are: {', '.join((*OPTIONS, *spec.parameters))}"
            )


def _pair(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals or not key:
        raise UsageError(f"--set {text}: give it as key=value")
    return key.replace("-", "_"), value


def _ranks(text: str, origin: str) -> tuple[int, ...]:
    try:
        return parse_ranks(text)
    except ValueError as error:
        raise UsageError(f"{origin}: {error}") from None


def _read_toml(path: Path) -> dict[str, ParameterValue]:
    try:
        document: dict[str, ParameterValue] = tomli.loads(path.read_text(encoding="utf-8"))
        return document
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}") from None
    except (tomli.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"{path}: not TOML: {error}") from None
