"""Count a job's data with its own tokenizer: `python -m core.training.measure HOME < job.json`, JSON on stdout.

Started by `factory plan`. What it prepares lies in the cache of the home, so that the run then starts at once.
Exit code 2 and {"findings": [...]} when the job cannot be prepared.
"""

from __future__ import annotations

import sys
from pathlib import Path

from core.job.plan import Counts
from core.job.spec import JobSpec
from core.training.answering import answer
from core.training.model import load_tokenizer
from core.training.rows import rows_for


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
    """Read the job from stdin, write the counts to stdout."""
    home = Path(sys.argv[1])
    return answer(lambda text: measure(JobSpec.model_validate_json(text), home).model_dump(mode="json"))


if __name__ == "__main__":
    sys.exit(main())
