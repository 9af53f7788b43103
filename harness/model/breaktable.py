"""The calls around a break: one column for the ranks that agree, one for each set that deviates."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Cell:
    """One call as short text (``all_reduce [1048576]``) and its state (done, stuck, not issued)."""

    call: str
    state: str


@dataclass(frozen=True)
class Row:
    """One sequence number; `marked` where the streams part."""

    seq: int
    cells: tuple[Cell, ...]
    marked: bool = False


@dataclass(frozen=True)
class BreakTable:
    """`columns` are rank sets (``0-4,6-7``), the agreeing ones first."""

    group: str
    columns: tuple[str, ...]
    rows: tuple[Row, ...]
