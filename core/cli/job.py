"""The words about a job before it runs: check, plan, new, schema."""

from __future__ import annotations

import typer


def register(app: typer.Typer) -> None:
    """Add this family's commands."""
    app.command()(schema)


def schema() -> None:
    """Print the JSON schema of a job, for editors that complete and check while you type.

    In VS Code with the YAML extension: factory schema > job.schema.json, and write
    "# yaml-language-server: $schema=job.schema.json" as the first line of a job.
    """
    from core.cli.show import say_json
    from core.job.schema import job_schema

    say_json(job_schema())
