"""Reports of torch's own comparison of collectives."""

import pytest

from harness.diagnose.logs.detail import detail_finding
from harness.diagnose.logs.events import LogEvent
from harness.model.kinds import Confidence, Kind


def report(teller: int, *calls: tuple[int, str, str, str], seq: int = 8) -> LogEvent:
    """One rank's line: (rank, operation, shape, dtype) of two ranks."""
    told = ", but ".join(
        f"Rank {rank} is running collective: CollectiveFingerPrint(SequenceNumber={seq}, OpType={op}, "
        f"TensorShape=[{shape}], TensorDtypes={dtype}, TensorDeviceTypes=TensorOptions(dtype=float))"
        for rank, op, shape, dtype in calls
    )
    text = f"RuntimeError: Detected mismatch between collectives on ranks. {told}.Collectives differ"
    return LogEvent(teller, "detail", f"{teller}/stderr.log", 21, text)


USUAL = ("ALLREDUCE", "1048576", "Float")


@pytest.mark.parametrize(
    ("odd", "kind"),
    [
        (("ALLREDUCE", "1", "Float"), Kind.COLLECTIVE_SIZE_MISMATCH),
        (("ALLREDUCE", "1048576", "Half"), Kind.COLLECTIVE_DTYPE_MISMATCH),
        (("BROADCAST", "1048576", "Float"), Kind.COLLECTIVE_TYPE_MISMATCH),
    ],
)
def test_two_against_one_convict(odd: tuple[str, str, str], kind: Kind) -> None:
    """The majority of the ranks named names the odd one."""
    logs = [report(rank, (rank, *USUAL), (2, *odd)) for rank in (0, 1, 3)]

    finding = detail_finding(logs, 4)

    assert finding is not None
    assert (finding.kind, finding.culprits, finding.suspects) == (kind, (2,), ())
    assert finding.where.seq == 9


def test_two_ranks_are_a_tie() -> None:
    """One against one: both are suspects."""
    finding = detail_finding([report(0, (0, *USUAL), (1, "BROADCAST", "4", "Float"))], 2)

    assert finding is not None
    assert (finding.culprits, finding.suspects) == ((), (0, 1))


def test_equal_fingerprints_are_a_false_alarm() -> None:
    """Only the numbers differ: the wrapper's own mistake."""
    assert detail_finding([report(0, (0, *USUAL), (1, *USUAL))], 4) is None


def test_two_sequence_numbers_are_not_compared() -> None:
    """Calls at different numbers say nothing of one another."""
    logs = [
        report(0, (0, *USUAL), (2, "BROADCAST", "4", "Float")),
        report(1, (1, *USUAL), (3, *USUAL), seq=9),
    ]

    assert detail_finding(logs, 4) is None


def test_a_smaller_group_names_nobody() -> None:
    """Ranks inside a group are not global ranks: the tellers say which it is."""
    logs = [report(4 + rank, (rank, *USUAL), (2, "BROADCAST", "4", "Float")) for rank in (0, 1, 3)]

    assert detail_finding(logs, 8) is None


def test_a_smaller_group_whose_members_all_tell_names_the_odd_one() -> None:
    """Each teller comes first in its own message: that ties the group's ranks to global ones."""
    odd = ("BROADCAST", "4", "Float")
    logs = [report(1 + 2 * rank, (rank, *USUAL), (2, *odd)) for rank in (0, 1, 3)]
    logs.append(report(5, (2, *odd), (0, *USUAL)))

    finding = detail_finding(logs, 8)

    assert finding is not None
    assert (finding.culprits, finding.confidence) == ((5,), Confidence.LIKELY)


def test_two_groups_at_once_name_nobody() -> None:
    """Two tellers that are one rank in their groups: whose message is whose, nothing tells."""
    odd = ("BROADCAST", "4", "Float")
    logs = [report(4 * group + rank, (rank, *USUAL), (2, *odd)) for group in (0, 1) for rank in (0, 1, 3)]
    logs += [report(4 * group + 2, (2, *odd), (0, *USUAL)) for group in (0, 1)]

    assert detail_finding(logs, 8) is None
