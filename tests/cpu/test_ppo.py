"""PPO through the real worker: plain trl's numbers bit for bit, it teaches, and a resumed run is the run itself."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

from core.job.checks import check
from core.job.machine import Machine
from core.job.presets import resolve
from core.job.spec import JobSpec
from core.runs import checkpoints
from core.runs.folder import Run
from core.training.rows import settings_of
from data.errors import Finding
from tests.cpu.conftest import next_attempt, write_rows
from tests.cpu.jobs import TIGHT
from tests.zygote import Zygote

LORA = {"r": 8, "lora_alpha": 16, "lora_dropout": 0.0}
EVERY_SETTING = {
    "kl_estimator": "k3",
    "kl_coef": 0.1,
    "missing_eos_penalty": 1.0,
    "whiten_rewards": True,
    "num_mini_batches": 2,
    "num_ppo_epochs": 2,
    "gamma": 0.99,
    "lam": 0.9,
    "cliprange": 0.1,
    "cliprange_value": 0.1,
    "vf_coef": 0.5,
    "temperature": 1.0,
    "local_rollout_forward_batch_size": 8,
}
NAMES = {
    "loss/policy": "loss/policy_avg",
    "loss/value": "loss/value_avg",
    "reward/mean": "objective/scores",
    "objective": "objective/rlhf_reward",
    "kl/answer": "objective/kl",
    "clip_ratio": "policy/clipfrac_avg",
    "clip_ratio/value": "val/clipfrac_avg",
    "learning_rate": "lr",
}
"""Our names of what trl logs."""


def question(number: int) -> str:
    """A question of the tests."""
    return f"What is {number} and {number}?"


def gibberish(number: int) -> str:
    """Twenty characters such as a model with random weights might say."""
    chance = random.Random(number)
    return "".join(chance.choice("abcdefghijklmnopqrstuvwxyz0123456789?!&%{}/") for _ in range(20))


def pairs(count: int) -> list[dict[str, Any]]:
    """Questions with a proper answer and a senseless one."""
    return [
        {
            "prompt": [{"role": "user", "content": question(n)}],
            "chosen": [{"role": "assistant", "content": f"It is {2 * n}, of course{' yes' * (n % 3)}."}],
            "rejected": [{"role": "assistant", "content": gibberish(n)}],
        }
        for n in range(count)
    ]


def prompts(count: int) -> list[dict[str, Any]]:
    """Questions alone."""
    return [{"prompt": [{"role": "user", "content": question(n)}]} for n in range(count)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of this file's tests."""
    return tmp_path_factory.mktemp("ppo")


@pytest.fixture(scope="module")
def template(zygote: Zygote, folder: Path) -> str:
    """A chat template with nothing behind the end mark, as trl's own loop has it."""
    return zygote.call("tests.cpu.jobs:file_with", path=str(folder / "tight.jinja"), text=TIGHT)


def trained_reward(zygote: Zygote, tiny: str, folder: Path, method: Any, template: str | None) -> str:
    """The folder of a reward model that our own reward stage has trained."""
    folder.mkdir(parents=True, exist_ok=True)
    job = {
        "model": {"name": tiny, "template": template},
        "data": write_rows(folder / "pairs.jsonl", pairs(64)),
        "stage": "reward",
        "method": method,
        "train": {"batch_size": 8, "gradient_accumulation": 1, "max_steps": 24, "learning_rate": 3e-3},
    }
    done = zygote.call("tests.cpu.jobs:train", job=job, home=str(folder / "home"))
    assert done["code"] == 0, done["events"][-1]
    return f"{done['run']}/model"


@pytest.fixture(scope="module")
def reward(zygote: Zygote, tiny: str, folder: Path, template: str) -> str:
    """A reward model, trained in full."""
    return trained_reward(zygote, tiny, folder / "full", "full", template)


@pytest.fixture(scope="module")
def data(folder: Path) -> str:
    """A file of sixty prompts."""
    return write_rows(folder / "prompts.jsonl", prompts(60))


def job(
    model: Any, data: Any, reward: str, stage: dict[str, Any] | None = None, **parts: Any
) -> dict[str, Any]:
    """A small job of six updates."""
    train = {
        "batch_size": 4,
        "gradient_accumulation": 2,
        "max_steps": 6,
        "learning_rate": 1e-3,
        "max_grad_norm": 0.0,
        "warmup": 0.0,
        "scheduler": "linear",
        "logging_steps": 1,
        "save_steps": 1000,
    }
    return {
        "model": model,
        "data": data,
        "stage": {"name": "ppo", "max_completion_length": 16, **(stage or {})},
        "rewards": [{"name": "model", "source": reward}],
        "method": "full",
        "evaluate": {"prompts": ["What is 1 and 1?"], "max_new_tokens": 4},
        **parts,
        "train": train | parts.get("train", {}),
    }


