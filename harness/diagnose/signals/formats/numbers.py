"""Numbers as logs print them."""

import math
import re

_NUMBER = re.compile(
    r"[-+]?(?:\d[\d,]*(?:\.\d*)?|\.\d+)(?:[eE][-+]?\d+)?|[-+]?(?:nan|inf(?:inity)?)", re.IGNORECASE
)


def number(text: str) -> float | None:
    """A number, thousands separators allowed; None for anything else (``N/A``, a torn one).

    A NaN or an infinity is plus or minus infinity: recorded, and not finite.
    """
    if not _NUMBER.fullmatch(text) or not text.isascii():
        return None
    value = float(text.replace(",", ""))
    return math.inf if math.isnan(value) else value
