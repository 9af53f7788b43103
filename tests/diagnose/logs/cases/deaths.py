"""Deaths: who went first, by what, and whose end is only fall-out."""

from tests.diagnose.logs.cases import launchers
from tests.diagnose.logs.cases.common import Tell
from tests.diagnose.logs.cases.incident import Incident
from tests.diagnose.logs.cases.model import Case, Expect
from tests.diagnose.logs.cases.watchdog import Wait, connection_lost

FAILS = 300.0
KEY = "KeyError: 'attention_mask'"


def fall_out(incident: Incident, t: float, dead: int) -> None:
    """All others lose the dead rank's connection: they name its host, and abort."""
    host = incident.host(incident.node(dead))
    for rank in incident.ranks:
        if rank != dead:
            connection_lost(incident, t + rank * 0.01, rank, host, Wait(1370))


def ends(incident: Incident, dead: int, code: int, t: float = FAILS) -> None:
    """The dead rank's own end first, then the aborts of the others."""
    fall_out(incident, t + 2, dead)
    aborts = {r: (-6, t + 3) for r in incident.ranks if r != dead}
    launchers.ended(incident, t + 5, {dead: (code, t + 0.5), **aborts})


def raising(rank: int, text: str, code: int = 1) -> Tell:
    """One rank raises; its peers lose the connection."""

    def tell(incident: Incident) -> None:
        incident.steps(20, 290)
        incident.raises(FAILS, rank, text)
        ends(incident, rank, code)

    return tell


def killed(rank: int, code: int) -> Tell:
    """One rank is gone without a word."""

    def tell(incident: Incident) -> None:
        incident.steps(20, 290)
        ends(incident, rank, code)

    return tell


def _killed_by_clean_up(incident: Incident) -> None:
    """Rank 2 raises; rank 6 does not heed SIGTERM and is killed thirty seconds later."""
    incident.steps(20, 290)
    incident.raises(FAILS, 2, KEY)
    pid = incident.pid(6)
    incident.agent(FAILS + 1, 0, f"Sending process {pid} closing signal SIGTERM")
    forced = "via Signals.SIGTERM, forcefully exiting via Signals.SIGKILL"
    incident.agent(FAILS + 31, 0, f"Unable to shutdown process {pid} {forced}")
    launchers.ended(incident, FAILS + 31, {2: (1, FAILS + 1), 6: (-9, FAILS + 31)})


def _noise_then(incident: Incident) -> None:
    """Rank 3 recovers from resets at the first attempt, all along; rank 6 has a real failure."""
    incident.steps(20, 290)
    for t in (60, 120, 180, 240, 298):
        incident.log(t, 3, "GET shard-000812.tar: Connection reset by peer, retrying 1/5", "W")
    incident.raises(FAILS, 6, KEY)
    ends(incident, 6, 1)


def _exhausted(incident: Incident) -> None:
    incident.steps(20, 280)
    for n in range(1, 6):
        incident.log(280 + 4 * n, 3, f"GET shard-000812.tar: Connection reset by peer, retrying {n}/5", "W")
    incident.raises(
        FAILS + 1, 3, "ConnectionError: GET shard-000812.tar failed after 5 retries: Connection reset by peer"
    )
    ends(incident, 3, 1, FAILS + 1)


def _gloo(incident: Incident) -> None:
    """gloo's victims raise, too: their exceptions are all about the connection."""
    incident.steps(20, 290)
    for rank in incident.ranks:
        if rank != 2:
            incident.raises(
                FAILS + 1 + rank * 0.01,
                rank,
                "RuntimeError: [/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:534] Connection "
                "closed by peer "
                "[10.0.0.10]:41234",
            )
    victims = {r: (1, FAILS + 3) for r in incident.ranks if r != 2}
    launchers.ended(incident, FAILS + 5, {2: (-11, FAILS + 0.5), **victims})


def _tie(incident: Incident) -> None:
    """Two hosts, a crash on each within one second: each agent prints its own block."""
    incident.steps(20, 290)
    launchers.ended(incident, FAILS + 2, {3: (-11, FAILS + 0.1), 12: (-11, FAILS + 0.4)})


def _only_victims(incident: Incident) -> None:
    """Nothing but exceptions about the connection, everywhere."""
    incident.steps(20, 290)
    for rank in incident.ranks:
        incident.raises(
            FAILS + rank * 0.01,
            rank,
            "torch.distributed.DistBackendError: NCCL error in: "
            "/pytorch/torch/csrc/distributed/c10d/NCCLUtils.hpp:268, "
            "remote process exited or there was a network error, NCCL version 2.21.5\nncclRemoteError: A "
            "call failed "
            "possibly due to a network error or a remote process exiting prematurely.",
        )
    launchers.ended(incident, FAILS + 3, dict.fromkeys(incident.ranks, (1, FAILS + 1)))