def metrics(done: dict[str, Any]) -> dict[int, dict[str, float]]:
    """What was measured at each update; speeds, which no two runs share, left out."""
    records = [event for event in done["events"] if event["event"] == "metric" and "loss" in event["values"]]
    return {
        one["step"]: {name: value for name, value in one["values"].items() if name != "tokens_per_second"}
        for one in records
    }


def test_prompts_may_be_as_long_as_the_stage_says(tiny: str, data: str) -> None:
    asked = JobSpec.model_validate(job(tiny, data, "r", {"max_prompt_length": 77}))
    assert settings_of(resolve(asked, parameters=None, gpu=False).job).max_length == 77


@pytest.mark.parametrize(
    ("method", "stage", "rows", "accumulation"),
    [("full", {}, 4, 2), ("lora", {}, 4, 2), ("full", EVERY_SETTING, 16, 1)],
    ids=["full", "lora", "every setting"],
)
def test_the_run_is_that_of_a_hand_written_trl_script(
    zygote: Zygote,
    tiny: str,
    home: Path,
    data: str,
    template: str,
    reward: str,
    tmp_path: Path,
    method: str,
    stage: dict[str, Any],
    rows: int,
    accumulation: int,
) -> None:
    spec = {"name": "lora", "rank": 8, "alpha": 16} if method == "lora" else "full"
    train = {"batch_size": rows, "gradient_accumulation": accumulation, "padding_free": False, "fused": False}
    asked = job({"name": tiny, "template": template}, data, reward, stage, method=spec, train=train)
    ours = zygote.call("tests.cpu.jobs:train", job=asked, home=str(home))
    assert ours["code"] == 0, ours["events"][-1]
    theirs = zygote.call(
        "tests.cpu.jobs_ppo:plain_trl_ppo",
        model=tiny,
        reward=reward,
        prompts=[question(n) for n in range(60)],
        out=str(tmp_path / "trl"),
        settings={
            "per_device_train_batch_size": rows,
            "gradient_accumulation_steps": accumulation,
            "learning_rate": 1e-3,
            "lr_scheduler_type": "linear",
            "warmup_steps": 0,
            "response_length": 16,
            "total_episodes": 6 * rows * accumulation,
            **stage,
        },
        lora=LORA if method == "lora" else None,
    )
    assert len(theirs) == 6
    for values, record in zip(metrics(ours).values(), theirs, strict=True):
        expected = {name: record[there] for name, there in NAMES.items()}
        assert {name: values[name] for name in NAMES} == pytest.approx(expected, rel=1e-6, abs=1e-7)
    apart = zygote.call(
        "tests.cpu.jobs_ppo:largest_difference",
        folders=[str(tmp_path / "trl/policy"), f"{ours['run']}/model"],
    )
    assert apart <= 1e-6


def learning(zygote: Zygote, tiny: str, home: Path, data: str, reward: str, rate: float, seed: int) -> Any:
    """Thirty updates on the reward model: mean reward of the first and of the last tenth, and the last KL."""
    stage = {
        "max_completion_length": 8,
        "temperature": 1.0,
        "num_ppo_epochs": 2,
        "num_mini_batches": 2,
        "value_learning_rate": 1.5 * rate,
    }
    train = {
        "batch_size": 32,
        "gradient_accumulation": 1,
        "max_steps": 30,
        "learning_rate": rate,
        "max_grad_norm": 1.0,
        "seed": seed,
    }
    done = zygote.call(
        "tests.cpu.jobs:train", job=job(tiny, data, reward, stage, train=train), home=str(home)
    )
    assert done["code"] == 0, done["events"][-1]
    found = metrics(done)
    rewards = [found[step]["reward/mean"] for step in sorted(found)]
    return sum(rewards[:3]) / 3, sum(rewards[-3:]) / 3, found[30]["kl/answer"]


MARGIN, FARTHEST = 0.7, 12.0
"""Mean reward must rise by so much (the reward model puts proper answers 4 above gibberish), with so little KL."""


@pytest.mark.parametrize("rate", [2e-3, 0.0])
def test_the_reward_rises_near_the_reference_and_does_not_with_learning_rate_zero(
    zygote: Zygote, tiny: str, home: Path, data: str, reward: str, rate: float
) -> None:
    first, last, kl = learning(zygote, tiny, home, data, reward, rate, seed=2)
    assert (last - first > MARGIN) is (rate > 0)
    assert kl < FARTHEST


