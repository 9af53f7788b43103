"""Durations on the command line: ``45``, ``45s``, ``24m``, ``3h``, ``30d``; seconds inside."""

import math

import click

_UNITS = {"s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0}


class Duration(click.ParamType):  # type: ignore[type-arg,unused-ignore] # generic in newer clicks only
    """A time above 0."""

    name = "duration"

    def convert(self, value: str | float, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Seconds; a plain number is seconds."""
        if isinstance(value, float):
            return value
        number = value.rstrip("sminhd")
        try:
            seconds = float(number) * _UNITS[value[len(number) :] or "s"]
        except (ValueError, KeyError):
            self.fail(f"{value}: give it as 45s, 24m, 3h or 30d", param, ctx)
        if not (math.isfinite(seconds) and seconds > 0):
            self.fail(f"{value}: a time above 0 is needed", param, ctx)
        return seconds


DURATION = Duration()
