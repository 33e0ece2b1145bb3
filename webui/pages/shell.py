"""The frame of a page whose life is in static/js/<name>.js: a heading, a lead, and an empty body."""

from __future__ import annotations

import html

import gradio as gr

from webui.words import word


def shell(name: str) -> None:
    """A page for `start(root)` of static/js/<name>.js. What has data-t shows that word in the reader's language."""
    gr.HTML(
        f'<div class="page" id="content" data-page="{name}">{heading(name)}<div class="body"></div></div>',
        apply_default_css=False,
        js_on_load=None,
        elem_classes="shell",
    )


def heading(name: str) -> str:
    """The heading and the lead of a page; buttons go into its `.btns`."""
    title, lead = (html.escape(word(f"{name}.{part}")) for part in ("title", "lead"))
    return (
        f'<div class="head"><div><h1 data-t="{name}.title">{title}</h1>'
        f'<p class="lead" data-t="{name}.lead">{lead}</p></div><div class="btns"></div></div>'
    )
