"""Files as nvidia-smi, dcgm-exporter, perfquery and the kernel print them, for cards of our choosing.

Made after real ones of drivers 470 to 570 and DCGM 3 and 4: indentation, units, names and order are theirs.
"""

import json
from dataclasses import dataclass
from pathlib import Path

from harness.bundle.codec import write_json
from harness.model.bundle import Attempt, LauncherRecord, Manifest, RankExit, RankMap, RankRecord

HOST = "gpu-node-07"
MAX_MHZ = 1980


@dataclass(frozen=True)
class Gpu:
    """What a card shows."""

    index: int
    clock: int = 1965
    power: float = 612.4
    temperature: int = 61
    util: int = 100
    reasons: tuple[str, ...] = ()
    sbe: int = 0
    dbe: int = 0
    pending: bool = False
    failed: bool = False
    replays: int = 0
    width: int = 16
    nvlink_errors: int = 0
    nvlink_bytes: float = 180e9
    xid: int = 0
    pid: int | None = None
    denied: bool = False

    @property
    def bus(self) -> str:
        return f"00000000:{0x19 + 0x11 * self.index:02X}:00.0"

    @property
    def uuid(self) -> str:
        return f"GPU-{self.index:08x}-1f2e-3d4c-5b6a-0123456789ab"


def eight(**broken: object) -> list[Gpu]:
    """Eight cards, of which number 5 is as told."""
    return [Gpu(i, **(broken if i == 5 else {})) for i in range(8)]  # type: ignore[arg-type]


REASONS = (
    "Idle",
    "Applications Clocks Setting",
    "SW Power Cap",
    "HW Slowdown",
    "    HW Thermal Slowdown",
    "    HW Power Brake Slowdown",
    "Sync Boost",
    "SW Thermal Slowdown",
    "Display Clock Setting",
)


def smi_text(cards: list[Gpu], at: str = "Mon Nov 30 10:15:02 2026", old: bool = False) -> str:
    """`nvidia-smi -q`. `old`: the names of drivers before 535."""
    reasons = "Clocks Throttle Reasons" if old else "Clocks Event Reasons"
    power, limit = ("Power Readings", "Power Limit") if old else ("GPU Power Readings", "Current Power Limit")
    draw = "Power Draw" if old else "Instantaneous Power Draw"
    out = [
        "",
        "==============NVSMI LOG==============",
        "",
        f"Timestamp                                 : {at}",
        "Driver Version                            : 570.86.15",
        "CUDA Version                              : 12.8",
        "",
        f"Attached GPUs                             : {len(cards)}",
    ]
    for c in cards:
        out += [f"GPU {c.bus}", *_smi_card(c, reasons, power, limit, draw), ""]
    return "\n".join(out)


def _field(indent: int, key: str, value: object) -> str:
    return f"{' ' * indent}{key}".ljust(42) + f": {value}"


def _smi_card(c: Gpu, reasons: str, power: str, limit: str, draw: str) -> list[str]:
    told = "[Insufficient Permissions]" if c.denied else c.replays
    active = {r.lower().replace(" ", "_") for r in c.reasons}
    return [
        _field(4, "Product Name", "NVIDIA H100 80GB HBM3"),
        _field(4, "Product Architecture", "Hopper"),
        _field(4, "GPU UUID", c.uuid),
        _field(4, "Minor Number", c.index),
        "    PCI",
        _field(8, "Bus", f"0x{c.bus[9:11]}"),
        _field(8, "Bus Id", c.bus),
        "        GPU Link Info",
        "            PCIe Generation",
        _field(16, "Max", 5),
        _field(16, "Current", 5),
        _field(16, "Host Max", 5),
        "            Link Width",
        _field(16, "Max", "16x"),
        _field(16, "Current", f"{c.width}x"),
        _field(8, "Replays Since Reset", told),
        _field(8, "Replay Number Rollovers", 0),
        _field(4, "Performance State", "P0"),
        f"    {reasons}",
        *(
            _field(
                8 + len(r) - len(r.lstrip()),
                r.strip(),
                _active(r.strip().lower().replace(" ", "_") in active),
            )
            for r in REASONS
        ),
        "    FB Memory Usage",
        _field(8, "Total", "81559 MiB"),
        _field(8, "Reserved", "551 MiB"),
        _field(8, "Used", "71204 MiB"),
        "    Utilization",
        _field(8, "GPU", f"{c.util} %"),
        _field(8, "Memory", "43 %"),
        "    ECC Errors",
        "        Volatile",
        _field(12, "SRAM Correctable", 0),
        _field(12, "SRAM Uncorrectable Parity", 0),
        _field(12, "SRAM Uncorrectable SEC-DED", 0),
        _field(12, "DRAM Correctable", c.sbe),
        _field(12, "DRAM Uncorrectable", c.dbe),
        "        Aggregate",
        _field(12, "DRAM Correctable", 12345),
        _field(12, "DRAM Uncorrectable", 7),
        "    Remapped Rows",
        _field(8, "Correctable Error", 0),
        _field(8, "Uncorrectable Error", int(c.pending or c.failed)),
        _field(8, "Pending", _yes(c.pending)),
        _field(8, "Remapping Failure Occurred", _yes(c.failed)),
        "    Temperature",
        _field(8, "GPU Current Temp", f"{c.temperature} C"),
        _field(8, "Memory Current Temp", "70 C"),
        f"    {power}",
        _field(8, draw, f"{c.power} W"),
        _field(8, limit, "700.00 W"),
        "    Module Power Readings",
        _field(8, draw, "N/A"),
        "    Clocks",
        _field(8, "Graphics", f"{c.clock} MHz"),
        _field(8, "SM", f"{c.clock} MHz"),
        _field(8, "Memory", "2619 MHz"),
        "    Max Clocks",
        _field(8, "SM", f"{MAX_MHZ} MHz"),
        "    Processes",
        *([_field(8, "Process ID", c.pid), _field(12, "Type", "C")] if c.pid else []),
    ]


