"""Taking evidence before ranks are stopped. What cannot be had is written down with the reason."""

import time
from collections.abc import Mapping
from dataclasses import dataclass

from harness.bundle.codec import write_atomically
from harness.bundle.reader import BundleReader
from harness.bundle.writer import BundleWriter
from harness.model.bundle import RankMap
from harness.model.ranks import format_ranks
from harness.observe.dumps import await_dumps, request_dumps
from harness.observe.gpus import smi_report
from harness.observe.kernel import read_kernel_log
from harness.observe.processes import is_alive
from harness.observe.stack_files import voluntary_switches, write_stack
from harness.observe.stacks import ProcessSample, sample_ranks


@dataclass
class Collector:
    """Collects from the ranks of one attempt into one bundle. Never raises on what it cannot have."""

    writer: BundleWriter
    attempt: int

    def stacks(self, pids: Mapping[int, int], sampling: int) -> None:
        """py-spy of every rank and its children."""
        samples = sample_ranks(pids)
        reasons: dict[str, list[int]] = {}
        for rank, processes in samples.items():
            self._write_stack(rank, sampling, processes)
            for process in processes:
                if process.error and process.role == "rank":
                    reasons.setdefault(process.error, []).append(rank)
        for reason, ranks in reasons.items():
            self.writer.not_collected(f"stacks of rank {format_ranks(ranks)}", reason)
        self.writer.collected(f"stacks, sampling {sampling}")

    def dumps(self, ranks: Mapping[int, int]) -> None:
        """Ask every rank's recorder for its dump."""
        layout = self.writer.layout
        asked_ns = time.time_ns()
        refused = request_dumps({rank: layout.pipe(rank) for rank in ranks})
        self.writer.event("dump asked", detail=f"ranks {format_ranks(set(ranks) - set(refused))}")
        files = {r: layout.dump(self.attempt, r) for r in ranks if r not in refused}
        silent = await_dumps(files, asked_ns, lambda rank: is_alive(ranks[rank]))
        reasons: dict[str, list[int]] = {}
        for rank, reason in {**refused, **silent}.items():
            if not layout.dump(self.attempt, rank).exists():
                reasons.setdefault(reason, []).append(rank)
        for reason, missing in reasons.items():
            self.writer.not_collected(f"flight recorder of rank {format_ranks(missing)}", reason)
        self.writer.collected("flight recorder")

    def hardware(self, when: str) -> None:
        """What nvidia-smi says of the cards, `when`: before or after. What it may not see, it says itself."""
        report, why = smi_report()
        if why is None:
            try:
                write_atomically(self.writer.layout.hardware / f"nvidia-smi-{when}.xml", report)
                self.writer.collected(f"GPU state, {when}")
                return
            except OSError as error:
                why = error.strerror or str(error)
        self.writer.not_collected(f"GPU state, {when}", why)

    def kernel_log(self, since_s: float, wanted: bool = False) -> None:
        """What the kernel said since `since_s` (CLOCK_MONOTONIC), where it may be read.

        Where it may not, that is said if it is `wanted`, or if somebody was killed.
        """
        lines = read_kernel_log(since_s)
        if lines is None:
            if wanted or self._somebody_was_killed():
                self.writer.not_collected("kernel log", "not permitted: needs root or CAP_SYSLOG")
            return
        try:
            write_atomically(self.writer.layout.kernel_log, "".join(f"{x}\n" for x in lines).encode())
        except OSError as error:
            self.writer.not_collected("kernel log", error.strerror or str(error))
        self.writer.collected("kernel log")

    def _somebody_was_killed(self) -> bool:
        """Whether a rank ended by SIGKILL of its own: only then the kernel may know more."""
        record = BundleReader(self.writer.layout).launcher()
        attempts = record.attempts if record else ()
        return any(e.signal == "SIGKILL" and not e.cleanup for a in attempts for e in a.exits)

    def resume(self) -> None:
        """Take the flag back after a false alarm: the next failure is held for us again."""
        self.writer.layout.collected_flag.unlink(missing_ok=True)

    def safe(self) -> None:
        """Say that evidence is safe: whoever waited with cleaning up may go on."""
        try:
            self.writer.layout.collected_flag.touch()
        except OSError as error:
            self.writer.not_collected("the flag for the agent", error.strerror or str(error))

    def rank_map(self, world_size: int) -> RankMap:
        """Merge the ranks' own registrations into ranks.json."""
        records = BundleReader(self.writer.layout).registrations()
        ranks = RankMap(world_size, records)
        self.writer.rank_map(ranks)
        return ranks

    def _write_stack(self, rank: int, sampling: int, processes: tuple[ProcessSample, ...]) -> None:
        path = self.writer.layout.stack(self.attempt, sampling, rank)
        try:
            write_stack(path, processes, voluntary_switches([p.pid for p in processes if p.role == "rank"]))
        except OSError as error:
            self.writer.not_collected(f"stack of rank {rank}", error.strerror or str(error))
