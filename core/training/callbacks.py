"""What a run does between steps: write metrics, commit checkpoints, honour a stop, end on a loss that is no number."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from transformers import TrainerCallback, TrainerControl, TrainerState

from core.job.schedule import Schedule
from core.runs import checkpoints, events
from core.runs.events import EventWriter
from core.runs.folder import Run
from core.training.longer import other_length
from core.training.metrics import common_names, not_finite
from core.training.stop import StopRequest
from core.training.trainer import counted
from core.training.watchdog import Watchdog
from core.training.world import Council, Silence
from data.errors import refuse
from data.words import byte_size, number


@dataclass
class Clock:
    """Seconds spent inside steps, and tokens since the last record: tokens per second without saves and evaluations."""

    seconds: float = 0.0
    tokens: float = 0.0
    _began: float = field(default=0.0, repr=False)

    def begin(self) -> None:
        self._began = time.perf_counter()

    def end(self) -> None:
        self.seconds += time.perf_counter() - self._began

    def rate(self, tokens: float) -> float | None:
        """Tokens per second since the last call, or None before any step ended."""
        seconds, self.seconds = self.seconds, 0.0
        new, self.tokens = tokens - self.tokens, tokens
        return new / seconds if seconds > 0 and new > 0 else None


class AtFirst(TrainerCallback):
    """Does something once when all is prepared, before the first step.

    What asks the model earlier has accelerate 1.15 take it for prepared, and several processes then train one model
    each: their gradients never meet (tried).
    """

    def __init__(self, work: Callable[[], None]) -> None:
        self._work = work

    def on_train_begin(self, args: Any, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        self._work()


class RunCallback(TrainerCallback):
    """Ties a transformers Trainer to a run folder."""

    def __init__(
        self,
        run: Run,
        writer: EventWriter | Silence,
        stop: StopRequest,
        schedule: Schedule,
        *,
        job_hash: str,
        keep: int,
        keep_best: bool,
        patience: int | None,
        watchdog: Watchdog | None,
        sampler: Callable[[int], None] | None,
        sample_steps: int | None,
        council: Council,
    ) -> None:
        self.run = run
        self._job_hash = job_hash
        self.stop = stop
        self.stopped = False
        self.best: tuple[float, int] | None = None
        self.planned_before: int | None = None
        """Steps that the run was to have when the checkpoint was written that this attempt resumes."""
        self._writer = writer
        self._schedule = schedule
        self._keep = keep
        self._keep_best = keep_best
        self._patience = patience
        self._watchdog = watchdog
        self._sampler, self._sample_steps = sampler, sample_steps
        self._council = council
        self._lowest, self._since_lowest = math.inf, 0
        self._clock = Clock()
        self._last_save_bytes = 0

    def expect_checkpoint_bytes(self, size: int) -> None:
        """How large the first checkpoint will be, in bytes; later ones are measured."""
        self._last_save_bytes = size

    def on_train_begin(self, args: Any, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        self._council.convene()
        self.best = _best_so_far(self.run) if self._keep_best else None
        # Of earlier attempts: the rate is that of this one.
        self._clock.tokens = float(max(counted(state.log_history, "num_tokens"), state.num_input_tokens_seen))
        before, total = self.planned_before, self._schedule.total_steps
        if before is not None and before != total:
            text = other_length(kwargs["lr_scheduler"], state.global_step, before, total)
            self._writer.emit(events.Warn(code="length_changed", level="note", message=text))

    def on_step_begin(self, args: Any, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        self._clock.begin()

    def on_step_end(self, args: Any, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        self._clock.end()
        if self._sampler is not None and self._sample_steps and state.global_step % self._sample_steps == 0:
            self._sampler(state.global_step)
        last = state.global_step >= self._schedule.total_steps
        if self._council.any(self.stop.asked()) and not last:  # all stop at the same step
            self.stopped = True
            control.should_training_stop = True
            control.should_save = True
            control.should_evaluate = False
        if last:
            control.should_save = True
            control.should_evaluate = args.eval_strategy != "no"
        if control.should_save or last:
            control.should_log = True  # a loss that is no number must be seen before it is saved
        if control.should_save and not self._room(state):
            control.should_save = False

    def on_log(
        self,
        args: Any,
        state: TrainerState,
        control: TrainerControl,
        logs: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        values = common_names(logs or {})
        if "train_loss" in values or not values:
            return  # the library's closing summary repeats what the records said
        if "loss" in values and (rate := self._clock.rate(values.get("tokens", 0.0))) is not None:
            values["tokens_per_second"] = round(rate, 2)
        bad = not_finite(values)
        self._writer.emit(events.Metric(step=state.global_step, epoch=state.epoch, values=values))
        if self._council.world.first:
            sys.stdout.write(_line(state.global_step, self._schedule.total_steps, values))
            sys.stdout.flush()
        if bad is not None:
            raise refuse(
                "loss_not_finite",
                f"{bad} is {values[bad]} at step {state.global_step}: training stopped and the last good checkpoint "
                "kept; try a lower train.learning_rate, or check the data around that step.",
                field="train.learning_rate",
                value=args.learning_rate,
                step=state.global_step,
                metric=bad,
            )
        self._look(state.global_step, values)

    def _look(self, step: int, values: dict[str, float]) -> None:
        """What the watchdog says: a warning, or the end of a run that only costs time."""
        for verdict in self._watchdog.look(step, values) if self._watchdog else ():
            if verdict.stop:
                raise refuse(verdict.code, verdict.message, field="train.learning_rate", step=step)
            self._writer.emit(events.Warn(code=verdict.code, message=verdict.message))

    def on_evaluate(
        self,
        args: Any,
        state: TrainerState,
        control: TrainerControl,
        metrics: dict[str, float] | None = None,
        **kwargs: Any,
    ) -> None:
        loss = (metrics or {}).get("eval_loss")
        if loss is None:
            return
        if self._keep_best and (self.best is None or loss < self.best[0]):
            self.best = (loss, state.global_step)
            control.should_save = self._room(state)
        self._watch_for_the_end(loss, state, control)

    def _watch_for_the_end(self, loss: float, state: TrainerState, control: TrainerControl) -> None:
        """Early stopping: end when the lowest eval_loss is `patience` evaluations old."""
        if loss < self._lowest:
            self._lowest, self._since_lowest = loss, 0
            return
        self._since_lowest += 1
        if self._patience is not None and self._since_lowest >= self._patience:
            control.should_training_stop = True
            control.should_save = self._room(state)
            text = f"eval_loss has not improved for {self._patience} evaluations: training ended at step "
            self._writer.emit(
                events.Warn(code="stopped_early", level="note", message=f"{text}{state.global_step}.")
            )

    def on_save(self, args: Any, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        self._council.wait()  # every process has written its part
        if self._council.world.first:
            self._commit(state.global_step)

    def _commit(self, step: int) -> None:
        """Declare the checkpoint whole, tell it, and take away those that are no longer kept."""
        folder = self.run.checkpoints / f"checkpoint-{step}"
        best_now = self.best is not None and self.best[1] == step
        values = {"best_eval_loss": self.best[0]} if self.best and best_now else {}
        self._last_save_bytes = checkpoints.commit(folder, step, self._job_hash, values)
        self._writer.emit(
            events.Checkpoint(
                step=step,
                path=folder.relative_to(self.run.path).as_posix(),
                bytes=self._last_save_bytes,
            )
        )
        keep_also = [self.best[1]] if self.best else []
        checkpoints.retire(self.run, keep=self._keep, keep_also=keep_also)

    def _room(self, state: TrainerState) -> bool:
        """Whether the next checkpoint fits the disk, by the first process's measure."""
        return self._council.firsts(not self._council.world.first or self._has_room(state))

    def _has_room(self, state: TrainerState) -> bool:
        room = checkpoints.room_for(self.run, self._last_save_bytes)
        if not room:
            self._writer.emit(
                events.Warn(
                    code="checkpoint_skipped",
                    message=f"checkpoint at step {state.global_step} skipped: it needs {byte_size(room.needed)} "
                    f"and {byte_size(room.free)} are free; make room, the next save tries again.",
                )
            )
        return bool(room)


def _line(step: int, total: int, values: dict[str, float]) -> str:
    """A line for log.txt, which people read; programs read the events."""
    told = "  ".join(f"{name} {number(value)}" for name, value in values.items())
    return f"step {step}/{total}  {told}\n"


def _best_so_far(run: Run) -> tuple[float, int] | None:
    """The lowest evaluation loss among the committed checkpoints of earlier attempts, and its step."""
    found = []
    for folder in checkpoints.complete(run):
        marker = checkpoints.marker(folder) or {}
        if "best_eval_loss" in marker.get("values", {}):
            found.append((float(marker["values"]["best_eval_loss"]), int(marker["step"])))
    return min(found, default=None)
