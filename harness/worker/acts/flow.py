"""A rank whose program differs from its peers': another number of micro-batches, a bad sample."""

from dataclasses import dataclass
from typing import Any

from harness.worker.faults import Act, Fault

BAD_TOKEN = -1


@dataclass
class MicroBatches(Act):
    """Runs `delta` micro-batches more (or fewer) in one step."""

    delta: int

    def micro_batches(self, fault: Fault, step: int, count: int) -> int:
        if not fault.due(step):
            return count
        fault.fire()
        return count + self.delta


class BadSample(Act):
    """One sample of this rank's batch is bad; what the workload does about it is the workload's."""

    def batch(self, fault: Fault, step: int, batch: Any) -> Any:
        if fault.due(step):
            fault.fire()
            batch = batch.clone()
            batch[0, 0] = BAD_TOKEN
        return batch


class DropMessage(Act):
    """Sends nothing where its peer waits for a message."""

    def message(self, fault: Fault, step: int, peer: int, x: Any) -> tuple[int, Any] | None:
        if not fault.first_time(step):
            return peer, x
        fault.fire()
        return None


class WrongPeer(Act):
    """Sends to the other replica's stage: nobody there expects it."""

    def message(self, fault: Fault, step: int, peer: int, x: Any) -> tuple[int, Any] | None:
        if not fault.first_time(step):
            return peer, x
        fault.fire()
        return peer ^ 1, x


class WrongSize(Act):
    """Sends twice the elements; gloo aborts the rank that receives them."""

    def message(self, fault: Fault, step: int, peer: int, x: Any) -> tuple[int, Any] | None:
        if not fault.first_time(step):
            return peer, x
        fault.fire()
        return peer, x.repeat(2)
