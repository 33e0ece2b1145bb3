"""Best-fit-decreasing packing: several short rows in one sequence, rows whole."""

from __future__ import annotations

from collections.abc import Sequence


def pack(lengths: Sequence[int], room: int) -> list[list[int]]:
    """Rows (by index) per sequence of at most `room` tokens, longest rows first, each into the fullest sequence it
    still fits. Sequences come in the order of their first row, so the same input gives the same packing.

    Best fit decreasing, as in "Fewer Truncations Improve Language Modeling" (arXiv 2404.10830). Time grows with
    rows, not with rows times sequences: the free room of all open sequences is one bit set. Lengths must be <= room.
    """
    order = sorted(range(len(lengths)), key=lambda row: (-lengths[row], row))
    packs: list[list[int]] = []
    open_by_room: dict[int, list[int]] = {}
    rooms = 0
    for row in order:
        length = lengths[row]
        fitting = rooms >> length
        if fitting:
            free = length + (fitting & -fitting).bit_length() - 1
            chosen = open_by_room[free].pop()
            if not open_by_room[free]:
                rooms ^= 1 << free
        else:
            chosen, free = len(packs), room
            packs.append([])
        packs[chosen].append(row)
        left = free - length
        if left > 0:
            open_by_room.setdefault(left, []).append(chosen)
            rooms |= 1 << left
    for rows in packs:
        rows.sort()
    packs.sort(key=lambda rows: rows[0])
    return packs
