"""Every loss and variant of dpo, grpo and rloo by its name: it trains, moves weights, and its metrics are explained."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any, get_args

import pytest

from core.stages import dpo, grpo, rloo
from core.training.metrics import ALWAYS, LOGGED, LOGGED_WITH, MEANING
from tests.cpu import test_online, test_preference
from tests.cpu.conftest import write_rows
from tests.cpu.jobs import TIGHT
from tests.zygote import Zygote

TWO = {"max_steps": 2, "gradient_accumulation": 1, "padding_free": True, "fused": True}
DPO: dict[str, dict[str, Any]] = {
    "hinge": {},
    "ipo": {},
    "robust": {"label_smoothing": 0.1},
    "exo_pair": {"label_smoothing": 0.001},
    "nca_pair": {},
    "bco_pair": {},
    "sppo_hard": {},
    "aot": {},
    "aot_unpaired": {},
    "apo_zero": {},
    "apo_down": {},
    "discopop": {},
    "sigmoid_norm": {},
    "sft": {},
    "cpo": {},
    "mixed": {"loss": ["sigmoid", "sft"], "loss_weights": [1.0, 0.3]},
    "precomputed": {"loss": ["sigmoid"], "reference": "precomputed"},
}
"""Stage settings by the loss's name; sigmoid and simpo are compared with trl in test_preference."""
ONLINE: dict[str, dict[str, Any]] = {
    "grpo": {"name": "grpo", "loss": "grpo"},
    "bnpo": {"name": "grpo", "loss": "bnpo"},
    "dr_grpo": {"name": "grpo", "loss": "dr_grpo", "scale_rewards": "none"},
    "cispo": {"name": "grpo", "loss": "cispo"},
    "sapo": {"name": "grpo", "loss": "sapo", "scale_rewards": "batch"},
    "vespo": {"name": "grpo", "loss": "vespo"},
    "gspo": {"name": "grpo", "loss": "grpo", "importance_sampling": "sequence"},
    "higher": {"name": "grpo", "epsilon_high": 0.28, "num_iterations": 2},
    "masked": {"name": "grpo", "mask_truncated": True, "max_completion_length": 150, "num_generations": 8},
    "reinforce++": {"name": "rloo", "algorithm": "reinforce++"},
}
"""Stage settings by what is tried; dapo and rloo are compared with trl in test_online."""


def _compared(tiny: str, folder: Path, rows: dict[str, list[dict[str, Any]]]) -> dict[str, dict[str, Any]]:
    """What the hand-written scripts are given, by the name of the job that must give the same losses."""
    common = {"per_device_train_batch_size": 4, "max_steps": 2, "learning_rate": 1e-3, "warmup_steps": 0}
    asked = {
        "ipo": ("dpo", {"loss_type": ["ipo"], "beta": 0.1}),
        "aot": ("dpo", {"loss_type": ["aot"], "beta": 0.1}),
        "mixed": ("dpo", {"loss_type": ["sigmoid", "sft"], "loss_weights": [1.0, 0.3], "beta": 0.1}),
        "cpo": ("cpo", {"cpo_alpha": 1.0}),
        "cispo": ("grpo", {"loss_type": "cispo", "epsilon_high": 5.0}),
        "reinforce++": ("rloo", {"normalize_advantages": True}),
    }
    sampling = {"num_generations": 4, "max_completion_length": 16, "beta": 0.04}
    return {
        name: {
            "stage": stage,
            "model": tiny,
            "rows": rows["online" if stage in ("grpo", "rloo") else "dpo"],
            "out": str(folder / f"trl-{name}"),
            "settings": {**common, **(sampling if stage in ("grpo", "rloo") else {}), **more},
            "lora": None,
        }
        for name, (stage, more) in asked.items()
    }


