"""From counters to a finding: who computes there, what is broken, what slows, what is on record."""

import json
import pickle
from pathlib import Path

import pytest

from harness.diagnose.api import diagnose
from harness.model.diagnosis import Diagnosis
from harness.model.errors import PrerequisiteError
from harness.model.kinds import Category, Confidence, Kind
from tests.diagnose.hardware.made import (
    HOST,
    Gpu,
    dcgm,
    eight,
    job,
    kernel_xid,
    perfquery,
    smi_text,
    smi_xml,
    sysfs,
)

LATER = "Mon Nov 30 10:25:02 2026"
HOT = {"clock": 1200, "power": 540.0, "reasons": ("HW Slowdown", "HW Thermal Slowdown")}


def of(folder: Path, **files: str) -> Diagnosis:
    """The diagnosis of a folder with these files; ``__`` in a name is a dot."""
    folder.mkdir(exist_ok=True)
    for name, text in files.items():
        (folder / name.replace("__", ".")).write_text(text)
    return diagnose(folder).diagnosis


def cited(found: Diagnosis, folder: Path) -> list[str]:
    """The lines that are cited, read from the files."""
    return [
        (folder / c.file).read_text().splitlines()[c.line - 1]
        for c in found.evidence
        if c.file and c.line and (folder / c.file).suffix != ".json"
    ]


@pytest.mark.parametrize("make", [smi_text, smi_xml, dcgm])
@pytest.mark.parametrize(
    ("broken", "says"),
    [
        ({"dbe": 2}, "GPU 5{host}: 2 double-bit ECC errors"),
        ({"pending": True}, "GPU 5{host}: rows to remap: it needs a reset"),
        ({"failed": True}, "GPU 5{host}: a row of its memory could not be remapped"),
    ],
)
def test_a_broken_card_by_itself(tmp_path: Path, make: object, broken: dict[str, object], says: str) -> None:
    """Files of one node and no job: a fault of the hardware, with the card's name, its line, and no rank."""
    assert callable(make)
    found = of(tmp_path / "e", q__txt=make(eight(**broken)))

    host = f" of {HOST}" if make is dcgm else ""
    assert (found.kind, found.category, found.culprits) == (Kind.HARDWARE_FAULT, Category.GPU, ())
    assert found.summary == says.format(host=host)
    assert found.confidence is Confidence.LIKELY
    assert found.evidence[0].source == "gpu"
    assert cited(found, tmp_path / "e")
    assert any("dcgmi" in step for step in found.next_steps)
    assert found.recommendations[0].side == "hardware"


@pytest.mark.parametrize("old", [False, True])
@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (48, Kind.HARDWARE_FAULT),
        (63, Kind.HARDWARE_FAULT),
        (64, Kind.HARDWARE_FAULT),
        (79, Kind.HARDWARE_FAULT),
        (31, Kind.INCONCLUSIVE),
        (43, Kind.INCONCLUSIVE),
    ],
)
def test_the_last_xid_of_a_scrape_by_its_class(tmp_path: Path, old: bool, code: int, kind: Kind) -> None:
    """48, 63, 64 and 79 are the hardware's; 31 and 43 usually the program's: noted, no fault."""
    found = of(tmp_path / "e", scrape__prom=dcgm(eight(xid=code), old=old))

    assert found.kind is kind
    assert f"XID {code}" in found.summary
    assert ("of the hardware" in found.summary) == (kind is Kind.HARDWARE_FAULT)


def test_a_card_that_nobody_is_known_to_compute_on_is_not_ruled_out(tmp_path: Path) -> None:
    """The kernel's line and the scrape may speak of one and the same card: both are shown."""
    cards = eight(xid=79)
    broken = next(card for card in cards if card.xid)

    found = of(tmp_path / "e", dmesg__txt=kernel_xid(79, broken), scrape__prom=dcgm(cards))

    assert found.kind is Kind.HARDWARE_FAULT
    assert not [r for r in found.ruled_out if r.kind is Kind.HARDWARE_FAULT]
    assert {c.file for c in found.evidence} == {"dmesg.txt", "scrape.prom"}


