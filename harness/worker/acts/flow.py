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
