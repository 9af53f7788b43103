"""What a process is doing, from its frames."""

import pytest

from harness.diagnose.stacks.samples import Frame, ProcessStacks, Thread
from harness.diagnose.stacks.sites import position, stall_site

TORCH = "/venv/lib/python3.11/site-packages/torch"
PYTHON = "/usr/lib/python3.11"
MINE = "/job/train.py"


def process(*frames: tuple[str, str, str], state: str = "sleeping", gil: bool = False) -> ProcessStacks:
    """A process whose main thread has these frames: (function, file, source), innermost first."""
    stack = tuple(Frame(name=n, filename=f, line=1, source=s or None) for n, f, s in frames)
    thread = Thread(thread_name="MainThread", owns_gil=gil, active=False, frames=stack)
    return ProcessStacks(pid=1, state=state, threads=(thread,))


SITES = {
    "a native item()": ("item_sync", [("log", MINE, "value = loss.item()")]),
    "a hook that torch calls back": (
        "item_sync",
        [("Pending.__torch_dispatch__", "/job/odd.py", ""), ("log", MINE, "return x.tolist()")],
    ),
    "torch.cuda.synchronize": (
        "item_sync",
        [("synchronize", f"{TORCH}/cuda/__init__.py", ""), ("f", MINE, "")],
    ),
    "a loader": (
        "dataloader",
        [
            ("select", f"{PYTHON}/selectors.py", "ready = self._selector.poll(timeout)"),
            ("get", f"{PYTHON}/multiprocessing/queues.py", ""),
            ("_next_data", f"{TORCH}/utils/data/dataloader.py", ""),
            ("train", MINE, "batch = next(batches)"),
        ],
    ),
    "a lock": ("lock", [("step", MINE, "    with self._metrics_lock:")]),
    "an event": (
        "lock",
        [("wait", f"{PYTHON}/threading.py", "waiter.acquire()"), ("step", MINE, "done.wait()")],
    ),
    "a log handler": (
        "logging",
        [
            ("Shipper.emit", "/job/shipper.py", "self.sock.recv(1)"),
            ("Handler.handle", f"{PYTHON}/logging/__init__.py", ""),
            ("train", MINE, "log.info(x)"),
        ],
    ),
    "a checkpoint": (
        "checkpoint",
        [("write", f"{TORCH}/distributed/checkpoint/filesystem.py", ""), ("f", MINE, "")],
    ),
    "a read": ("io", [("load", MINE, "return os.read(fd, 1)")]),
    "code that nobody knows": ("user_code", [("compute", MINE, "time.sleep(3600)")]),
}


@pytest.mark.parametrize("name", SITES)
def test_sites(name: str) -> None:
    """Known waits by file, function or the line itself; unknown code is user code."""
    site, frames = SITES[name]

    assert stall_site(process(*frames)) == site


def test_states_and_the_gil() -> None:
    """Stopped and uninterruptible processes by their state; a sleeping owner of the GIL keeps it."""
    frames = [("f", MINE, "library.sleep(1000)")]

    assert stall_site(process(*frames, state="stopped")) == "stopped"
    assert stall_site(process(*frames, state="tracing-stop")) == "stopped"
    assert stall_site(process(*frames, state="disk-sleep")) == "io"
    assert stall_site(process(*frames, gil=True)) == "gil"
    assert stall_site(process(*frames, state="running", gil=True)) == "user_code"


C10D = f"{TORCH}/distributed/distributed_c10d.py"
FSDP = f"{TORCH}/distributed/fsdp/_fully_shard/_fsdp_collectives.py"

POSITIONS = {
    "a collective": ("communication", [("all_reduce", C10D, ""), ("step", MINE, "")]),
    "FSDP": ("communication", [("wait", FSDP, ""), ("step", MINE, "")]),
    "autograd": (
        "backward",
        [("_engine_run_backward", f"{TORCH}/autograd/graph.py", ""), ("step", MINE, "")],
    ),
    "joining": ("joining", [("init_process_group", C10D, ""), ("step", MINE, "")]),
    "a save": ("code", [("write", f"{TORCH}/distributed/checkpoint/filesystem.py", ""), ("step", MINE, "")]),
    "one's own code": ("code", [("step", MINE, "")]),
}


@pytest.mark.parametrize("name", POSITIONS)
def test_positions(name: str) -> None:
    """Waiting in communication is told from code of one's own."""
    doing, frames = POSITIONS[name]
    here = position(process(*frames).main)

    assert here.doing == doing
    assert here.frame is not None
    assert here.frame.function == "step"
