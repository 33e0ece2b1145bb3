"""Is the training healthy? Rules per stage over the metrics of a run; each verdict says what, why, and what to try.

Pure: knows metrics by their common names, no trainer. Thresholds from the health rules that TRL's and Axolotl's guides
give (docs/metrics.md has the table).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from data.words import number

ONLINE = ("grpo", "rloo", "ppo")
PATIENCE = 5
"""Records in a row that must be bad before a rule speaks."""


RULES = (
    # code, when, what happens; for the docs, beside the functions below
    ("loss_diverged", "loss above twice its first value (not in stages that sample)", "the run ends"),
    ("nothing_learnt", "gradient exactly 0 (not in stages that sample)", "a warning"),
    ("no_reward_signal", "`reward/no_spread` at least 0.8", "a warning"),
    ("answers_cut", "`length/clipped` at least 0.8", "a warning"),
    ("kl_exploded", "`kl` at least 10", "a warning"),
    ("entropy_collapsed", "`entropy` at most 0.01 (stages that sample)", "a warning"),
)


@dataclass(frozen=True)
class Verdict:
    """One thing that is wrong with a run; `stop` when going on only costs time."""

    code: str
    message: str
    stop: bool = False


@dataclass
class Watchdog:
    """Looks at every record of metrics. Says each thing once, and again only after it was well in between."""

    stage: str
    _start: float | None = None
    _bad: dict[str, int] = field(default_factory=dict)

    def look(self, step: int, values: Mapping[str, float]) -> list[Verdict]:
        """What this record adds up to. `values` are numbers by common name; evaluation records say nothing here."""
        if any(name.startswith("eval_") for name in values):
            return []
        rules = [self._loss(step, values), self._gradient(values)]
        if self.stage in ONLINE:
            rules += [_spread(values), _cut(values), _kl(values), _entropy(values)]
        found = []
        for verdict, code in rules:
            self._bad[code] = self._bad.get(code, 0) + 1 if verdict is not None else 0
            if verdict is not None and self._bad[code] == PATIENCE:
                found.append(verdict)
        return found

    def _loss(self, step: int, values: Mapping[str, float]) -> tuple[Verdict | None, str]:
        """Loss above twice its start, for stages whose loss says something (that of online stages hovers at 0)."""
        loss = values.get("loss")
        if loss is None or self.stage in ONLINE:
            return None, "loss_diverged"
        if self._start is None:
            self._start = loss
        if loss <= 2 * self._start or loss < 1.0:
            return None, "loss_diverged"
        return (
            Verdict(
                "loss_diverged",
                f"loss is {number(loss)} at step {step}, more than twice the {number(self._start)} it began with, "
                f"{PATIENCE} records in a row: training stopped; lower train.learning_rate to a half or a tenth, "
                "or raise train.warmup.",
                stop=True,
            ),
            "loss_diverged",
        )

    def _gradient(self, values: Mapping[str, float]) -> tuple[Verdict | None, str]:
        norm = values.get("grad_norm")
        if norm is None or norm > 0 or values.get("learning_rate") == 0 or self.stage in ONLINE:
            return None, "nothing_learnt"
        return (
            Verdict(
                "nothing_learnt",
                f"the gradient was exactly 0 in {PATIENCE} records: nothing is learnt from this data; look at the mask "
                "with factory data preview, and at what method.target or method.layers lets move.",
            ),
            "nothing_learnt",
        )


def _spread(values: Mapping[str, float]) -> tuple[Verdict | None, str]:
    share = values.get("reward/no_spread")
    code = "no_reward_signal"
    if share is None or share < 0.8:
        return None, code
    return (
        Verdict(
            code,
            f"in {share:.0%} of the groups all answers got the same reward, {PATIENCE} records in a row, so there is "
            "nothing to learn: raise stage.temperature or stage.num_generations, pick easier or harder prompts, or "
            "look at the scores of the sampled answers (factory logs ID --json).",
        ),
        code,
    )


def _cut(values: Mapping[str, float]) -> tuple[Verdict | None, str]:
    share = values.get("length/clipped")
    code = "answers_cut"
    if share is None or share < 0.8:
        return None, code
    return (
        Verdict(
            code,
            f"{share:.0%} of the answers hit stage.max_completion_length, for {PATIENCE} records: raise it, or reward "
            "shorter answers (reward length).",
        ),
        code,
    )


def _kl(values: Mapping[str, float]) -> tuple[Verdict | None, str]:
    kl = values.get("kl")
    code = "kl_exploded"
    if kl is None or kl < 10:
        return None, code
    return (
        Verdict(
            code,
            f"kl to the reference is {number(kl)}, {PATIENCE} records in a row (healthy is below 2): lower "
            "train.learning_rate or raise stage.beta (stage.kl_coef in ppo).",
        ),
        code,
    )


def _entropy(values: Mapping[str, float]) -> tuple[Verdict | None, str]:
    entropy = values.get("entropy")
    code = "entropy_collapsed"
    if entropy is None or entropy > 0.01:
        return None, code
    return (
        Verdict(
            code,
            f"entropy is {number(entropy)}, {PATIENCE} records in a row: the model gives one answer only and explores "
            "nothing; lower train.learning_rate, raise stage.temperature or stage.epsilon_high.",
        ),
        code,
    )
