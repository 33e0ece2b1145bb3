"""The word fit: which ways of training a model fit how much memory, before there is any job."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from core.cli.show import AsJson, home_of, say, say_json, table
from data.words import byte_size

if TYPE_CHECKING:
    from core.job.shape import ModelShape


def register(app: typer.Typer) -> None:
    """Add this family's commands."""
    app.command()(fit)


def fit(
    context: typer.Context,
    model: Annotated[
        str, typer.Argument(metavar="MODEL", help="A name, a folder or a hub id.", show_default=False)
    ],
    gpus: Annotated[
        str | None, typer.Option(help="COUNTxGIB, such as 8x80 or 24; without, this machine's.")
    ] = None,
    stage: Annotated[str, typer.Option(help="What kind of training.")] = "sft",
    length: Annotated[int | None, typer.Option(min=8, help="Longest row (or answer), in tokens.")] = None,
    batch: Annotated[int | None, typer.Option(min=1, max=65536, help="Rows per device.")] = None,
    json: AsJson = False,
) -> None:
    """Show which ways of training a model fit.

    Method by strategy, for rows as long as they may be; where one does not fit, the cheapest change that does.

    Example: factory fit meta-llama/Llama-3.1-8B --gpus 8x80 --stage dpo
    """
    from core.job.fit import ways

    shape = _shape(context, model)
    count, size = _gpus(gpus)
    found = list(ways(shape, stage, count, size, length, batch))
    if json:
        say_json({"model": model, "parameters": shape.parameters, "ways": [one.to_json() for one in found]})
        return
    known = "" if shape.from_config else ", its shape guessed from the sizes of its weights"
    say(f"{model}: {shape.parameters:,} weights{known}. {stage} on {count} x {byte_size(size)}:")
    say()
    rows = [
        (
            one.method,
            one.strategy,
            byte_size(one.needed.total),
            one.verdict
            + (f" (and {byte_size(one.needed.host)} of the machine's)" if one.needed.host else ""),
            ""
            if not one.change
            else "with " + ", ".join(f"{name} {value}" for name, value in one.change.items()),
        )
        for one in found
    ]
    say(table(rows, header=("METHOD", "STRATEGY", "PER GPU", "", ""), right=(2,)))


def _gpus(text: str | None) -> tuple[int, int]:
    from core.job.fit import read_gpus
    from core.job.machine import this_machine
    from data.errors import refuse

    if text is not None:
        return read_gpus(text)
    gpus = this_machine().gpus
    if not gpus:
        raise refuse(
            "no_gpu", "This machine has no GPU; say which with --gpus, such as 8x80 or 24.", field="gpus"
        )
    return len(gpus), min(gpu.memory for gpu in gpus)


def _shape(context: typer.Context, model: str) -> ModelShape:
    from core.job.models import fetch_config, locate
    from core.job.shape import from_config, shape_of
    from data.errors import refuse

    place = locate(model, home_of(context))
    shape = shape_of(place) if place.folder or place.kind == "embedded" else from_config(fetch_config(place))
    if shape is None:
        raise refuse(
            "model_shape_unknown",
            f"model {model!r} does not tell its size: its config.json has no sizes we know, and no weights are here.",
            field="model.name",
            value=model,
        )
    return shape
