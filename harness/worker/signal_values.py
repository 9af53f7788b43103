"""Whatever is handed in as a measurement, as a plain JSON value, or not at all."""

import json
import math
import sys
from collections.abc import Mapping

Plain = int | float | str | bool

LARGEST_INT = 2**63 - 1
"""What readers with 64-bit columns can hold; larger ones are recorded as floats."""

LONGEST_TEXT = 1024
"""Characters. Longer texts are not measurements, and a record must stay one small write."""

LONGEST_LINE = 64 * 1024
"""Bytes. A record that needs more is not written."""

_quoted: dict[str, str] = {}
_MOST_NAMES = 1000


def plain(value: object) -> Plain | None:
    """The value as a number, a text or a truth value; None where it has no such form. Never raises.

    Not-finite numbers are the strings NaN, Infinity, -Infinity. Tensors of one element are read only
    on the CPU, where that waits for nothing: on a device it would synchronise, and for subclasses
    (DTensor, results of asynchronous collectives) it could communicate.
    """
    try:
        return _plain(value)
    except Exception:
        return None


def line(record: Mapping[str, object]) -> tuple[bytes | None, int]:
    """A record as one line of JSON, and how many of its values have no JSON form; None where it is too long.

    A value of None means not measured: it is absent and not counted. By hand, in one loop: half the time of
    the general encoder, which matters when caches are cold.
    """
    known, parts, lost = _quoted, [], 0
    for name, value in record.items():
        key = known.get(name) or _quote(name)
        kind = type(value)
        # Not true of NaN and of infinities.
        if (kind is float or kind is int) and -LARGEST_INT <= value <= LARGEST_INT:  # type: ignore[operator]
            parts.append(f"{key}{value!r}")
        elif value is not None:
            found = plain(value)
            if found is None:
                lost += 1
            else:
                parts.append(key + json.dumps(found))
    text = "{" + ",".join(parts) + "}\n"
    return (text.encode() if len(text) <= LONGEST_LINE else None), lost


def _quote(name: str) -> str:
    if len(_quoted) >= _MOST_NAMES:
        _quoted.clear()
    _quoted[name] = quoted = json.dumps(name if name.isascii() else _clean(name)) + ":"
    return quoted


def _plain(value: object) -> Plain | None:
    if isinstance(value, bool):
        return value
    # The base classes' own conversions: a subclass's could run anybody's code.
    if isinstance(value, int):
        whole = int.__int__(value)
        return whole if -LARGEST_INT <= whole <= LARGEST_INT else float(whole)
    if isinstance(value, float):
        number = float.__float__(value)
        if math.isfinite(number):
            return number
        return "NaN" if math.isnan(number) else "Infinity" if number > 0 else "-Infinity"
    if isinstance(value, str):
        text = str.__str__(value)
        return _clean(text) if len(text) <= LONGEST_TEXT else None
    return _plain(value.item()) if _can_be_read(value) else None  # type: ignore[attr-defined]


def _can_be_read(value: object) -> bool:
    """Whether `value.item()` gives a number at once: one element, in host memory, no code of a subclass."""
    torch, numpy = sys.modules.get("torch"), sys.modules.get("numpy")
    if torch is not None and type(value) in (torch.Tensor, torch.nn.Parameter):
        return bool(value.device.type == "cpu" and value.numel() == 1)  # type: ignore[attr-defined]
    return numpy is not None and isinstance(value, numpy.generic)


def _clean(text: str) -> str:
    """Without lone surrogates, which strict readers of JSON refuse."""
    return text.encode("utf-8", "replace").decode()
