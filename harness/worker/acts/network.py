"""What keeps ranks from meeting: one that never comes, a store that does not answer, a dead link."""

import os
import socket
import time

from harness.worker.acts.stalls import FOR_EVER_S
from harness.worker.faults import Act, Fault
from harness.worker.loopback import OWN_NETWORK, set_loopback


class SleepBeforeJoin(Act):
    """Never reaches the rendezvous: it prepares its data, for ever."""

    def before_join(self, fault: Fault) -> None:
        if fault.active:
            fault.fire()
            _prepare_shards()


def _prepare_shards() -> None:
    time.sleep(FOR_EVER_S)


class ClosedStore(Act):
    """The store's port is closed: every rank is told one that nobody listens on."""

    everywhere = True

    def before_join(self, fault: Fault) -> None:
        if fault.active:
            # Bound and never listening: whoever connects is refused, and nobody else can take the port.
            self._port = socket.socket()
            self._port.bind(("127.0.0.1", 0))
            fault.fire()
            os.environ["MASTER_ADDR"] = "127.0.0.1"
            os.environ["MASTER_PORT"] = str(self._port.getsockname()[1])


class LinkDown(Act):
    """Rank 0 takes the loopback device of the job's own network namespace down."""

    everywhere = True

    def at_step(self, fault: Fault, step: int) -> None:
        if fault.due(step) and fault.env.rank == 0:
            if OWN_NETWORK not in os.environ:
                raise RuntimeError("this is the machine's own network: run this drill with `drill run`")
            fault.fire()
            set_loopback(up=False)
