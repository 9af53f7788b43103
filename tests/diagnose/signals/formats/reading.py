"""What the tests of other people's formats share: the samples, and a way to look at columns."""

import math
from pathlib import Path

from harness.diagnose.signals.columns import StepColumns
from harness.diagnose.signals.formats.read import Foreign, read_foreign

SAMPLES = Path(__file__).parent.parent / "samples"
SPANS = SAMPLES / "torchtitan" / "structured_logs"


def read_bytes(folder: Path, data: bytes, name: str = "job.log") -> Foreign:
    """Read one file with this content."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_bytes(data)
    return read_foreign([folder])


def of_rank(foreign: Foreign, rank: int, attempt: int = 0) -> StepColumns:
    """The only columns of a rank in an attempt."""
    (found,) = (c for c in foreign.columns if (c.rank, c.attempt) == (rank, attempt))
    return found


def by_step(columns: StepColumns) -> dict[int, dict[str, float]]:
    """Step -> field -> number, as far as recorded."""
    return {
        int(step): {n: float(v[i]) for n, v in columns.values.items() if not math.isnan(v[i])}
        for i, step in enumerate(columns.step)
    }
