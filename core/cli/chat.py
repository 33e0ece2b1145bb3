"""The word for talking to a model: chat."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from core.cli.show import AsJson, home_of, say, say_json

if TYPE_CHECKING:
    from core.chat.pool import Pool
    from core.chat.speakers import Speaker


def register(app: typer.Typer) -> None:
    """Add this family's commands."""
    app.command()(chat)


def chat(
    context: typer.Context,
    model: Annotated[
        str,
        typer.Argument(
            metavar="RUN|MODEL|FOLDER", help="A run's id, a model's name, or a folder.", show_default=False
        ),
    ],
    checkpoint: Annotated[int | None, typer.Option(help="Talk to the checkpoint of this step.")] = None,
    system: Annotated[str | None, typer.Option(help="A system prompt.")] = None,
    message: Annotated[
        str | None,
        typer.Option(
            "--message", "-m", help="Ask this once and leave; else piped text, else a conversation."
        ),
    ] = None,
    compare: Annotated[
        bool, typer.Option("--compare", help="Let the model it came from answer too.")
    ] = False,
    setting: Annotated[
        list[str] | None,
        typer.Option(
            "--set", "-s", metavar="NAME=VALUE", help="temperature, top_p, max_tokens, seed, ...; repeatable."
        ),
    ] = None,
    json: AsJson = False,
) -> None:
    """Talk to a trained model, also beside the one it came from.

    In the conversation, /help tells what there is. Ctrl-C stops an answer, Ctrl-D leaves.

    Example: factory chat smollm2-135m -m "What is the capital of Norway?" -s seed=1
    """
    from core.chat.pool import Pool, note_on_training
    from core.chat.speakers import base_of, find_speaker
    from core.cli.talk import Talk, parse_settings

    home = home_of(context)
    settings = parse_settings(setting or [])
    speaker = find_speaker(home, model, checkpoint=checkpoint)
    beside = base_of(home, speaker) if compare else None
    if compare and beside is None:
        from data.errors import refuse

        raise refuse(
            "no_base", f"{model!r} is a plain model: there is none it came from to compare with.", value=model
        )
    asked = message if message is not None else None if _at_keyboard(json) else sys.stdin.read()
    pool = Pool(home, idle=0)
    try:
        if note := note_on_training(home):
            say(note, err=True)
        if asked is None:
            Talk(pool, home, speaker, beside, system, settings).run()
        else:
            _once(pool, [one for one in (speaker, beside) if one], system, asked, settings, as_json=json)
    finally:
        pool.close()


def _at_keyboard(as_json: bool) -> bool:
    return sys.stdin.isatty() and not as_json


def _once(
    pool: Pool,
    speakers: list[Speaker],
    system: str | None,
    asked: str,
    settings: dict[str, Any],
    *,
    as_json: bool,
) -> None:
    """Ask once: the answer alone on stdout, or everything about it as JSON."""
    from core.cli.follow import plain
    from data.errors import refuse

    if not asked.strip():
        raise refuse(
            "message_empty",
            "There is nothing to answer: the message is empty; pipe some text, or use -m TEXT.",
        )
    turns = [{"role": "system", "content": system}] if system else []
    turns.append({"role": "user", "content": asked.strip("\n")})
    told: dict[str, Any] = {}
    for number, speaker in enumerate(speakers):
        if number and not as_json:
            say(f"\n--- {speaker.title}")
        if "seed" not in settings and told:
            settings = settings | {"seed": next(iter(told.values()))["seed"]}  # the same dice for both
        for event in pool.answer(speaker, turns, settings):
            if event["event"] == "text" and not as_json:
                typer.echo(plain(event["text"]), nl=False)
                sys.stdout.flush()
            elif event["event"] == "done":
                told["base" if number else "tuned"] = {"model": speaker.key, **event}
        if not as_json:
            say()
    if as_json:
        kept = (
            "model",
            "text",
            "reason",
            "tokens",
            "prompt_tokens",
            "seconds",
            "first",
            "tokens_per_second",
            "seed",
        )
        answers = [{key: one[key] for key in kept} for one in told.values()]
        say_json(answers[0] | ({"beside": answers[1]} if len(answers) > 1 else {}))
