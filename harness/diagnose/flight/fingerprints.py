"""Debug level DETAIL on gloo: the wrapper's own exchanges are recorded among the job's collectives."""

import numpy as np

from harness.diagnose.flight.intern import Interner
from harness.diagnose.flight.table import COLUMNS, RankTable

NAMELESS = ("", "")
"""Name and description of every group under the wrapper: it hides them."""


def drop_fingerprints(table: RankTable, interner: Interner) -> None:
    """Take the wrapper's exchanges out: two all-gathers of Long, sizes first, numbered one after another.

    They have sequence numbers of their own, which collide with the job's. A dump that names its groups is
    left as it is.
    """
    if len(table) < 2 or any(interner.groups[g] != NAMELESS for g in np.unique(table.group).tolist()):
        return
    gathers = np.array(
        [
            s.op == "all_gather" and s.input_dtypes == ("Long",) and len(s.input_sizes) == 1
            for s in interner.signatures
        ]
    )[table.signature]
    lone = np.array([s.input_sizes == ((1,),) for s in interner.signatures])[table.signature]
    first = np.append(gathers[:-1] & lone[:-1] & gathers[1:] & (table.seq[1:] == table.seq[:-1] + 1), False)
    keep = ~(first | np.append(False, first[:-1]))
    for name in COLUMNS:
        setattr(table, name, getattr(table, name)[keep])
