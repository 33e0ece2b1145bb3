"""What training tests do in a forked child: run a job through the real worker, or the same by a hand-written script."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

GENERATION = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' }}{% if message['role'] == 'assistant' %}"
    "{% generation %}{{ message['content'] + '<|im_end|>' }}{% endgeneration %}{{ '\n' }}{% else %}"
    "{{ message['content'] + '<|im_end|>\n' }}{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
"""ChatML as tests.tiny has it, with the marks trl needs to find the assistant's turns."""


def submit(job: dict[str, Any], home: str) -> str:
    """A run folder for `job`, resolved as the command line would; its path."""
    from core.job.machine import Machine
    from core.job.plan import make_plan
    from core.job.spec import JobSpec
    from core.runs.folder import create_run

    machine = Machine("test", "3", cores=2, memory=8 << 30, memory_free=8 << 30)
    plan = make_plan(JobSpec.model_validate(job), Path(home), machine)
    run = create_run(Path(home), json.dumps(job), plan.job, plan.model_dump(mode="json"))
    return str(run.path)


def work(run_dir: str, stop_at: int | None = None) -> dict[str, Any]:
    """Run the worker on a run folder in this process; its exit code, metrics by step and last events.

    `stop_at` asks for a stop while that step is running, as the stop file does.
    """
    from core.training.worker import main

    if stop_at is not None:
        _stop_during(Path(run_dir), stop_at)
    skipped = _count_batches_without_padding()
    code = main(run_dir)
    text = (Path(run_dir) / "events.jsonl").read_text("utf-8")
    events = [json.loads(line) for line in text.split("\n") if line]  # an answer may hold other line breaks
    metrics = [(str(event["step"]), event["values"]) for event in events if event["event"] == "metric"]
    return {
        "code": code,
        "losses": {step: values["loss"] for step, values in metrics if "loss" in values},
        "eval_losses": {step: values["eval_loss"] for step, values in metrics if "eval_loss" in values},
        "events": events,
        "padding_free": len(skipped) > 1,  # the first is the proof on two short rows
    }


def _count_batches_without_padding() -> list[int]:
    """A list that grows with every batch that really goes through without padding in this process."""
    from core.training import padding_free

    seen: list[int] = []
    plain = padding_free._no_mask

    def counted(input_ids: Any) -> Any:
        seen.append(input_ids.shape[0])
        return plain(input_ids)

    padding_free._no_mask = counted
    return seen


def train(job: dict[str, Any], home: str) -> dict[str, Any]:
    """Submit and work in one: the result of `work` with the run folder under `run`."""
    run_dir = submit(job, home)
    return {**work(run_dir), "run": run_dir}


def train_from(job: dict[str, Any], home: str, base: str) -> dict[str, Any]:
    """Train all weights: what was logged of each step, and by how much the furthest weight moved from the base."""
    done = train(job, home)
    finished = done["code"] == 0
    return {
        "code": done["code"],
        "last": done["events"][-1],
        "metrics": [event["values"] for event in done["events"] if event["event"] == "metric"],
        "moved": largest_difference(f"{done['run']}/model", base) if finished else None,
    }


