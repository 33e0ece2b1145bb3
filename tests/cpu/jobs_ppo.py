"""What the PPO tests do in a forked child: the same training by a hand-written script with trl 1.12."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.cpu.jobs import TIGHT


def plain_trl_ppo(
    model: str,
    reward: str,
    prompts: list[str],
    out: str,
    settings: dict[str, Any],
    lora: dict[str, Any] | None,
) -> list[dict[str, float]]:
    """The script a user would write by hand with trl 1.12's experimental PPOTrainer: metrics per update.

    The trained policy is saved under `out`/policy. Reward and value model both start from the folder `reward`.
    """
    import torch
    from datasets import Dataset
    from peft import LoraConfig
    from transformers import (
        AutoModelForCausalLM,
        AutoModelForSequenceClassification,
        AutoTokenizer,
        set_seed,
    )
    from trl.experimental.ppo import PPOConfig, PPOTrainer

    set_seed(42)
    tokenizer = AutoTokenizer.from_pretrained(model, padding_side="left")
    tokenizer.chat_template = TIGHT

    def ids(prompt: str) -> list[int]:
        turns = [{"role": "user", "content": prompt}]
        return tokenizer.apply_chat_template(turns, add_generation_prompt=True)["input_ids"]

    classifiers = [
        AutoModelForSequenceClassification.from_pretrained(reward, num_labels=1, dtype=torch.float32)
        for _ in range(2)
    ]
    base = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32)
    arguments = PPOConfig(
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
        stop_token="eos",
        num_sample_generations=0,
        **settings,
    )
    torch.manual_seed(42)
    trainer = PPOTrainer(
        args=arguments,
        processing_class=tokenizer,
        model=base,
        ref_model=None,
        reward_model=classifiers[0],
        value_model=classifiers[1],
        train_dataset=Dataset.from_list([{"input_ids": ids(prompt)} for prompt in prompts]),
        peft_config=LoraConfig(task_type="CAUSAL_LM", target_modules="all-linear", **lora) if lora else None,
    )
    trainer.train()
    trainer.model.policy.save_pretrained(Path(out) / "policy")
    return [record for record in trainer.state.log_history if "objective/kl" in record]


def largest_difference(folders: list[str]) -> float:
    """The largest difference between any two weights of the same place in two saved models."""
    from safetensors.torch import load_file

    one, other = (
        {name: w for file in sorted(Path(f).glob("*.safetensors")) for name, w in load_file(file).items()}
        for f in folders
    )
    assert one.keys() == other.keys() and one
    return max(float((one[name] - other[name]).abs().max()) for name in one)


def scored_both_ways(policy: str, reward: str, prompts: list[str], answers: list[str]) -> list[list[float]]:
    """Scores of whole answers by a reward model from the policy's token ids, and from text."""
    import torch
    from transformers import AutoTokenizer

    from core.rewards import Setting, build_scorers
    from core.rewards.model import Spec
    from core.training.ppo.rollout import Answers, padded_left
    from core.training.ppo.scoring import TokenScorer

    tokenizer = AutoTokenizer.from_pretrained(policy)
    setting = Setting(home=Path(reward), emit=lambda finding: None)
    (named,) = build_scorers([Spec(source=reward)], setting)
    asked = [
        tokenizer.apply_chat_template([{"role": "user", "content": prompt}], add_generation_prompt=True)[
            "input_ids"
        ]
        for prompt in prompts
    ]
    given = [[*tokenizer(answer)["input_ids"], tokenizer.eos_token_id] for answer in answers]
    ids, mask = padded_left(asked, tokenizer.pad_token_id, "cpu")
    longest = max(map(len, given)) + 2
    tokens = torch.tensor([row + [tokenizer.pad_token_id] * (longest - len(row)) for row in given])
    lengths = torch.tensor([len(row) for row in given])
    rolled = Answers(
        ids=torch.cat([ids, tokens], 1),
        mask=torch.cat([mask, torch.arange(longest) < lengths[:, None]], 1),
        prompt_length=ids.shape[1],
        lengths=lengths,
        ended=torch.ones(len(given), dtype=torch.bool),
        logprobs=torch.zeros(len(given), longest),
    )
    by_ids = TokenScorer(named.scorer, tokenizer, 3)(rolled)
    messages = [[{"role": "user", "content": prompt}] for prompt in prompts]
    return [by_ids, named(answers, {"prompt": prompts, "messages": messages})]


def widen_tokenizer(folder: str) -> None:
    """Give the tokenizer in a folder one token more."""
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder)
    tokenizer.add_tokens(["lighthouses"])
    tokenizer.save_pretrained(folder)


def answer_ends(rows: list[list[int]], eos: int, pad: int) -> list[list[Any]]:
    """Lengths of answers, and whether they have their end mark."""
    import torch

    from core.training.ppo.rollout import ends

    return [found.tolist() for found in ends(torch.tensor(rows), eos, pad)]


def advantages(
    rewards: list[list[float]], values: list[list[float]], gamma: float, lam: float
) -> list[list[list[float]]]:
    """Advantages and returns."""
    import torch

    from core.training.ppo.maths import advantages_and_returns

    found = advantages_and_returns(torch.tensor(rewards), torch.tensor(values), gamma, lam)
    return [one.tolist() for one in found]


def stopped_in(phase: str, job: dict[str, Any], home: str) -> dict[str, Any]:
    """Train, with SIGTERM sent to this process in the middle of the second update: while it `answer`s or `learn`s."""
    import os
    import signal

    from core.training.ppo import loop
    from tests.cpu.jobs import train

    real, calls = getattr(loop, phase), []

    def signalled(*args: Any, **kwargs: Any) -> Any:
        calls.append(phase)
        if len(calls) == 2:
            os.kill(os.getpid(), signal.SIGTERM)
        return real(*args, **kwargs)

    setattr(loop, phase, signalled)
    return {**train(job, home), "calls": len(calls)}