@pytest.mark.slow
def test_the_reward_rises_for_four_of_five_seeds(
    zygote: Zygote, tiny: str, home: Path, data: str, reward: str
) -> None:
    found = [learning(zygote, tiny, home, data, reward, 2e-3, seed) for seed in (1, 2, 3, 4, 5)]
    assert sum(last - first > MARGIN and kl < FARTHEST for first, last, kl in found) >= 4, found


@pytest.mark.parametrize("method", ["full", "lora", "qlora"])
def test_stopped_at_3_of_6_and_resumed_equals_run_through(
    zygote: Zygote, tiny: str, home: Path, tmp_path: Path, reward: str, method: str
) -> None:
    rows = write_rows(
        tmp_path / "few.jsonl", prompts(20)
    )  # two updates an epoch: the stop is inside the second
    asked = job(tiny, rows, reward, {"num_mini_batches": 2}, method=method, train={"scheduler": "cosine"})
    through = zygote.call("tests.cpu.jobs:train", job=asked, home=str(home / "through"))
    assert through["code"] == 0 and len(metrics(through)) == 6
    place = zygote.call("tests.cpu.jobs:submit", job=asked, home=str(home / "stopped"))
    stopped = zygote.call("tests.cpu.jobs:work", run_dir=place, stop_at=3)
    run = Run(Path(place))
    assert stopped["code"] == 3 and list(metrics(stopped)) == [1, 2, 3]
    assert [path.name for path in checkpoints.complete(run)] == ["checkpoint-3"]
    next_attempt(run, 2)
    resumed = zygote.call("tests.cpu.jobs:work", run_dir=place)
    assert resumed["code"] == 0
    assert metrics(resumed) == metrics(through)
    weights = [
        zygote.call("tests.cpu.jobs:weights", folder=f"{path}/{part}")
        for path in (place, through["run"])
        for part in ("model", "checkpoints/checkpoint-6/value")
    ]
    assert weights[0] == weights[2] and weights[1] == weights[3] and weights[0] and weights[1]


@pytest.mark.parametrize("phase", ["answer", "learn"])
def test_a_signal_in_any_phase_stops_behind_the_update_with_its_checkpoint(
    zygote: Zygote, tiny: str, home: Path, data: str, reward: str, phase: str
) -> None:
    asked = job(tiny, data, reward)
    done = zygote.call("tests.cpu.jobs_ppo:stopped_in", phase=phase, job=asked, home=str(home))
    assert done["code"] == 3 and done["calls"] == 2 and list(metrics(done)) == [1, 2]
    assert [path.name for path in checkpoints.complete(Run(Path(done["run"])))] == ["checkpoint-2"]


def test_rewards_of_every_kind_add_up_and_are_shown_with_the_answers(
    zygote: Zygote, tiny: str, home: Path, data: str, reward: str
) -> None:
    short = {"name": "length", "unit": "characters", "shortest": 0, "longest": 5, "fade": 100, "weight": 2.0}
    rewards = [{"name": "model", "source": reward, "weight": 0.5}, short]
    asked = job(tiny, data, reward, rewards=rewards, train={"max_steps": 2})
    done = zygote.call("tests.cpu.jobs:train", job=asked, home=str(home))
    assert done["code"] == 0, done["events"][-1]
    for values in metrics(done).values():
        parts = 0.5 * values["reward/model/mean"] + 2.0 * values["reward/length/mean"]
        assert values["reward/mean"] == pytest.approx(parts, abs=1e-5)
        assert {"loss", "kl", "entropy", "length/mean", "length/clipped", "clip_ratio", "tokens"} <= set(
            values
        )
    shown = [one for one in done["events"] if one["event"] == "sample" and one["kind"] == "during"]
    assert {one["step"] for one in shown} == {1, 2}
    assert all(set(one["scores"]) == {"model", "length"} and one["prompt"] for one in shown)


def test_the_value_model_comes_from_the_policy_where_there_is_no_reward_model(
    zygote: Zygote, tiny: str, home: Path, data: str, reward: str
) -> None:
    spec = {"path": data, "eval": 0.2}
    asked = job(tiny, spec, reward, rewards=["think_tags"], train={"max_steps": 2, "eval_steps": 1})
    done = zygote.call("tests.cpu.jobs:train", job=asked, home=str(home))
    assert done["code"] == 0, done["events"][-1]
    evaluations = [one["values"] for one in done["events"] if "eval_loss" in one.get("values", {})]
    assert len(evaluations) == 2
    for values in evaluations:
        assert values["eval_loss"] == pytest.approx(-values["eval_objective"])