def test_ranks_by_uuid_by_address_and_by_process(tmp_path: Path) -> None:
    """ranks.json joins a card with a rank by whatever both know."""
    by_uuid = job(tmp_path / "a")
    found = of(by_uuid, s__prom=dcgm(eight(dbe=1), host=None))
    assert (found.kind, found.culprits) == (Kind.HARDWARE_FAULT, (5,))
    assert found.at[5].host == HOST

    by_address = job(tmp_path / "b")
    ranks = json.loads((by_address / "ranks.json").read_text())
    for rank in ranks["ranks"]:
        rank["device_uuid"] = None
    (by_address / "ranks.json").write_text(json.dumps(ranks))
    assert of(by_address, q__txt=smi_text(eight(dbe=1))).culprits == (5,)

    by_process = job(tmp_path / "c", devices=False)
    cards = [Gpu(i, dbe=int(i == 5), pid=1002 if i == 5 else 4000 + i) for i in range(8)]
    assert of(by_process, q__txt=smi_text(cards)).culprits == (2,)


def test_a_card_of_another_host_is_nobodys(tmp_path: Path) -> None:
    """Addresses repeat on every node: a scrape of a host where no rank is accuses none."""
    root = job(tmp_path / "a")
    strangers = dcgm(eight(dbe=1), host="other-node").replace("GPU-0000000", "GPU-9999999")
    found = of(root, s__prom=strangers)

    assert found.culprits == ()


def test_the_kernels_word_on_a_card_outranks_the_launchers(tmp_path: Path) -> None:
    """Ranks failed one after another; XID 79 on rank 5's card is why, for certain."""
    root = job(tmp_path / "a")
    found = of(root, kernel__log=kernel_xid(79, Gpu(5), pid=1005))

    assert (found.kind, found.culprits, found.confidence) == (Kind.HARDWARE_FAULT, (5,), Confidence.CERTAIN)
    assert found.evidence[0].source == "kernel"
    assert "Xid" in cited(found, root)[0]
    assert "XID 79" in found.summary


def test_dmesg_that_somebody_put_beside_the_bundle(tmp_path: Path) -> None:
    """By its usual name, read like the bundle's own."""
    found = of(job(tmp_path / "a"), dmesg__txt=kernel_xid(48, Gpu(3)))

    assert (found.kind, found.culprits, found.evidence[0].file) == (Kind.HARDWARE_FAULT, (3,), "dmesg.txt")


@pytest.mark.parametrize("code", [48, 79])
def test_dmesg_alone_names_the_card(tmp_path: Path, code: int) -> None:
    """No job, no ranks: a fault of the hardware, nobody convicted."""
    found = of(tmp_path / "e", dmesg__txt=kernel_xid(code, Gpu(3)) * 2)

    assert (found.kind, found.culprits) == (Kind.HARDWARE_FAULT, ())


@pytest.mark.parametrize("code", [31, 43, 63, 94])
def test_an_xid_that_need_not_break_anything(tmp_path: Path, code: int) -> None:
    """Software's, or recovered: nobody is convicted of why ranks ended; a recovered one leaves a suspect."""
    root = job(tmp_path / "a")
    found = of(root, kernel__log=kernel_xid(code, Gpu(5)))

    assert found.culprits == ()
    assert found.suspects == ((5,) if code in (63, 94) else ())
    assert (found.kind is Kind.HARDWARE_FAULT) == (code in (63, 94))


def test_a_job_that_ended_well_had_no_fault(tmp_path: Path) -> None:
    """A remap that is pending for days did not break a job that came to its end; it is still said."""
    root = job(tmp_path / "a", broke=False)
    found = of(root, q__txt=smi_text(eight(pending=True)))

    assert found.kind is Kind.HEALTHY
    assert any("rows to remap" in r.because for r in found.ruled_out)


def test_old_double_bit_errors_are_told_from_new_ones(tmp_path: Path) -> None:
    """Two readings: no growth is a record of the past; growth is a fault."""
    first = smi_text(eight(dbe=3))
    old = of(tmp_path / "old", a__txt=first, b__txt=smi_text(eight(dbe=3), LATER))
    new = of(tmp_path / "new", a__txt=first, b__txt=smi_text(eight(dbe=4), LATER))

    assert old.kind is Kind.INCONCLUSIVE
    assert "none new" in old.summary
    assert (new.kind, "1 of them in between" in new.summary) == (Kind.HARDWARE_FAULT, True)


