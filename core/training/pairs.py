"""Rows with a better and a worse answer, on their way to the trainers of reward, dpo, orpo and cpo.

data.prepare writes `prompt_ids`, `chosen_ids`, `rejected_ids`; what the model sees is what the preview shows. The
trainers of trl 1.12 would tokenise for themselves; here they are given our ids.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from datasets import Dataset
from torch.nn.utils.rnn import pad_sequence

IGNORED = -100


class ReadyRows(Dataset):
    """Rows that need no preparation: `map` gives them back.

    trl 1.12's ORPO and CPO trainers map their rows three times in the constructor, with no switch to leave it.
    """

    @classmethod
    def of(cls, rows: Dataset | None) -> Any:
        """The same rows, not copied."""
        if rows is None:
            return None
        ready = cls(rows.data, info=rows.info, split=rows.split, indices_table=rows._indices)
        return ready

    def map(self, *args: Any, **kwargs: Any) -> ReadyRows:
        """The rows themselves."""
        return self


@dataclass
class OddsCollator:
    """Batches for the ORPO and CPO trainers: chosen_* and rejected_* with prompt tokens masked in the labels."""

    pad_token_id: int

    def __call__(self, rows: list[dict[str, Any]]) -> dict[str, Any]:
        """Tensors of (batch, longest row), padded on the right; labels are -100 on prompts and padding."""
        batch: dict[str, Any] = {}
        for side in ("chosen", "rejected"):
            ids = [row["prompt_ids"] + row[f"{side}_ids"] for row in rows]
            labels = [[IGNORED] * len(row["prompt_ids"]) + row[f"{side}_ids"] for row in rows]
            batch[f"{side}_input_ids"] = _padded(ids, self.pad_token_id)
            batch[f"{side}_labels"] = _padded(labels, IGNORED)
            batch[f"{side}_attention_mask"] = _padded([[1] * len(row) for row in ids], 0)
        batch["prompt_input_ids"] = _padded([row["prompt_ids"] for row in rows], self.pad_token_id)
        batch["prompt_attention_mask"] = _padded([[1] * len(row["prompt_ids"]) for row in rows], 0)
        return batch


def _padded(rows: list[list[int]], value: int) -> torch.Tensor:
    return pad_sequence([torch.tensor(row) for row in rows], batch_first=True, padding_value=value)


def whole_answers(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Rows whose chosen_ids and rejected_ids begin with the prompt, as a reward model reads them."""
    return [
        {
            **row,
            "chosen_ids": row["prompt_ids"] + row["chosen_ids"],
            "rejected_ids": row["prompt_ids"] + row["rejected_ids"],
        }
        for row in rows
    ]
