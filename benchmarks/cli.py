"""CPU seconds of the command line's everyday words, in fresh processes: python -m benchmarks.cli [times].

The bar: `factory --help` under 0.2 s and `factory check` under 0.5 s.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median

ROOT = Path(__file__).resolve().parents[1]
WORDS = {"--help": 0.2, "check": 0.5, "new": 0.5, "schema": 0.5, "runs": 0.3}


def cpu_seconds(words: list[str], home: str) -> float:
    """CPU time, user and system, of one `factory WORDS` and its children."""
    before = os.times()
    command = [sys.executable, "-m", "core.cli", *words]
    environment = {**os.environ, "FACTORY_HOME": home}
    subprocess.run(command, cwd=ROOT, env=environment, stdout=subprocess.DEVNULL, check=True)
    after = os.times()
    return after.children_user + after.children_system - before.children_user - before.children_system


def main() -> None:
    """Print one line per word: the median, the bar, and the share of the bar."""
    times = int(sys.argv[1]) if len(sys.argv) > 1 else 9
    arguments = {"check": ["templates/jobs/quickstart.yaml"]}
    print(f"{'factory':<10} {'CPU-s':>6} {'bar':>6} {'share':>6}   (median of {times})")
    with tempfile.TemporaryDirectory() as home:
        for word, bar in WORDS.items():
            seconds = median(cpu_seconds([word, *arguments.get(word, [])], home) for _ in range(times))
            print(f"{word:<10} {seconds:>6.3f} {bar:>6.2f} {seconds / bar:>6.0%}")


if __name__ == "__main__":
    main()
