"""Operations whose sizes may differ between members by design, and how their parts must fit."""

from collections.abc import Sequence

from harness.diagnose.flight.intern import Signature

_UNEVEN = frozenset(
    (
        *("gather", "scatter", "all_to_all", "alltoall", "alltoall_base", "all_to_all_single"),
        *("all_to_all_v_single", "reduce_scatter_v", "all_gather_v", "allgather_v"),
    )
)


def is_uneven(signature: Signature) -> bool:
    """Whether members of one healthy call may state different sizes."""
    return signature.op.lstrip("_") in _UNEVEN


def fits(a: Signature, b: Signature, members: Sequence[int], a_rank: int, b_rank: int) -> bool:
    """Whether two members' signatures can belong to one healthy collective.

    An all-to-all that states one size a peer must fit pair by pair: what `a` sends `b`, `b` receives.
    """
    if a == b:
        return True
    if a.op != b.op or not is_uneven(a):
        return False
    count = len(members)
    if "all" not in a.op or {len(s.input_sizes) for s in (a, b)} != {count}:
        return True
    if {len(s.output_sizes) for s in (a, b)} != {count}:
        return True
    i, j = members.index(a_rank), members.index(b_rank)
    return a.input_sizes[j] == b.output_sizes[i] and a.output_sizes[j] == b.input_sizes[i]
