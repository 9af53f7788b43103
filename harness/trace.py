"""Proof that a fault took place, from what it left behind itself: for the judge, never for the diagnoser."""

import json
from collections.abc import Callable
from statistics import median

from harness.bundle.layout import Layout
from harness.bundle.reader import BundleReader
from harness.diagnose.flight.load import load_dump

GREW = 1.2
NOT_FINITE = {"NaN", "Infinity", "-Infinity"}


def find_trace(layout: Layout, trace: tuple[str, str] | None, culprits: tuple[int, ...]) -> str | None:
    """What was found of a trace, in words; None if it was not found on every culprit, or none is asked for.

    `trace` is a kind (exit, state, stack, record, log, launcher, kernel, or one of step records: grew,
    differs, not_finite, rewound) and what to look for.
    """
    if trace is None:
        return None
    kind, wanted = trace
    if kind in ("launcher", "kernel"):
        path = layout.launcher_log if kind == "launcher" else layout.kernel_log
        return f"{path.name} says so" if wanted in _text(path.open) else None
    look: Callable[[int], bool] = {
        "exit": lambda rank: _exit_of(layout, rank) == wanted,
        "state": lambda rank: f'"state":"{wanted}"' in _stacks_of(layout, rank),
        "stack": lambda rank: wanted in _stacks_of(layout, rank),
        "log": lambda rank: wanted in _log_of(layout, rank),
        "record": lambda rank: _is_odd(layout, rank, culprits),
        "grew": lambda rank: _grew(_values(layout, 0, rank, wanted)),
        "differs": lambda rank: _differs(layout, rank, culprits, wanted),
        "not_finite": lambda rank: bool(NOT_FINITE & {*_values(layout, 0, rank, wanted)}),
        "rewound": lambda rank: _rewound(layout, rank, wanted),
    }[kind]
    ranks = culprits or (0,)
    return f"{kind} {wanted} seen" if all(look(rank) for rank in ranks) else None


def _text(opened: Callable[[], object]) -> str:
    try:
        with opened() as file:  # type: ignore[attr-defined]
            return str(file.read())
    except OSError:
        return ""


def _exit_of(layout: Layout, rank: int) -> str | None:
    """Signal or exit code with which a rank of the first attempt ended by itself."""
    record = BundleReader(layout).launcher()
    exits = record.attempts[0].exits if record and record.attempts else ()
    found = next((e for e in exits if e.rank == rank and not e.cleanup), None)
    return None if found is None else found.signal or str(found.code)


def _stacks_of(layout: Layout, rank: int) -> str:
    return _text(layout.stack(0, 0, rank).open).replace('": ', '":')


def _log_of(layout: Layout, rank: int) -> str:
    return "".join(_text(p.open) for p in layout.logs.glob(f"*/attempt_0/{rank}/stderr.log"))


def _is_odd(layout: Layout, rank: int, culprits: tuple[int, ...]) -> bool:
    """Whether a rank's recorded calls, with their call sites, differ from those of most other ranks."""
    calls: dict[int, list[str]] = {}
    for path in layout.dump_prefix(0).parent.glob("rank_*"):
        number = path.name.removeprefix("rank_")
        if number.isdigit():
            calls[int(number)] = _calls(path.read_bytes())
    mine = calls.pop(rank, [])
    others = [theirs for other, theirs in calls.items() if other not in culprits]
    if not mine or not others:
        return False
    unlike = sum(any(a != b for a, b in zip(mine, theirs, strict=False)) for theirs in others)
    return 2 * unlike > len(others)


def _calls(data: bytes) -> list[str]:
    entries = load_dump(data).get("entries")
    found = []
    for entry in entries if isinstance(entries, list) else ():
        frames = [f"{f['filename']}:{f['line']}" for f in entry.get("frames", ())]
        found.append(f"{entry['profiling_name']} {entry['input_sizes']} {entry['input_dtypes']} {frames}")
    return found


def _values(layout: Layout, attempt: int, rank: int, name: str) -> list[object]:
    """A field of a rank's step records, in order, where it was recorded."""
    lines = _text(layout.signal_file(attempt, rank).open).splitlines()
    records = (json.loads(line) for line in lines if line.endswith("}"))
    return [record[name] for record in records if name in record]


def _grew(values: list[object]) -> bool:
    """Whether the last third of a series is clearly above its first, of which some records are the start."""
    numbers = [v for v in values if isinstance(v, (int, float))]
    third = len(numbers) // 3
    return third > 0 and median(numbers[-third:]) > GREW * median(numbers[:third])


def _differs(layout: Layout, rank: int, culprits: tuple[int, ...], name: str) -> bool:
    """Whether a rank's values depart from those of all others, which agree."""
    files = layout.signal_file(0, rank).parent.glob("rank_*.jsonl")
    others = {int(f.stem.removeprefix("rank_")) for f in files} - {*culprits}
    theirs = {tuple(_values(layout, 0, other, name)) for other in others}
    return len(theirs) == 1 and tuple(_values(layout, 0, rank, name)) not in theirs


def _rewound(layout: Layout, rank: int, name: str) -> bool:
    """Whether a restarted rank's first value is no further than the first of its first start."""
    before, after = (_values(layout, attempt, rank, name) for attempt in (0, 1))
    return bool(before and after) and after[0] == before[0]