def _active(on: bool) -> str:
    return "Active" if on else "Not Active"


def _yes(on: bool) -> str:
    return "Yes" if on else "No"


def smi_xml(cards: list[Gpu], at: str = "Mon Nov 30 10:15:02 2026", old: bool = False) -> str:
    """`nvidia-smi -q -x`. `old`: the names of drivers before 535."""
    gpus = "\n".join(_xml_card(c, "throttle" if old else "event") for c in cards)
    return (
        '<?xml version="1.0" ?>\n<!DOCTYPE nvidia_smi_log SYSTEM "nvsmi_device_v12.dtd">\n<nvidia_smi_log>\n'
        f"\t<timestamp>{at}</timestamp>\n\t<driver_version>570.86.15</driver_version>\n"
        f"\t<attached_gpus>{len(cards)}</attached_gpus>\n{gpus}\n</nvidia_smi_log>\n"
    )


def _xml_card(c: Gpu, word: str) -> str:
    active = {r.lower().replace(" ", "_") for r in c.reasons}
    names = [r.strip().lower().replace(" ", "_") for r in REASONS]
    reasons = "".join(
        f"\t\t\t<clocks_{word}_reason_{n}>{_active(n in active)}</clocks_{word}_reason_{n}>\n" for n in names
    )
    process = f"<process_info><pid>{c.pid}</pid><type>C</type></process_info>" if c.pid else ""
    power = "power_readings" if word == "throttle" else "gpu_power_readings"
    draw = "power_draw" if word == "throttle" else "instant_power_draw"
    return f"""\t<gpu id="{c.bus}">
\t\t<product_name>NVIDIA H100 80GB HBM3</product_name>
\t\t<uuid>{c.uuid}</uuid>
\t\t<minor_number>{c.index}</minor_number>
\t\t<pci>
\t\t\t<pci_bus_id>{c.bus}</pci_bus_id>
\t\t\t<pci_gpu_link_info>
\t\t\t\t<pcie_gen><max_link_gen>5</max_link_gen><current_link_gen>5</current_link_gen></pcie_gen>
\t\t\t\t<link_widths><max_link_width>16x</max_link_width><current_link_width>{c.width}x</current_link_width>
\t\t\t\t</link_widths>
\t\t\t</pci_gpu_link_info>
\t\t\t<replay_counter>{"Insufficient Permissions" if c.denied else c.replays}</replay_counter>
\t\t</pci>
\t\t<clocks_{word}_reasons>
{reasons}\t\t</clocks_{word}_reasons>
\t\t<fb_memory_usage><total>81559 MiB</total><used>71204 MiB</used></fb_memory_usage>
\t\t<utilization><gpu_util>{c.util} %</gpu_util></utilization>
\t\t<ecc_errors>
\t\t\t<volatile><sram_correctable>0</sram_correctable><dram_correctable>{c.sbe}</dram_correctable>
\t\t\t<dram_uncorrectable>{c.dbe}</dram_uncorrectable></volatile>
\t\t\t<aggregate><dram_correctable>12345</dram_correctable><dram_uncorrectable>7</dram_uncorrectable></aggregate>
\t\t</ecc_errors>
\t\t<remapped_rows><remapped_row_corr>0</remapped_row_corr>
\t\t\t<remapped_row_unc>{int(c.pending or c.failed)}</remapped_row_unc>
\t\t\t<remapped_row_pending>{_yes(c.pending)}</remapped_row_pending>
\t\t\t<remapped_row_failure>{_yes(c.failed)}</remapped_row_failure></remapped_rows>
\t\t<temperature><gpu_temp>{c.temperature} C</gpu_temp><memory_temp>70 C</memory_temp></temperature>
\t\t<{power}><{draw}>{c.power} W</{draw}><current_power_limit>700.00 W</current_power_limit></{power}>
\t\t<clocks><graphics_clock>{c.clock} MHz</graphics_clock><sm_clock>{c.clock} MHz</sm_clock></clocks>
\t\t<max_clocks><sm_clock>{MAX_MHZ} MHz</sm_clock></max_clocks>
\t\t<processes>{process}</processes>
\t</gpu>"""