@pytest.mark.parametrize(
    ("broken", "site", "says"),
    [
        (HOT, "throttle", "the hardware holds its clocks down (SM clock 1200 MHz at 540 W)"),
        ({"clock": 1300, "power": 610.0}, "throttle", "throttled under load (SM clock 1300 MHz at 610 W)"),
        ({"clock": 1600, "power": 250.0}, "throttle", "SM clock 1600 MHz where its peers run at 1965"),
        ({"width": 8}, "link", "PCIe x8 of x16"),
    ],
)
def test_a_slow_card_is_a_suspect_at_most(
    tmp_path: Path, broken: dict[str, object], site: str, says: str
) -> None:
    """What slows whoever computes there: a possible straggler, its rank a suspect, never convicted."""
    root = job(tmp_path / "a")
    (root / "launcher.json").unlink()
    found = of(root, q__xml=smi_xml(eight(**broken)))

    assert (found.kind, found.where.site, found.confidence) == (Kind.STRAGGLER, site, Confidence.POSSIBLE)
    assert (found.culprits, found.suspects) == ((), (5,))
    assert says in found.summary


@pytest.mark.parametrize(
    "cards",
    [
        eight(),
        eight(reasons=("SW Power Cap",)),
        eight(sbe=40),
        eight(clock=345, power=70.0, util=0, reasons=("Idle",)),
        [Gpu(i, clock=1200, power=250.0) for i in range(8)],
    ],
    ids=["fine", "power cap", "few single bits", "idle", "all alike"],
)
def test_what_is_normal_is_no_sign(tmp_path: Path, cards: list[Gpu]) -> None:
    """At its power limit, idle, with some corrected errors, or as slow as all others: nothing is wrong."""
    found = of(tmp_path / "e", q__txt=smi_text(cards), s__prom=dcgm(cards))

    assert found.kind is Kind.INCONCLUSIVE
    assert found.summary.startswith("nothing is wrong with 8 GPUs here")


def test_what_slows_a_job_is_not_what_stopped_it(tmp_path: Path) -> None:
    """Ranks that ended, and a card that is held down: it is cited at most, and no straggler is made of it."""
    found = of(job(tmp_path / "a"), q__txt=smi_text(eight(**HOT)))

    assert found.kind is not Kind.STRAGGLER
    assert 5 not in found.culprits


def test_links_that_get_worse(tmp_path: Path) -> None:
    """Growth between two scrapes is a bad link; a count by itself only asks for a second look."""
    once = of(tmp_path / "once", a__prom=dcgm(eight(nvlink_errors=40)))
    twice = of(
        tmp_path / "twice",
        a__prom=dcgm(eight(nvlink_errors=40), ms=1796000000000),
        b__prom=dcgm(eight(nvlink_errors=90), ms=1796000600000),
    )

    assert once.kind is Kind.INCONCLUSIVE
    assert "a second reading would tell" in once.summary
    assert (twice.kind, twice.where.site) == (Kind.STRAGGLER, "link")
    assert "50 more NVLink errors in between" in twice.summary


def test_nvlink_traffic_that_is_not_alike(tmp_path: Path) -> None:
    """Cards of one group carry alike; one at a third of its peers is named."""
    found = of(tmp_path / "e", s__prom=dcgm(eight(nvlink_bytes=60e9)))

    assert (found.kind, found.where.site) == (Kind.STRAGGLER, "link")
    assert "NVLink carries 60.0 GB/s where its peers' carries 180.0" in found.summary
    quiet = of(tmp_path / "q", s__prom=dcgm([Gpu(i, nvlink_bytes=10.0 * i) for i in range(8)]))
    assert quiet.kind is Kind.INCONCLUSIVE


def test_a_network_port_that_goes_down_or_errs(tmp_path: Path) -> None:
    """perfquery twice: the link went down in between; sysfs: one adapter at half its peers' rate."""
    down = of(tmp_path / "a", p1__txt=perfquery(LinkDownedCounter=1), p2__txt=perfquery(LinkDownedCounter=3))
    assert (down.kind, down.culprits) == (Kind.HARDWARE_FAULT, ())
    assert "LID 12 port 1: the link went down 2 times in between" in down.summary
    assert any("ibdiagnet" in step for step in down.next_steps)

    slow = of(tmp_path / "b", ib__txt=sysfs(rate="200 Gb/sec (2X NDR)"))
    assert (slow.kind, slow.where.site) == (Kind.STRAGGLER, "link")
    assert "mlx5_2 port 1: runs at 200 Gb/s, its peers at 400" in slow.summary

    errors = of(tmp_path / "c", a__txt=sysfs(), b__txt=sysfs(symbol_error=700))
    assert "symbol_error grew by 700" in errors.summary


