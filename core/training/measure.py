"""Count a job's data with its own tokenizer: `python -m core.training.measure HOME < job.json`, JSON on stdout.

Started by `factory plan`. What it prepares lies in the cache of the home, so that the run then starts at once.
Exit code 2 and {"findings": [...]} when the job cannot be prepared.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from core.job.plan import Counts
from core.job.spec import JobSpec
from core.training.model import load_tokenizer
from core.training.rows import rows_for
from data.errors import FactoryError


def measure(job: JobSpec, home: Path) -> Counts:
    """Rows, tokens and trained tokens of one epoch. Raises FactoryError as the run itself would."""
    report = rows_for(job, home, load_tokenizer(job.model, home), lambda finding: None).report
    train, held_out = report["counts"]["train"], report["counts"].get("eval", {})
    return Counts(
        rows=train["sequences"],
        eval_rows=held_out.get("sequences", 0),
        tokens=train["tokens"],
        trained_tokens=train["learnt"],
        read=report["read"],
        dropped=sum(report["reasons"].values()),
        cut=report["lengths"]["over_max_length"],
        longest=report["lengths"]["longest"],
        findings=report["findings"],
    )


def main() -> int:
    """Read the job from stdin, write the counts to stdout; everything else the libraries say goes to stderr."""
    answer = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    try:
        counts = measure(JobSpec.model_validate_json(sys.stdin.read()), Path(sys.argv[1]))
    except FactoryError as refusal:
        json.dump({"findings": [finding.to_json() for finding in refusal.findings]}, answer)
        return 2
    answer.write(counts.model_dump_json())
    return 0


if __name__ == "__main__":
    sys.exit(main())
