"""The jobs that are measured on a GPU, and the small data they learn from."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

WORDS = "lamp harbour tide signal keeper storm boat rope chart compass ladder window evening letter engine".split()


@dataclass(frozen=True)
class Case:
    """One job and what it shows."""

    name: str
    shows: str
    stage: dict[str, Any]
    method: dict[str, Any]
    engine: str = "trl"
    gpus: int = 1
    strategy: str | None = None
    steps: int = 30
    batch: int = 8

    def job(self, model: str, data: dict[str, str]) -> dict[str, Any]:
        """The job as a job file would say it."""
        plain: dict[str, Any] = {
            "name": self.name,
            "model": model,
            "data": data[self.stage["name"]],
            "stage": self.stage,
            "method": self.method,
            "engine": self.engine,
            "train": {
                "max_steps": self.steps,
                "batch_size": self.batch,
                "gradient_accumulation": 1,
                "logging_steps": 1,
                "save_steps": 1_000_000,
            },
            "hardware": {"precision": "bf16"},
            "evaluate": {"prompts": ["What does the keeper do at dusk?"], "max_new_tokens": 16},
        }
        if self.gpus > 1:
            plain["hardware"] |= {"devices": self.gpus, "strategy": self.strategy}
        if self.stage["name"] == "grpo":
            plain["rewards"] = [{"name": "length", "unit": "words", "shortest": 5, "longest": 30, "fade": 30}]
        return plain


SFT = {"name": "sft", "max_length": 1024}
GRPO = {"name": "grpo", "num_generations": 8, "max_prompt_length": 128, "max_completion_length": 128}
LORA = {"name": "lora", "rank": 16}
QLORA = {"name": "qlora", "rank": 16}

CASES = (
    Case("sft-lora-trl", "bf16 LoRA, the base line", SFT, LORA),
    Case(
        "sft-lora-unsloth",
        "the same on Unsloth: tokens/s and memory against the line above",
        SFT,
        LORA,
        "unsloth",
    ),
    Case("sft-packed-trl", "packed rows: no padding to wait for", {**SFT, "packing": True}, LORA),
    Case("sft-packed-unsloth", "packed rows on Unsloth", {**SFT, "packing": True}, LORA, "unsloth"),
    Case("qlora-trl", "the base in 4 bits", SFT, QLORA),
    Case("qlora-unsloth", "the base in 4 bits on Unsloth", SFT, QLORA, "unsloth"),
    Case(
        "dpo-lora-unsloth", "pairs on Unsloth", {"name": "dpo", "max_length": 1024}, LORA, "unsloth", batch=4
    ),
    Case("grpo-trl", "answers by the trainer itself", GRPO, LORA, steps=8),
    Case("grpo-vllm-trl", "answers by vLLM on the same GPU", {**GRPO, "vllm": "colocate"}, LORA, steps=8),
    Case("grpo-unsloth", "GRPO on Unsloth", GRPO, LORA, "unsloth", steps=8),
    Case(
        "sft-full-fsdp2",
        "every weight, shared out by torch over two GPUs",
        SFT,
        {"name": "full"},
        gpus=2,
        strategy="fsdp2",
    ),
    Case(
        "sft-full-zero3",
        "every weight, shared out by DeepSpeed over two GPUs",
        SFT,
        {"name": "full"},
        gpus=2,
        strategy="deepspeed-3",
    ),
)


def write_data(folder: Path) -> dict[str, str]:
    """Rows of our own making; paths by stage."""
    folder.mkdir(parents=True, exist_ok=True)
    chats, pairs, prompts = [], [], []
    for number in range(512):
        noun = [WORDS[(number * step) % len(WORDS)] for step in (1, 2, 3)]
        question = f"What does the {noun[0]} do with the {noun[1]} number {number}?"
        answer = f"The {noun[0]} keeps the {noun[1]} beside the {noun[2]}. " * (1 + number % 12)
        chats.append(
            {"messages": [{"role": "user", "content": question}, {"role": "assistant", "content": answer}]}
        )
        pairs.append({"prompt": question, "chosen": answer, "rejected": "I cannot say. " * (1 + number % 5)})
        prompts.append({"prompt": question})
    written = {}
    for name, rows in (("sft", chats), ("dpo", pairs), ("grpo", prompts)):
        path = folder / f"{name}.jsonl"
        path.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
        written[name] = str(path)
    return written
