"""Saving with torch.distributed.checkpoint and going on from there, with every rank's place in its data."""

import logging
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.filesystem import FileSystemWriter
from torch.distributed.checkpoint.state_dict_loader import load
from torch.distributed.checkpoint.state_dict_saver import save

from harness.worker.session import Session
from harness.worker.workloads.options import Options

logger = logging.getLogger("training.checkpoint")


class OwnPart(FileSystemWriter):
    """Writes this rank's part, and measures it apart from the wait for the other ranks' parts."""

    session: Session

    def write_data(self, plan: Any, planner: Any) -> Any:
        with self.session.timed("ckpt_write_s"):
            return super().write_data(plan, planner)


@dataclass
class Checkpoints:
    """Checkpoints under `folder`, one every `every` steps; none where `folder` is None.

    A save that fails is logged and counted, and training goes on: the next one may succeed.
    """

    session: Session
    folder: Path | None
    every: int
    failed: int = 0

    @classmethod
    def of(cls, session: Session, options: Options) -> "Checkpoints":
        """The folder that was asked for, else one beside the bundle's logs, else none."""
        layout = session.env.layout
        folder = Path(options.checkpoints) if options.checkpoints else None
        if folder is None and layout and options.save_every:
            folder = layout.root / "checkpoints"
        return cls(session, folder, options.save_every)

    def after(self, step: int, model: nn.Module, position: int) -> None:
        """Save if it is time: the weights, and this rank's position in its data, in samples."""
        if self.folder is None or not self.every or (step + 1) % self.every:
            return
        with self.session.timed("ckpt_duration_s"):
            self._save(self.folder / f"step_{step}", step, _state(model, self.session, position))
        self.session.measure(ckpt_failed_total=self.failed)

    def resume(self, model: nn.Module) -> tuple[int, int]:
        """Load the last whole checkpoint in place. Returns the step and position to go on with, or zeros."""
        if self.folder is None or not (self.folder / "latest").exists():
            return 0, 0
        step = int((self.folder / "latest").read_text())
        state = _state(model, self.session, 0)
        load(state, checkpoint_id=self.folder / f"step_{step}")
        return step + 1, int(state[_position_key(self.session)])

    def _save(self, folder: Path, step: int, state: dict[str, Any]) -> None:
        writer = OwnPart(folder)
        writer.session = self.session
        folder.mkdir(parents=True, exist_ok=True)
        try:
            save(state, storage_writer=self.session.storage(step, folder, writer))
        except CheckpointException as error:
            # torch raises this on every rank and names those whose part failed.
            self.failed += self.session.rank in error.failures
            logger.error("save of step %d failed on ranks %s", step, sorted(error.failures), exc_info=error)
        else:
            if self.session.rank == 0:
                scratch = folder.parent / ".latest"
                scratch.write_text(str(step))
                scratch.replace(folder.parent / "latest")
        dist.barrier()


def _position_key(session: Session) -> str:
    return f"position of rank {session.rank}"


def _state(model: nn.Module, session: Session, position: int) -> dict[str, Any]:
    """What is saved. The optimizer is plain SGD, which has no state of its own."""
    return {"model": model.state_dict(), _position_key(session): torch.tensor(position)}