def test_answers_that_no_reward_applies_to_teach_nothing_and_a_batch_of_them_ends_the_run(
    zygote: Zygote, tiny: str, home: Path, tmp_path: Path, reward: str
) -> None:
    rows = [{**row, "task": "sums" if n % 2 else "other"} for n, row in enumerate(prompts(24))]
    data = write_rows(tmp_path / "tasks.jsonl", rows)
    asked = {
        tasks: job(
            tiny,
            data,
            reward,
            rewards=[{"name": "model", "source": reward, "tasks": [tasks]}],
            train={"max_steps": 2, "gradient_checkpointing": True},
        )
        for tasks in ("sums", "nothing")
    }
    done = zygote.call("tests.cpu.jobs:train", job=asked["sums"], home=str(home))
    assert done["code"] == 0, done["events"][-1]
    assert "reward_none_applies" in {one.get("code") for one in done["events"]}
    assert all(set(one["scores"]) <= {"model"} for one in done["events"] if one["event"] == "sample")
    done = zygote.call("tests.cpu.jobs:train", job=asked["nothing"], home=str(home))
    assert done["code"] == 2 and done["events"][-1]["code"] == "reward_never_applies"


def test_the_reference_of_a_trained_adapter_is_that_adapter(
    zygote: Zygote, tiny: str, home: Path, data: str, reward: str
) -> None:
    lora = {"name": "lora", "rank": 8}
    first = job(tiny, data, reward, method=lora, train={"max_steps": 2, "learning_rate": 1e-2})
    done = zygote.call("tests.cpu.jobs:train", job=first, home=str(home))
    assert done["code"] == 0, done["events"][-1]
    model = {"name": tiny, "adapter": f"{done['run']}/model"}
    done = zygote.call("tests.cpu.jobs:train", job=job(model, data, reward, method=lora), home=str(home))
    assert done["code"] == 0, done["events"][-1]
    found = metrics(done)
    assert abs(found[1]["kl"]) < 1e-6 < abs(found[6]["kl"])


@pytest.mark.parametrize("method", ["full", {"name": "lora", "rank": 8}])
def test_a_reward_model_scores_token_ids_as_it_scores_text(
    zygote: Zygote, tiny: str, folder: Path, method: Any
) -> None:
    kind = "plain" if method == "full" else "adapter"
    model = trained_reward(
        zygote, tiny, folder / kind, method, None
    )  # ChatML: a line break behind the end mark
    by_ids, by_text = zygote.call(
        "tests.cpu.jobs_ppo:scored_both_ways",
        policy=tiny,
        reward=model,
        prompts=[question(n) for n in range(4)],
        answers=["It is 4, of course.", "No.", "Oslo is the capital of Norway.", "boat"],
    )
    assert by_ids == pytest.approx(by_text, abs=1e-5)
    assert len({round(score, 3) for score in by_ids}) == 4


def test_a_policy_that_broke_ends_the_run_and_keeps_the_last_good_checkpoint(
    zygote: Zygote, tiny: str, home: Path, data: str, reward: str
) -> None:
    asked = job(tiny, data, reward, train={"save_steps": 1})
    done = zygote.call("tests.cpu.jobs:train_with_nan", job=asked, home=str(home), at_step=3)
    assert done["code"] == 2 and done["events"][-1]["code"] == "loss_not_finite"
    assert [path.name for path in checkpoints.complete(Run(Path(done["run"])))] == [
        "checkpoint-1",
        "checkpoint-2",
    ]


def findings(asked: dict[str, Any], home: Path) -> dict[str, Finding]:
    """What `factory check` says of a job, by code."""
    machine = Machine("test", "3", cores=2, memory=8 << 30, memory_free=8 << 30)
    return {
        one.code: one for one in check(JobSpec.model_validate(asked), machine, home) if one.level == "error"
    }


@pytest.mark.parametrize(
    ("stage", "train", "code", "numbers"),
    [
        (
            {"num_mini_batches": 3},
            {"batch_size": 8, "gradient_accumulation": 1},
            "batch_not_divisible",
            "8 1 3",
        ),
        (
            {"num_mini_batches": 2},
            {"batch_size": 4, "gradient_accumulation": 3},
            "batch_not_divisible",
            "4 12 2 6",
        ),
        ({"whiten_rewards": True, "num_mini_batches": 2}, {}, "batch_too_small_to_whiten", "4 2 8"),
    ],
)
def test_batches_that_do_not_divide_are_refused_with_every_number(
    zygote: Zygote,
    tiny: str,
    home: Path,
    data: str,
    reward: str,
    stage: dict[str, Any],
    train: dict[str, Any],
    code: str,
    numbers: str,
) -> None:
    asked = job(tiny, data, reward, stage, train=train)
    message = findings(asked, home)[code].message
    assert all(f" {number}" in message for number in numbers.split())
    done = zygote.call("tests.cpu.jobs:train", job=asked, home=str(home))
    assert done["code"] == 2 and done["events"][-1]["message"] == message


