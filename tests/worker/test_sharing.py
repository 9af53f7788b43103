"""All ranks on one card: the variables are there, in each rank, before a group forms."""

import dataclasses
import json
from pathlib import Path

import pytest

from harness.catalog.find import find_drill
from harness.catalog.planning import plan_run
from harness.catalog.settings import Sources, settle
from harness.experiment import Experiment
from harness.launch.client import LauncherClient
from harness.worker.devices import bus_address, device_of, identify, uuid_text
from harness.worker.sharing import sharing_environment

SCRIPT = """
import argparse, ctypes, json
from harness.worker import Session
import torch.distributed as dist

p = argparse.ArgumentParser()
p.add_argument("--backend")
a = p.parse_args()
before = dist.init_process_group
libc = ctypes.CDLL(None)
libc.getenv.restype = ctypes.c_char_p
libc.getenv.argtypes = [ctypes.c_char_p]

def noting(*args, **kwargs):
    # As C code sees it, at the moment in which NCCL would start.
    names = ("NCCL_HOSTID", "NCCL_NET", "NCCL_SOCKET_IFNAME", "NCCL_NVLS_ENABLE")
    print(json.dumps({n: (libc.getenv(n.encode()) or b"").decode() for n in names}), flush=True)
    return before(*args, **kwargs)

dist.init_process_group = noting
with Session.join(a.backend) as session:
    for step in session.steps(2):
        pass
"""


@pytest.mark.ranks
def test_each_launched_rank_has_its_own_host_id(launcher: LauncherClient, tmp_path: Path) -> None:
    """Exec'd as NCCL's ranks are, C code in each of them reads its own NCCL_HOSTID before the group forms."""
    (tmp_path / "shared.py").write_text(SCRIPT)
    (tmp_path / "shared.yaml").write_text(
        "name: shared\nsummary: s\nscript: shared.py\nmode: none\nnproc: 2\n"
        "modes: {none: {summary: n, expect: {kind: healthy, accused: nobody}}}\n"
    )
    spec = find_drill("shared", [tmp_path])
    sources = Sources.read({"out": str(tmp_path / "runs"), "launcher": "torchrun"}, ())
    plan = plan_run(spec, settle(spec, sources))
    plan = dataclasses.replace(plan, env={**plan.env, "DRILL_SHARE_GPU": "1"})

    run = Experiment(plan, launcher).run()

    assert run.verdict.verdict.value == "pass", run.result.diagnosis
    seen = []
    for rank in range(2):
        (log,) = run.bundle.glob(f"logs/*/attempt_0/{rank}/stdout.log")
        seen.append(json.loads(log.read_text().splitlines()[0]))
    assert [s["NCCL_HOSTID"] for s in seen] == ["drill-0", "drill-1"]
    assert {(s["NCCL_NET"], s["NCCL_SOCKET_IFNAME"], s["NCCL_NVLS_ENABLE"]) for s in seen} == {
        ("Socket", "lo", "0")
    }


@pytest.mark.parametrize(
    ("nccl", "switch"),
    [((2, 27, 5), None), ((2, 29, 7), None), ((2, 30, 1), "1"), ((2, 32, 3), "1"), (None, "1")],
)
def test_nccl_2_30_has_a_switch_of_its_own(nccl: tuple[int, ...] | None, switch: str | None) -> None:
    """The switch from 2.30 on, and the host's name in every version."""
    env = sharing_environment(3, nccl)

    assert env.get("NCCL_MULTI_RANK_GPU_ENABLE") == switch
    assert env["NCCL_HOSTID"] == "drill-3"
    assert (env["NCCL_ALGO"], env["NCCL_PROTO"], env["NCCL_IB_DISABLE"]) == ("Ring", "Simple", "1")


def test_where_tensors_live() -> None:
    """The CPU for gloo; the first card for all where it is shared."""
    assert device_of("gloo", 3, False).type == "cpu"
    assert str(device_of("nccl", 3, True)) == "cuda:0"
    assert identify(device_of("gloo", 0, False)).bus is None


def test_a_card_is_named_as_drivers_name_it() -> None:
    """torch's three numbers are the kernel's PCI address; its UUID gets nvidia-smi's prefix."""

    class Properties:
        pci_domain_id, pci_bus_id, pci_device_id = 0, 0x3B, 0

    assert bus_address(Properties()) == "00000000:3b:00.0"
    assert bus_address(object()) is None
    assert uuid_text("1f2e") == "GPU-1f2e" == uuid_text("GPU-1f2e")
