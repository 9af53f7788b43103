"""Step records of a made-up job, as `Signals` writes them, with the noise that real ones have."""

import json
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

Record = dict[str, float | int | str]
Change = Callable[[int, int, Record], None]
"""Called with rank, step and record: makes one job's trouble."""

START = 1_764_460_000.0


@dataclass
class Job:
    """A data parallel job: every step all ranks compute, then wait for the slowest.

    Times are seconds. `extra`: rank -> step -> additional own time, which everybody then waits for; the field
    that it is recorded in is `part`. `jitter`: relative standard deviation of computing.
    """

    ranks: int = 8
    steps: int = 200
    compute_s: float = 0.1
    exchange_s: float = 0.01
    data_s: float = 0.0005
    jitter: float = 0.02
    extra: Callable[[int, int], float] = lambda rank, step: 0.0
    part: str = "compute_s"
    change: Change = lambda rank, step, record: None
    seed: int = 0
    first: int = 0
    save_every: int = 0
    save_s: float = 2.0
    evaluate_every: int = 0
    slow_first: float = 10.0
    leave_out: tuple[str, ...] = ()
    _clock: float = field(default=START, init=False)

    def records(self) -> dict[int, list[Record]]:
        """Rank -> its records."""
        dice = random.Random(self.seed)
        found: dict[int, list[Record]] = {rank: [] for rank in range(self.ranks)}
        for step in range(self.first, self.first + self.steps):
            self._step(step, dice, found)
        return found

    def write(self, folder: Path) -> Path:
        """Write ``attempt_0/rank_<r>.jsonl`` under `folder`, which is returned."""
        place = folder / "attempt_0"
        place.mkdir(parents=True, exist_ok=True)
        for rank, records in self.records().items():
            text = "".join(json.dumps(r) + "\n" for r in records)
            (place / f"rank_{rank}.jsonl").write_text(text)
        return folder

    def _step(self, step: int, dice: random.Random, found: Mapping[int, list[Record]]) -> None:
        warm = self.slow_first if step == self.first else 1.0
        parts = []
        for rank in range(self.ranks):
            compute = self.compute_s * warm * max(0.2, dice.gauss(1.0, self.jitter))
            data = self.data_s * dice.lognormvariate(0.0, 0.3)
            parts.append(
                {"compute_s": compute, "data_wait_s": data, "rest": 0.002 * dice.lognormvariate(0.0, 0.2)}
            )
            parts[-1][self.part] = parts[-1].get(self.part, 0.0) + self.extra(rank, step)
        arrival = [sum(p.values()) for p in parts]
        exchange = self.exchange_s * dice.lognormvariate(0.0, 0.1)
        took = max(arrival) + exchange
        saved = self.save_s * dice.lognormvariate(0.0, 0.1) if self._due(step, self.save_every) else 0.0
        # An evaluation is a pause that every rank takes, and that counts as nobody's part of a step.
        pause = 5 * self.compute_s if self._due(step, self.evaluate_every) else 0.0
        self._clock += took + saved + pause
        for rank, part in enumerate(parts):
            record: Record = {
                "t": self._clock + dice.random() / 1000,
                "step": step,
                "rank": rank,
                "step_time_s": took + saved + pause,
                "loss": 2.0 + dice.gauss(0.0, 0.1),
                "grad_norm": 1.0 + dice.random(),
                "consumed_samples": (step + 1) * 16,
                "compute_s": part["compute_s"],
                "data_wait_s": part["data_wait_s"],
                "comm_wait_s": took - arrival[rank],
                "mem_allocated_peak": 60 << 30,
                "mem_reserved_peak": 70 << 30,
                "mem_inactive_split": int((1 << 30) * dice.lognormvariate(0.0, 0.05)),
                "rss_bytes": int((8 << 30) + dice.gauss(0, 1 << 20)),
                "stdout_bytes": 200 * (step - self.first + 1),
                "digest": f"{hash((self.seed, step)) & (2**64 - 1):016x}",
            }
            if saved:
                record["ckpt_duration_s"] = saved
                record["ckpt_write_s"] = saved * dice.uniform(0.3, 0.9)
            self.change(rank, step, record)
            found[rank].append({k: v for k, v in record.items() if k not in self.leave_out})

    def _due(self, step: int, every: int) -> bool:
        return bool(every) and (step + 1) % every == 0


def since(begin: int, *ranks: int, seconds: float) -> Callable[[int, int], float]:
    """Extra own time of some ranks from a step on."""
    return lambda rank, step: seconds if rank in ranks and step >= begin else 0.0