def test_a_straggler_is_explained_by_its_card(tmp_path: Path) -> None:
    """Step records convict rank 5 of computing longer; its card is held down: the site is the throttle."""
    root = job(tmp_path / "a", broke=False)
    for rank in range(8):
        folder = root / "signals" / "attempt_0"
        folder.mkdir(parents=True, exist_ok=True)
        late = 0.03 if rank == 5 else 0.0
        lines = [
            {
                "t": 100.0 + step * 0.1,
                "step": step,
                "rank": rank,
                "step_time_s": 0.05 + (0.03 if step >= 40 else 0),
                "compute_s": 0.04 + (late if step >= 40 else 0),
                "comm_wait_s": 0.005 + (0.03 - late if step >= 40 else 0),
            }
            for step in range(120)
        ]
        (folder / f"rank_{rank}.jsonl").write_text("".join(json.dumps(x) + "\n" for x in lines))
    plain = diagnose(root).diagnosis
    found = of(root, q__txt=smi_text(eight(**HOT)))

    assert (plain.kind, plain.culprits, plain.where.site) == (Kind.STRAGGLER, (5,), "compute")
    assert (found.kind, found.culprits, found.where.site) == (Kind.STRAGGLER, (5,), "throttle")
    assert found.category is Category.GPU
    assert any(c.source == "gpu" for c in found.evidence)
    hot_all = of(root, q__txt=smi_text([Gpu(i, **HOT) for i in range(8)]))  # type: ignore[arg-type]
    assert hot_all.where.site == "compute"


def test_several_nodes_keep_their_cards_apart(tmp_path: Path) -> None:
    """The same addresses on two hosts: each card belongs to its own host's rank."""
    for number, host in enumerate(("n0", "n1")):
        root = job(tmp_path / host, world=2, host=host, devices=False)
        ranks = json.loads((root / "ranks.json").read_text())
        for rank in ranks["ranks"]:
            rank.update(
                rank=rank["rank"] + 2 * number, world_size=4, device_bus=Gpu(rank["rank"]).bus.lower()
            )
        ranks["world_size"] = 4
        (root / "ranks.json").write_text(json.dumps(ranks))
        (root / "launcher.json").unlink()
        cards = [Gpu(0), Gpu(1, dbe=number)]
        # Whole-card identifiers of their own on each host, as in life.
        text = smi_text(cards).replace("GPU-0000000", f"GPU-{number}000000")
        (root / "q.txt").write_text(text)
    found = diagnose(tmp_path / "n0", tmp_path / "n1").diagnosis

    assert (found.kind, found.culprits) == (Kind.HARDWARE_FAULT, (3,))
    assert found.evidence[0].file == "n1/q.txt"


def test_missing_permissions_are_said(tmp_path: Path) -> None:
    """What could not be read is listed with what to do."""
    found = of(tmp_path / "e", q__txt=smi_text(eight(denied=True)))

    assert any("not permitted to read" in line and "root" in line for line in found.missing_evidence)


def test_a_bad_file_is_one_line_and_hides_no_good_one(tmp_path: Path) -> None:
    """A report that was cut off beside a whole one."""
    found = of(tmp_path / "e", a__xml=smi_xml(eight())[:2000], b__txt=smi_text(eight(dbe=2)))

    assert found.kind is Kind.HARDWARE_FAULT
    assert [line for line in found.missing_evidence if line.startswith("a.xml: not XML")]


def test_nothing_but_a_bad_file(tmp_path: Path) -> None:
    """Exit code 4, with the reason of that file."""
    (tmp_path / "q.xml").write_text(smi_xml(eight())[:1000])
    with pytest.raises(PrerequisiteError, match=r"q\.xml: not XML"):
        diagnose(tmp_path)


def test_a_hang_beside_quiet_cards_is_decided_as_before(tmp_path: Path) -> None:
    """Cards without a sign change nothing: the same diagnosis with and without them."""
    from tests.simulate import Scenario, Shape

    scenario = Scenario("stall", Shape(dp=4), 1)
    for rank, dump in scenario.dumps().items():
        (tmp_path / f"nccl_trace_rank_{rank}").write_bytes(pickle.dumps(dump))
    before = diagnose(tmp_path).diagnosis
    after = of(tmp_path, q__txt=smi_text(eight()), s__prom=dcgm(eight()))

    assert (after.kind, after.culprits, after.summary) == (before.kind, before.culprits, before.summary)
