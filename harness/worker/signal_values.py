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


def add_fields(record: dict[str, Plain], fields: Mapping[str, object]) -> int:
    """Add measurements to a record, after what it has; returns how many have no JSON form.

    None means not measured: it is absent and not counted.
    """
    lost = 0
    for name, value in fields.items():
        kind = type(value)
        if not (
            (kind is float and math.isfinite(value))  # type: ignore[arg-type]
            or (kind is int and -LARGEST_INT <= value <= LARGEST_INT)  # type: ignore[operator]
        ):
            if value is None:
                continue
            value = plain(value)
            if value is None:
                lost += 1
                continue
        record[name if name.isascii() else _clean(name)] = value  # type: ignore[assignment]
    return lost


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


def line(record: dict[str, Plain]) -> bytes | None:
    """A record of plain, finite values as one line of JSON; None where it is too long.

    By hand: half the time of the general encoder, which matters more when caches are cold.
    """
    parts = []
    for name, value in record.items():
        key = _quoted.get(name) or _quote(name)
        kind = type(value)
        if kind is float or kind is int:
            parts.append(f"{key}{value!r}")
        else:
            parts.append(key + json.dumps(value))
    text = "{" + ",".join(parts) + "}\n"
    return text.encode() if len(text) <= LONGEST_LINE else None


def _quote(name: str) -> str:
    if len(_quoted) >= _MOST_NAMES:
        _quoted.clear()
    _quoted[name] = quoted = json.dumps(name) + ":"
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
