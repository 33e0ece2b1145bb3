"""The peer: the script a careful user writes with trl alone. `python benchmarks/plain_trl.py SETTINGS.json`.

Prints one JSON line per optimizer step: seconds since 1970, CPU-seconds, step, loss, tokens so far.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path


def main(settings: dict) -> None:
    import torch
    from datasets import Dataset
    from peft import LoraConfig
    from transformers import AutoModelForCausalLM, AutoTokenizer, TrainerCallback, set_seed
    from trl import SFTConfig, SFTTrainer

    class Print(TrainerCallback):
        def on_log(self, args, state, control, logs=None, **kwargs):
            if "loss" in (logs or {}):
                record = {"t": time.time(), "cpu": time.process_time(), "step": state.global_step}
                print(json.dumps({**record, "loss": logs["loss"], "tokens": logs["num_tokens"]}), flush=True)

    set_seed(42)
    tokenizer = AutoTokenizer.from_pretrained(settings["model"])
    tokenizer.chat_template = settings["template"]
    rows = [json.loads(line) for line in Path(settings["data"]).read_text("utf-8").splitlines()]
    model = AutoModelForCausalLM.from_pretrained(settings["model"], dtype=torch.float32)
    torch.manual_seed(42)
    trainer = SFTTrainer(
        model,
        SFTConfig(
            output_dir=settings["out"],
            use_cpu=True,
            bf16=False,
            gradient_checkpointing=False,
            assistant_only_loss=True,
            max_length=2048,
            logging_steps=1,
            save_strategy="no",
            report_to="none",
            disable_tqdm=True,
            seed=42,
            optim="adamw_torch_fused",
            **settings["trainer"],
        ),
        train_dataset=Dataset.from_list(rows),
        processing_class=tokenizer,
        peft_config=LoraConfig(
            task_type="CAUSAL_LM", target_modules="all-linear", r=16, lora_alpha=32, lora_dropout=0
        ),
        callbacks=[Print()],
    )
    trainer.train()
    trainer.save_model(settings["out"])


if __name__ == "__main__":
    main(json.loads(Path(sys.argv[1]).read_text("utf-8")))