def each(what: str, cases: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """A function of this module for several cases, one after the other in this process; its results by their names."""
    return {name: globals()[what](**case) for name, case in cases.items()}


def _stop_during(run_dir: Path, step: int) -> None:
    from transformers import TrainerControl, TrainerState

    from core.training import callbacks

    begin = callbacks.RunCallback.on_step_begin

    def ask(self: Any, args: Any, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        if state.global_step + 1 == step:
            (run_dir / "stop").touch()
        begin(self, args, state, control, **kwargs)

    callbacks.RunCallback.on_step_begin = ask  # type: ignore[method-assign] - this process ends with the test


def weights(folder: str) -> dict[str, str]:
    """A digest per tensor of the safetensors files in a folder."""
    import hashlib

    import torch
    from safetensors.torch import load_file

    found = {}
    for path in sorted(Path(folder).glob("*.safetensors")):
        for name, tensor in load_file(path).items():
            found[name] = hashlib.sha256(tensor.contiguous().view(torch.uint8).numpy().tobytes()).hexdigest()
    return found


def plain_trl_sft(
    model: str, rows: list[dict[str, Any]], out: str, settings: dict[str, Any], lora: dict[str, Any] | None
) -> list[float]:
    """The script a user would write by hand with trl 1.12: losses per step."""
    import torch
    from datasets import Dataset
    from peft import LoraConfig
    from transformers import AutoModelForCausalLM, AutoTokenizer, set_seed
    from trl import SFTConfig, SFTTrainer

    set_seed(42)
    tokenizer = AutoTokenizer.from_pretrained(model)
    chats = "messages" in rows[0]
    if chats:
        tokenizer.chat_template = GENERATION
    arguments = SFTConfig(
        output_dir=out,
        use_cpu=True,
        bf16=False,
        gradient_checkpointing=False,
        report_to="none",
        disable_tqdm=True,
        save_strategy="no",
        assistant_only_loss=chats,
        logging_steps=1,
        seed=42,
        optim="adamw_torch_fused",
        **settings,
    )
    base = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32)
    torch.manual_seed(42)
    trainer = SFTTrainer(
        base,
        arguments,
        train_dataset=Dataset.from_list(rows),
        processing_class=tokenizer,
        peft_config=LoraConfig(task_type="CAUSAL_LM", target_modules="all-linear", **lora) if lora else None,
    )
    trainer.train()
    return [record["loss"] for record in trainer.state.log_history if "loss" in record]


def count(job: dict[str, Any], home: str) -> dict[str, Any]:
    """What `factory plan` counts for a job."""
    from core.job.spec import JobSpec
    from core.training.measure import measure

    return measure(JobSpec.model_validate(job), Path(home)).model_dump()


def train_with_nan(job: dict[str, Any], home: str, at_step: int) -> dict[str, Any]:
    """Train, with a weight turned into NaN just before a step."""
    import torch

    from core.training import callbacks

    begin = callbacks.RunCallback.on_step_begin

    def poison(self: Any, args: Any, state: Any, control: Any, model: Any = None, **kwargs: Any) -> None:
        if state.global_step + 1 == at_step:
            with torch.no_grad():
                next(model.parameters()).fill_(float("nan"))
        begin(self, args, state, control, **kwargs)

    callbacks.RunCallback.on_step_begin = poison  # type: ignore[method-assign] - this process ends with the test
    return train(job, home)


def packed_against_separate(model: str, restart: bool = True) -> list[float]:
    """Largest difference of the logits of three rows in one sequence from those of each row alone.

    With `restart=False` the position ids run on, as if nobody had told the rows apart.
    """
    import torch
    from transformers import AutoModelForCausalLM

    loaded = AutoModelForCausalLM.from_pretrained(model).eval()
    generator = torch.Generator().manual_seed(0)
    rows = [torch.randint(5, 300, (length,), generator=generator) for length in (9, 14, 5)]
    ids = torch.cat(rows)[None]
    positions = torch.cat([torch.arange(len(row)) for row in rows]) if restart else torch.arange(ids.shape[1])
    with torch.no_grad():
        packed = loaded(input_ids=ids, position_ids=positions[None], use_cache=False).logits[0]
        apart = [loaded(input_ids=row[None], use_cache=False).logits[0] for row in rows]
    pieces = packed.split([len(row) for row in rows])
    return [float((piece - alone).abs().max()) for piece, alone in zip(pieces, apart, strict=True)]


TIGHT = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
"""ChatML with nothing behind the end mark: trl cuts answers by the prompt's length, so its mask equals ours here."""


def plain_trl_preference(
    stage: str,
    model: str,
    rows: list[dict[str, Any]],
    out: str,
    settings: dict[str, Any],
    lora: dict[str, Any] | None,
) -> list[float]:
    """The script a user would write by hand with trl 1.12 for reward, dpo, simpo, cpo, kto or orpo: losses per step."""
    import torch
    import trl
    from datasets import Dataset
    from peft import LoraConfig
    from transformers import AutoModelForCausalLM, AutoModelForSequenceClassification, AutoTokenizer, set_seed
    from trl.experimental import cpo, orpo

    names = {
        "reward": (trl.RewardConfig, trl.RewardTrainer),
        "dpo": (trl.DPOConfig, trl.DPOTrainer),
        "kto": (trl.KTOConfig, trl.KTOTrainer),
        "orpo": (orpo.ORPOConfig, orpo.ORPOTrainer),
        "simpo": (cpo.CPOConfig, cpo.CPOTrainer),
        "cpo": (cpo.CPOConfig, cpo.CPOTrainer),
    }
    config, trainer_class = names[stage]
    extra = {"loss_type": "simpo", "cpo_alpha": 0.0} if stage == "simpo" else {}
    set_seed(42)
    tokenizer = AutoTokenizer.from_pretrained(model)
    tokenizer.chat_template = TIGHT
    if stage == "reward":
        base = AutoModelForSequenceClassification.from_pretrained(model, num_labels=1, dtype=torch.float32)
        base.config.pad_token_id = tokenizer.pad_token_id
    else:
        base = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32)
    arguments = config(
        output_dir=out,
        use_cpu=True,
        bf16=False,
        gradient_checkpointing=False,
        report_to="none",
        disable_tqdm=True,
        save_strategy="no",
        logging_steps=1,
        seed=42,
        optim="adamw_torch_fused",
        max_length=256,
        **extra,
        **settings,
    )
    torch.manual_seed(42)
    dataset = Dataset.from_list(rows)
    task = "SEQ_CLS" if stage == "reward" else "CAUSAL_LM"
    trainer = trainer_class(
        base,
        args=arguments,
        train_dataset=dataset.shuffle(seed=42) if stage == "kto" else dataset,
        processing_class=tokenizer,
        peft_config=LoraConfig(task_type=task, target_modules="all-linear", **lora) if lora else None,
    )
    trainer.train()
    return [record["loss"] for record in trainer.state.log_history if "loss" in record]


