"""Other people's records through the same door: torchtitan's spans, Megatron's reports."""

import json
from collections.abc import Callable
from pathlib import Path

from harness.diagnose.api import diagnose
from harness.model.kinds import Kind

START_US = 1_764_460_000_000_000


def spans(
    folder: Path, ranks: int, steps: int, fetch_ms: Callable[[int, int], float], open_in: str = ""
) -> None:
    """torchtitan's structured logs: a step is a batch fetched, then forward and backward.

    `open_in`: the span that rank 3 enters in a last step and never leaves; the others are in fwd_bwd then.
    """
    place = folder / "structured_logs"
    place.mkdir(parents=True)
    for rank in range(ranks):
        log = _Log(rank)
        for step in range(1, steps + 1):
            slowest = max(fetch_ms(r, step - 1) for r in range(ranks))
            fetch = fetch_ms(rank, step - 1)
            log.event("step_start", step)
            log.span("fetching_batch", step, fetch)
            log.span("fwd_bwd", step, 200 + slowest - fetch)
            log.event("step_end", step, 200 + slowest)
        if open_in:
            log.event("step_start", steps + 1)
            log.event(f"{open_in if rank == 3 else 'fwd_bwd'}_start", steps + 1)
        name = f"training.global_rank_{rank}.20260101-000000-ABCDEF.jsonl"
        (place / name).write_text("\n".join(log.lines) + "\n")


class _Log:
    """One rank's events on its own clock."""

    def __init__(self, rank: int) -> None:
        self.rank = rank
        self.now_us = START_US
        self.lines: list[str] = []

    def span(self, name: str, step: int, ms: float) -> None:
        self.event(f"{name}_start", step)
        self.now_us += int(ms * 1000)
        self.event(f"{name}_end", step, ms)

    def event(self, name: str, step: int, value: float | None = None) -> None:
        record = {"rank": self.rank, "global_rank": self.rank, "source": "training", "step": step, "tid": 1}
        record |= {"time_us": self.now_us, "log_type": "event", "log_type_name": name}
        record |= {"seq_id": len(self.lines)}
        if value is not None:
            record["value"] = value
        self.lines.append(json.dumps(record))


def test_one_starved_rank_in_torchtitans_spans(tmp_path: Path) -> None:
    """`fetching_batch` grew on one rank; `fwd_bwd` of the others grew with it, and accuses nobody."""
    spans(tmp_path, 8, 150, lambda rank, step: 60.0 if rank == 5 and step >= 75 else 2.0)

    diagnosis = diagnose(tmp_path).diagnosis

    assert (diagnosis.kind, diagnosis.culprits) == (Kind.DATA_STARVED, (5,))


def test_a_healthy_torchtitan_job(tmp_path: Path) -> None:
    """Nothing grew: nobody is accused."""
    spans(tmp_path, 8, 150, lambda rank, step: 2.0 + (rank * 7 + step * 3) % 5 / 10)

    assert diagnose(tmp_path).diagnosis.kind is Kind.HEALTHY


def test_a_span_that_was_never_left(tmp_path: Path) -> None:
    """Seven ranks are in forward and backward, one in its loader: it is the suspect."""
    spans(tmp_path, 8, 20, lambda rank, step: 2.0, open_in="fetching_batch")

    diagnosis = diagnose(tmp_path).diagnosis

    assert (diagnosis.kind, diagnosis.culprits, diagnosis.suspects) == (Kind.RANK_STALLED, (), (3,))
    assert diagnosis.where.site == "dataloader"


def report(step: int, slowest: int, clock: float = 1980.0) -> str:
    """One iteration of a Megatron log, with the straggler detector's line."""
    return (
        f" [2026-08-08 03:12:{step % 60:02d}.118201] iteration     {step}/  100000 | consumed samples: "
        f"{step * 512} | elapsed time per iteration (ms): 4812.3 | learning rate: 2.987E-04 | "
        f"global batch size:   512 | lm loss: 2.104E+00 | grad norm: 0.812 | "
        f"number of skipped iterations:   0 | number of nan "
        f"iterations:   0 |\n"
        f"[2026-08-08 03:12:{step % 60:02d}] | MnRtt/Rnk: 1446.49ms/2 | MxRtt/Rnk: 1980.32ms/{slowest} | "
        f"MnPwr/Rnk: 617.00W/0 | MxPwr/Rnk: 669.00W/20 | MnTmp/Rnk: 50.00C/0 | MxTmp/Rnk: 61.00C/19 | "
        f"MnUtl/Rnk: 45.00%/20 | MxUtl/Rnk: 100.00%/3 | MnClk/Rnk: {clock:.2f}MHz/{slowest} | "
        f"MxClk/Rnk: 1980.00MHz/0 | MnDRtt/Rnk: 1.22ms/15 | MxDRtt/Rnk: 1.33ms/23 | "
        f"MnEtpt/Rnk: 560.82TF/{slowest} | MxEtpt/Rnk: 608.83TF/13\n"
    )


def test_megatrons_straggler_reports_name_a_suspect(tmp_path: Path) -> None:
    """The same rank last in every report, by more than a fifth, on a card that clocks lower."""
    (tmp_path / "train.log").write_text("".join(report(10 * i, 30, clock=1300.0) for i in range(1, 11)))

    diagnosis = diagnose(tmp_path).diagnosis

    assert (diagnosis.kind, diagnosis.culprits, diagnosis.suspects) == (Kind.STRAGGLER, (), (30,))
    assert (diagnosis.where.site, diagnosis.category.value) == ("throttle", "gpu")


def test_a_rank_that_is_last_now_and_then_is_no_suspect(tmp_path: Path) -> None:
    """Somebody is always last."""
    (tmp_path / "train.log").write_text("".join(report(10 * i, i % 7) for i in range(1, 11)))

    assert diagnose(tmp_path).diagnosis.kind is Kind.HEALTHY
