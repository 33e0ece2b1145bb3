"""Gradio's widgets for the fields of a form: label, help, key, default and unit from the spec, in both languages."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import gradio as gr

from webui.form import DATA, KINDS, NOTHING, UNSET, Field, shown

PICKED = ("model.name", "model.template", DATA)
"""Fields whose choices are what is there: static/js/new/offers.js brings them when the page opens."""

GRADIO_WORDS = ("file",)
"""Choices that are names of groups of Gradio's own words; static/js/new/widgets.js knows them too."""


def widget(field: Field, *, lead: bool, say: Any) -> Any | None:
    """The widget of a field; None for those that the page draws itself.

    `lead` fields stand in a section placed by hand, their help shows when the reader rests on them; the others show it
    at once. `say` is a gr.I18n.
    """
    if field.widget == "rows":
        return None
    common = {
        "label": say(f"field.{field.id}"),
        "info": say(f"about.{field.id}"),
        "elem_id": field.element,
        "elem_classes": ["f", "lead-field" if lead else "more-field", *_belongs(field)],
        "value": _held(shown(field, NOTHING))
        if field.widget in ("radio", "choice")
        else shown(field, NOTHING),
        "interactive": True,  # Gradio takes what no event of its own reads for a mere display
    }
    made = _picked(field, common) if field.id in PICKED else _MAKERS[field.widget](field, common)
    if isinstance(made, gr.Dropdown):
        _tell(field, made)
    return made


def _tell(field: Field, made: Any) -> None:
    """Lists of choices tell what was chosen; all other widgets are read and written by static/js/new/widgets.js."""
    event = made.change if field.widget == "many" else made.input  # a typed choice tells only of its change
    event(
        None,
        made,
        None,
        js=f"(value) => window.factory.changed({field.id!r}, value)",
        queue=False,
        show_progress="hidden",
        api_visibility="private",
        trigger_mode="multiple",
    )


def _belongs(field: Field) -> list[str]:
    return [f"of-{field.path[0]}", f"of-{field.path[0]}-{field.kind}"] if field.kind else []


def _picked(field: Field, common: dict[str, Any]) -> Any:
    if field.id != DATA:
        common = {**common, "value": common["value"] or None}
    return gr.Dropdown([], multiselect=field.id == DATA, allow_custom_value=True, **common)


def _held(value: Any) -> Any:
    """A choice as Gradio holds it: it takes a bare word of its own for one to translate, and warns on the console."""
    return f"={value}" if value in GRADIO_WORDS else value


def _choices(field: Field) -> list[Any]:
    # Through our own words: they may have names for people.
    names: list[Any] = [(gr_say(f"choice.{one}"), _held(one)) for one in field.choices]
    if field.key in KINDS:
        return [(gr_say(f"kind.{field.key}.{one}"), one) for one in field.choices]
    if field.widget == "choice" and not field.choices:
        names = [(gr_say("form.on"), "true"), (gr_say("form.off"), "false")]
    return [(gr_say("form.preset"), UNSET), *names] if field.nullable else names


def gr_say(key: str) -> Any:
    """A word for Gradio's own parts, in the reader's language."""
    return gr.I18n()(key)


_MAKERS: Mapping[str, Any] = {
    "radio": lambda field, common: gr.Radio(_choices(field), **common),
    "choice": lambda field, common: gr.Dropdown(_choices(field), **common),
    "many": lambda field, common: gr.Dropdown(list(field.choices), multiselect=True, **common),
    "check": lambda field, common: gr.Checkbox(**common),
    # No gr.Number: what stands in it cannot be read before it is a number, and the wheel of a mouse changes it unseen.
    "number": lambda field, common: gr.Textbox(max_lines=1, **common),
    "text": lambda field, common: gr.Textbox(max_lines=1, **common),
    "value": lambda field, common: gr.Textbox(max_lines=1, **common),
    "words": lambda field, common: gr.Textbox(max_lines=1, **common),
    "items": lambda field, common: gr.Textbox(max_lines=1, **common),
    "lines": lambda field, common: gr.Textbox(lines=2, max_lines=8, **common),
    "pairs": lambda field, common: gr.Textbox(lines=2, max_lines=8, **common),
}
