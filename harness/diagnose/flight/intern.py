"""Values that repeat over records and ranks: signatures, groups, stacks, call sites, by small numbers."""

import marshal
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from harness.diagnose.frames import is_own_code

Column = npt.NDArray[Any]

_NO_PEER = -1


@dataclass(frozen=True)
class Signature:
    """What peers must agree on. `src` and `dst` are group ranks of a send or receive, else -1."""

    op: str
    input_sizes: tuple[tuple[int, ...], ...]
    output_sizes: tuple[tuple[int, ...], ...]
    input_dtypes: tuple[str, ...]
    output_dtypes: tuple[str, ...]
    src: int = _NO_PEER
    dst: int = _NO_PEER


@dataclass(frozen=True)
class Site:
    """The innermost frame outside torch and its decorators: who made the call."""

    function: str
    file: str
    line: int

    def __str__(self) -> str:
        return f"{self.function} {self.file.rsplit('/', 1)[-1]}:{self.line}"


@dataclass
class Interner:
    """Values that repeat over entries and ranks, by small numbers. Stack and site 0 mean: not recorded."""

    signatures: list[Signature] = field(default_factory=list)
    groups: list[tuple[str, str]] = field(default_factory=list)
    stacks: list[tuple[Site, ...]] = field(default_factory=lambda: [()])
    sites: list[Site | None] = field(default_factory=lambda: [None])
    site_of_stack: list[int] = field(default_factory=lambda: [0])
    _signature_ids: dict[Signature, int] = field(default_factory=dict)
    _signature_cache: dict[bytes, int] = field(default_factory=dict)
    _group_ids: dict[tuple[str, str], int] = field(default_factory=dict)
    _stack_ids: dict[tuple[Site, ...], int] = field(default_factory=dict)
    _stack_cache: dict[bytes, int] = field(default_factory=dict)
    _site_ids: dict[Site, int] = field(default_factory=dict)

    def group(self, name: str, description: str) -> int:
        """The number of a (name, description) pair."""
        return _intern((name, description), self._group_ids, self.groups)

    def signature(self, signature: Signature) -> int:
        """The number of a signature."""
        return _intern(signature, self._signature_ids, self.signatures)

    def stack(self, stack: tuple[Site, ...]) -> int:
        """The number of a Python stack, innermost frame first."""
        if not stack:
            return 0
        known = self._stack_ids.get(stack)
        if known is None:
            known = self._stack_ids[stack] = len(self.stacks)
            self.stacks.append(stack)
            site = caller(stack)
            self.site_of_stack.append(0 if site is None else self._site(site))
        return known

    def signatures_of(self, raw: Iterable[tuple[object, ...]]) -> list[int]:
        """Numbers of many (name, input sizes, output sizes, input dtypes, output dtypes)."""
        cache, numbers = self._signature_cache, []
        for fields in raw:
            # Version 2 has no back references: equal values give equal bytes.
            key = marshal.dumps(fields, 2)  # type: ignore[arg-type]  # ValueError on what it cannot
            known = cache.get(key)
            if known is None:
                known = cache[key] = self.signature(_signature(fields))
            numbers.append(known)
        return numbers

    def stacks_of(self, raw: Iterable[object]) -> list[int]:
        """Numbers of many lists of frames. Within one dump equal frames are mostly the same objects."""
        by_list: dict[int, int] = {}
        by_frames: dict[tuple[int, ...], int] = {}
        numbers = []
        for frames in raw:
            known = by_list.get(id(frames))
            if known is None:
                if not isinstance(frames, (list, tuple)):
                    raise TypeError("frames")
                identity = tuple(map(id, frames))
                known = by_frames.get(identity)
                if known is None:
                    known = by_frames[identity] = self._stack_by_value(frames)
                by_list[id(frames)] = known
            numbers.append(known)
        return numbers

    def absorb(self, other: "Interner") -> "Remap":
        """Take over another interner's values; the answer turns its numbers into ours."""
        return Remap(
            np.array([self.group(*g) for g in other.groups] or [0], dtype=np.int16),
            np.array([self.signature(s) for s in other.signatures] or [0], dtype=np.int32),
            np.array([self.stack(s) for s in other.stacks], dtype=np.int32),
        )

    def _stack_by_value(self, frames: Sequence[object]) -> int:
        key = marshal.dumps(frames, 2)  # type: ignore[arg-type]
        known = self._stack_cache.get(key)
        if known is None:
            known = self._stack_cache[key] = self.stack(tuple(_frame(f) for f in frames))
        return known

    def _site(self, site: Site) -> int:
        known = self._site_ids.get(site)
        if known is None:
            known = self._site_ids[site] = len(self.sites)
            self.sites.append(site)
        return known


@dataclass(frozen=True)
class Remap:
    """One interner's numbers in terms of another's: arrays indexed by the old number."""

    groups: Column
    signatures: Column
    stacks: Column


def _intern(value: Any, numbers: dict[Any, int], values: list[Any]) -> int:
    known = numbers.get(value)
    if known is None:
        known = numbers[value] = len(values)
        values.append(value)
    return known


def caller(stack: Sequence[Site]) -> Site | None:
    """The innermost frame outside torch, contextlib, functools and typing_extensions."""
    return next((frame for frame in stack if is_own_code(frame.file)), None)


def _frame(value: object) -> Site:
    if not isinstance(value, Mapping):
        raise TypeError("frame")
    return Site(str(value.get("name")), str(value.get("filename")), integer(value.get("line")))


def _signature(raw: tuple[object, ...]) -> Signature:
    name, in_sizes, out_sizes, in_dtypes, out_dtypes = raw
    op = str(name or "").partition(":")[2] or str(name or "")
    words = op.split()
    src = dst = _NO_PEER
    if len(words) == 2:
        for arrow in ("->", "<-"):
            left, found, right = words[1].partition(arrow)
            if found and left.isdigit() and right.isdigit():
                op = words[0]
                src, dst = (int(left), int(right)) if arrow == "->" else (int(right), int(left))
    return Signature(op, _sizes(in_sizes), _sizes(out_sizes), _words(in_dtypes), _words(out_dtypes), src, dst)


def _sizes(value: object) -> tuple[tuple[int, ...], ...]:
    if value is None:
        return ()
    if not isinstance(value, (list, tuple)):
        raise TypeError("sizes")
    return tuple(tuple(integer(n) for n in shape) for shape in value)


def _words(value: object) -> tuple[str, ...]:
    if value is None:
        return ()
    if not isinstance(value, (list, tuple)):
        raise TypeError("dtypes")
    return tuple(str(word) for word in value)


def integer(value: object) -> int:
    """A count as any version of the recorder writes it; -1 where it wrote none.

    Raises:
        TypeError: it is not a count.
    """
    if value is None:
        return -1
    if isinstance(value, (int, float, str)):
        number = int(value)
        if -(1 << 62) < number < (1 << 62):
            return number
    raise TypeError(f"{value!r:.40} is not a count")
