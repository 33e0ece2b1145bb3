"""Merge and save beside peft's own, and what verification costs on top: `python -m benchmarks.export RUN_DIR`.

RUN_DIR is a finished LoRA run of smollm2-135m. Rounds alternate and every one is a process of its own, whose
CPU-seconds count, so that other work on the machine is not in them. The bar: merging (load, merge, write) takes at
most 1.2 times as long as peft's merge_and_unload with save_pretrained.
"""

from __future__ import annotations

import argparse
import importlib
import json
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

BAR = 1.2
MERGING = ("loading the model", "merging the adapter", "writing")


def theirs(run: str, folder: str) -> dict[str, float]:
    """CPU-seconds of what a user writes by hand: load, merge_and_unload, save_pretrained."""
    import torch
    from peft import PeftConfig, PeftModel
    from transformers import AutoModelForCausalLM, AutoTokenizer

    began = time.process_time()
    adapter = f"{run}/model"
    base = PeftConfig.from_pretrained(adapter).base_model_name_or_path
    model = AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32)
    PeftModel.from_pretrained(model, adapter).merge_and_unload().save_pretrained(folder)
    AutoTokenizer.from_pretrained(adapter).save_pretrained(folder)
    return {"merge": time.process_time() - began, "verify": 0.0}


def ours(run: str, folder: str) -> dict[str, float]:
    """CPU-seconds of our export, by what it is doing; its reader's own are counted with it."""
    import os

    from core.runs import exports
    from core.runs.folder import Run
    from core.training.exporting import main

    importlib.import_module("core.training.export.work")  # imports are not what is measured

    marks: list[tuple[str, float]] = []
    told = exports.Writer.phase

    def phase(self: exports.Writer, text: str, share: float) -> None:
        marks.append((text, _cpu(os.times())))
        told(self, text, share)

    exports.Writer.phase = phase  # type: ignore[method-assign] - this process ends with the measurement
    exports._spawn = lambda *given: None  # type: ignore[assignment]
    shutil.rmtree(folder)
    begun, _ = exports.start(Run(Path(run)), {"name": "merged"}, out=Path(folder))
    assert main(run, begun.name) == 0
    marks.append(("end", _cpu(os.times())))
    ended = exports.find_export(Run(Path(run)), begun.name)
    assert ended is not None
    exports.remove(ended)
    spans = {name: after - at for (name, at), (_, after) in zip(marks, marks[1:], strict=False)}
    merge = sum(spans[name] for name in MERGING)
    return {"merge": merge, "verify": sum(spans.values()) - merge - spans["loading the libraries"]}


def _cpu(times: object) -> float:
    return sum(times[:4])  # type: ignore[index] - user, system, and both of children


def main() -> int:
    """Measure in alternation and print the table; exit code 1 when the bar is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("run")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--one", choices=("ours", "theirs"))
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        if given.one:
            answer = {"ours": ours, "theirs": theirs}[given.one](
                given.run, f"{folder}/x" if given.one == "theirs" else folder
            )
            print(json.dumps(answer))
            Path(folder).mkdir(exist_ok=True)
            return 0
    found: dict[str, list[dict[str, float]]] = {"ours": [], "theirs": []}
    for _ in range(given.rounds):
        for who in found:
            command = [sys.executable, "-m", "benchmarks.export", given.run, "--one", who]
            done = subprocess.run(command, capture_output=True, text=True, check=True)
            found[who].append(json.loads(done.stdout.strip().splitlines()[-1]))
    merge = {who: statistics.median(one["merge"] for one in times) for who, times in found.items()}
    verify = statistics.median(one["verify"] for one in found["ours"])
    ratio = merge["ours"] / merge["theirs"]
    print("| | merge and save, CPU-s | verification, CPU-s |\n|---|---:|---:|")
    print(f"| peft by hand | {merge['theirs']:.2f} | none |")
    print(f"| factory export --to merged | {merge['ours']:.2f} | {verify:.2f} |")
    print(f"\nmerge: {ratio:.2f} times peft's (bar {BAR})")
    return int(ratio > BAR)


if __name__ == "__main__":
    sys.exit(main())
