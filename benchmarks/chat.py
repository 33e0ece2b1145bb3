"""Chat against plain `generate`: `python benchmarks/chat.py [--model smollm2-135m] [--rounds 7] [--tokens 64]`.

Both answer the same question greedily, so they make the same tokens: ours through the worker process, its pipe and its
stream of text, the other as a script would, in a process of its own, as nice as ours. They take turns, so that what
else the machine does meets both; the ratios are of the medians. The bar: first token and tokens/s within 1.05x.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

ASKED = [
    {
        "role": "user",
        "content": "Explain in a few sentences why the sea is salty, and where the salt comes from.",
    }
]
BAR = 1.05


def plain(folder: str, tokens: int) -> None:
    """A process that answers whenever a line comes: seconds to the first token, seconds for all, how many."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    os.nice(10)
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model: Any = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    for line in sys.stdin:
        began = time.perf_counter()
        ids = tokenizer.apply_chat_template(
            ASKED, add_generation_prompt=True, return_tensors="pt", return_dict=True
        )
        with torch.inference_mode():
            made = model.generate(
                **ids, max_new_tokens=int(line), do_sample=False, pad_token_id=tokenizer.pad_token_id
            )
        text = tokenizer.decode(made[0, ids["input_ids"].shape[1] :], skip_special_tokens=True)
        count = made.shape[1] - ids["input_ids"].shape[1]
        told = {"seconds": time.perf_counter() - began, "tokens": count, "text": text}
        out.write(json.dumps(told) + "\n")
        out.flush()


def main() -> int:
    """Measure and print a table; 1 when the bar is missed."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", default="smollm2-135m")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--plain", metavar="FOLDER", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.plain:
        plain(asked.plain, asked.tokens)
        return 0

    from core.chat.pool import Pool
    from core.chat.speakers import find_speaker

    with tempfile.TemporaryDirectory() as place:
        home = Path(place)
        pool = Pool(home, idle=0)
        speaker = find_speaker(home, asked.model)
        began = time.perf_counter()
        pool.load(speaker)
        print(f"loaded in {time.perf_counter() - began:.1f} s")
        folder = (
            home / "models" / asked.model if (home / "models" / asked.model).is_dir() else Path(asked.model)
        )
        command = [sys.executable, __file__, "--plain", str(folder)]
        other = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

        def theirs(tokens: int) -> dict[str, Any]:
            assert other.stdin and other.stdout
            other.stdin.write(f"{tokens}\n")
            other.stdin.flush()
            return dict(json.loads(other.stdout.readline()))

        def ours(tokens: int) -> dict[str, Any]:
            began, first, last = time.perf_counter(), None, {}
            for event in pool.answer(speaker, ASKED, {"temperature": 0.0, "max_tokens": tokens}):
                if event["event"] == "text" and first is None:
                    first = time.perf_counter() - began
                last = event
            return {
                "seconds": time.perf_counter() - began,
                "first": first,
                **{k: last[k] for k in ("tokens", "text")},
            }

        theirs(4), ours(4)  # warm both
        rows = []
        for _ in range(asked.rounds):
            one, whole, mine = theirs(1), theirs(asked.tokens), ours(asked.tokens)
            assert mine["text"] == whole["text"] and mine["tokens"] == whole["tokens"], (mine, whole)
            rows.append(
                (
                    one["seconds"],
                    mine["first"],
                    whole["tokens"] / whole["seconds"],
                    mine["tokens"] / mine["seconds"],
                )
            )
        other.stdin.close()  # type: ignore[union-attr]
        other.wait()
        pool.close()
    first_plain, first_ours, rate_plain, rate_ours = (
        statistics.median(column) for column in zip(*rows, strict=True)
    )
    print(f"{'':<14}{'plain generate':>16}{'chat':>10}{'ratio':>8}")
    slower = first_ours / first_plain
    print(f"{'first token':<14}{first_plain:>14.3f} s{first_ours:>8.3f} s{slower:>8.3f}")
    less = rate_plain / rate_ours
    print(f"{'tokens/s':<14}{rate_plain:>16.2f}{rate_ours:>10.2f}{less:>8.3f}")
    return int(slower > BAR or less > BAR)


if __name__ == "__main__":
    sys.exit(main())
