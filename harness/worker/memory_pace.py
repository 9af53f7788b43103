"""How often something costly may be done: at most a part of the time, and on all ranks in the same step."""

import math


class Pace:
    """Lets a reading happen so often that it takes at most `share` of the time.

    The moments lie on a grid of unix time whose spacing is a power of two of seconds, the same on every
    rank: where all ranks wait for each other, readings in one step cost one of them, and readings here
    and there would cost all of them.
    """

    def __init__(self, share: float) -> None:
        self._share = share
        self._before = math.inf
        self.begin = math.inf
        self.end = -math.inf

    def due(self, t: float) -> bool:
        """Whether the reading may happen at `t`, unix seconds: outside of `begin` to `end`.

        A clock that was set back delays nothing.
        """
        return not self.begin <= t < self.end

    def took(self, t: float, seconds: float) -> None:
        """The reading ended at `t` and took `seconds`."""
        # One slow reading may have lost its core meanwhile; two in a row are slow.
        cost, self._before = min(seconds, self._before), seconds
        period = 2.0 ** math.ceil(math.log2(max(cost, 1e-6) / self._share))
        self.begin = t // period * period
        self.end = self.begin + period
