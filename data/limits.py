"""The limits foreign files are read under; sources: the threat table of the house's security design, row 13."""

from __future__ import annotations

MAX_DEPTH = 64
"""Deepest nesting of a JSON record."""
MAX_LINE = 16 * 2**20
"""Longest line and longest single record, bytes."""
MAX_COLUMNS = 512
"""Most columns of a table."""
MAX_EXPANSION = 100
"""A compressed file may grow by this factor ..."""
FREE_EXPANSION = 32 * 2**20
"""... but the first so many bytes are free: short repetitive files compress well."""
MAX_EXPANDED = 20 * 2**30
"""Most bytes a compressed file may grow to."""
MAX_WHOLE_JSON = 64 * 2**20
"""Largest JSON array that is parsed in one go; larger ones are streamed element by element."""
MEMORY = 4 * 2**30
"""Address space of the parsing child, bytes."""
CPU_SECONDS = 60
"""CPU time of the parsing child, plus CPU_SECONDS_PER_GIB for large files."""
CPU_SECONDS_PER_GIB = 120
"""Further CPU seconds of the parsing child for each GiB of input."""


def depth_within(value: object, limit: int = MAX_DEPTH) -> bool:
    """True when nested dicts and lists go no deeper than `limit`. Does not recurse."""
    level = [value]
    for _ in range(limit + 1):
        below: list[object] = []
        for one in level:
            if isinstance(one, dict):
                below.extend(v for v in one.values() if isinstance(v, (dict, list)))
            elif isinstance(one, list):
                below.extend(v for v in one if isinstance(v, (dict, list)))
        if not below:
            return True
        level = below
    return False
