"""The board as one Gradio app: a real address for each page of PAGES, mounted below a FastAPI app that has the rest."""

from __future__ import annotations

import hashlib
import html
import json
import os
import warnings
from functools import cache
from pathlib import Path
from typing import Any

from fastapi import FastAPI
from fastapi.staticfiles import StaticFiles

os.environ["GRADIO_ANALYTICS_ENABLED"] = "False"  # Gradio reads it while it is imported

import gradio as gr

from webui.head import Head
from webui.labels import all_words
from webui.lost import Lost
from webui.pages import PAGES
from webui.theme import theme
from webui.words import TEXT, word

STATIC = Path(__file__).resolve().parent / "static"
NAV = ("runs", "new", "compare", "chat", "data", "models")
"""The pages in the header, by name; the Run page is reached from Runs."""
UPLOAD_LIMIT = "1mb"
"""Gradio's own upload route is not used: files come by POST /api/data."""


def mount(app: FastAPI, home: Path) -> FastAPI:
    """Put the board, its static files and its words under an app. Call it last: it answers every other path."""
    app.add_middleware(Lost)
    app.add_middleware(Head, first=head_begins(), last=head_ends())
    app.mount("/ui/text", StaticFiles(directory=TEXT), name="text")
    app.mount("/ui", StaticFiles(directory=STATIC), name="static")
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*SSR.*")  # asked for below, and then warned about
        mounted: FastAPI = gr.mount_gradio_app(app, blocks(home), path="/", **mount_arguments())
    return mounted


def mount_arguments() -> dict[str, Any]:
    """What Gradio is told when it is mounted: nothing of its own to be seen, read, recorded or fetched."""
    return {
        "footer_links": [],
        "run_history": False,
        "ssr_mode": False,
        "enable_monitoring": False,
        "mcp_server": False,
        "pwa": False,
        "allowed_paths": [],
        "max_file_size": UPLOAD_LIMIT,
        "show_error": False,
        "theme": theme(),
        "i18n": translations(),
    }


def blocks(home: Path) -> Any:
    """The pages. `has_launched` makes Gradio check the paths it is asked for, which a mounted app else never does."""
    with gr.Blocks(title="Factory", fill_width=True, analytics_enabled=False) as demo:
        for page in PAGES:
            path = page.PATH.strip("/")
            if path:
                # What `demo.route()` does, in one block for all pages: at the end of each block Gradio makes its
                # whole app anew, six times for nothing, 0.3 CPU-seconds each.
                demo.pages.append((path, word(f"{page.NAME}.title"), True))
                demo.current_page = path
            gr.Navbar(visible=False)  # type: ignore[attr-defined]
            page.build(home)
    demo.has_launched = True
    return demo.queue(default_concurrency_limit=16)


@cache
def translations() -> Any:
    """Our words for Gradio's own parts, which follow the language of the browser (static/js/first.js sets it)."""
    return gr.I18n(**all_words())


def head_begins() -> str:
    """What stands first in every page's head: colours and language before the first paint, then the header."""
    version = _version()
    pages = {page.NAME: page.PATH for page in PAGES}
    settings = {"nav": [[name, pages[name]] for name in NAV], "version": version}
    return (
        "<title>Factory</title>"
        f"<script>window.factory={json.dumps(settings)}</script>"
        f'<script src="/ui/js/first.js?v={version}"></script>'
        '<link rel="icon" type="image/svg+xml" href="/ui/mark.svg">'
        f'<meta name="description" content="{html.escape(word("board.about"))}">'
        f'<script type="module" src="/ui/js/boot.js?v={version}"></script>'
    )


def head_ends() -> str:
    """Our styles, behind Gradio's."""
    names = ("base", *(path.stem for path in sorted((STATIC / "css").glob("*.css")) if path.stem != "base"))
    return "".join(f'<link rel="stylesheet" href="/ui/css/{name}.css?v={_version()}">' for name in names)


@cache
def _version() -> str:
    """Changes with the static files, so that no browser keeps old ones."""
    made = hashlib.sha256()
    for path in sorted([*STATIC.rglob("*"), *TEXT.glob("*.json")]):
        if path.is_file():
            made.update(path.read_bytes())
    return made.hexdigest()[:12]
