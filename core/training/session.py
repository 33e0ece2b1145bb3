"""One attempt of a run, from job.json to the committed model."""

from __future__ import annotations

import json
import math
import os
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset
from transformers import PrinterCallback, set_seed
from transformers.utils import logging

from core.engines import engine_module
from core.job.models import adapter_folder
from core.job.schedule import schedule
from core.job.spec import JobSpec
from core.methods.adapter import CHANGING_BASE, AdapterSpec
from core.runs import checkpoints, events
from core.runs.folder import Run
from core.stages import stage_module
from core.training import spread, trackers
from core.training.callbacks import AtFirst, RunCallback
from core.training.context import Context
from core.training.model import load_tokenizer
from core.training.result import can_compare, held_out_loss, keep_baseline, kept_baseline, result_of
from core.training.rows import Prepared, as_event, rows_for
from core.training.samples import answer_prompts
from core.training.saving import START, keep_start, save_model
from core.training.spread import is_spread, load_weights, whole_weights
from core.training.stop import Stopped, StopRequest
from core.training.watchdog import Watchdog
from core.training.world import ALONE, Council, World, first_alone, writer_for
from data.errors import refuse

ON_THE_WAY = 3
"""Prompts of the data that are asked while training goes on."""


def train(run: Run, stop: StopRequest, world: World = ALONE) -> None:
    """Train the run's job and commit its model, alone or as one process of several.

    Raises Stopped when asked to stop (a checkpoint is committed if a step was done), FactoryError for what the
    user can mend.
    """
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    logging.disable_progress_bar()
    session = _Session(run, stop, world)
    prepared = session.prepare()
    model = session.load(prepared)
    trainer = session.build(model, prepared)
    session.run_steps(trainer)
    session.finish(trainer)


