"""A rank says that it lives, has joined, has finished: one small file that it alone writes."""

import dataclasses
import os
import time
from contextlib import suppress
from typing import TYPE_CHECKING

from harness.bundle.codec import write_json
from harness.model.bundle import GroupRecord, RankRecord
from harness.worker.environment import RankEnvironment

if TYPE_CHECKING:
    from harness.worker.devices import DeviceIdentity


class Registration:
    """This rank's entry of ranks.json. Does nothing without a harness, and never raises into training."""

    def __init__(self, env: RankEnvironment) -> None:
        self._layout = env.layout
        self._record = RankRecord(
            rank=env.rank,
            host=env.host,
            pid=os.getpid(),
            local_rank=env.local_rank,
            attempt=env.attempt,
            world_size=env.world_size,
            started=time.time(),
            host_memory_bytes=os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        )
        self._write()

    def joined(self, groups: tuple[GroupRecord, ...], device: "DeviceIdentity") -> None:
        """The default group has formed."""
        self._update(
            joined=time.time(),
            groups=groups,
            device=device.name,
            device_uuid=device.uuid,
            device_bus=device.bus,
            device_index=device.index,
        )

    def groups(self, groups: tuple[GroupRecord, ...]) -> None:
        """More groups were made."""
        self._update(groups=groups)

    def trained(self) -> None:
        """The training loop has ended; only shutdown is left."""
        self._update(trained=time.time())

    def finished(self) -> None:
        """The rank's script has come to its end."""
        self._update(finished=time.time())

    def _update(self, **changes: object) -> None:
        self._record = dataclasses.replace(self._record, **changes)  # type: ignore[arg-type]
        self._write()

    def _write(self) -> None:
        if self._layout is None:
            return
        with suppress(OSError):
            write_json(self._layout.registration(self._record.attempt, self._record.rank), self._record)
