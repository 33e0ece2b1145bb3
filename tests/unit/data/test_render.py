# ruff: noqa: E501 - rows of data
"""Text and mask of a row: equal to the template's own rendering, learnt exactly where the assistant speaks."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from data.errors import FactoryError
from data.render import PROOF_AFTER, Renderer
from data.samples.generate import SAMPLES, content
from data.template import FOLDER, Template, for_template, load_template, template_names
from data.voice import Voice
from tests.tiny import CHATML
from tests.unit.data.shapes import CALL, assistant, chat, system, user

SPECIALS = {"bos_token": "<s>", "eos_token": "</s>"}
MARKS = ("<s>", "</s>", "<|im_start|>", "<|im_end|>", "<|eot_id|>", "<end_of_turn>", "<|end|>")
TRIMS = "{% for m in messages %}[{{ m.role }}] {{ m.content | trim }}</s>{% endfor %}{% if add_generation_prompt %}[assistant] {% endif %}"
LAST = (
    "{% for m in messages %}<{{ m.role }}>{% if m.role == 'assistant' and loop.last %}(now) {% endif %}{{ m.content }}</s>"
    "{% endfor %}{% if add_generation_prompt %}<assistant>{% endif %}"
)


def voice(template, **settings):
    return Voice(template, settings.get("bos"), "</s>", settings.get("adds_bos", False), SPECIALS, MARKS)


def learnt(pieces):
    return [text for text, here in pieces if here]


def joined(pieces):
    return "".join(text for text, _ in pieces)


def test_templates_render_as_transformers_renders_them():
    from transformers.utils.chat_template_utils import render_jinja_template

    turns = [system("S."), user("Hi"), assistant("Ho."), user("Bye"), assistant("Ciao.")]
    for name in template_names():
        source = load_template(name)
        for answer_next, part in ((False, turns), (True, turns[:4]), (True, turns[1:2])):
            theirs = render_jinja_template(
                [part], chat_template=source, add_generation_prompt=answer_next, **SPECIALS
            )
            assert Template(source, SPECIALS).render(part, None, answer_next) == theirs[0][0], name


@pytest.mark.parametrize("name", template_names())
def test_a_bundled_template_marks_every_answer_with_its_end(name):
    turns = [user("Hi"), assistant("Ho."), user("Bye"), assistant("Ciao.")]
    template = Template(load_template(name), SPECIALS)
    said = learnt(template.render_marked(turns))
    assert len(said) == 2 and said[0].strip().startswith("Ho.") and said[0].rstrip().endswith((">", "</s>"))
    asked = template.render(turns[:1], None, True)
    assert template.render(turns[:2]).startswith(asked.rstrip(" ")), "the prompt begins as the training text"
    assert learnt(Renderer(voice(load_template(name))).sequences(chat(*turns))[0]) == said


@pytest.mark.parametrize("name", template_names())
def test_a_bundled_template_says_what_it_is_and_refuses_tools_it_has_no_form_for(name):
    text = (FOLDER / f"{name}.jinja").read_text()
    assert text.startswith("{#-")
    tools = [{"type": "function", "function": {"name": "wind_at"}}]
    turns = for_template(
        [
            user("Wind?"),
            {**assistant(""), "tool_calls": [CALL]},
            {"role": "tool", "content": "12"},
            assistant("12."),
        ]
    )
    if "raise_exception('template " + name + " has no form for tools" in text:
        with pytest.raises(Exception, match="no form for tools"):
            Template(text, SPECIALS).render(turns, tools)
    elif name != "deepseek":
        made = Template(text, SPECIALS).render(turns, tools)
        assert "wind_at" in made and '{"at": "quay"}' in made


@pytest.mark.parametrize("template", [CHATML, TRIMS, LAST, *map(load_template, template_names())])
def test_the_pieces_spell_the_templates_own_text(template):
    renderer = Renderer(voice(template))
    contents = ["x", " x ", "a\n\nb", "OK", "<think>\nt\n</think>\n\ny", "[INST]", "{{ x }}", "é🙂", "</s>"]
    rows = [
        chat(user(one), assistant(other), user("OK"), assistant(one))
        for one in contents
        for other in contents
    ]
    for row in rows:
        pieces = renderer.sequences(row)[0]
        whole = Template(template, SPECIALS).render(row["messages"])
        assert joined(pieces).removesuffix("</s>") == whole.removesuffix("</s>")


@pytest.mark.parametrize("template", [CHATML, TRIMS, load_template("llama3")])
def test_a_proven_plan_gives_what_rendering_each_row_gives(template):
    quick, exact = Renderer(voice(template)), Renderer(voice(template))
    rows = [chat(user(f"Q{n} "), assistant(f" A{n}")) for n in range(PROOF_AFTER + 50)]
    filled = 0
    for row in rows:
        exact._plans.clear()
        wanted = exact.sequences(row)[0]
        made = quick.quick(row)
        if made is None:
            assert quick.sequences(row)[0] == wanted
        else:
            filled += 1
            assert made == ([text for text, _ in wanted], "".join(str(int(here)) for _, here in wanted))
    assert filled > 40


def test_a_template_that_looks_into_texts_is_never_filled_blindly():
    sneaky = CHATML.replace("message['content']", "(message['content'] | replace('zebra', 'horse'))")
    renderer = Renderer(voice(sneaky))
    for n in range(PROOF_AFTER + 10):
        row = chat(user(f"Q{n}"), assistant("a zebra"))
        assert renderer.quick(row) is None
        assert "horse" in joined(renderer.sequences(row)[0])


@settings(max_examples=150, deadline=None)
@given(
    texts=st.lists(st.text(max_size=30), min_size=2, max_size=6),
    template=st.sampled_from([CHATML, TRIMS, LAST, load_template("llama3"), load_template("qwen")]),
)
def test_any_texts_are_placed_or_refused(texts, template):
    from data.rows import Unusable

    turns = [user(text) if at % 2 == 0 else assistant(text) for at, text in enumerate(texts)]
    try:
        pieces = Renderer(voice(template)).sequences(chat(*turns))[0]
    except Unusable:
        return
    rendered = Template(template, SPECIALS).render(turns)
    assert joined(pieces).removesuffix("</s>") == rendered.removesuffix("</s>")


def test_weights_roles_and_train_on_choose_what_is_learnt():
    turns = [system("S"), user("a"), {**assistant("b"), "weight": 0}, user("c"), assistant("d")]
    assert learnt(Renderer(voice(CHATML)).sequences(chat(*turns))[0]) == ["d<|im_end|>"]
    plain = [user("a"), assistant("b"), user("c"), assistant("d")]
    assert len(learnt(Renderer(voice(CHATML)).sequences(chat(*plain))[0])) == 2
    assert learnt(Renderer(voice(CHATML), "last_assistant").sequences(chat(*plain))[0]) == ["d<|im_end|>"]
    everything = Renderer(voice(CHATML), "all").sequences(chat(*plain))[0]
    assert [here for _, here in everything] == [True]


def test_tool_calls_and_reasoning_are_learnt_with_their_turn():
    turns = [user("Wind?"), {**assistant(""), "tool_calls": [CALL]}, {"role": "tool", "content": "12"},
             {**assistant("12."), "reasoning_content": "I read it."}]  # fmt: skip
    said = learnt(Renderer(voice(load_template("chatml"))).sequences({"messages": turns, "tools": []})[0])
    assert '"arguments": {"at": "quay"}' in said[0] and said[1].startswith("<think>\nI read it.")


def test_tools_that_a_template_does_not_show_are_told():
    turns = [
        user("Wind?"),
        {**assistant(""), "tool_calls": [CALL]},
        {"role": "tool", "content": "12"},
        assistant("12."),
    ]
    for template, lost in ((CHATML, 1), (load_template("chatml"), 0)):
        renderer = Renderer(voice(template))
        renderer.sequences(chat(*turns))
        assert renderer.notes["tools_dropped"] == lost


def test_texts_become_turns_when_asked_or_when_compared():
    row = {"prompt": "Hi", "completion": "Ho"}
    assert joined(Renderer(voice(CHATML)).sequences(row)[0]) == "HiHo</s>"
    assert joined(Renderer(voice(CHATML), wrap="chat").sequences(row)[0]).startswith("<|im_start|>user\nHi")
    pair = {"prompt": "Hi", "chosen": "Ho", "rejected": "No"}
    assert all("<|im_start|>" in joined(one) for one in Renderer(voice(CHATML)).sequences(pair))
    assert joined(Renderer(voice(None)).sequences(pair)[1]) == "HiNo</s>"


def test_one_bos_whoever_writes_it():
    for adds, template in ((True, CHATML), (True, "<s>" + CHATML), (False, "<s><s>" + CHATML)):
        text = joined(
            Renderer(voice(template, bos="<s>", adds_bos=adds)).sequences(chat(user("a"), assistant("b")))[0]
        )
        assert text.startswith("<s>") and text.count("<s>") == 1


def test_a_missing_end_mark_is_added_and_told():
    renderer = Renderer(voice("{% for m in messages %}[{{ m.role }}]{{ m.content }}{% endfor %}"))
    assert learnt(renderer.sequences(chat(user("a"), assistant("b")))[0]) == ["b</s>"]
    assert renderer.notes["turn_end_missing"] == 1


def test_templates_are_found_by_name_or_file(tmp_path):
    (tmp_path / "own.jinja").write_text("{{ messages }}")
    assert load_template(str(tmp_path / "own.jinja")) == "{{ messages }}"
    with pytest.raises(FactoryError, match="chatml"):
        load_template("nope")
    with pytest.raises(FactoryError, match="does not compile"):
        Template("{% for %}", {})
    with pytest.raises(FactoryError, match="characters"):
        Template("x" * 300_000, {})


@pytest.mark.parametrize("name", SAMPLES)
def test_the_bundled_samples_are_what_their_code_writes(name):
    assert (FOLDER.parents[1] / "data" / "samples" / f"{name}.jsonl").read_text(encoding="utf-8") == content(
        name
    )


def test_the_bundled_samples_fit_their_stages():
    from tests.unit.data.helpers import flow

    stages = {
        "text": "pretrain",
        "chat": "sft",
        "tools": "sft",
        "preference": "dpo",
        "thumbs": "kto",
        "maths": "grpo",
        "persona": "sft",
    }
    for name, stage in stages.items():
        rows, made = flow(FOLDER.parents[1] / "data" / "samples" / f"{name}.jsonl", stage)
        assert 30 <= len(rows) <= 200 and not made.files[0].tally.reasons, name
