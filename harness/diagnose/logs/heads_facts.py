"""What logs state, and what holds of it: a value with the lines that it rests on, or a contradiction."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Generic, TypeVar

T = TypeVar("T")

MAX_CITED = 4
"""Statements that are kept of one value, or values of one contradiction."""


@dataclass(frozen=True)
class Stated(Generic[T]):
    """One value and the line that states it. `line` counts from 1; `text` is cut and holds no passwords."""

    value: T
    file: str
    line: int
    text: str


@dataclass(frozen=True)
class Fact(Generic[T]):
    """What holds. `value` is None if nothing was stated, and if files contradict each other."""

    value: T | None = None
    stated: tuple[Stated[T], ...] = ()

    @property
    def disputed(self) -> bool:
        """Whether there are statements, which contradict each other."""
        return self.value is None and bool(self.stated)


def settle(statements: Iterable[Stated[T]]) -> Fact[T]:
    """One value if the last statements of all files agree; else none, with one statement of each value.

    A later statement in the same file is a restart's, not a contradiction: elastic jobs change their size.
    """
    last = {stated.file: stated for stated in statements}
    by_value: dict[T, list[Stated[T]]] = {}
    for stated in last.values():
        by_value.setdefault(stated.value, []).append(stated)
    if len(by_value) == 1:
        ((value, agreeing),) = by_value.items()
        return Fact(value, tuple(agreeing[:MAX_CITED]))
    return Fact(None, tuple(agreeing[0] for agreeing in by_value.values())[:MAX_CITED])


def dispute(one: Fact[T], other: Fact[T]) -> Fact[T]:
    """`one`, unless `other` holds too and is unequal: then none, and what both rest on."""
    if one.value is None or other.value is None or one.value == other.value:
        return one if one.stated else other
    return Fact(None, (*one.stated[: MAX_CITED // 2], *other.stated[: MAX_CITED // 2]))
