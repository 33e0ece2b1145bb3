"""Error cards: from a fault's code to its cause, the setting concerned, the change, and a command ready to copy.

One table for the command line, the board and the error event. Stdlib only: readers of runs show it.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from core.job.schedule import smaller_batches

Job = Mapping[str, Any]
Changes = dict[str, Any]


@dataclass(frozen=True)
class Card:
    """What to know and do about a fault."""

    code: str
    cause: str
    setting: str | None
    """The dotted field that the fault hangs on."""
    change: str
    command: str
    """Ready to copy."""
    changes: Changes = field(default_factory=dict)
    """The same change as dotted fields and values, for a form to take over; empty where no setting mends it."""

    def to_json(self) -> dict[str, Any]:
        """Plain JSON."""
        names = ("code", "cause", "setting", "change", "command", "changes")
        return {name: getattr(self, name) for name in names}

    def lines(self) -> list[str]:
        """The card for people, two columns."""
        rows = [
            ("cause", self.cause),
            ("setting", self.setting),
            ("change", self.change),
            ("try", self.command),
        ]
        return [f"  {name:<7}  {text}" for name, text in rows if text]


@dataclass(frozen=True)
class Row:
    """A row of the table. `changes` makes fields to set from the job; without, `resume` says whether to go on."""

    cause: str
    change: str
    setting: str | None = None
    changes: Callable[[Job], Changes] | None = None
    resume: bool = False
    command: str | None = None


def _less_memory(job: Job) -> Changes:
    train = job.get("train") or {}
    batch, times = train.get("batch_size") or 4, train.get("gradient_accumulation") or 1
    least = 2 if (job.get("stage") or {}).get("name") == "kto" else 1
    for size, fewer in smaller_batches(batch, times, least=least):
        return {"train.batch_size": size, "train.gradient_accumulation": fewer}
    if not train.get("gradient_checkpointing"):
        return {"train.gradient_checkpointing": True}
    return {"method": "qlora" if (job.get("method") or {}).get("name") == "lora" else "lora"}


def _lower_rate(job: Job) -> Changes:
    rate = (job.get("train") or {}).get("learning_rate")
    return {"train.learning_rate": float(f"{rate / 5:.2g}")} if rate else {}


def _more_spread(job: Job) -> Changes:
    stage = job.get("stage") or {}
    return {"stage.num_generations": 2 * (stage.get("num_generations") or 4), "stage.temperature": 1.0}


def _move_something(job: Job) -> Changes:
    return {"method.layers": 2} if (job.get("method") or {}).get("name") == "freeze" else {}


def _other_template(job: Job) -> Changes:
    return {"model.template": "chatml"}


TABLE: Mapping[str, Row] = {
    "out_of_memory": Row(
        "The batch, the longest rows and the model together did not fit the memory.",
        "Halve the batch and double the accumulation: the same training in less memory.",
        "train.batch_size",
        _less_memory,
    ),
    "disk_full": Row(
        "There was no room for the next checkpoint or the model.",
        "Free space, or keep fewer checkpoints; all up to the last checkpoint is safe.",
        "train.keep_checkpoints",
        resume=True,
    ),
    "storage_error": Row(
        "The disk or network folder of the home failed.",
        "Check the disk; what was committed before is whole.",
        resume=True,
    ),
    "loss_not_finite": Row(
        "A number overflowed, mostly from a learning rate that is too high, or from damaged weights or rows.",
        "Lower the learning rate; if it comes at once, look at the data and the precision.",
        "train.learning_rate",
        _lower_rate,
    ),
    "loss_diverged": Row(
        "The steps are too large: the loss grew to twice its start and stayed there.",
        "Lower the learning rate to a fifth.",
        "train.learning_rate",
        _lower_rate,
    ),
    "no_reward_signal": Row(
        "All answers to a prompt got the same reward, so none is better than another.",
        "Compare more answers with more spread, and look at the rewards first: factory rewards try.",
        "stage.num_generations",
        _more_spread,
    ),
    "template_missing": Row(
        "The rows are chats, and the model has no template to write them with.",
        "Name a template; chatml suits a model that never had one.",
        "model.template",
        _other_template,
    ),
    "nothing_trainable": Row(
        "With these settings no weight would move.",
        "Let the last layers move.",
        "method.layers",
        _move_something,
    ),
    "model_not_reachable": Row(
        "The model is not on this machine, and the hub did not give it: a wrong name, no network, or a gated model.",
        "Check the name; for a gated model accept its terms on the hub and set HF_TOKEN; or name a local folder.",
        "model.name",
    ),
    "model_offline": Row(
        "The model is not on this machine, and downloads are switched off.",
        "Unset HF_HUB_OFFLINE, or name a local folder.",
        "model.name",
    ),
    "tokenizer_mismatch": Row(
        "The models of this job read text with different tokenizers, so tokens of one mean nothing to the other.",
        "Take a reward or value model that was trained from the same base.",
        "rewards",
    ),
    "adapter_mismatch": Row(
        "The adapter was trained beside another model: its matrices have other sizes.",
        "Set model.name to the adapter's base (base_model_name_or_path in its adapter_config.json).",
        "model.name",
    ),
    "reward_failed": Row(
        "A reward of the job raised an error while it scored answers.",
        "Mend it; factory rewards try shows it on a few rows.",
        "rewards",
        command="factory rewards try {job}",
    ),
    "engine_not_installed": Row(
        "A library that this job needs is not in this Python.",
        "Start through python launch.py, which brings it, or install what the message names.",
        "engine.name",
    ),
    "queue_stuck": Row(
        "The run waits for a device that somebody else holds.",
        "See who: factory queue. Move this run forward, or stop the other one.",
        "hardware.devices",
        command="factory queue front {id}",
    ),
    "killed": Row(
        "The training process was ended from outside: by someone, by a scheduler, or with the machine.",
        "Go on from the last checkpoint.",
        resume=True,
    ),
    "slurm_timeout": Row(
        "The cluster ended the run at its time limit.",
        "Raise launcher.time and go on from the last checkpoint.",
        "launcher.time",
        resume=True,
    ),
    "node_lost": Row(
        "Another machine of the run failed, was taken away, or can no longer be reached.",
        "Look at its output under nodes in the run folder, then go on from the last checkpoint.",
        resume=True,
    ),
}

SAME: Mapping[str, str] = {
    "packages_missing": "engine_not_installed",
    "package_missing": "engine_not_installed",
    "reward_model_tokenizer": "tokenizer_mismatch",
    "tokenizers_differ": "tokenizer_mismatch",
    "adapter_incomplete": "adapter_mismatch",
    "reward_not_finite": "reward_failed",
    "reward_not_a_list": "reward_failed",
    "reward_wrong_length": "reward_failed",
    "reward_not_a_number": "reward_failed",
    "data_nothing_to_learn": "template_missing",
    "nothing_learnt": "nothing_trainable",
    "lost": "killed",
    "node_failed": "node_lost",
    "node_missing": "node_lost",
    "slurm_node_failed": "node_lost",
    "slurm_preempted": "killed",
    "slurm_cancelled": "killed",
}
"""Codes that share a card."""


def card(code: str | None, job: Job, *, id: str, job_file: str, checkpoint: bool = False) -> Card | None:
    """The card for a fault of run `id`, whose resolved job lies in `job_file`; None for a code without one.

    `checkpoint` says whether there is a whole one to go on from.
    """
    known = SAME.get(code or "", code or "")
    row = TABLE.get(known)
    if row is None:
        return None
    changes = row.changes(job) if row.changes else {}
    again = f"factory train {shlex.quote(job_file)}"
    if row.command:
        command = row.command.format(id=id, job=shlex.quote(job_file))
    elif row.resume and checkpoint:
        command = f"factory resume {id}"
    else:
        command = " ".join([again, *(f"-o {name}={_word(value)}" for name, value in changes.items())])
    return Card(known, row.cause, row.setting, row.change, command, changes)


def _word(value: Any) -> str:
    return shlex.quote(value if isinstance(value, str) else json.dumps(value))