def test_a_wrong_value_model_no_rewards_and_what_the_loop_cannot_do_are_refused_together(
    tiny: str, home: Path, data: str, reward: str
) -> None:
    hardware = {"precision": "fp16"}
    train = {"neftune_alpha": 5.0, "optimizer": "galore_adamw"}
    asked = job(tiny, data, reward, {"value": tiny}, rewards=[], hardware=hardware, train=train)
    found = findings(asked, home)
    assert {
        "value_model_wrong",
        "rewards_missing",
        "ppo_without_fp16",
        "ppo_without_noise",
        "optimizer_not_for_ppo",
    } <= set(found)
    assert "LlamaForCausalLM" in found["value_model_wrong"].message
    assert findings(job(tiny, data, reward, {"value": reward}), home) == {}
    assert "reward_model_not_found" in findings(job(tiny, data, "nowhere"), home)


def test_another_tokenizer_and_too_few_prompts_are_refused_before_weights_are_loaded(
    zygote: Zygote, tiny: str, home: Path, tmp_path: Path, data: str, reward: str
) -> None:
    other = zygote.call("tests.tiny:save_tiny_at", folder=str(tmp_path / "other"), bos=True, vocab_size=500)
    zygote.call("tests.cpu.jobs_ppo:widen_tokenizer", folder=other)
    done = zygote.call("tests.cpu.jobs:train", job=job(other, data, reward), home=str(home))
    assert done["code"] == 2 and done["events"][-1]["code"] == "tokenizers_differ"
    assert "400" in done["events"][-1]["message"] and "401" in done["events"][-1]["message"]
    few = write_rows(tmp_path / "few.jsonl", prompts(3))
    done = zygote.call("tests.cpu.jobs:train", job=job(tiny, few, reward), home=str(home))
    assert done["code"] == 2 and done["events"][-1]["code"] == "fewer_rows_than_a_batch"
    assert all(number in done["events"][-1]["message"] for number in ("3 prompts", "8", "4", "2"))


def test_answers_end_at_their_end_mark_also_where_it_pads_too(zygote: Zygote) -> None:
    rows = [[7, 2, 9, 9], [7, 7, 7, 7], [2, 2, 2, 2], [7, 0, 2, 9]]
    apart = zygote.call("tests.cpu.jobs_ppo:answer_ends", rows=rows, eos=2, pad=0)
    assert apart == [[2, 4, 1, 1], [True, False, True, False]]
    same = zygote.call("tests.cpu.jobs_ppo:answer_ends", rows=rows, eos=2, pad=2)
    assert same == [[2, 4, 1, 3], [True, False, True, True]]


def test_advantages_are_the_discounted_sums_of_their_definition(zygote: Zygote) -> None:
    chance = random.Random(0)
    rewards, values = ([[chance.uniform(-1, 1) for _ in range(5)] for _ in range(3)] for _ in range(2))
    gamma, lam = 0.9, 0.8
    found, returns = zygote.call(
        "tests.cpu.jobs_ppo:advantages", rewards=rewards, values=values, gamma=gamma, lam=lam
    )
    for row in range(3):
        after = [*values[row][1:], 0.0]
        deltas = [rewards[row][t] + gamma * after[t] - values[row][t] for t in range(5)]
        expected = [sum((gamma * lam) ** (k - t) * deltas[k] for k in range(t, 5)) for t in range(5)]
        assert found[row] == pytest.approx(expected, abs=1e-6)
        assert returns[row] == pytest.approx(
            [a + v for a, v in zip(expected, values[row], strict=True)], abs=1e-6
        )


def test_the_presets_make_the_updates_that_the_plan_says(
    home: Path, tiny: str, data: str, reward: str
) -> None:
    from core.job.presets import resolve

    asked = JobSpec.model_validate({"model": tiny, "data": data, "stage": "ppo", "rewards": ["think_tags"]})
    train = resolve(asked, parameters=None, gpu=False).job.train
    assert train.batch_size * train.gradient_accumulation == 64 and train.learning_rate == 1e-5
    assert json.loads(asked.model_dump_json())["stage"]["kl_coef"] == 0.05
