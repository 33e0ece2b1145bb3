"""The order of PPO: answer, aim, learn; between updates log, evaluate, save, stop, by the protocol of every stage."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from accelerate import Accelerator
from transformers import TrainerControl, TrainerState, TrainingArguments
from transformers.integrations import get_reporting_integration_callbacks
from transformers.trainer_callback import CallbackHandler, DefaultFlowCallback

from core.stages import ppo
from core.training.context import Context
from core.training.ppo import checkpoint, maths
from core.training.ppo.optimizer import clip, make_optimizer, make_scheduler
from core.training.ppo.prompts import Prompts
from core.training.ppo.rollout import Answers, Rollout, answer, answer_logits, answer_logprobs, answer_values
from core.training.ppo.scoring import Rewards, Scored
from core.training.ppo.update import Target, learn, target

SHOWN = 4
"""Answers shown with their rewards at each log."""


class PPO:
    """Trains a policy and its value model. To a session it looks like a transformers Trainer."""

    def __init__(
        self, context: Context, arguments: TrainingArguments, rewards: Rewards, value: Any, reference: Any
    ) -> None:
        spec = context.job.stage
        assert isinstance(spec, ppo.Spec)
        self.spec, self.args, self._context = spec, arguments, context
        self.accelerator = Accelerator(
            cpu=not context.gpu, mixed_precision="bf16" if arguments.bf16 else "no"
        )
        device = self.accelerator.device
        self.model, self.value = context.model.to(device), value.to(device)
        self.reference = None if reference is None else reference.to(device).eval()
        self.processing_class = context.tokenizer
        self.rewards = rewards
        self.optimizer = make_optimizer(arguments, self.model, self.value, spec.value_learning_rate)
        self.scheduler = make_scheduler(arguments, self.optimizer, context.schedule)
        self.control = TrainerControl()
        self.state = TrainerState(max_steps=context.schedule.total_steps, log_history=[])
        self.state.compute_steps(arguments, self.state.max_steps)
        trackers = get_reporting_integration_callbacks(arguments.report_to)
        callbacks = [DefaultFlowCallback(), *trackers, *context.callbacks]
        self.callbacks = CallbackHandler(
            callbacks, self.model, self.processing_class, self.optimizer, self.scheduler
        )
        self._batch = arguments.per_device_train_batch_size * arguments.gradient_accumulation_steps
        if arguments.gradient_checkpointing:
            for model in (self.model, self.value):
                model.gradient_checkpointing_enable({"use_reentrant": False})

    def remove_callback(self, callback: Any) -> None:
        """Take a callback out, by its class."""
        self.callbacks.remove_callback(callback)

    def train(self, resume_from_checkpoint: str | None = None) -> None:
        """Run all updates, or those that a checkpoint leaves; ends early when a callback asks for it."""
        seed = self.args.seed
        self._prompts = Prompts(self._context.train_rows, self._batch)
        self._shuffle = np.random.RandomState(seed)
        torch.manual_seed(seed)
        if resume_from_checkpoint:
            self._resume(Path(resume_from_checkpoint))
        self.control = self.callbacks.on_train_begin(self.args, self.state, self.control)
        while self.state.global_step < self.state.max_steps and not self.control.should_training_stop:
            self._update()
        self.control = self.callbacks.on_train_end(self.args, self.state, self.control)

    def _update(self) -> None:
        self.control = self.callbacks.on_step_begin(self.args, self.state, self.control)
        rows = self._prompts.next()
        rollout, scored = self._roll_out(rows)
        aim = target(rollout, self.spec)
        measured = self._learn(rollout, aim)
        values = {
            **measured,
            **self._told(rollout, scored, aim),
            "learning_rate": self.scheduler.get_last_lr()[0],
        }
        self.scheduler.step()
        self.state.global_step += 1
        self.state.epoch = self.state.global_step * self._batch / len(self._context.train_rows)
        self.state.num_input_tokens_seen += int(rollout.answers.mask.sum())
        self.control = self.callbacks.on_step_end(self.args, self.state, self.control)
        self._between({**values, "tokens": self.state.num_input_tokens_seen}, rows, rollout, scored)

    def _between(self, values: dict[str, float], rows: Any, rollout: Rollout, scored: Scored) -> None:
        """Log, evaluate, save: whatever the callbacks have asked for. A loss that is no number is always logged."""
        if self.control.should_log or not math.isfinite(values["loss"]):
            self._show(rows, rollout, scored)
            self._log(values)
        if self.control.should_evaluate and self._context.eval_rows is not None:
            found = self._evaluate(self._context.eval_rows)
            self._log(found)
            self.control = self.callbacks.on_evaluate(self.args, self.state, self.control, found)
        if self.control.should_save:
            self._save()
            self.control = self.callbacks.on_save(self.args, self.state, self.control)

    def _roll_out(self, rows: list[dict[str, Any]]) -> tuple[Rollout, Scored]:
        """Answers to the prompts of `rows`, as policy, rewards, reference and value model see them."""
        spec = self.spec
        self.model.eval()
        self.value.eval()
        with torch.no_grad(), self.accelerator.autocast():
            answers = answer(
                self.model,
                [row["input_ids"] for row in rows],
                self.processing_class,
                longest=spec.max_completion_length,
                temperature=spec.temperature,
                at_once=spec.local_rollout_forward_batch_size,
            )
            scored = self.rewards(answers, rows)
            learnt, valued = answers.masks(scored.applies)
            reference, values = self._judged(answers)
        values = values.masked_fill(~valued, 0)
        return Rollout(answers, learnt, valued, reference, values, scored.totals), scored

    def _judged(self, answers: Answers) -> tuple[torch.Tensor, torch.Tensor]:
        """(B, T) log probabilities by the reference, and values, of a part of the answers at a time."""
        reference, values = [], []
        size = self.spec.local_rollout_forward_batch_size
        for start in range(0, len(answers.ids), size):
            some = answers.rows(slice(start, start + size))
            with self._as_reference() as model:
                reference.append(answer_logprobs(answer_logits(model, some, self.spec.temperature), some))
            values.append(answer_values(self.value, some))
        return torch.cat(reference), torch.cat(values)

    @contextmanager
    def _as_reference(self) -> Iterator[Any]:
        """The frozen copy, or the policy with its adapter switched off."""
        if self.reference is not None:
            yield self.reference
            return
        with self.model.disable_adapter():
            yield self.model

    def _learn(self, rollout: Rollout, aim: Target) -> dict[str, float]:
        self.model.train()
        self.value.train()
        return learn(
            self.model,
            self.value,
            rollout,
            aim,
            self.spec,
            batch=self.args.per_device_train_batch_size,
            shuffle=self._shuffle,
            step=self._step,
            autocast=self.accelerator.autocast,
        )

    def _step(self) -> dict[str, float]:
        norms = {
            "grad_norm": clip(self.model, self.args.max_grad_norm),
            "grad_norm/value": clip(self.value, self.args.max_grad_norm),
        }
        self.optimizer.step()
        self.optimizer.zero_grad()
        return norms

    def _told(self, rollout: Rollout, scored: Scored, aim: Target) -> dict[str, float]:
        """What a batch of answers was like."""
        answers = rollout.answers
        scores, kl = scored.totals[scored.applies], aim.kl[scored.applies]
        tokens = rollout.learnt.sum(1)[scored.applies].sum()
        return {
            "reward/mean": float(scores.mean()),
            "reward/std": float(scores.std()) if len(scores) > 1 else 0.0,
            **{f"reward/{name}/mean": mean for name, mean in scored.means().items()},
            "kl": float(kl.sum() / tokens),
            "kl/answer": float(kl.mean()),
            "objective": float(scores.mean() - self.spec.kl_coef * kl.mean()),
            "length/mean": float(answers.lengths.float().mean()),
            "length/clipped": 1 - float(answers.ended.float().mean()),
            "value/explained": float(maths.explained_variance(rollout.values, aim.returns, rollout.valued)),
        }

    def _show(self, rows: list[dict[str, Any]], rollout: Rollout, scored: Scored) -> None:
        texts = rollout.answers.rows(slice(0, SHOWN)).texts(self.processing_class)
        for place, text in enumerate(texts):
            self._context.show(self.state.global_step, rows[place]["prompt"], text, scored.of(place))

    def _log(self, values: dict[str, float]) -> None:
        self.state.log_history.append({**values, "step": self.state.global_step})
        self.control = self.callbacks.on_log(self.args, self.state, self.control, values)

    def _evaluate(self, rows: Any) -> dict[str, float]:
        """Answers to the held-out prompts, drawn with the same chance every time and without touching training's.

        eval_loss is the objective with its sign turned, so that the lowest is the best here too.
        """
        totals: dict[str, float] = {}
        devices = [self.accelerator.device] if self._context.gpu else []
        with torch.random.fork_rng(devices):
            torch.manual_seed(self.args.seed)
            for start in range(0, len(rows), self._batch):
                some = [rows[place] for place in range(start, min(start + self._batch, len(rows)))]
                rollout, scored = self._roll_out(some)
                told = self._told(rollout, scored, target(rollout, self.spec))
                for name in ("objective", "reward/mean", "kl", "length/mean"):
                    totals[name] = totals.get(name, 0.0) + told[name] * len(some)
        means = {f"eval_{name}": total / len(rows) for name, total in totals.items()}
        return {"eval_loss": -means["eval_objective"], **means}

    def _save(self) -> None:
        folder = self._context.output_dir / f"checkpoint-{self.state.global_step}"
        checkpoint.save(
            folder,
            policy=self.model,
            value=self.value,
            tokenizer=self.processing_class,
            optimizer=self.optimizer,
            scheduler=self.scheduler,
            state=self.state,
        )
        checkpoint.save_chance(folder, self._shuffle, self._prompts)

    def _resume(self, folder: Path) -> None:
        checkpoint.load(
            folder, policy=self.model, value=self.value, optimizer=self.optimizer, scheduler=self.scheduler
        )
        self.state = TrainerState.load_from_json(str(folder / "trainer_state.json"))
        checkpoint.load_chance(folder, self._shuffle, self._prompts)

    def _load_from_checkpoint(self, folder: str) -> None:
        """Take a checkpoint's policy (transformers' name for it)."""
        checkpoint.load_policy(Path(folder), self.model)
