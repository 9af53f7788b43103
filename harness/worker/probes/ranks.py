"""Ranks for a probe: forked here, or those that torchrun or srun has started already."""

import json
import multiprocessing
import os
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import timedelta
from multiprocessing.process import BaseProcess
from pathlib import Path

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import FileStore

from harness.worker.lifeline import die_with_parent
from harness.worker.probes.options import Unable

COLLECTIVE_LIMIT_S = 120.0

Figures = Mapping[str, object]
Work = Callable[..., Figures | None]
"""Called in a rank whose process group has formed; what it returns must have a JSON form."""


class RankFailed(Exception):
    """A rank of a probe raised or died; the message says which and how."""


def run_ranks(work: Work, nproc: int, *arguments: object) -> list[Figures] | None:
    """Call `work` in every rank and return what each gave, by rank.

    Under torchrun or srun (RANK and WORLD_SIZE are set) the started ranks are used, and all but rank 0 get
    None. Else `nproc` ranks are forked on this machine.

    Raises:
        RankFailed: a rank raised or died.
    """
    if int(os.environ.get("WORLD_SIZE", "1")) > 1 and "RANK" in os.environ:
        return _in_started_job(work, arguments)
    team = Team(work, nproc, *arguments)
    team.start()
    return team.results()


class Team:
    """Ranks forked on this machine. Fork before any thread or CUDA context exists."""

    def __init__(self, work: Work, nproc: int, *arguments: object) -> None:
        self._work = work
        self._arguments = arguments
        self.nproc = nproc
        self._folder = Path(tempfile.mkdtemp(prefix="drill-probe-"))
        self._processes: list[BaseProcess] = []

    def start(self) -> None:
        """Fork the ranks."""
        sys.stdout.flush()
        cuda = torch.cuda.device_count() > 0
        context = multiprocessing.get_context("fork")
        for rank in range(self.nproc):
            process = context.Process(
                target=_rank,
                args=(self._work, rank, self.nproc, self._folder, cuda, os.getpid(), self._arguments),
            )
            process.start()
            self._processes.append(process)

    def kill(self) -> None:
        """Kill all ranks at once, as a node's power cut does."""
        for process in self._processes:
            process.kill()
        for process in self._processes:
            process.join()

    def alive(self) -> bool:
        """Whether every rank still runs."""
        return all(process.is_alive() for process in self._processes)

    def results(self) -> list[Figures]:
        """Wait for all ranks. The first that fails ends the others.

        Raises:
            RankFailed: a rank raised or died.
        """
        try:
            while any(process.is_alive() for process in self._processes):
                if failed := [p for p in self._processes if p.exitcode not in (None, 0)]:
                    # The one that raised says why; those that lost it say that they lost it.
                    failed[0].join(0.5)
                    break
                time.sleep(0.01)
            reasons = self._reasons()
            if reasons:
                raise RankFailed(reasons[min(reasons)])
            return [json.loads((self._folder / f"{rank}.json").read_text()) for rank in range(self.nproc)]
        finally:
            self.kill()
            for path in self._folder.iterdir():
                path.unlink()
            self._folder.rmdir()

    def _reasons(self) -> dict[float, str]:
        """Why ranks failed, by the moment at which they said so."""
        found = {}
        for rank, process in enumerate(self._processes):
            if process.exitcode in (None, 0):
                continue
            path = self._folder / f"{rank}.error"
            with suppress(OSError):
                found[path.stat().st_mtime_ns / 1e9] = f"rank {rank}: {path.read_text()}"
            if not path.exists():
                found[time.time() + rank] = f"rank {rank}: ended with code {process.exitcode}"
        return found


def device_of(rank: int) -> torch.device:
    """The device of a rank in its process: a card, or the CPU."""
    if torch.cuda.is_available():
        return torch.device("cuda", rank % torch.cuda.device_count())
    return torch.device("cpu")


def backend_for(nproc: int) -> str:
    """nccl where each rank has a card of its own, else gloo."""
    return "nccl" if torch.cuda.device_count() >= nproc else "gloo"


def _rank(
    work: Work,
    rank: int,
    nproc: int,
    folder: Path,
    cuda: bool,
    parent: int,
    arguments: tuple[object, ...],
) -> None:
    """A forked rank: join over a file, work, leave the result in a file."""
    die_with_parent(parent)
    torch.set_num_threads(1)
    try:
        if cuda:
            torch.cuda.set_device(device_of(rank))
        else:
            os.environ["GLOO_SOCKET_IFNAME"] = "lo"
        store = FileStore(str(folder / "store"), nproc)
        dist.init_process_group(
            backend_for(nproc),
            store=store,
            rank=rank,
            world_size=nproc,
            timeout=timedelta(seconds=COLLECTIVE_LIMIT_S),
        )
        result = work(*arguments)
        (folder / f"{rank}.json").write_text(json.dumps(result or {}))
        dist.barrier()
        dist.destroy_process_group()
    except Exception as error:
        traceback.print_exc()
        (folder / f"{rank}.error").write_text(f"{type(error).__name__}: {' '.join(str(error).split())[:300]}")
        sys.stderr.flush()
        os._exit(1)
    sys.stderr.flush()
    # What is left to Python's own end (threads of gloo) is nobody's any more.
    os._exit(0)


def _in_started_job(work: Work, arguments: tuple[object, ...]) -> list[Figures] | None:
    world = int(os.environ["WORLD_SIZE"])
    local = int(os.environ.get("LOCAL_RANK", os.environ["RANK"]))
    nccl = torch.cuda.is_available()
    if nccl:
        torch.cuda.set_device(device_of(local))
    dist.init_process_group("nccl" if nccl else "gloo", timeout=timedelta(seconds=COLLECTIVE_LIMIT_S))
    try:
        result = work(*arguments)
        gathered: list[Figures | None] = [None] * world
        dist.all_gather_object(gathered, result or {})
        return [r or {} for r in gathered] if dist.get_rank() == 0 else None
    finally:
        dist.destroy_process_group()


def need_ranks(nproc: int, least: int) -> None:
    """Refuse a world that is too small to measure in.

    Raises:
        Unable: fewer ranks than that.
    """
    if nproc < least:
        raise Unable(f"needs at least {least} ranks, and was given {nproc}: --nproc {least}")
