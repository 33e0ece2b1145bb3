"""How numbers are written for people, wherever they are shown: one way for sizes, one for measured values."""

from __future__ import annotations

import math


def byte_size(count: float) -> str:
    """Bytes in words: `3.2 GiB`, `512 MiB`."""
    for unit, one in (("TiB", 2**40), ("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if count >= one:
            return f"{count / one:.1f} {unit}" if count < 100 * one else f"{count / one:.0f} {unit}"
    return f"{count:.0f} B"


def number(value: float) -> str:
    """A measured value: `112,620`, `2.3021`, `0.0412`, `2e-05`; counts keep no decimals."""
    if not math.isfinite(value) or abs(value) >= 1e15:
        return f"{value:.4g}"
    if abs(value) >= 1000 or value == int(value):
        return f"{value:,.0f}"
    return f"{value:.4f}" if abs(value) >= 0.01 else f"{value:.3g}"
