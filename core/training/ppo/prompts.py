"""The order in which prompts come: shuffled anew in every epoch, whole batches only, to be gone on with anywhere."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch.utils.data import DataLoader


class Prompts:
    """Batches of rows without end. Each epoch's order is drawn from torch's own generator, as in trl's PPOTrainer."""

    def __init__(self, rows: Any, batch: int) -> None:
        self._loader = DataLoader(rows, batch_size=batch, shuffle=True, collate_fn=list, drop_last=True)
        self._epoch_began = torch.get_rng_state()
        self._taken = 0
        self._epoch: Iterator[list[dict[str, Any]]] = iter(())

    def next(self) -> list[dict[str, Any]]:
        """The next batch of rows."""
        batch = next(self._epoch, None)
        if batch is None:
            self._epoch_began, self._taken = torch.get_rng_state(), 0
            self._epoch = iter(self._loader)
            batch = next(self._epoch)
        self._taken += 1
        return batch

    def state(self) -> dict[str, Any]:
        """The generator's state when this epoch began, and how many of its batches were taken."""
        return {"epoch_began": self._epoch_began, "taken": self._taken}

    def restore(self, state: dict[str, Any]) -> None:
        """Go on behind the batches that were taken. Leaves torch's generator as the epoch's beginning left it."""
        self._epoch_began, self._taken = state["epoch_began"], int(state["taken"])
        torch.set_rng_state(self._epoch_began)
        self._epoch = iter(self._loader)
        for _ in range(self._taken):
            next(self._epoch)
