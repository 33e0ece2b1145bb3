"""What stands beside the fields of a form, in each language: label, help, key, default, bounds and unit."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

from webui.form import DATA, KINDS, Field, fields
from webui.words import LANGUAGES, words


@cache
def field_words(language: str) -> dict[str, str]:
    """`field.<id>` and `about.<id>` of every field in a language; English from the spec where it has none."""
    own = words(language)
    told: dict[str, str] = {}
    for field in fields():
        told[f"field.{field.id}"] = own.get(f"field.{field.key}") or label(field)
        told[f"about.{field.id}"] = about(field, own)
        told |= {f"choice.{one}": own.get(f"choice.{one}", one) for one in field.choices}
        if field.key in KINDS:
            told |= {
                f"kind.{field.key}.{kind}": own.get(f"kind.{field.key}.{kind}", kind)
                for kind in field.choices
            }
    return told


def label(field: Field) -> str:
    """The last part of its key as words: `Learning rate`."""
    text = field.path[-1].replace("_", " ")
    return text[:1].upper() + text[1:]


def about(field: Field, own: Mapping[str, str]) -> str:
    """A field's help, then its key, default, bounds and unit; Markdown."""
    text = own.get(f"help.{field.id}") or own.get(f"help.{field.key}") or field.help
    facts = [f"`{field.key}`"]
    default = _default(field)
    if default:
        facts.append(own["form.default"].format(value=default))
    if field.bounds:
        facts.append(field.bounds)
    if field.unit:
        facts.append(own.get(f"unit.{field.unit}", field.unit))
    # Gradio reads a little Markdown and HTML here; a help text means its signs as they stand.
    plain = text.replace("<", "\u2039").replace(">", "\u203a")
    return f"{plain} {' · '.join(facts)}"


def _default(field: Field) -> str:
    value = field.default
    if value in (None, [], {}, "") or field.id == DATA:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list):
        return ", ".join(map(str, value))
    return repr(value).strip("'") if isinstance(value, str) else f"{value:g}"


@cache
def all_words() -> dict[str, dict[str, str]]:
    """Everything that Gradio's parts may say, by the browser's names of our languages."""
    return {browser: {**words(ours), **field_words(ours)} for ours, browser in LANGUAGES.items()}