class _Session:
    """One attempt, step by step. Between the steps a stop request ends it."""

    def __init__(self, run: Run, stop: StopRequest, world: World) -> None:
        self._run, self._stop, self._world = run, stop, world
        self._council = Council(world)
        self._job = JobSpec.model_validate_json(run.job_json.read_text("utf-8"))
        self._attempt = json.loads(run.attempt_json.read_text("utf-8"))
        self._writer = writer_for(run, world)
        self._gpu = torch.cuda.is_available()
        self._stage = stage_module(self._job.stage.name)
        self._engine = engine_module(self._job.engine.name)
        self._learner = _Learner(self._job)
        self._prompts: list[str] = []
        if world.size != (asked := self._job.hardware.processes):
            text = f"{world.size} training processes were started and the job asks for {asked}; start it with its plan."
            raise refuse("other_processes", text, field="hardware.devices", value=asked, started=world.size)

    def prepare(self) -> Prepared:
        """Tokenizer and rows."""
        job = self._job
        set_seed(job.train.seed)
        spread.prepare(job, gpu=self._gpu)
        self._phase("loading", f"Loading {job.model.name}")
        self._tokenizer = first_alone(
            self._run, self._world, "model", lambda: load_tokenizer(job.model, self._run.home)
        )
        self._stop.check()
        self._phase("preparing", "Preparing the data")
        prepared = first_alone(
            self._run,
            self._world,
            "rows",
            lambda: rows_for(job, self._run.home, self._tokenizer, self._writer.emit),
        )
        self._stop.check()
        self._schedule = schedule(
            job.train, prepared.rows * job.stage.repeats, processes=job.hardware.processes
        )
        if self._stage.TASK == "CAUSAL_LM":
            self._prompts = job.evaluate.prompts or prepared.prompts
        return prepared

    def load(self, prepared: Prepared) -> Any:
        """The model with what learns; answers before training where there is no way back later."""
        job, stage, learner = self._job, self._stage, self._learner
        if hasattr(stage, "before_loading"):
            stage.before_loading(job, self._run.home, self._tokenizer, prepared.rows)
        model = self._weights()
        model.config.pad_token_id = self._tokenizer.pad_token_id
        self._stop.check()
        if not learner.can_go_back and self._attempt["attempt"] == 1:
            self._show(model, 0, "before")
        model = self._engine.wear(model, job, task=stage.TASK, adapter=learner.adapter)
        if learner.can_go_back or learner.changes_base:
            self._phase("loading", f"Put adapters on {_worn(model)}")
        if learner.changes_base and self._world.first:
            keep_start(model, self._run.path / START)
        return model

    def build(self, model: Any, prepared: Prepared) -> Any:
        """The stage's trainer, tied to the run folder."""
        if self._world.first:
            trackers.prepare(self._job.report_to, self._run)
        self._callback = self._watch(model)
        self._eval_rows = Dataset.from_file(str(prepared.eval)) if prepared.eval else None
        trainer = self._stage.build(
            Context(
                job=self._job,
                output_dir=self._run.checkpoints,
                model=model,
                tokenizer=self._tokenizer,
                train_rows=Dataset.from_file(str(prepared.train)),
                eval_rows=self._eval_rows,
                schedule=self._schedule,
                callbacks=[self._callback],
                gpu=self._gpu,
                home=self._run.home,
                emit=lambda finding: self._writer.emit(as_event(finding)),
                show=self._show_scored,
                fresh_adapter=self._learner.can_go_back,
                frozen_copy=lambda: self._weights().requires_grad_(False),
            )
        )
        if self._world.first:
            spread.keep_settings(trainer.args, self._run.path)
        if not self._gpu:
            _in_full_precision(trainer.model)
        trainer.remove_callback(PrinterCallback)  # our callback writes the log's lines
        self._stop.check()
        self._writer.emit(
            events.Start(
                total_steps=self._schedule.total_steps,
                rows=prepared.rows,
                trainable=_trainable(model),
                parameters=sum(parameter.numel() for parameter in model.parameters()),
                device=torch.cuda.get_device_name() if self._gpu else "cpu",
            )
        )
        return trainer

    def run_steps(self, trainer: Any) -> None:
        """The steps, from the checkpoint this attempt resumes where there is one."""
        resume = self._attempt["resume"]
        if resume:
            self._callback.planned_before = _planned(self._run.path / resume)
            if trainer.args.device == torch.device("cpu", 0):
                # What accelerate 1.15 calls the CPU of several processes; torch.load knows no such place, and
                # transformers 5.17 loads the optimizer's state to it.
                trainer.args.__dict__["_setup_devices"] = torch.device("cpu")
        compared = can_compare(self._job.stage.name, self._eval_rows)
        if compared and not self._learner.can_go_back and not resume:
            trainer.add_callback(AtFirst(lambda: self._ask_held_out_rows(trainer)))
        else:
            self._stop.finish_first(True)
        trainer.train(resume_from_checkpoint=str(self._run.path / resume) if resume else None)
        if self._callback.stopped:
            raise Stopped

    def _ask_held_out_rows(self, trainer: Any) -> None:
        """The loss before training, where there is no way back to it later."""
        self._phase("evaluating", "Asking the held-out rows before training")
        loss = held_out_loss(trainer)
        if self._world.first:
            keep_baseline(self._run, loss)
        self._stop.check()
        self._stop.finish_first(True)

    def finish(self, trainer: Any) -> None:
        """Commit the model, the best one where that was asked for, and show what changed."""
        run, callback = self._run, self._callback
        model, tokenizer = trainer.accelerator.unwrap_model(trainer.model), trainer.processing_class
        step = trainer.state.global_step
        facts = {"step": step}
        if callback.best is not None:
            facts = {"step": callback.best[1], "best_eval_loss": callback.best[0]}
        if step != facts["step"]:
            step = facts["step"]
            load_weights(trainer, run.checkpoints / f"checkpoint-{step}")
            self._phase("saving", f"Taking the best weights, from step {step}")
        self._phase("saving", "Saving the model")
        weights = whole_weights(trainer)
        if self._world.first:
            save_model(model, tokenizer, run.model, self._job.model, facts, weights)
        if self._learner.can_go_back:
            with model.disable_adapter():
                self._show(model, 0, "before")
        self._show(model, step, "after")
        self._compare(trainer, model)
        self._writer.emit(events.Done(model=run.model.name, values=_last_loss(trainer)))

    def _compare(self, trainer: Any, model: Any) -> None:
        """Tell what training changed: held-out loss of base and tuned model, or what there is instead."""
        rows, base = self._eval_rows, None
        if can_compare(self._job.stage.name, rows):
            if self._learner.can_go_back:
                self._phase("evaluating", "Asking the held-out rows of the base")
                with model.disable_adapter():
                    base = held_out_loss(trainer)
            else:
                base = kept_baseline(self._run)
        best = self._callback.best[0] if self._callback.best is not None else None
        count = None if rows is None else len(rows)
        history = trainer.state.log_history
        self._writer.emit(result_of(self._job.stage.name, history, count, base, best))

    def _weights(self) -> Any:
        with spread.loaded_whole():
            return self._engine.load(self._job, self._run.home, gpu=self._gpu, task=self._stage.TASK)

    def _watch(self, model: Any) -> RunCallback:
        train = self._job.train
        callback = RunCallback(
            self._run,
            self._writer,
            self._stop,
            self._schedule,
            job_hash=checkpoints.job_hash(self._job.model_dump(mode="json")),
            keep=train.keep_checkpoints,
            keep_best=train.keep_best,
            patience=train.early_stopping,
            watchdog=Watchdog(self._job.stage.name) if train.watchdog else None,
            sampler=lambda step: self._show(model, step, "during"),
            sample_steps=self._job.evaluate.every,
            council=self._council,
        )
        callback.expect_checkpoint_bytes(_checkpoint_bytes(model))
        return callback

    def _phase(self, name: str, text: str) -> None:
        self._writer.emit(events.Phase(name=name, text=text))

    def _show(self, model: Any, step: int, kind: str) -> None:
        if not (self._world.first or is_spread(model)):
            return  # nobody would see them; weights that are spread out need every process to ask
        few = kind == "during" and not self._job.evaluate.prompts  # of the user's own all are asked, always
        prompts = self._prompts[:ON_THE_WAY] if few else self._prompts
        answers = answer_prompts(model, self._tokenizer, prompts, self._job.evaluate.max_new_tokens)
        for prompt, answer in zip(prompts, answers, strict=True):
            self._writer.emit(events.Sample(step=step, kind=kind, prompt=prompt, answer=answer))

    def _show_scored(self, step: int, prompt: str, answer: str, scores: dict[str, float]) -> None:
        self._writer.emit(events.Sample(step=step, prompt=prompt, answer=answer, scores=_numbers(scores)))


