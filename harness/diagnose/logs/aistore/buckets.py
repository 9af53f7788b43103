"""Counting lines by the minute, in bounded memory however long the file is."""

from harness.diagnose.logs.aistore.model import Bucket, Seen

FIRST_WIDTH_S = 60.0
MAX_BUCKETS = 2048


class Buckets:
    """Counts lines by their time; above MAX_BUCKETS neighbours merge and the buckets get twice as wide."""

    def __init__(self) -> None:
        self.width_s = FIRST_WIDTH_S
        self._found: dict[int, Bucket] = {}

    def add(self, seen: Seen) -> None:
        """Count one line."""
        self._merge(int(seen.at // self.width_s), Bucket(1, seen, seen))
        if len(self._found) > MAX_BUCKETS:
            self.width_s *= 2
            old, self._found = self._found, {}
            for bucket in old.values():
                self._merge(int(bucket.first.at // self.width_s), bucket)

    def all(self) -> tuple[Bucket, ...]:
        """All buckets, in order of time."""
        return tuple(self._found[key] for key in sorted(self._found))

    def _merge(self, key: int, new: Bucket) -> None:
        old = self._found.get(key)
        self._found[key] = (
            new
            if old is None
            else Bucket(
                old.count + new.count,
                min(old.first, new.first, key=lambda seen: seen.at),
                max(old.last, new.last, key=lambda seen: seen.at),
            )
        )
