"""Names inside a bundle, in one place. `live/` exists only while ranks run."""

from dataclasses import dataclass
from pathlib import Path


def is_bundle(path: Path) -> bool:
    """Whether a folder is a bundle rather than a heap of somebody's files."""
    return any((path / name).exists() for name in ("bundle.json", "launcher.json", "ranks.json"))


@dataclass(frozen=True)
class Layout:
    """Paths of one bundle under `root`."""

    root: Path

    @property
    def manifest(self) -> Path:
        return self.root / "bundle.json"

    @property
    def run(self) -> Path:
        """For the judge; the diagnoser never opens it."""
        return self.root / "run.json"

    @property
    def injection(self) -> Path:
        """For the judge; the diagnoser never opens it."""
        return self.root / "injection.jsonl"

    @property
    def events(self) -> Path:
        return self.root / "events.jsonl"

    @property
    def ranks(self) -> Path:
        return self.root / "ranks.json"

    @property
    def launcher(self) -> Path:
        return self.root / "launcher.json"

    @property
    def launcher_log(self) -> Path:
        return self.root / "launcher.log"

    @property
    def kernel_log(self) -> Path:
        return self.root / "kernel.log"

    @property
    def logs(self) -> Path:
        return self.root / "logs"

    @property
    def flight_recorder(self) -> Path:
        return self.root / "flight_recorder"

    @property
    def stacks(self) -> Path:
        return self.root / "stacks"

    @property
    def signals(self) -> Path:
        return self.root / "signals"

    @property
    def diagnosis(self) -> Path:
        return self.root / "diagnosis.json"

    @property
    def verdict(self) -> Path:
        return self.root / "verdict.json"

    @property
    def watchdog(self) -> Path:
        """Each link from a timeout to the files, where dumps were left to the watchdogs."""
        return self.root / "watchdog.json"

    def memory_snapshot(self, attempt: int, rank: int) -> Path:
        """torch's picture of one rank's allocator on its device."""
        return self.root / "memory" / f"attempt_{attempt}" / f"rank_{rank}.pickle"

    @property
    def hardware(self) -> Path:
        """What nvidia-smi said of the cards, before and after."""
        return self.root / "hardware"

    @property
    def page(self) -> Path:
        """What came of the page drill; beside it the folder ``page`` has the logs of the monitoring."""
        return self.root / "page.json"

    @property
    def live(self) -> Path:
        """Pipes and registrations of running ranks; gone once they are stopped."""
        return self.root / "live"

    @property
    def last_step(self) -> Path:
        """Holds the number of the step after which all ranks end; absent unless the harness ends the job."""
        return self.live / "last_step"

    @property
    def collected_flag(self) -> Path:
        """Present once evidence is safe; whoever waits with cleaning up may go on."""
        return self.live / "collected"

    def registration(self, attempt: int, rank: int) -> Path:
        """Where a rank says that it lives, has joined, has finished."""
        return self.live / f"attempt_{attempt}_rank_{rank}.json"

    def dump_prefix(self, attempt: int) -> Path:
        """What TORCH_FR_DUMP_TEMP_FILE is set to; the rank number is appended."""
        return self.flight_recorder / f"attempt_{attempt}" / "rank_"

    def dump(self, attempt: int, rank: int) -> Path:
        """One rank's Flight Recorder dump."""
        return Path(f"{self.dump_prefix(attempt)}{rank}")

    @property
    def pipe_prefix(self) -> Path:
        """What TORCH_NCCL_DEBUG_INFO_PIPE_FILE is set to; ``<rank>.pipe`` is appended."""
        return self.live / "fr_"

    def pipe(self, rank: int) -> Path:
        """Any byte written here makes the rank dump."""
        return Path(f"{self.pipe_prefix}{rank}.pipe")

    def stack(self, attempt: int, sampling: int, rank: int) -> Path:
        """py-spy's JSON of one rank and its children in one sampling."""
        return self.stacks / f"attempt_{attempt}" / str(sampling) / f"rank_{rank}.json"

    def signal_file(self, attempt: int, rank: int) -> Path:
        """One rank's per-step records."""
        return self.signals / f"attempt_{attempt}" / f"rank_{rank}.jsonl"
