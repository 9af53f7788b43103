"""What the CLI asks of the launcher process, a JSON line each, and what it answers."""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class LaunchRequest:
    """Start one drill's ranks. `start` is fork or exec; paths are absolute; `env` is added to ours.

    `preload`: modules that the launcher imports once, for all runs. `network_namespace`: the job gets
    loopback devices of its own.
    """

    bundle: str
    script: str
    argv: tuple[str, ...]
    nproc: int
    start: str
    run_id: str
    max_restarts: int = 0
    hold_s: float = 3.0
    network_namespace: bool = False
    preload: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class LauncherMessage:
    """`event` is ready, started (with the agent's pid) or ended (with its wait status)."""

    event: str
    bundle: str = ""
    pid: int = 0
    status: int = 0
    detail: str = ""
