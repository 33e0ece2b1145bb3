"""One attempt of a run, from job.json to the committed model."""

from __future__ import annotations

import json
import math
import os
from typing import Any

import torch
from datasets import Dataset
from transformers import PrinterCallback, set_seed
from transformers.utils import logging

from core.job.schedule import Schedule, schedule
from core.job.spec import JobSpec
from core.methods import method_module
from core.methods.adapter import CHANGING_BASE, AdapterSpec
from core.runs import checkpoints, events
from core.runs.events import EventWriter
from core.runs.folder import Run
from core.stages import stage_module
from core.training.callbacks import RunCallback
from core.training.context import Context
from core.training.model import START, adapter_folder, keep_start, load_model, load_tokenizer, save_model
from core.training.rows import as_event, rows_for
from core.training.samples import answer_prompts
from core.training.stop import Stopped, StopRequest
from core.training.watchdog import Watchdog


def train(run: Run, stop: StopRequest) -> None:
    """Train the run's job and commit its model.

    Raises Stopped when asked to stop (a checkpoint is committed if a step was done), FactoryError for what the
    user can mend.
    """
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    os.environ.setdefault("TENSORBOARD_LOGGING_DIR", str(run.path / "tensorboard"))
    logging.disable_progress_bar()
    job = JobSpec.model_validate_json(run.job_json.read_text("utf-8"))
    attempt = json.loads(run.attempt_json.read_text("utf-8"))
    writer = EventWriter(run.events)
    gpu = torch.cuda.is_available()
    set_seed(job.train.seed)

    writer.emit(events.Phase(name="loading", text=f"Loading {job.model.name}"))
    tokenizer = load_tokenizer(job.model, run.home)
    stop.check()
    writer.emit(events.Phase(name="preparing", text="Preparing the data"))
    prepared = rows_for(job, run.home, tokenizer, writer.emit)
    stop.check()
    plan = schedule(job.train, prepared.rows * job.stage.repeats)
    stage = stage_module(job.stage.name)
    if hasattr(stage, "before_loading"):
        stage.before_loading(job, run.home, tokenizer, prepared.rows)
    model = load_model(job, run.home, gpu=gpu, task=stage.TASK)
    model.config.pad_token_id = tokenizer.pad_token_id
    stop.check()

    prompts = [] if stage.TASK != "CAUSAL_LM" else job.evaluate.prompts or prepared.prompts
    learner = _Learner(job)
    if not learner.can_go_back and attempt["attempt"] == 1:
        before = answer_prompts(model, tokenizer, prompts, job.evaluate.max_new_tokens)
        _emit_samples(writer, 0, "before", prompts, before)
    model = method_module(job.method.name).apply(
        model, job.method, seed=job.train.seed, task=stage.TASK, adapter=learner.adapter
    )
    if learner.changes_base:
        keep_start(model, run.path / START)
    callback = RunCallback(
        run,
        writer,
        stop,
        plan,
        job_hash=checkpoints.job_hash(job.model_dump(mode="json")),
        keep=job.train.keep_checkpoints,
        keep_best=job.train.keep_best,
        patience=job.train.early_stopping,
        watchdog=Watchdog(job.stage.name) if job.train.watchdog else None,
        sampler=lambda step: _emit_samples(
            writer,
            step,
            "during",
            prompts,
            answer_prompts(model, tokenizer, prompts, job.evaluate.max_new_tokens),
        ),
        sample_steps=job.evaluate.every,
    )
    callback.expect_checkpoint_bytes(_checkpoint_bytes(model))
    context = Context(
        job=job,
        output_dir=run.checkpoints,
        model=model,
        tokenizer=tokenizer,
        train_rows=Dataset.from_file(str(prepared.train)),
        eval_rows=Dataset.from_file(str(prepared.eval)) if prepared.eval else None,
        schedule=plan,
        callbacks=[callback],
        gpu=gpu,
        home=run.home,
        emit=lambda finding: writer.emit(as_event(finding)),
        show=lambda step, prompt, answer, scores: writer.emit(
            events.Sample(step=step, prompt=prompt, answer=answer, scores=_numbers(scores))
        ),
        fresh_adapter=learner.can_go_back,
        frozen_copy=lambda: load_model(job, run.home, gpu=gpu, task=stage.TASK).requires_grad_(False),
    )
    trainer = stage.build(context)
    if not gpu:
        _in_full_precision(trainer.model)
    trainer.remove_callback(PrinterCallback)  # our callback writes the log's lines
    stop.check()
    writer.emit(
        events.Start(
            total_steps=plan.total_steps,
            rows=prepared.rows,
            trainable=_trainable(model),
            parameters=sum(parameter.numel() for parameter in model.parameters()),
            device=torch.cuda.get_device_name() if gpu else "cpu",
        )
    )
    _run_steps(trainer, run, attempt["resume"], callback, stop)
    _finish(run, writer, job, trainer, callback, plan, prompts)


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


def _run_steps(trainer: Any, run: Run, resume: str | None, callback: RunCallback, stop: StopRequest) -> None:
    stop.finish_first(True)
    trainer.train(resume_from_checkpoint=str(run.path / resume) if resume else None)
    if callback.stopped:
        raise Stopped


def _finish(
    run: Run,
    writer: EventWriter,
    job: JobSpec,
    trainer: Any,
    callback: RunCallback,
    plan: Schedule,
    prompts: list[str],
) -> None:
    model, tokenizer = trainer.accelerator.unwrap_model(trainer.model), trainer.processing_class
    step = trainer.state.global_step
    if callback.best is not None and callback.best[1] != step:
        step = callback.best[1]
        trainer._load_from_checkpoint(str(run.checkpoints / f"checkpoint-{step}"))
        writer.emit(events.Phase(name="saving", text=f"Taking the best weights, from step {step}"))
    writer.emit(events.Phase(name="saving", text="Saving the model"))
    loss = _last_loss(trainer)
    save_model(model, tokenizer, run.model, job.model, {"step": step})
    if _Learner(job).can_go_back:
        with model.disable_adapter():
            answers = answer_prompts(model, tokenizer, prompts, job.evaluate.max_new_tokens)
        _emit_samples(writer, 0, "before", prompts, answers)
    after = answer_prompts(model, tokenizer, prompts, job.evaluate.max_new_tokens)
    _emit_samples(writer, step, "after", prompts, after)
    writer.emit(
        events.Done(
            model=str(run.model.relative_to(run.path)), values={"loss": loss} if loss is not None else {}
        )
    )


def _last_loss(trainer: Any) -> float | None:
    losses = [record["loss"] for record in trainer.state.log_history if "loss" in record]
    return float(losses[-1]) if losses else None


def _emit_samples(writer: EventWriter, step: int, kind: str, prompts: list[str], answers: list[str]) -> None:
    for prompt, answer in zip(prompts, answers, strict=True):
        writer.emit(events.Sample(step=step, kind=kind, prompt=prompt, answer=answer))


def _in_full_precision(model: Any) -> None:
    """What learns, in fp32 on a CPU: trl 1.12 puts it in bf16 beside a quantised base, which is slower there, less
    exact, and does not go with a head or embedding that is trained in full."""
    for parameter in model.parameters():
        if parameter.requires_grad and parameter.dtype != torch.float32:
            parameter.data = parameter.data.float()


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