def file_with(path: str, text: str) -> str:
    """Write a text file; its path."""
    Path(path).write_text(text, "utf-8")
    return path


def plain_trl_online(
    stage: str,
    model: str,
    rows: list[dict[str, Any]],
    out: str,
    settings: dict[str, Any],
    lora: dict[str, Any] | None,
) -> list[dict[str, float]]:
    """The script a user would write by hand with trl 1.12 for grpo or rloo: what it logs of each step.

    The reward is 0 from 40 to 80 characters, and falls evenly to -1 over 40 beyond. The model goes to `out`/model.
    """
    import torch
    from datasets import Dataset
    from peft import LoraConfig
    from transformers import AutoModelForCausalLM, AutoTokenizer, set_seed
    from trl import GRPOConfig, GRPOTrainer, RLOOConfig, RLOOTrainer

    config, trainer_class = {"grpo": (GRPOConfig, GRPOTrainer), "rloo": (RLOOConfig, RLOOTrainer)}[stage]

    def long(completions: list[Any], **kwargs: Any) -> list[float]:
        lengths = [len(completion[0]["content"]) for completion in completions]
        return [-min(1.0, max(0, 40 - length, length - 80) / 40) for length in lengths]

    set_seed(42)
    tokenizer = AutoTokenizer.from_pretrained(model)
    base = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32)
    arguments = config(
        output_dir=out,
        use_cpu=True,
        bf16=False,
        gradient_checkpointing=False,
        report_to="none",
        disable_tqdm=True,
        save_strategy="no",
        logging_steps=1,
        seed=42,
        optim="adamw_torch_fused",
        **settings,
    )
    torch.manual_seed(42)
    trainer = trainer_class(
        base,
        reward_funcs=[long],
        args=arguments,
        train_dataset=Dataset.from_list(rows),
        processing_class=tokenizer,
        peft_config=LoraConfig(task_type="CAUSAL_LM", target_modules="all-linear", **lora) if lora else None,
    )
    trainer.train()
    trainer.model.save_pretrained(f"{out}/model", selected_adapters=["default"] if lora else None)
    return [record for record in trainer.state.log_history if "loss" in record]


def largest_difference(ours: str, theirs: str) -> float:
    """The largest difference between the weights of two folders, which must have the same names."""
    from safetensors.torch import load_file

    tensors = [
        {
            name: one
            for file in sorted(Path(folder).glob("*.safetensors"))
            for name, one in load_file(file).items()
        }
        for folder in (ours, theirs)
    ]
    assert tensors[0].keys() == tensors[1].keys() and tensors[0]
    return max(float((tensors[0][name] - tensors[1][name]).abs().max()) for name in tensors[0])


