"""Dumps left to NCCL's own watchdogs: waiting for them, and checking how the signal went round."""

from collections.abc import Callable

from harness.bundle.writer import BundleWriter
from harness.catalog.environment import watchdog_limit_s
from harness.diagnose.logs.chain import read_chain
from harness.model.chain import WatchdogChain
from harness.model.plan import RunPlan
from harness.model.ranks import format_ranks
from harness.observe.watch import Watch
from harness.observe.watchdogs import await_watchdogs


def leave_to_watchdogs(
    plan: RunPlan,
    writer: BundleWriter,
    watch: Watch,
    progress: Callable[[str, str], None],
    heed: Callable[[], None],
) -> None:
    """Wait until each rank has left its file by itself, or nobody will any more."""
    limit_s = watchdog_limit_s(plan.env)
    progress("watchdog", f"waiting for {plan.nproc} files, at most {limit_s:.0f} s")
    files = {rank: writer.layout.dump(watch.attempt, rank) for rank in range(plan.nproc)}
    for why, ranks in await_watchdogs(files, watch.pids, limit_s, heed).items():
        writer.not_collected(f"flight recorder of rank {format_ranks(ranks)}", why)
    writer.collected("flight recorder, by watchdogs")


def chain_of(plan: RunPlan, writer: BundleWriter) -> WatchdogChain | None:
    """What became of the timeout, where it was left to the watchdogs; it is saved in the bundle."""
    if not plan.watchdog:
        return None
    layout, everybody = writer.layout, range(plan.nproc)
    logs = {r: p for r in everybody for p in layout.logs.glob(f"*/attempt_0/{r}/stderr.log")}
    chain = read_chain(logs, {r: layout.dump(0, r) for r in everybody}, plan.nproc)
    writer.save(layout.watchdog, chain)
    return chain
