"""Sets of global ranks as people write them: ``0-4,6-7``."""

from collections.abc import Iterable


def format_ranks(ranks: Iterable[int]) -> str:
    """Write ranks as sorted ranges, so that a thousand of them fit on a line.

    >>> format_ranks([7, 6, 0, 1, 2, 3, 4])
    '0-4,6-7'
    """
    parts: list[str] = []
    ordered = sorted(set(ranks))
    start = 0
    for i, rank in enumerate(ordered):
        if i + 1 < len(ordered) and ordered[i + 1] == rank + 1:
            continue
        first = ordered[start]
        parts.append(str(first) if first == rank else f"{first}-{rank}")
        start = i + 1
    return ",".join(parts)


def parse_ranks(text: str) -> tuple[int, ...]:
    """Read what `format_ranks` writes, or a plain comma list.

    Raises:
        ValueError: a part is neither a rank nor a range of ranks.
    """
    ranks: set[int] = set()
    for part in filter(None, (p.strip() for p in text.split(","))):
        first, dash, last = part.partition("-")
        if not first.isdigit() or (dash and not last.isdigit()):
            raise ValueError(f"'{part}' is not a rank: give ranks as 5 or 1,5 or 0-3")
        if dash and int(last) < int(first):
            raise ValueError(f"'{part}' runs backwards: give ranges as 0-3")
        if max(len(first), len(last)) > 6:
            raise ValueError(f"'{part}': no job has a million ranks; give ranks as 5 or 0-3")
        ranks.update(range(int(first), int(last if dash else first) + 1))
    return tuple(sorted(ranks))
