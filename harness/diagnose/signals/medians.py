"""Medians of what is known: NaN stands for what is not, and counts for nothing."""

import numpy as np

from harness.diagnose.signals.columns import Floats


def middle(values: Floats) -> float:
    """The median of what is known; NaN where nothing is."""
    known = values[~np.isnan(values)]
    return float(np.median(known)) if len(known) else float("nan")


def medians(values: Floats, axis: int) -> Floats:
    """The median of what is there; NaN where nothing is."""
    nothing = np.isnan(values).all(axis=axis)
    filled = np.where(np.expand_dims(nothing, axis), 0.0, values)
    out: Floats = np.where(nothing, np.nan, np.nanmedian(filled, axis=axis))
    return out


def deviation(values: Floats) -> Floats:
    """Robust standard deviation along the last axis, of known values: 1.4826 x their median deviation."""
    away = np.abs(values - np.median(values, axis=-1, keepdims=True))
    out: Floats = 1.4826 * np.median(away, axis=-1)
    return out