BITS = {
    "idle": 0x1,
    "hw_slowdown": 0x8,
    "sw_thermal_slowdown": 0x20,
    "hw_thermal_slowdown": 0x40,
    "sw_power_cap": 0x4,
}


def mask_of(card: Gpu) -> int:
    """Its reasons as NVML's bits."""
    return sum(BITS[reason.lower().replace(" ", "_")] for reason in card.reasons)


def dcgm(cards: list[Gpu], host: str | None = HOST, old: bool = False, ms: int | None = None) -> str:
    """A scrape of dcgm-exporter. `old`: the names before DCGM 3.3."""
    reasons = "DCGM_FI_DEV_CLOCK_THROTTLE_REASONS" if old else "DCGM_FI_DEV_CLOCKS_EVENT_REASONS"
    mask: dict[int, object] = {c.index: mask_of(c) for c in cards}
    fields: list[tuple[str, str, dict[int, object]]] = [
        ("DCGM_FI_DEV_SM_CLOCK", "gauge", {c.index: c.clock for c in cards}),
        ("DCGM_FI_DEV_GPU_TEMP", "gauge", {c.index: c.temperature for c in cards}),
        ("DCGM_FI_DEV_POWER_USAGE", "gauge", {c.index: c.power for c in cards}),
        ("DCGM_FI_DEV_GPU_UTIL", "gauge", {c.index: c.util for c in cards}),
        (reasons, "gauge", mask),
        ("DCGM_FI_DEV_XID_ERRORS", "gauge", {c.index: c.xid for c in cards}),
        ("DCGM_FI_DEV_ECC_SBE_VOL_TOTAL", "counter", {c.index: c.sbe for c in cards}),
        ("DCGM_FI_DEV_ECC_DBE_VOL_TOTAL", "counter", {c.index: c.dbe for c in cards}),
        ("DCGM_FI_DEV_ROW_REMAP_PENDING", "gauge", {c.index: int(c.pending) for c in cards}),
        ("DCGM_FI_DEV_ROW_REMAP_FAILURE", "gauge", {c.index: int(c.failed) for c in cards}),
        (
            "DCGM_FI_DEV_NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL",
            "counter",
            {c.index: c.nvlink_errors for c in cards},
        ),
        ("DCGM_FI_DEV_NVLINK_REPLAY_ERROR_COUNT_TOTAL", "counter", {c.index: 0 for c in cards}),
        ("DCGM_FI_DEV_PCIE_REPLAY_COUNTER", "counter", {c.index: c.replays for c in cards}),
        ("DCGM_FI_DEV_FB_USED", "gauge", {c.index: 71204 for c in cards}),
        ("DCGM_FI_PROF_PIPE_TENSOR_ACTIVE", "gauge", {c.index: 0.42 for c in cards}),
        ("DCGM_FI_PROF_NVLINK_TX_BYTES", "gauge", {c.index: c.nvlink_bytes / 2 for c in cards}),
        ("DCGM_FI_PROF_NVLINK_RX_BYTES", "gauge", {c.index: c.nvlink_bytes / 2 for c in cards}),
    ]
    named = f',Hostname="{host}"' if host else ""
    out = []
    for name, kind, values in fields:
        out += [f"# HELP {name} As the driver tells it.", f"# TYPE {name} {kind}"]
        for c in cards:
            labels = (
                f'gpu="{c.index}",UUID="{c.uuid}",pci_bus_id="{c.bus}",device="nvidia{c.index}",'
                f'modelName="NVIDIA H100 80GB HBM3"{named},DCGM_FI_DRIVER_VERSION="570.86.15"'
            )
            out.append(f"{name}{{{labels}}} {values[c.index]}{f' {ms}' if ms else ''}")
    return "\n".join([*out, ""])


