"""Devices: XIDs, assertions, illegal accesses, memory errors."""

from tests.diagnose.logs.cases.deaths import ends, raising
from tests.diagnose.logs.cases.incident import Incident
from tests.diagnose.logs.cases.model import Case, Expect
from tests.diagnose.logs.cases.watchdog import dies

HINT = (
    "CUDA kernel errors might be asynchronously reported at some other API call, so the stacktrace below "
    "might be "
    "incorrect.\nFor debugging consider passing CUDA_LAUNCH_BLOCKING=1\nCompile with `TORCH_USE_CUDA_DSA` "
    "to enable "
    "device-side assertions.\n"
)


def cuda(words: str) -> str:
    return f"RuntimeError: CUDA error: {words}\n{HINT}"


def _off_the_bus(incident: Incident) -> None:
    incident.steps(20, 290)
    bus = incident.bus(11)
    incident.kernel(
        299,
        1,
        f"NVRM: Xid (PCI:0000:{bus}:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.",
    )
    incident.raises(300, 11, cuda("unspecified launch failure"))
    ends(incident, 11, 1)


def _double_bit(incident: Incident) -> None:
    incident.steps(20, 290)
    said = f"pid={incident.pid(6)}, name=python3, DBE (Double Bit Error) ECC Error"
    incident.kernel(299, 0, f"NVRM: Xid (PCI:0000:{incident.bus(6)}:00): 48, {said}")
    incident.raises(300, 6, cuda("uncorrectable ECC error encountered"))
    ends(incident, 6, 1)


def _mmu_fault(incident: Incident) -> None:
    incident.steps(20, 290)
    incident.kernel(
        299,
        0,
        f"NVRM: Xid (PCI:0000:{incident.bus(5)}:00): 31, pid={incident.pid(5)}, name=python3, Ch 00000008, "
        "intr "
        "00000000. MMU Fault: ENGINE GRAPHICS GPCCLIENT_T1_0 faulted @ 0x7f3c_1a000000. Fault is of type "
        "FAULT_PDE "
        "ACCESS_TYPE_VIRT_READ",
    )
    incident.raises(300, 5, cuda("an illegal memory access was encountered"))
    ends(incident, 5, 1)


def _assertion(incident: Incident) -> None:
    """A flood of assertions, then the exception; the hint stands under every CUDA error."""
    incident.steps(20, 290)
    for thread in range(400):
        incident.say(
            299,
            3,
            "/pytorch/aten/src/ATen/native/cuda/Indexing.cu:1289: indexSelectLargeIndex: block: "
            f"[{thread // 32},0,0], "
            f"thread: [{thread % 32},0,0] Assertion `srcIndex < srcSelectDimSize` failed.",
        )
    incident.raises(300, 3, cuda("device-side assert triggered"))
    ends(incident, 3, 1)


def _ecc(incident: Incident) -> None:
    """The watchdog is the one who meets the error."""
    incident.steps(20, 290)
    dies(incident, 300, 2, cuda("uncorrectable ECC error encountered").removeprefix("RuntimeError: "))
    ends(incident, 2, -6)


ECC = Expect("hardware_fault", culprits=(2,))

DEVICES: tuple[Case, ...] = (
    Case(
        "xid_79",
        "5: an XID is mapped to a rank by bus id, and outranks the exception",
        Expect("hardware_fault", culprits=(11,)),
        _off_the_bus,
        ("ranks", "nodes", "label"),
        world=16,
    ),
    Case(
        "xid_31",
        "kinds: XID 31 is software",
        Expect("device_assert", culprits=(5,)),
        _mmu_fault,
        ("ranks", "nodes"),
    ),
    Case(
        "device_assert",
        "3, 5: the assertion, not the hint",
        Expect("device_assert", culprits=(3,)),
        _assertion,
        ("ranks", "colour"),
    ),
    Case(
        "xid_48",
        "5: a double-bit error is mapped to a rank by bus id",
        Expect("hardware_fault", culprits=(6,)),
        _double_bit,
        ("ranks", "nodes"),
    ),
    Case("ecc", "5: hardware", ECC, _ecc, ("ranks", "mid", "cloud")),
    Case(
        "launch_failure",
        "5: alone it is a death by exception",
        Expect("rank_exited", culprits=(1,), how="exception"),
        raising(1, cuda("unspecified launch failure")),
        ("ranks", "label"),
    ),
)
