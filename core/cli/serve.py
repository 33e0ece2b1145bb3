"""The word for other programs: serve."""

from __future__ import annotations

from typing import Annotated, Literal

import typer

from core.cli.listening import Host, Port, Token, again
from core.cli.show import home_of, say


def register(app: typer.Typer) -> None:
    """Add this family's commands."""
    app.command()(serve)


def serve(
    context: typer.Context,
    model: Annotated[
        str,
        typer.Argument(
            metavar="RUN|MODEL|FOLDER", help="A run's id, a model's name, or a folder.", show_default=False
        ),
    ],
    checkpoint: Annotated[int | None, typer.Option(help="Serve the checkpoint of this step.")] = None,
    host: Host = "127.0.0.1",
    port: Port = 8000,
    token: Token = True,
    backend: Annotated[
        Literal["transformers", "vllm"],
        typer.Option(help="vllm answers many at once on a GPU: factory env install vllm."),
    ] = "transformers",
) -> None:
    """Serve a model to other programs, in the words of OpenAI's API.

    Answers GET /v1/models and POST /v1/chat/completions. Ctrl-C ends it.

    Example: factory serve smollm2-135m --port 8001
    """
    from core.chat.pool import Pool, note_on_training
    from core.chat.speakers import find_speaker
    from data.errors import refuse
    from webui import serving
    from webui.settings import Settings, is_loopback, listen, token_of

    home = home_of(context)
    if not token and not is_loopback(host):
        text = (
            f"--no-token is only for this machine's own addresses, and {host} lets others in; leave it out."
        )
        raise refuse("token_required", text, value=host)
    speaker = find_speaker(home, model, checkpoint=checkpoint)
    name = speaker.key.partition(":")[2]
    socket = listen(host, port, f"serve on another: {again(context)}")
    settings = Settings(
        home=home, host=host, port=socket.getsockname()[1], token=token_of(home) if token else None
    )
    pool = Pool(home, idle=0)
    try:
        if note := note_on_training(home):
            say(note, err=True)
        say(f"Loading {speaker.title} ...", err=True)
        made: serving.Backend
        if backend == "vllm":
            from webui.vllm import Vllm

            made = Vllm(home, speaker, name)
        else:
            pool.load(speaker)
            made = serving.Own(pool, speaker, name)

        def started() -> None:
            address = settings.address().partition("?")[0]
            say(f"{speaker.title} is served as {name!r}. For a client of OpenAI's API:")
            say(f"export OPENAI_BASE_URL={address}v1")
            say(f"export OPENAI_API_KEY={settings.token or 'none'}")

        serving.serve(serving.build(made, name, settings), socket, started)
    finally:
        pool.close()