def perfquery(lid: int = 12, **counters: int) -> str:
    """`perfquery` of one port."""
    known = {
        "SymbolErrorCounter": 0,
        "LinkErrorRecoveryCounter": 0,
        "LinkDownedCounter": 0,
        "PortRcvErrors": 0,
        "PortXmitDiscards": 0,
        "LocalLinkIntegrityErrors": 0,
        "ExcessiveBufferOverrunErrors": 0,
        "PortXmitData": 4294967295,
        "PortRcvData": 4294967295,
        "PortXmitWait": 123,
        **counters,
    }
    head = [f"# Port counters: Lid {lid} port 1 (CapMask: 0x5A00)", "PortSelect:......................1"]
    body = [f"{name}:".ljust(33, ".") + str(value) for name, value in known.items()]
    return "\n".join([*head, "CounterSelect:...................0x0000", *body, ""])


def sysfs(adapters: int = 4, **broken: object) -> str:
    """`grep . /sys/class/infiniband/*/ports/*/{rate,counters/*,hw_counters/*}`; adapter 2 is as told."""
    out = []
    for i in range(adapters):
        at = f"/sys/class/infiniband/mlx5_{i}/ports/1"
        own = broken if i == 2 else {}
        out += [
            f"{at}/rate:{own.get('rate', '400 Gb/sec (4X NDR)')}",
            f"{at}/state:4: ACTIVE",
            *(
                f"{at}/counters/{name}:{own.get(name, 0)}"
                for name in ("symbol_error", "link_downed", "port_rcv_errors", "port_xmit_discards")
            ),
            f"{at}/counters/port_xmit_data:998877665544",
            f"{at}/hw_counters/out_of_sequence:{own.get('out_of_sequence', 0)}",
        ]
    return "\n".join([*out, ""])


def kernel_xid(code: int, gpu: Gpu, pid: int | None = None, at: float = 5000.1) -> str:
    """A line of dmesg on a card."""
    process = f"pid={pid}, name=python, " if pid else "pid='<unknown>', name=<unknown>, "
    bus = gpu.bus.lower()[4:-2]
    return f"[{at:12.6f}] NVRM: Xid (PCI:{bus}): {code}, {process}GPU has fallen off the bus.\n"


def job(root: Path, world: int = 8, broke: bool = True, devices: bool = True, host: str = HOST) -> Path:
    """A bundle without dumps: ranks on cards, and how they ended."""
    write_json(root / "bundle.json", Manifest(world, "nccl", "torchrun", 1.0, host=host))
    cards = [Gpu(i) for i in range(world)]
    ranks = tuple(
        RankRecord(
            r,
            host,
            1000 + r,
            r,
            0,
            world,
            "cuda",
            cards[r].uuid if devices else None,
            1.0,
            2.0,
            None if broke else 9.0,
            device_bus=cards[r].bus.lower() if devices else None,
        )
        for r in range(world)
    )
    write_json(root / "ranks.json", RankMap(world, ranks))
    code = 1 if broke else 0
    exits = tuple(RankExit(r, 1000 + r, code, None, 8.0 + r) for r in range(world))
    attempt = Attempt(0, 1.0, {r: 1000 + r for r in range(world)}, exits)
    write_json(root / "launcher.json", LauncherRecord((attempt,), "failed" if broke else "finished"))
    return root


def gpu_json(cards: list[Gpu]) -> str:
    """What `drill collect` keeps."""
    rows = [
        {
            "index": str(c.index),
            "name": "NVIDIA H100 80GB HBM3",
            "uuid": c.uuid,
            "pci.bus_id": c.bus,
            "utilization.gpu": str(c.util),
            "memory.used": "71204",
            "temperature.gpu": str(c.temperature),
            "power.draw": str(c.power),
            "clocks.sm": str(c.clock),
            "ecc.errors.corrected.volatile.total": str(c.sbe),
            "ecc.errors.uncorrected.volatile.total": "[N/A]" if c.denied else str(c.dbe),
            "clocks_throttle_reasons.active": f"0x{mask_of(c):016x}",
        }
        for c in cards
    ]
    return json.dumps({"gpus": rows, "processes": {}, "error": None, "schema": "drill/gpus/1"})
