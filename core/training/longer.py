"""A resumed run that is to be longer or shorter than it was: its learning rate follows the new length at once."""

from __future__ import annotations

from typing import Any

from data.words import number


def other_length(scheduler: Any, step: int, before: int, total: int) -> str:
    """Put the optimizer's rates where the schedule over `total` steps has them at `step`; a sentence that tells so.

    transformers 5.17 loads the rate that the old schedule, over `before` steps, had reached: after a finished run
    that is 0, and the first resumed step would be for nothing. `scheduler` is a torch LambdaLR.
    """
    old = scheduler.get_last_lr()
    pairs = zip(scheduler.base_lrs, scheduler.lr_lambdas, strict=True)
    rates = [base * share(scheduler.last_epoch) for base, share in pairs]
    for group, rate in zip(scheduler.optimizer.param_groups, rates, strict=True):
        group["lr"] = rate
    scheduler._last_lr = rates
    return (
        f"The run has {total:,} steps now, not {before:,}, and goes on behind step {step:,}: its learning rate is "
        f"{number(rates[0])} there, where the old schedule had {number(old[0])}."
    )
