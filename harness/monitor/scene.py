"""The scenes of the page drill: what is broken, which alert must page, and what the page must say."""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Scene:
    """`alert`: who must page. `thaws`: whether the break is undone, and the page must be resolved then.

    `waits`: whether the alert has the stall's threshold in its time. `breaks_ranks`: whether the job itself
    is touched from outside; else the drill's script does it, or the monitoring is what breaks.
    """

    alert: str
    waits: bool = False
    thaws: bool = False
    breaks_ranks: bool = False


SCENES: Mapping[str, Scene] = {
    "stall": Scene("TrainingStepStalled", waits=True, thaws=True, breaks_ranks=True),
    "restart": Scene("TrainingStepStalled", waits=True, thaws=True, breaks_ranks=True),
    "own": Scene("TrainingStepStalled", waits=True, breaks_ranks=True),
    "exporter": Scene("TrainingMetricsAbsent", waits=True, thaws=True),
    "nan": Scene("TrainingLossNotFinite"),
    "ckpt": Scene("CheckpointSaveFailed"),
    "xid": Scene("GpuXidError"),
}
