"""What the harness, or plain torchrun, tells a rank about itself."""

import os
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from harness.bundle.layout import Layout

BUNDLE = "DRILL_BUNDLE"
"""Set by the harness to the bundle's folder. Where it is absent the worker toolkit is inert."""

REQUIRED_GPUS = "DRILL_REQUIRED_GPUS"
"""How many cards a probe must have; set where a checklist's item is meant for real."""

SHARE_GPU = "DRILL_SHARE_GPU"
"""Set where all ranks share one card."""

COLLECTIVE_TIMEOUT = "DRILL_COLLECTIVE_TIMEOUT_S"
"""Set where the watchdog's own timeout is waited for: it counts instead of the script's."""


DUMP_PREFIX = "DRILL_DUMP_PREFIX"
"""Set to where the real job's dumps would go, if this run's are to go there."""


@dataclass(frozen=True)
class RankEnvironment:
    """torchrun's variables, and the bundle if there is a harness around us."""

    rank: int
    local_rank: int
    world_size: int
    attempt: int
    host: str
    layout: Layout | None
    collective_timeout_s: float | None = None
    dump_prefix: str | None = None

    @classmethod
    def read(cls, env: Mapping[str, str] = os.environ) -> "RankEnvironment":
        """Read RANK, LOCAL_RANK, WORLD_SIZE and TORCHELASTIC_RESTART_COUNT; a lone process is rank 0 of 1."""
        bundle, timeout = env.get(BUNDLE), env.get(COLLECTIVE_TIMEOUT)
        return cls(
            rank=int(env.get("RANK", "0")),
            local_rank=int(env.get("LOCAL_RANK", "0")),
            world_size=int(env.get("WORLD_SIZE", "1")),
            attempt=int(env.get("TORCHELASTIC_RESTART_COUNT", "0")),
            host=socket.gethostname(),
            layout=Layout(Path(bundle)) if bundle else None,
            collective_timeout_s=float(timeout) if timeout else None,
            dump_prefix=env.get(DUMP_PREFIX),
        )
