"""A new run: from what somebody has to a job that can start. Widgets from the spec, their life in static/js/new."""

from __future__ import annotations

import html
import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import gradio as gr

from data.rows import SHAPES
from webui.form import Field, by_id, fields
from webui.pages.shell import heading
from webui.widgets import gr_say, widget
from webui.words import word

NAME = "new"
PATH = "/new"

# Placed by hand, in this order. Every other field of the spec is under "More settings" by itself.
TRAINING = (
    *(
        "max_length",
        "sft.train_on",
        "packing",
        "dpo.loss",
        "beta",
        "num_generations",
        "max_completion_length",
    ),
    *(
        "temperature",
        "kl_coef",
        "num_ppo_epochs",
        "algorithm",
        "desirable_weight",
        "undesirable_weight",
        "margin",
    ),
)
"""Of every stage that has a field of that name; with a dot, of one stage."""
METHOD = ("rank", "alpha", "target", "bits", "layers", "modules")
SCHEDULE = (
    *("train.epochs", "train.learning_rate", "train.scheduler"),
    *("train.batch_size", "train.gradient_accumulation", "train.warmup"),
)
RAIL = ("name",)
ASKED = ("evaluate.prompts", "evaluate.every", "evaluate.max_new_tokens")
PARTS = ("model", "data", "stage", "method", "train", "evaluate", "export", "hardware", "launcher")
OTHER = "other"
"""Sections of "More settings" in this order; parts that are not listed stand in the last."""


def build(home: Path) -> None:
    """The page."""
    made = _Widgets()
    with gr.Column(elem_classes=["page", "new-page"], elem_id="content"):
        _html(f'<div data-page="{NAME}">{heading(NAME)}</div>')
        with gr.Row(elem_classes="main", equal_height=False):
            with gr.Column(scale=7, min_width=320, elem_classes="left"):
                _form(made)
            with gr.Column(scale=4, min_width=320, elem_classes="side"), gr.Column(elem_classes="card"):
                _html('<div id="rail-top"></div>')
                made.place(RAIL)
                _html('<div id="rail"></div>')
    _bridge(made)


def _form(made: _Widgets) -> None:
    with _card("have"):
        have = gr.Radio(
            [(gr_say(f"shape.{shape}"), shape) for shape in SHAPES],
            show_label=False,
            label=gr_say("new.have"),
            elem_id="have",
            container=False,
            interactive=True,
        )
        made.by_id["have"] = have
        _html('<div id="drop"></div>')
    with _card("model_data"):
        with _grid(2):
            made.place(["model.name", "data"])
        _html('<div id="seen"></div>', elem_classes=["maybe"])
    with _card("training"):
        made.place(["stage"])
        with _grid(3):
            made.place_named("stage", TRAINING)
    with _card("rewards", elem_id="rewards-card"):
        _html(f'<div id="{_list(by_id()["rewards"])}"></div>')
    with _card("method"):
        made.place(["method"])
        with _grid(3):
            made.place_named("method", METHOD)
    with _card("schedule"), _grid(3):
        made.place(SCHEDULE)
    with _card("asked"):
        made.place(ASKED[:1])
        with _grid(2):
            made.place(ASKED[1:])
    _more(made)


def _more(made: _Widgets) -> None:
    """Every field that is placed nowhere else."""
    with gr.Column(elem_classes=["card", "more"], elem_id="more"):
        _html('<div id="more-head"></div>')
        with gr.Column(elem_id="more-body"):
            rest = [field for field in fields() if field.id not in (*made.by_id, *RAIL)]
            for part in sorted({_section(one) for one in rest}, key=(*PARTS, OTHER).index):
                with gr.Column(elem_classes=["more-part"], elem_id=f"more-{part}"):
                    _html(f'<h3 data-t="part.{part}">{_word(f"part.{part}")}</h3>')
                    with _grid(2):
                        made.place_all(
                            [
                                one
                                for one in rest
                                if (one.path[0] if one.path[0] in PARTS else "other") == part
                            ]
                        )
                    for one in rest:
                        if one.widget == "rows" and one.id != "rewards" and _section(one) == part:
                            _html(
                                f'<div class="f more-field" id="{one.element}"><div id="{_list(one)}"></div></div>'
                            )


def _list(field: Field) -> str:
    """The id of the place where static/js/new/list.js draws a list of objects."""
    return "list-" + field.id.replace(".", "-")


def _section(field: Field) -> str:
    return field.path[0] if field.path[0] in PARTS else OTHER


class _Widgets:
    """The widgets of the page, each placed once."""

    def __init__(self) -> None:
        self.by_id: dict[str, Any] = {}

    def place(self, ids: Sequence[str]) -> None:
        """Fields by their ids, in this order."""
        found = {field.id: field for field in fields()}
        self._place([found[one] for one in ids], lead=True)

    def place_named(self, part: str, names: Sequence[str]) -> None:
        """The fields with these names, of every kind of stage or method or of one, in this order."""
        for name in names:
            kind, _, last = name.rpartition(".")
            self._place(
                [one for one in fields() if one.path == (part, last) and one.kind and kind in ("", one.kind)],
                lead=True,
            )

    def place_all(self, wanted: Sequence[Field]) -> None:
        """Fields under "More settings"."""
        self._place(wanted, lead=False)

    def _place(self, wanted: Sequence[Field], *, lead: bool) -> None:
        for field in wanted:
            self.by_id[field.id] = widget(field, lead=lead, say=gr_say)


def _bridge(made: _Widgets) -> None:
    """Lets static/js fill what only Gradio can: it asks for the values, shows them some moments later, and says so."""
    shown = {id: one for id, one in made.by_id.items() if isinstance(one, (gr.Radio, gr.Dropdown))}
    bridge = gr.HTML(
        "",
        js_on_load="window.factory.fill = () => trigger('fill'); window.factory.bridged?.();",
        apply_default_css=False,
        elem_id="bridge",
    )
    quiet = {"queue": False, "show_progress": "hidden", "api_visibility": "private"}
    asked = f"() => window.factory.shown({json.dumps(list(shown))})"
    filled = bridge.fill(None, None, list(shown.values()), js=asked, trigger_mode="multiple", **quiet)
    filled.then(None, None, None, js="() => window.factory.landed()", **quiet)


@contextmanager
def _card(name: str, elem_id: str | None = None) -> Iterator[None]:
    with gr.Column(elem_classes=["card", f"card-{name}"], elem_id=elem_id):
        _html(
            f'<h2 data-t="new.{name}">{_word(f"new.{name}")}</h2>'
            f'<p class="sub" data-t="new.{name}.lead">{_word(f"new.{name}.lead")}</p>'
        )
        yield


@contextmanager
def _grid(columns: int) -> Iterator[None]:
    with gr.Row(elem_classes=["grid", f"grid{columns}"]):
        yield


def _html(text: str, **settings: Any) -> None:
    gr.HTML(text, apply_default_css=False, js_on_load=None, **settings)


def _word(key: str) -> str:
    return html.escape(word(key))
