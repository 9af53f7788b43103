"""Every format that speaks of cards and ports says the same of the same state."""

import gzip
import os
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

from harness.diagnose.hardware.fabric import read_fabric
from harness.diagnose.hardware.find import find_readings
from harness.diagnose.hardware.reading import CardReading
from harness.diagnose.hardware.smi import NotReadable, read_smi_text, read_smi_xml
from harness.diagnose.hardware.states import card_states
from tests.diagnose.hardware.made import Gpu, dcgm, eight, gpu_json, perfquery, smi_text, smi_xml, sysfs

HOT = {"clock": 1200, "power": 540.25, "reasons": ("HW Slowdown", "HW Thermal Slowdown"), "temperature": 88}
BAD = {"sbe": 150, "dbe": 2, "pending": True, "replays": 9, "width": 8}

Maker = Callable[[list[Gpu]], str]
FORMATS: dict[str, Maker] = {
    "text": smi_text,
    "text, old names": lambda cards: smi_text(cards, old=True),
    "XML": smi_xml,
    "XML, old names": lambda cards: smi_xml(cards, old=True),
    "scrape": dcgm,
    "scrape, old names": lambda cards: dcgm(cards, old=True),
    "drill collect": gpu_json,
}


def read(folder: Path, text: str, name: str = "evidence") -> list[CardReading]:
    """All cards in a file with this content."""
    (folder / name).write_text(text)
    found = find_readings([folder / name])
    assert found.complaints == []
    return found.cards


@pytest.mark.parametrize("form", FORMATS)
def test_clocks_power_and_what_holds_them_down(tmp_path: Path, form: str) -> None:
    """By content, whatever the file is called: eight cards, the fifth held down, in each format."""
    cards = read(tmp_path, FORMATS[form](eight(**HOT)))

    assert [c.card.index for c in cards] == list(range(8))
    assert [c.card.uuid for c in cards] == [g.uuid for g in eight()]
    fifth, first = cards[5], cards[0]
    assert (fifth.values["sm_clock_mhz"], fifth.values["power_w"]) == (1200, 540.25)
    assert fifth.values["temperature_c"] == 88
    assert fifth.throttle == {"hw_slowdown", "hw_thermal_slowdown"}
    assert first.throttle == frozenset()
    assert first.values["gpu_util"] == 100


@pytest.mark.parametrize("form", ["text", "text, old names", "XML", "XML, old names"])
def test_memory_and_links(tmp_path: Path, form: str) -> None:
    """Volatile counts, not those of the card's whole life; remapping, replays and the width of its slot."""
    values = read(tmp_path, FORMATS[form](eight(**BAD)))[5].values

    assert (values["ecc_sbe"], values["ecc_dbe"]) == (150, 2)
    assert (values["remap_pending"], values["remap_failed"]) == (1, 0)
    assert (values["pcie_replay"], values["pcie_width"], values["pcie_width_max"]) == (9, 8, 16)
    assert (values["sm_clock_max_mhz"], values["fb_used_mib"]) == (1980, 71204)


@pytest.mark.parametrize("old", [False, True])
def test_a_scrape_adds_what_is_told_in_parts(tmp_path: Path, old: bool) -> None:
    """Both directions of NVLink, all kinds of its errors; the last XID; the exporter's host."""
    text = dcgm(eight(xid=79, nvlink_errors=4, nvlink_bytes=60e9), old=old)
    card = read(tmp_path, text)[5]

    assert (card.values["xid"], card.values["nvlink_errors"], card.values["nvlink_bytes"]) == (79, 4, 60e9)
    assert card.card.host == "gpu-node-07"


@pytest.mark.parametrize("form", ["text", "XML"])
def test_every_value_has_its_line(tmp_path: Path, form: str) -> None:
    """A citation leads to the line that holds the value."""
    text = FORMATS[form](eight(clock=1234))
    card = read(tmp_path, text)[5]

    assert "1234" in text.splitlines()[card.lines["sm_clock_mhz"] - 1]


@pytest.mark.parametrize("form", ["text", "XML"])
def test_what_is_not_permitted_is_said(tmp_path: Path, form: str) -> None:
    """A field that the reader may not see is no zero."""
    card = read(tmp_path, FORMATS[form](eight(denied=True)))[5]

    assert "pcie_replay" not in card.values
    assert len(card.denied) == 1


def test_processes_of_a_card(tmp_path: Path) -> None:
    """Who computes there, from nvidia-smi's own list."""
    cards = [Gpu(0, pid=4711), Gpu(1)]

    assert [c.pids for c in read(tmp_path, smi_text(cards))] == [(4711,), ()]
    assert [c.pids for c in read(tmp_path, smi_xml(cards))] == [(4711,), ()]


def test_a_lost_card_is_a_reading_too(tmp_path: Path) -> None:
    """The driver's only words on it name its address."""
    text = "Unable to determine the device handle for GPU0: 0000:3B:00.0: GPU is lost.  Reboot the system.\n"
    (card,) = read(tmp_path, text)

    assert (card.card.bus, card.lost) == ("3b00", "GPU is lost.  Reboot the system.")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (smi_xml(eight())[:3000], "not XML from line"),
        (smi_text(eight())[:200], "no GPU in it"),
        ("# HELP DCGM_FI_DEV_SM_CLOCK SM clock\n# TYPE DCGM_FI_DEV_SM_CLOCK gauge\n", "no sample of a GPU"),
        ('<!DOCTYPE a [<!ENTITY b "c">]>\n<nvidia_smi_log>&b;</nvidia_smi_log>', "declares entities"),
        ('{"gpus": [', "not whole"),
        ("# Port counters: Lid 12 port 1\n", "no counter of a port"),
    ],
)
def test_damage_is_one_line(tmp_path: Path, text: str, says: str) -> None:
    """A file of a known kind that is cut off or wrong gives one complaint with its name, and nothing else."""
    (tmp_path / "gpu.json").write_text(text)
    found = find_readings([tmp_path])

    assert (found.cards, found.ports) == ([], [])
    (complaint,) = found.complaints
    assert complaint.startswith("gpu.json: ")
    assert says in complaint
    assert "\n" not in complaint