def adapter_loss(base: str, adapter: str, rows: list[list[dict[str, str]]]) -> dict[str, float]:
    """Mean loss of the plain base and of the base with an adapter, loaded as a user would load them."""
    import torch
    from peft import PeftModel
    from transformers import AutoModelForCausalLM, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(base)
    model = AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32).eval()

    def loss(one: Any) -> float:
        with torch.no_grad():
            losses = []
            for row in rows:
                ids = tokenizer.apply_chat_template(row, return_tensors="pt", return_dict=True)["input_ids"]
                losses.append(float(one(input_ids=ids, labels=ids).loss))
        return sum(losses) / len(losses)

    plain = loss(model)
    return {"base": plain, "adapter": loss(PeftModel.from_pretrained(model, adapter).eval())}


def library_optimizers() -> list[str]:
    """The optimizer names of the installed transformers."""
    from transformers.training_args import OptimizerNames

    return [name.value for name in OptimizerNames]


def states_without_padding(architecture: str, window: int = 64) -> dict[str, Any]:
    """Largest difference of the real tokens' states with and without padding, left and right, and why not, if not."""
    import torch
    import transformers

    from core.training import padding_free
    from tests.tiny import small_sizes

    torch.manual_seed(0)
    config = getattr(transformers, f"{architecture}Config")(vocab_size=100, pad_token_id=0)
    known: dict[str, Any] = {**small_sizes(config), "attn_implementation": "sdpa"}
    if hasattr(config, "sliding_window"):
        known["sliding_window"] = window
    config = getattr(transformers, f"{architecture}Config")(vocab_size=100, pad_token_id=0, **known)
    model = transformers.AutoModelForCausalLM.from_config(config).eval()
    experts = getattr(config, "output_router_logits", None) is not None
    asked = {"use_cache": False, **({"output_router_logits": True} if experts else {})}
    ids = torch.randint(5, 90, (3, 12))
    right = (torch.arange(12) < torch.tensor([[12], [5], [8]])).long()
    masks = [right, right.flip(1)]
    with torch.no_grad():
        before = [model(input_ids=ids, attention_mask=mask, **asked) for mask in masks]
        reason = padding_free.install(model)
        after = [model(input_ids=ids, attention_mask=mask, **asked) for mask in masks]
    pairs = zip(before, after, masks, strict=True)
    differences = [float((a.logits - b.logits)[m.bool()].abs().max()) for a, b, m in pairs]
    if experts:  # the mean load of each expert times its mean probability: 1 by even shares, here not
        differences += [float((a.aux_loss - b.aux_loss).abs()) for a, b in zip(before, after, strict=True)]
    return {"reason": reason, "difference": max(differences), "experts": experts}


def train_with_wild_weights(job: dict[str, Any], home: str, at_step: int) -> dict[str, Any]:
    """Train, with the output weights blown up just before a step."""
    import torch

    from core.training import callbacks

    begin = callbacks.RunCallback.on_step_begin

    def blow_up(self: Any, args: Any, state: Any, control: Any, model: Any = None, **kwargs: Any) -> None:
        if state.global_step + 1 == at_step:
            with torch.no_grad():
                model.get_output_embeddings().weight.mul_(300)
        begin(self, args, state, control, **kwargs)

    callbacks.RunCallback.on_step_begin = blow_up  # type: ignore[method-assign] - this process ends with the test
    return train(job, home)


def tensorboard_losses(folder: str) -> dict[str, float]:
    """The losses in tensorboard's files, by step."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    reader = EventAccumulator(folder)
    reader.Reload()
    return {str(event.step): event.value for event in reader.Scalars("train/loss")}


def train_limited(job: dict[str, Any], home: str, kind: str, room: int) -> dict[str, Any]:
    """Train with a limit of the kernel on this process: `room` bytes more address space (AS), or per file (FSIZE)."""
    import re
    import resource
    import signal

    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    if kind == "AS":
        size = re.search(r"VmSize:\s+(\d+)", Path("/proc/self/status").read_text())
        assert size is not None
        room += int(size.group(1)) * 1024
    resource.setrlimit(getattr(resource, f"RLIMIT_{kind}"), (room, resource.RLIM_INFINITY))
    return train(job, home)


def train_with_rewards(job: dict[str, Any], home: str, folder: str) -> dict[str, Any]:
    """Train where the operator allows reward files from a folder."""
    import os

    os.environ["FACTORY_REWARDS_DIR"] = folder
    return train(job, home)


def save_judge(folder: str) -> str:
    """A classifier with one label whose tokenizer is another one than the tiny model's."""
    import torch
    from transformers import LlamaConfig, LlamaForSequenceClassification

    from tests.tiny import tiny_tokenizer

    torch.manual_seed(0)
    sizes = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 1, "num_attention_heads": 2}
    config = LlamaConfig(vocab_size=330, num_labels=1, pad_token_id=0, **sizes)
    LlamaForSequenceClassification(config).save_pretrained(folder)
    tiny_tokenizer(vocab_size=330).save_pretrained(folder)
    return folder