def _peer_host(incident: Incident) -> None:
    """The second node's file is missing; the first one's ranks name its host."""
    incident.steps(20, 290)
    for rank in range(8):
        connection_lost(incident, FAILS + rank * 0.01, rank, incident.host(1), Wait(1370))
    launchers.ended(incident, FAILS + 3, dict.fromkeys(range(8), (-6, FAILS + 1)))


def _elsewhere(incident: Incident) -> None:
    """Rank 12 raises; the other node's agent is told to stop and only says SIGTERM."""
    incident.steps(20, 290)
    incident.raises(FAILS, 12, KEY)
    launchers.ended(incident, FAILS + 2, {12: (1, FAILS + 1)})
    for rank in range(8):
        incident.say(FAILS + 6, rank, f"[rank: {rank}] Received SIGTERM: 15")


AIS = (
    "AISBatchLoaderError: batch returned 60 objects, expected 64: 4 objects missing from bucket ais://speech"
)

NAN = (
    "RuntimeError: Rank 3: found NaN in local grad norm in backward pass before data-parallel communication "
    "collective. Device: 3, node: gpu-a0"
)
FULL = "OSError: [Errno 28] No space left on device: '/ckpt/step-28/model_00.pt'"


def _save_fails(incident: Incident) -> None:
    incident.steps(20, 290)
    incident.log(295, 0, "Saving checkpoint at step 28 to /ckpt/step-28")
    incident.raises(FAILS, 0, FULL, function="save_checkpoint")
    ends(incident, 0, 1)


def software(name: str, rule: str, tell: Tell, rank: int, dresses: tuple[str, ...], world: int = 8) -> Case:
    return Case(name, rule, Expect("software_error", culprits=(rank,)), tell, dresses, world=world)


def gone(name: str, rule: str, rank: int, code: int, signal: str, dresses: tuple[str, ...]) -> Case:
    expect = Expect("rank_exited", culprits=(rank,), how="signal", signal=signal)
    return Case(name, rule, expect, killed(rank, code), dresses)


FIRST = "3, 6: the first to fail; whose exceptions are all communication ones are victims"

DEATHS: tuple[Case, ...] = (
    software("exception", FIRST, raising(9, KEY), 9, ("ranks", "label", "cloud"), 16),
    software("exception_8", FIRST, raising(4, KEY), 4, ("old", "pdsh", "lost_colour")),
    software("clean_up_kill", "3: -9 thirty seconds after", _killed_by_clean_up, 2, ("ranks", "label")),
    software("recovered_retries", "3: retries that recover are noise", _noise_then, 6, ("ranks", "cloud")),
    software(
        "elsewhere", "4: SIGTERM at one agent, a failure at another", _elsewhere, 12, ("ranks", "nodes"), 16
    ),
    Case(
        "bad_sample",
        "kinds: data_corrupt, the reader",
        Expect("data_corrupt", culprits=(7,), or_kinds=("software_error",)),
        raising(7, "PIL.UnidentifiedImageError: cannot identify image file '/data/shard-0042/000913.jpg'"),
        ("ranks", "label"),
    ),
    gone(
        "segv",
        "3, 6: aborts are symptoms, the segmentation fault is not",
        4,
        -11,
        "SIGSEGV",
        ("ranks", "label", "mid"),
    ),
    gone("kill", "-9 with no other failure before it", 6, -9, "SIGKILL", ("nodes", "srun_ranks")),
    Case(
        "gloo_victims", FIRST, Expect("rank_exited", culprits=(2,), how="signal"), _gloo, ("ranks", "cloud")
    ),
    Case(
        "retries_exhausted",
        "3: retries that exhaust are failures",
        Expect("storage_failure", culprits=(3,)),
        _exhausted,
        ("ranks", "srun_ranks"),
    ),
    Case(
        "ais_batch",
        "5: storage_failure",
        Expect("storage_failure", culprits=(6,)),
        raising(6, AIS),
        ("ranks", "label"),
    ),
    Case(
        "save_fails",
        "a save failed, for want of space",
        Expect("checkpoint_failed", culprits=(0,), or_kinds=("storage_failure",)),
        _save_fails,
        ("ranks", "cloud"),
    ),
    Case(
        "nan",
        "loss_not_finite: where first seen",
        Expect("loss_not_finite", culprits=(3,)),
        raising(3, NAN),
        ("nodes", "label"),
    ),
    Case(
        "tie",
        "6: equal times in two agents' blocks are a tie",
        Expect("rank_exited", suspects=(3, 12), guilty=(3, 12)),
        _tie,
        ("ranks", "nodes"),
        world=16,
    ),
    Case(
        "only_victims",
        "3, 16: exceptions of communication alone",
        Expect("inconclusive", next_steps=True),
        _only_victims,
        ("ranks", "label"),
    ),
    Case(
        "peer_host",
        "6: a closed connection names a host, not a rank",
        Expect("inconclusive", or_kinds=("node_lost",), missing="8-15", next_steps=True, guilty=()),
        _peer_host,
        ("nodes", "ranks"),
        world=16,
        lost=tuple(range(8, 16)),
    ),
)