def test_half_a_report_gives_what_it_has(tmp_path: Path) -> None:
    """Text that ends in the sixth card still tells of five."""
    text = smi_text(eight())
    (tmp_path / "q.txt").write_text(text[: text.index(Gpu(6).bus)])
    found = find_readings([tmp_path])

    assert len(found.cards) == 6


def test_ports_by_three_tools(tmp_path: Path) -> None:
    """perfquery, grep over sysfs and `rdma statistic` name one counter alike."""
    (port,) = read_fabric(perfquery(SymbolErrorCounter=7, LinkDownedCounter=1), "f")
    assert (port.adapter, port.values["symbol_error"], port.values["link_downed"]) == ("LID 12", 7, 1)
    assert "SymbolErrorCounter" in perfquery().splitlines()[port.lines["symbol_error"] - 1]

    ports = read_fabric(sysfs(symbol_error=3, rate="200 Gb/sec (2X NDR)"), "f")
    assert [(p.adapter, p.values["symbol_error"], p.values["rate_gb_s"]) for p in ports] == [
        ("mlx5_0", 0, 400),
        ("mlx5_1", 0, 400),
        ("mlx5_2", 3, 200),
        ("mlx5_3", 0, 400),
    ]

    (link,) = read_fabric("link mlx5_0/1 rx_write_requests 10 out_of_sequence 4 packet_seq_err 0\n", "f")
    assert link.values["out_of_sequence"] == 4


def test_a_copied_tree_of_counters(tmp_path: Path) -> None:
    """A file a counter, as `cp -r /sys/class/infiniband` leaves them."""
    folder = tmp_path / "node-3" / "infiniband" / "mlx5_0" / "ports" / "1" / "counters"
    folder.mkdir(parents=True)
    (folder / "symbol_error").write_text("12\n")
    (folder / "link_downed").write_text("0\n")
    (port,) = find_readings([tmp_path]).ports

    assert (port.adapter, port.port, port.values) == ("mlx5_0", 1, {"symbol_error": 12, "link_downed": 0})
    assert port.file == "node-3/infiniband"


def test_two_readings_are_one_card_and_what_grew(tmp_path: Path) -> None:
    """By the report's own clock, whatever the files' times say; a counter that began anew counts from 0."""
    (tmp_path / "b.txt").write_text(smi_text([Gpu(0, sbe=5, replays=2)], "Mon Nov 30 10:15:02 2026"))
    (tmp_path / "a.xml").write_text(smi_xml([Gpu(0, sbe=9, replays=1)], "Mon Nov 30 10:25:02 2026"))
    os.utime(tmp_path / "a.xml", (1, 1))
    (state,) = card_states(find_readings([tmp_path]).cards)

    assert (state.readings, state.newest.file) == (2, "a.xml")
    assert (state.grown["ecc_sbe"], state.grown["pcie_replay"]) == (4, 1)


def test_a_card_that_two_tools_name_differently_is_one(tmp_path: Path) -> None:
    """nvidia-smi and the exporter agree by UUID; a driver's last words by the address."""
    (tmp_path / "q.txt").write_text(smi_text([Gpu(0)]))
    (tmp_path / "s.prom").write_text(dcgm([Gpu(0)], host=None))
    lost = f"Unable to determine the device handle for GPU {Gpu(0).bus}: GPU is lost.\n"
    (tmp_path / "later.txt").write_text(lost)

    assert len(card_states(find_readings([tmp_path]).cards)) == 1


def test_other_files_are_none_of_ours(tmp_path: Path) -> None:
    """Logs, dumps and documents are passed over without a word."""
    (tmp_path / "train.log").write_text("step 3 done\nDCGM was not installed\n")
    (tmp_path / "rank_0").write_bytes(b"\x80\x04}.")
    (tmp_path / "page.xml").write_text("<a/>")

    assert not find_readings([tmp_path])


def test_readers_alone_raise_in_one_line() -> None:
    """What is not even begun is not readable."""
    for reader in (read_smi_text, read_smi_xml, read_fabric):
        with pytest.raises(NotReadable):
            reader("", "f")


@pytest.mark.parametrize("packed", ["gz", "tar.gz"])
def test_packed_reports_are_read(tmp_path: Path, packed: str) -> None:
    """One report packed by itself, or several in an archive, named with it."""
    if packed == "gz":
        (tmp_path / "q.txt.gz").write_bytes(gzip.compress(smi_text([Gpu(0)]).encode()))
    else:
        (tmp_path / "q.xml").write_text(smi_xml([Gpu(0)]))
        with tarfile.open(tmp_path / "node.tar.gz", "w:gz") as tar:
            tar.add(tmp_path / "q.xml", "node-3/q.xml")
        (tmp_path / "q.xml").unlink()
    (card,) = find_readings([tmp_path]).cards

    assert card.card.uuid == Gpu(0).uuid
    assert card.file in ("q.txt.gz", "node.tar.gz/node-3/q.xml")