@pytest.fixture(scope="module")
def runs(zygote: Zygote, tiny: str, tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """What every job gave, and the hand-written scripts beside them ("trl ipo"): all in two children."""
    folder = tmp_path_factory.mktemp("losses")
    (folder / "tight.jinja").write_text(TIGHT, "utf-8")
    rows = {"dpo": test_preference.pairs(12), "online": test_online.prompts(8)}
    files = {name: write_rows(folder / f"{name}.jsonl", some) for name, some in rows.items()}
    jobs = {}
    for name, more in DPO.items():
        stage = {"name": "dpo", "loss": [name], **more}
        jobs[name] = test_preference.job(
            tiny, files["dpo"], stage, str(folder / "tight.jinja"), method="full", train=TWO
        )
    for name, stage in ONLINE.items():
        train = {**TWO, "padding_free": False, "fused": False, "batch_size": stage.get("num_generations", 4)}
        jobs[name] = test_online.job(tiny, files["online"], stage, method="full", train=train)
        if name == "masked":  # its answers are long, or none would end by itself
            jobs[name]["rewards"] = [{**test_online.LONG, "shortest": 0, "longest": 9, "fade": 900}]
    for job in jobs.values():
        job["evaluate"] = {"prompts": ["1"], "max_new_tokens": 1}
    ours = {name: {"job": job, "home": str(folder / "home"), "base": tiny} for name, job in jobs.items()}
    found: dict[str, dict[str, Any]] = zygote.call("tests.cpu.jobs:each", what="train_from", cases=ours)
    theirs = _compared(tiny, folder, rows)
    for kind in ("preference", "online"):
        cases = {name: one for name, one in theirs.items() if (name in ONLINE) is (kind == "online")}
        plain = zygote.call("tests.cpu.jobs:each", what=f"plain_trl_{kind}", cases=cases)
        found |= {f"trl {name}": {"losses": losses} for name, losses in plain.items()}
    return found


@pytest.mark.parametrize("name", [*DPO, *ONLINE])
def test_a_loss_is_finite_and_moves_weights(runs: dict[str, dict[str, Any]], name: str) -> None:
    done = runs[name]
    assert done["code"] == 0, done["last"]
    assert len(done["metrics"]) == 2 and done["moved"] > 1e-5
    assert all(math.isfinite(value) for record in done["metrics"] for value in record.values())
    assert all(record["grad_norm"] > 0 for record in done["metrics"])
    # With num_iterations 2 the second step learns from the first one's answers again.
    spreads = [record["reward/std"] for record in done["metrics"] if "reward/std" in record]
    assert all(spread > 0 for spread in spreads) and bool(spreads) is (name in ONLINE)
    assert name != "masked" or all(0 < record["length/clipped"] < 1 for record in done["metrics"])


@pytest.mark.parametrize("name", [*DPO, *ONLINE])
def test_what_it_logs_is_in_the_table_and_explained(runs: dict[str, dict[str, Any]], name: str) -> None:
    stage = ONLINE.get(name, {}).get("name", "dpo")
    usual, more = {*ALWAYS, *LOGGED[stage]}, set(LOGGED_WITH.get(f"{stage} with loss {name}", ()))
    seen = {
        one.replace("reward/length/", "reward/NAME/") for record in runs[name]["metrics"] for one in record
    }
    assert seen <= usual | more and more <= seen
    assert seen <= set(MEANING)


@pytest.mark.parametrize("name", ["ipo", "aot", "mixed", "cpo", "cispo", "reinforce++"])
def test_losses_equal_those_of_a_hand_written_trl_script(runs: dict[str, dict[str, Any]], name: str) -> None:
    theirs = [one["loss"] if isinstance(one, dict) else one for one in runs[f"trl {name}"]["losses"]]
    ours = [record["loss"] for record in runs[name]["metrics"]]
    assert len(theirs) == 2 and ours == pytest.approx(theirs, rel=1e-5, abs=1e-7)


def test_no_loss_is_left_out() -> None:
    tried = {"sigmoid", "simpo"} | {name for name in DPO if name not in ("mixed", "precomputed")}
    assert tried == set(get_args(dpo.Loss))
    of_grpo = {stage["loss"] for stage in ONLINE.values() if "loss" in stage}
    assert of_grpo | {"dapo"} == set(get_args(grpo.Spec.model_fields["loss"].annotation))
    assert set(get_args(rloo.Spec.model_fields["algorithm"].annotation)) == {"rloo", "reinforce++"}
