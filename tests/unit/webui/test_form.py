"""The form's mapper: every field of the spec has a widget, and text and widgets say the same, both ways."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from core.job.load import parse_job
from core.job.schema import all_fields
from data.errors import FactoryError
from webui.form import NOTHING, by_id, fields, row_forms, said, shown
from webui.form_text import as_typed, fill, put, write
from webui.labels import field_words
from webui.words import words

ROOT = Path(__file__).resolve().parents[3]
RECIPES = sorted((ROOT / "templates" / "jobs").glob("*.yaml"))
JOB = "model: smollm2-135m\ndata: a.jsonl\nstage: sft\n"


def test_every_field_of_the_spec_is_in_the_form():
    keys = {field.key for field in fields()} | {"data.path", "schema_version"}
    inside_lists = tuple(f"{field.key}." for field in fields() if field.widget == "rows")
    told = {key for key in all_fields() if not key.startswith(inside_lists)}
    assert {key for key in told if key not in keys and key.rsplit(".", 1)[-1] != "name"} - {
        "model",
        "train",
        "hardware",
        "evaluate",
    } == set()


def test_every_field_of_every_reward_is_in_its_list():
    from core.rewards import REWARDS

    for module in REWARDS:
        name = module.Spec.model_fields["name"].default
        listed = {field.path[-1] for field in row_forms("rewards")[name]}
        assert listed == set(module.Spec.model_fields) - {"name"}


def test_a_field_added_to_a_stage_and_a_new_method_appear_without_touching_the_board():
    program = """
import sys, types
from typing import Literal
from pydantic import Field
import core.methods, core.stages.sft as sft
from core.job.register import Register
from core.methods.base import MethodSpec

class Spec(sft.Spec):
    sparkle: float = Field(0.25, ge=0, le=1, json_schema_extra={"unit": "tokens"})
    "How much it sparkles."

class Quick(MethodSpec):
    name: Literal["quick"] = "quick"
    "The method."
    hurry: Literal["some", "more"] = "some"
    "How quick."

sft.Spec = Spec
sys.modules["core.methods.quick"] = types.SimpleNamespace(Spec=Quick, __name__="core.methods.quick")
core.methods.METHODS = Register("core.methods", *core.methods.METHODS.names, "quick")
import core.job.schema as schema
schema.inspect = types.SimpleNamespace(getsource=lambda kind: "class A:\\n" + "".join(
    f'    {name}: int\\n    "Help."\\n' for name in kind.__annotations__) + "    pass", cleandoc=str)
