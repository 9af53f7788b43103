"""The probes that ship: what each is told, and which figures it gives.

A probe is ``python -m harness.worker.probes NAME --key value``; its last line of output is one JSON object
with the figures. Those that need torch import it there, never here.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from harness.model.spec import ParameterValue


@dataclass(frozen=True)
class Probe:
    """One probe. `arguments`: name -> default, whose type counts; `figures`: name -> what it is."""

    name: str
    summary: str
    figures: Mapping[str, str]
    arguments: Mapping[str, ParameterValue] = field(default_factory=dict)
    torch: bool = True


_RANKS: dict[str, ParameterValue] = {"nproc": 4, "broken": ""}

PROBES = {
    probe.name: probe
    for probe in (
        Probe(
            "memory",
            "write patterns into device memory, read them back",
            {
                "errors": "bytes that came back other than they were written",
                "checked_gib": "memory written and read on all devices, GiB",
                "devices": "devices tested",
            },
            {"mib": 256, "rounds": 2, "broken": ""},
        ),
        Probe(
            "gemm",
            "matrix multiply on each device, against its peers and against a measured reference of its model",
            {
                "peer_ratio": "the slowest device's rate to the median of all",
                "reference_ratio": "the median rate to the reference; none where no reference is on record",
                "worst_ratio": "the smaller of both, as far as known",
                "tflops": "median rate, TFLOP/s",
                "devices": "devices measured",
                "slow": "devices below the others, by name",
            },
            {"size": 4096, "seconds": 1.0, "dtype": "bfloat16", "references": "", "broken": ""},
        ),
        Probe(
            "links",
            "copies between each two devices of this machine",
            {
                "lowest_ratio": "the slowest pair's rate to the median of all pairs",
                "gb_per_s": "median rate, GB/s",
                "pairs": "pairs measured",
                "slow": "pairs below the others",
            },
            {"mib": 64, "nproc": 4, "limit": 0.85, "broken": ""},
        ),
        Probe(
            "bandwidth",
            "all-reduce and all-gather between neighbours; a slow pair's ranks again with other partners",
            {
                "lowest_ratio": "the slowest pair's rate to the median of all pairs, after retests",
                "gb_per_s": "median all-reduce bus bandwidth of a pair, GB/s",
                "all_gather_gb_per_s": "the same for all-gather",
                "nominal_ratio": "median to the nominal rate that was given; none without one",
                "slow_pairs": "pairs below the limit in the first round",
                "slow_ranks": "ranks that were slow with other partners too",
                "named": "how many ranks that is",
            },
            {**_RANKS, "mib": 8, "limit": 0.85, "rounds": 3, "nominal_gb_per_s": 0.0},
        ),
        Probe(
            "clocks",
            "full load for a while: clock, throttle reasons, and whether the rate holds",
            {
                "sustained_ratio": "rate in the last quarter to the best quarter",
                "clock_ratio": "lowest SM clock under load to the device's maximum; none on CPUs",
                "throttled": "reasons that were active under load, by name; empty if none",
                "seconds": "how long the load ran",
            },
            {"seconds": 20.0, "broken": ""},
        ),
        Probe(
            "memory_account",
            "the peak that was computed against the peak of a dry run",
            {
                "ratio": "measured peak to computed peak",
                "measured_mib": "peak of allocated memory in the dry run, MiB",
                "computed_mib": "peak as computed beforehand, MiB",
                "reserve": "share of the device's memory that stays free at the peak",
            },
            {"signals": "", "computed_mib": 0.0, "device_mib": 0.0, "broken": ""},
        ),
        Probe(
            "baseline",
            "steady steps: step time, rate, MFU, and a profiler trace to compare with later",
            {
                "p50_ms": "median step, ms",
                "p95_ms": "95th percentile, ms",
                "ratio": "p95 to p50",
                "tokens_per_s": "of all ranks",
                "mfu": "model FLOPs to the device's peak; none where no peak is known",
                "steps": "steady steps measured",
                "trace_mib": "size of the profiler's trace that is kept",
            },
            {**_RANKS, "steps": 100, "step_ms": 0.0},
        ),
        Probe(
            "checkpoint",
            "save, kill every process, resume: loss to the last bit, data in the same order",
            {
                "losses_equal": "whether every later loss is bit-exact",
                "state_equal": "whether weights and moments were loaded as they were saved, to the last bit",
                "order_equal": "whether every rank went on with its own next samples, none lost or repeated",
                "counts_equal": "whether all ranks read equally many samples",
                "resumed_from": "step of the checkpoint",
                "compared_steps": "steps compared after the resume",
                "save_s": "slowest rank's save, seconds",
                "load_s": "slowest rank's load, seconds",
            },
            {**_RANKS, "steps": 8, "save_at": 3},
        ),
        Probe(
            "reshard",
            "load the same checkpoint under another split over data and tensor ranks: the same loss",
            {
                "largest_difference": "relative difference of any loss between the two splits",
                "compared_steps": "losses compared",
                "from_layout": "split that saved",
                "to_layout": "split that loaded",
            },
            {**_RANKS},
        ),
        Probe(
            "dump_path",
            "where the job's own environment sends Flight Recorder dumps, and whether they will be there",
            {
                "path": "prefix of the dumps",
                "set": "whether the environment says it, or it is torch's default",
                "writable": "whether every rank's file can be written",
                "persistent": "whether its file system outlives the container",
                "collectable": "whether what was written can be listed and read back by its prefix",
                "file_system": "where they would be",
                "earlier_dumps": "files of an earlier run that would be overwritten",
                "defeated_by": "settings under which nothing would be dumped; empty if none",
            },
            {"nproc": 8, "without": False},
            torch=False,
        ),
        Probe(
            "rank_logs",
            "a log file for each rank, and the table from rank to host and device",
            {
                "without_log": "ranks that have no log file; empty if none",
                "without_device": "ranks that the table does not place on a host and device; empty if none",
                "ranks": "ranks looked for",
                "example": "the way from the last rank to its device",
            },
            {"bundle": "", "logs": "", "table": "", "world_size": 0},
            torch=False,
        ),
        Probe(
            "configuration",
            "commit, what is not committed, arguments, environment, image, versions: all on record",
            {
                "committed": "whether the code is a commit of a repository",
                "dirty_files": "files that differ from the commit",
                "environment_recorded": "whether the job's own environment was given",
                "image": "name or digest of the container image; unknown where nothing says it",
                "fingerprint": "hash of all of it",
            },
            {},
            torch=False,
        ),
    )
}
