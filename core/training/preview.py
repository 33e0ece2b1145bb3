"""Reads a file with a model's own tokenizer: `python -m core.training.preview`, a request on stdin, JSON on stdout.

A process of its own, as the command line and the board never import transformers. A refusal is
{"refused": [finding, ...]} and exit code 2.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

from core.job.data import DataSpec
from core.job.spec import ModelSpec
from core.stages import STAGES
from core.training.model import load_tokenizer
from data.detect import STAGE_NEEDS
from data.errors import FactoryError
from data.inspect import inspect
from data.prepare import PrepareSettings
from data.preview import preview


def answer(request: dict[str, Any]) -> dict[str, Any]:
    """The preview or inspection asked for: {do, data, model: {name, ...}, stage, home, count, max_length?}."""
    data = DataSpec.model_validate_json(json.dumps(request["data"])).model_dump(mode="json")
    tokenizer = load_tokenizer(ModelSpec.model_validate(request["model"]), Path(request["home"]))
    stage = request["stage"]
    needs = needs_of(stage)
    how = PrepareSettings.from_plain(
        {
            "max_length": request.get("max_length"),
            "split_long": stage == "pretrain",
            "train_on": request.get("train_on") or ("all" if stage == "pretrain" else "assistant"),
            "stage": stage,
        }
    )
    if request["do"] == "inspect":
        return inspect(data, needs, stage, tokenizer, how)
    return preview(data, needs or STAGE_NEEDS["sft"], tokenizer, how, request["count"])


def needs_of(stage: str | None) -> tuple[str, ...]:
    """The row shapes of a stage: its own NEEDS where the stage exists, else what that stage is known to need."""
    if stage in STAGES.names:
        return tuple(STAGES.named(stage).NEEDS)
    return STAGE_NEEDS.get(stage or "", ())


def main() -> int:
    """Answer one request; the exit code is 0, or 2 for a refusal."""
    request = json.loads(sys.stdin.read())
    # Libraries may print; the answer is the only thing on stdout.
    out = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    try:
        made, code = answer(request), 0
    except FactoryError as error:
        made, code = {"refused": [finding.to_json() for finding in error.findings]}, 2
    out.write(json.dumps(made, ensure_ascii=False))
    out.close()
    return code


if __name__ == "__main__":
    sys.exit(main())
