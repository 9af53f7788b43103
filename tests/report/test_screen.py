"""A thousand ranks still fit a screen."""

import io
import pickle
from dataclasses import replace
from pathlib import Path

from rich.console import Console

from harness.report.terminal import show_diagnosis
from tests.simulate import Scenario, Shape


def test_a_thousand_ranks_fit_a_screen(tmp_path: Path) -> None:
    """Rank sets are printed as ranges; nothing is wider than 100 columns."""
    from harness.diagnose.api import diagnose

    base = Scenario("size", replace(Shape(dp=8), steps=3), 1)
    dumps = base.dumps(skew=False)
    healthy = next(d for r, d in dumps.items() if r != base.culprit)
    for rank in range(1024):
        dump = dumps[base.culprit] if rank == 5 else healthy
        entries = [
            {**e, "process_group": ("0", "default_pg")}
            for e in dump["entries"]  # type: ignore[attr-defined]
        ]
        for number, entry in enumerate(entries):
            entry["collective_seq_id"] = number + 1
        data = {"version": "2.10", "entries": entries}
        (tmp_path / f"rank_{rank}").write_bytes(pickle.dumps(data))

    result = diagnose(tmp_path)
    out = io.StringIO()
    show_diagnosis(Console(file=out, width=100), result)

    assert result.diagnosis.culprits == (5,)
    assert "0-4,6-1023" in out.getvalue()
    lines = out.getvalue().splitlines()
    assert len(lines) <= 50
    assert max(map(len, lines)) <= 100