from pathlib import Path
from webui.board import blocks
page = blocks(Path("home")).get_config_file()
shown = {one["props"].get("elem_id"): one for one in page["components"]}
new = shown["f-stage-sft-sparkle"]
print(new["type"], new["props"]["value"], shown["f-method-quick-hurry"]["type"])
"""
    answer = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert answer.stdout.split() == ["textbox", "0.25", "radio"], answer.stderr


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.stem)
def test_a_recipe_fills_the_form_and_comes_back_letter_for_letter(path):
    text = path.read_text("utf-8")
    assert write(text, fill(text)) == text


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.stem)
def test_a_form_says_a_recipe_from_nothing(path):
    text = path.read_text("utf-8")
    assert parse_job(write("", fill(text))) == parse_job(text)


def test_only_what_was_set_is_written():
    values = fill(JOB)
    assert write("", values) == JOB
    assert write(JOB, {"train.learning_rate": 1e-5}) == JOB + "train:\n  learning_rate: 1e-5\n"


@pytest.mark.parametrize(
    ("typed", "written"),
    [
        *(("3e-4", "0.0003"), (" 7 ", "7"), (".5", "0.5"), ("1.", "1"), ("+2", "2"), ("5e-05", "5e-5")),
        *(
            ("3e-", "3e-"),
            ("abc", "abc"),
            ("1,000", '"1,000"'),
            ("1e999", '"1e999"'),
        ),  # the check tells these
    ],
)
def test_a_number_is_written_as_it_was_typed_and_what_is_none_stays_to_be_seen(typed, written):
    assert write(JOB, {"train.learning_rate": typed}) == JOB + f"train:\n  learning_rate: {written}\n"


def test_what_was_typed_comes_back_letter_for_letter_where_the_text_says_the_same():
    values = fill(JOB + "train: {learning_rate: 1, epochs: 2}\nevaluate: {prompts: [a, b]}\n")
    typed = {"train.learning_rate": "1.", "train.epochs": "3.", "evaluate.prompts": "a\nb\n", "gone": "x"}
    kept = as_typed(values, typed)
    assert {key for key in values if kept[key] != values[key]} == {"train.learning_rate", "evaluate.prompts"}
    assert (kept["train.learning_rate"], kept["train.epochs"]) == ("1.", "2")


def test_a_field_set_back_to_its_default_is_gone_again():
    assert write(write(JOB, {"method.lora.rank": 8}), {"method.lora.rank": 16}) == JOB + "method: lora\n"


def test_a_default_that_was_written_out_stays():
    text = JOB + "method: {name: lora, rank: 16}\n"
    assert write(text, fill(text)) == text


def test_false_is_not_lost():
    text = write(JOB, {"train.padding_free": False, "train.gradient_checkpointing": "false"})
    assert parse_job(text).train.padding_free is False
    assert parse_job(text).train.gradient_checkpointing is False


def test_comments_stay_when_one_field_changes():
    text = (ROOT / "templates" / "jobs" / "quickstart.yaml").read_text("utf-8")
    changed = write(text, {"train.epochs": 5})
    assert changed == text.replace("epochs: 3", "epochs: 5")


def test_what_no_widget_can_show_is_kept_and_not_hidden():
    text = "model: m\ndata: a.jsonl\nstage: sft\nodd: 3\ntrain:\n  learning_rate: fast\n  wrong: 1\n"
    values = fill(text)
    assert values["train.learning_rate"] == "fast"
    changed = yaml.safe_load(write(text, {**values, "train.seed": 7}))
    assert changed["odd"] == 3 and changed["train"] == {"learning_rate": "fast", "wrong": 1, "seed": 7}


def test_a_text_that_is_no_yaml_is_refused_in_words():
    with pytest.raises(FactoryError, match="cannot be read"):
        fill("model: [")


def test_another_stage_takes_none_of_the_old_ones_settings_along():
    text = write(JOB, {"stage.sft.packing": True})
    assert parse_job(text).stage.packing is True
    assert write(text, {"stage": "kto", "stage.sft.packing": True}) == JOB.replace("sft", "kto")


def test_several_files_become_sources_and_keep_their_settings():
    text = write(JOB, {"data": ["a.jsonl", "b.jsonl"]})
    assert yaml.safe_load(text)["data"] == ["a.jsonl", "b.jsonl"]
    rows = fill(text)["data.sources"]
    rows[1]["values"]["weight"] = 2
    weighted = write(text, {"data.sources": rows})
    assert yaml.safe_load(weighted)["data"] == ["a.jsonl", {"path": "b.jsonl", "weight": 2}]
    assert yaml.safe_load(write(weighted, {"data": ["b.jsonl"]}))["data"] == {"path": "b.jsonl", "weight": 2}


def test_rewards_are_rows_with_their_own_fields():
    text = JOB.replace("sft", "grpo") + "rewards: [accuracy, {name: format, match: anywhere}]\n"
    rows = fill(text)["rewards"]
    assert [row["kind"] for row in rows] == ["accuracy", "format"]
    rows[0]["values"]["weight"] = 0.5
    rows.append({"kind": "length", "values": {"longest": 40}, "other": {}})
    job = parse_job(write(text, {"rewards": rows}))
    assert [(one.name, one.weight) for one in job.rewards] == [
        ("accuracy", 0.5),
        ("format", 1),
        ("length", 1),
    ]
    assert job.rewards[2].longest == 40


def test_the_fix_of_a_finding_sets_dotted_fields_and_takes_out_what_is_null():
    text = write(JOB, {"train.batch_size": 8, "model.revision": "v1"})
    fixed = put(text, {"train.batch_size": 4, "train.gradient_accumulation": 2, "model.revision": None})
    job = parse_job(fixed)
    assert (job.train.batch_size, job.train.gradient_accumulation, job.model.revision) == (4, 2, None)
    assert "revision" not in fixed
    assert parse_job(put(text, {"method": "qlora"})).method.name == "qlora"


SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(10**9), 10**9),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(max_size=12),
)
ANYTHING = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
)


@given(st.sampled_from(sorted(by_id())), ANYTHING)
def test_whatever_a_job_says_a_widget_can_show_and_json_can_carry(name, value):
    json.dumps(shown(by_id()[name], value))


@given(st.sampled_from(sorted(by_id())), ANYTHING)
def test_what_a_widget_says_it_shows_and_says_again(name, value):
    """What somebody wrote may be said in another way (`a,b ` is `a, b`), but only once: then it stays as it is."""
    field = by_id()[name]
    told = said(field, shown(field, value))
    if told is not NOTHING and field.id != "data":
        seen = shown(field, told)
        again = said(field, seen)
        assert again is NOTHING or (again == told and shown(field, again) == seen)


@given(
    st.dictionaries(st.sampled_from(["model", "name", "train", "data", "stage", "odd"]), ANYTHING, max_size=4)
)
def test_any_plain_values_survive_the_form(values):
    text = json.dumps(values)
    try:
        assert write(text, fill(text)) == text
    except FactoryError as error:
        assert all(one.message for one in error.findings)


def test_every_field_has_its_key_and_help_beside_it_in_both_languages():
    for language in ("en", "zh"):
        told = field_words(language)
        for field in fields():
            assert f"`{field.key}`" in told[f"about.{field.id}"] and told[f"field.{field.id}"]


LEFT_ENGLISH: set[str] = set()
"""Fields whose label or help has no Chinese yet. Whoever adds a field adds it here, or writes the Chinese."""


def test_the_fields_that_people_meet_first_speak_chinese_and_the_gaps_are_listed():
    chinese = words("zh")
    from webui.pages.new import ASKED, METHOD, SCHEDULE, TRAINING

    first = {*SCHEDULE, *ASKED, "name", "model.name", "data"}
    first |= {
        f.key
        for f in fields()
        if f.path[0] in ("stage", "method") and {f.path[-1], f"{f.kind}.{f.path[-1]}"} & {*TRAINING, *METHOD}
    }
    assert {key for key in first if f"field.{key}" not in chinese} == set()
    inside = [
        one for f in fields() if f.widget == "rows" for all_ in row_forms(f.id).values() for one in all_
    ]
    gaps = {
        field.id
        for field in (*fields(), *inside)
        if not {f"help.{field.id}", f"help.{field.key}"} & set(chinese) or f"field.{field.key}" not in chinese
    }
    assert gaps == LEFT_ENGLISH