class _Learner:
    """What learns: all or some weights, a fresh adapter, or one that was trained before."""

    def __init__(self, job: JobSpec) -> None:
        method = job.method
        wears = isinstance(method, AdapterSpec)
        self.adapter = adapter_folder(job.model.adapter) if job.model.adapter and wears else None
        fresh = isinstance(method, AdapterSpec) and self.adapter is None
        self.changes_base = fresh and method.init in CHANGING_BASE
        self.can_go_back = fresh and not self.changes_base
        """Whether switching the adapter off gives the model as it was before training."""


def _planned(checkpoint: Path) -> int:
    """How many steps the run was to have when the checkpoint was written."""
    return int(json.loads((checkpoint / "trainer_state.json").read_text("utf-8"))["max_steps"])


def _last_loss(trainer: Any) -> dict[str, float]:
    losses = [record["loss"] for record in trainer.state.log_history if "loss" in record]
    return {"loss": float(losses[-1])} if losses else {}


def _in_full_precision(model: Any) -> None:
    """What learns, in fp32 on a CPU: trl 1.12 puts it in bf16 beside a quantised base, which is slower there, less
    exact, and does not go with a head or embedding that is trained in full."""
    for parameter in model.parameters():
        if parameter.requires_grad and parameter.dtype != torch.float32:
            parameter.data = parameter.data.float()


def _worn(model: Any) -> str:
    """The modules and parameters that wear an adapter, as last name parts: q_proj, v_proj, ..."""
    config = model.peft_config["default"]
    wanted = [*(config.target_modules or []), *(getattr(config, "target_parameters", None) or [])]
    return ", ".join(sorted({name.removesuffix(".weight").rsplit(".", 1)[-1] for name in wanted}))


def _numbers(scores: dict[str, float]) -> dict[str, float]:
    """The scores that are numbers: a reward that does not apply to a row gives none."""
    return {name: score for name, score in scores.items() if math.isfinite(score)}


def _trainable(model: Any) -> int:
    return sum(parameter.numel() for parameter in model.parameters() if parameter.requires_grad)


def _checkpoint_bytes(model: Any) -> int:
    """Bytes of a checkpoint: what is trained in its own precision, and two fp32 optimizer states for it."""
    return sum(
        parameter.numel() * (parameter.element_size() + 8)
        for parameter in model.parameters()
        if parameter.requires_grad
    )