def probe(job: dict[str, Any], home: str) -> dict[str, Any]:
    """What `factory plan --probe` measures for a job."""
    from core.job.machine import Machine
    from core.job.plan import make_plan
    from core.job.spec import JobSpec
    from core.training.probe import probe as measure

    machine = Machine("test", "3", cores=2, memory=8 << 30, memory_free=8 << 30)
    return measure(make_plan(JobSpec.model_validate(job), Path(home), machine).job_spec, Path(home))


def sampled(job: dict[str, Any], home: str, prompts: list[Any], count: int, tokens: int) -> list[list[str]]:
    """What `factory rewards try` samples."""
    from core.job.spec import JobSpec
    from core.training.bench import sample

    return sample(JobSpec.model_validate(job), Path(home), prompts, count, tokens)


def share_right(model: str, rows: list[dict[str, Any]], count: int, seed: int) -> float:
    """The share of `count` sampled answers to each plain prompt that are its answer and nothing else."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer, set_seed

    tokenizer = AutoTokenizer.from_pretrained(model)
    loaded = AutoModelForCausalLM.from_pretrained(model).eval()
    set_seed(seed)
    right = 0
    for row in rows:
        ids = torch.tensor([tokenizer(row["prompt"])["input_ids"]] * count)
        out = loaded.generate(
            input_ids=ids,
            attention_mask=torch.ones_like(ids),
            do_sample=True,
            top_k=0,
            max_new_tokens=4,
            eos_token_id=tokenizer.eos_token_id,
            pad_token_id=tokenizer.pad_token_id,
        )
        texts = tokenizer.batch_decode(out[:, ids.shape[1] :], skip_special_tokens=True)
        right += sum(text.strip() == row["answer"] for text in texts)
    return right / (count * len(rows))


def metrics_left_over(job: dict[str, Any], home: str) -> dict[str, Any]:
    """Train, and the names of held-out metrics that the baseline's evaluation left for the next record."""
    from core.training import session

    left: list[str] = []
    plain = session.held_out_loss

    def looked(trainer: Any) -> float:
        loss = plain(trainer)
        for kept in (getattr(trainer, "_metrics", {}), getattr(trainer, "_stored_metrics", {})):
            left.extend(name for name, values in kept.get("eval", {}).items() if values)
        return loss

    session.held_out_loss = looked
    return {**train(job, home), "left": left}


def answers(model: str, prompts: list[str]) -> dict[str, Any]:
    """Answers to prompts together, one by one, and in batches that hold one each."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    from core.training import samples

    loaded = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32)
    tokenizer = AutoTokenizer.from_pretrained(model)
    tokenizer.pad_token = tokenizer.pad_token or tokenizer.eos_token
    told: dict[str, Any] = {
        "together": samples.answer_prompts(loaded, tokenizer, prompts, 8),
        "alone": [samples.answer_prompts(loaded, tokenizer, [one], 8)[0] for one in prompts],
    }
    samples.TOKENS = 1
    told["longest_batch"] = max(map(len, samples._batches([5, 9, 3], 8)))
    return {**told, "in_batches": samples.answer_prompts(loaded, tokenizer, prompts, 8)}


def kl_pairs(count: int, batch: int) -> list[list[list[int]]]:
    """For rows of two tokens, of which the second is the answer: each one's answer and the one its KL is taken with."""
    from datasets import Dataset

    from core.training.feedback import split_answers

    rows = [{"input_ids": [1, n], "labels": [-100, n], "label": bool(n % 2)} for n in range(count)]
    made = split_answers(Dataset.from_list(rows), batch_size=batch, seed=42)
    return [[row["completion_ids"], row["KL_completion_ids"]] for row in made]
