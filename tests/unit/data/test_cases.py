# ruff: noqa: E501 - rows of data
"""Reports of trouble with data and templates in other tools, by their case number: ours gives what was wanted."""

from __future__ import annotations

import json

import pytest

from data.errors import FactoryError
from data.inspect import inspect
from data.prepare import PrepareSettings
from data.preview import preview
from data.render import Renderer
from data.report import quick_findings
from data.voice import Voice
from tests.tiny import CHATML, tiny_tokenizer
from tests.unit.data.helpers import arrow_rows, flow, jsonl, prepared
from tests.unit.data.shapes import assistant, chat, gpt, human, system, user

BOS_TEMPLATE = (
    "{{ bos_token }}{% for m in messages %}({{ m.role }}){{ m.content }}{{ eos_token }}{% endfor %}"
)
NO_BOS_TEMPLATE = "{% for m in messages %}<{{ m.role }}>\n{{ m.content }}{{ eos_token }}\n{% endfor %}"
SHELF = [chat(user(f"Box {n}?"), assistant(f"Box {n} is on shelf {n}.")) for n in range(12)]


def learnt(tokenizer, row):
    return tokenizer.decode([label for label in row["labels"] if label != -100])


def codes(findings):
    return [finding.code for finding in findings]


def test_004_nested_mixed_list(tmp_path):
    file = jsonl(tmp_path / "a.jsonl", [
        {"prompt": "p1", "completion": "c1", "tags": [[0, 4, "PLACE"]]},
        {"prompt": "p2", "completion": "c2", "tags": []},
    ])  # fmt: skip
    made, _ = prepared(file, tiny_tokenizer(), tmp_path / "cache")
    assert made.rows == 2


def test_005_tool_arg_type_conflict(tmp_path):
    def call(**arguments):
        made = {"type": "function", "function": {"name": "note", "arguments": arguments}}
        return chat(
            user("note it"),
            {**assistant(""), "tool_calls": [made]},
            {"role": "tool", "content": "ok"},
            assistant("Noted."),
        )

    rows, _ = flow(jsonl(tmp_path / "a.jsonl", [call(time="2025-08-01"), call(time=1690876800, level=2)]))
    template = "{% for m in messages %}{% for c in m.tool_calls or [] %}{{ c.function.arguments | tojson }}{% endfor %}|{{ m.content }}{% endfor %}"
    renderer = Renderer(Voice(template, None, "</s>", False))
    texts = ["".join(text for text, _ in renderer.sequences(row)[0]) for row in rows]
    assert '{"time": "2025-08-01"}' in texts[0] and "level" not in texts[0]
    assert '{"time": 1690876800, "level": 2}' in texts[1] and "null" not in texts[1]


def test_008_two_objects_one_line(tmp_path):
    file = tmp_path / "a.jsonl"
    file.write_text(
        '{"prompt": "a", "completion": "1"}{"prompt": "b", "completion": "2"}\n{"prompt": "c", "completion": "3"}\n'
    )
    rows, made = flow(file)
    assert [row["prompt"] for row in rows] == ["a", "b", "c"]
    note = next(
        one
        for one in quick_findings({"path": str(file)}, ("completion",))
        if one.code == "data_several_on_a_line"
    )
    assert "line 1" in note.message and made.files[0].tally.note_lines["several_on_a_line"] == [1]


def test_009_json_array_named_txt(tmp_path):
    file = tmp_path / "rows.txt"
    file.write_text(
        json.dumps(
            [
                {"instruction": "河?", "input": "", "output": "三。"},
                {"instruction": "桥?", "input": "", "output": "石。"},
            ]
        )
    )
    rows, made = flow(file)
    assert len(rows) == 2 and made.files[0].match.format == "alpaca"


def test_011_partial_column_mapping(tmp_path):
    file = tmp_path / "a.json"
    file.write_text(json.dumps([{"conversations": [human("hi"), gpt("hello")], "tools": ""}]))
    rows, made = flow(file, columns={"tools": "tools"})
    assert made.files[0].match.columns == {"messages": "conversations", "tools": "tools"}
    assert rows == [chat(user("hi"), assistant("hello"))]


def test_012_sharegpt_bad_role_keyerror(tmp_path):
    file = tmp_path / "a.json"
    rows = [
        {"conversations": [human("a"), gpt("b")]},
        {"conversations": [{"from": "user", "value": "c"}, {"from": "assistant", "value": "d"}]},
        {"conversations": [human("e"), {"from": "narrator", "value": "f"}]},
    ]
    file.write_text(json.dumps(rows))
    kept, made = flow(file)
    assert len(kept) == 2
    assert made.files[0].tally.examples["unknown_role"][0] == {
        "line": 3,
        "text": "narrator",
        "file": str(file),
    }


def test_014_pretrain_file_in_sft(tmp_path):
    file = jsonl(tmp_path / "a.jsonl", [{"text": "Oak is hard."}, {"text": "Pine is soft."}])
    told = next(
        one
        for one in quick_findings({"path": str(file)}, ("messages", "text"), "sft")
        if one.code == "data_text_in_sft"
    )
    assert "(text)" in told.message and "sft" in told.message and told.fix == {"stage.name": "pretrain"}
    assert "stage.train_on: all" in told.message and told.level == "warning"


def test_015_folder_with_config_json(tmp_path):
    (tmp_path / "d").mkdir()
    (tmp_path / "d" / "train.csv").write_text("instruction,output\nSay hi,hi\nSay bye,bye\n")
    (tmp_path / "d" / "settings.json").write_text('{"model": "m", "project": "p", "lr": 0.0002}')
    rows, made = flow(tmp_path / "d")
    assert len(rows) == 2 and list(made.ignored) == [str(tmp_path / "d" / "settings.json")]


def test_017_csv_single_quote_char(tmp_path):
    file = tmp_path / "a.csv"
    file.write_text('prompt|completion\na|1\nb|2\nc|"\nd|4\n')
    rows, made = flow(file)
    assert [row["completion"] for row in rows] == ["1", "2", '"', "4"]
    assert made.files[0].tally.note_lines["unbalanced_quote"] == [4]


def test_018_excel_semicolon_csv(tmp_path):
    file = tmp_path / "a.csv"
    file.write_text('Frage;Antwort\n"Was tun?";"Weiter;\n""ruhig"" weiter"\n')
    rows, _ = flow(file)
    assert rows == [chat(user("Was tun?"), assistant('Weiter;\n"ruhig" weiter'))]


def test_019_pandas_columns_json(tmp_path):
    file = tmp_path / "a.json"
    file.write_text('{"prompt": {"0": "a", "1": "b"}, "completion": {"0": "1", "1": "2"}}')
    rows, made = flow(file)
    assert rows[1] == {"prompt": "b", "completion": "2"} and "columns_transposed" in made.files[0].tally.notes


def test_020_gbk_encoded_file(tmp_path):
    file = tmp_path / "a.csv"
    file.write_bytes("prompt,completion\n你好,世界\n".encode("gb18030"))
    rows, made = flow(file)
    assert rows == [{"prompt": "你好", "completion": "世界"}] and made.files[0].encoding == "gb18030"
    assert "gb18030" in " ".join(one.message for one in quick_findings({"path": str(file)}, ("completion",)))


def test_023_kto_all_true_bug(tmp_path):
    file = tmp_path / "a.json"
    said = [("ok", True), ("bad", False), ("worse", False)]
    file.write_text(
        json.dumps([{"instruction": "i", "input": "", "output": text, "kto_tag": tag} for text, tag in said])
    )
    rows, _ = flow(file, "kto")
    assert [row["label"] for row in rows] == [True, False, False]
    report = inspect({"path": str(file)}, ("feedback",), "kto")
    assert report["labels"] == {"good": 1, "bad": 2}
    assert "Labels: 1 good (desirable), 2 bad (undesirable)" in str(report["findings"])


def test_025_sft_default_dpo_columns(tmp_path):
    file = tmp_path / "a.csv"
    file.write_text('text\n"Oak is a tree."\n"Tin is a metal."\n')
    made, _ = prepared(file, tiny_tokenizer(), tmp_path / "cache", "sft")
    assert made.rows == 2


def test_026_dpo_missing_prompt(tmp_path):
    file = jsonl(
        tmp_path / "a.jsonl", [{"query": "Name a gas", "response": "Neon", "rejected_response": "Iron"}]
    )
    assert flow(file, "dpo")[0] == [{"prompt": "Name a gas", "chosen": "Neon", "rejected": "Iron"}]


def test_027_dpo_multi_turn_pairs(tmp_path):
    before = [user("Hi"), assistant("Hello"), user("Joke?")]
    file = jsonl(
        tmp_path / "a.jsonl",
        [{"chosen": [*before, assistant("Knock.")], "rejected": [*before, assistant("No.")]}],
    )
    rows, _ = flow(file, "dpo")
    assert rows == [{"prompt": before, "chosen": [assistant("Knock.")], "rejected": [assistant("No.")]}]


@pytest.mark.parametrize("too_long", ["cut", "drop"])
def test_031_one_overlong_one_valid(tmp_path, too_long):
    file = jsonl(
        tmp_path / "a.jsonl",
        [{"prompt": "w " * 9000, "completion": "x"}, {"prompt": "ok", "completion": "fine"}],
    )
    made, told = prepared({"path": str(file), "too_long": too_long}, tiny_tokenizer(), tmp_path / "cache")
    assert made.rows == 1 and made.report["reasons"] == {"too_long": 1}
    assert any("longer than max_length" in one.message and "line 1" in one.message for one in told)


@pytest.mark.parametrize("template", [BOS_TEMPLATE, NO_BOS_TEMPLATE], ids=["036_double_bos", "037_zero_bos"])
def test_exactly_one_bos(tmp_path, template):
    tokenizer = tiny_tokenizer(template, bos=True)
    made, _ = prepared(jsonl(tmp_path / "a.jsonl", SHELF), tokenizer, tmp_path / "cache")
    for row in arrow_rows(made.train):
        assert (
            row["input_ids"].count(tokenizer.bos_token_id) == 1
            and row["input_ids"][0] == tokenizer.bos_token_id
        )


def test_039_no_eos_plain_prompt_completion(tmp_path):
    tokenizer = tiny_tokenizer(template=None)
    eos = tokenizer.eos_token
    file = jsonl(
        tmp_path / "a.jsonl",
        [{"prompt": "2+2=", "completion": " 4"}, {"prompt": "3+3=", "completion": f" 6{eos}"}],
    )
    made, _ = prepared(file, tokenizer, tmp_path / "cache")
    for row in arrow_rows(made.train):
        assert (
            row["labels"].count(tokenizer.eos_token_id) == 1 and row["labels"][-1] == tokenizer.eos_token_id
        )


def test_040_boundary_mask_wrong(tmp_path):
    template = (
        "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
        "{% if add_generation_prompt %}<|im_start|>assistant\n<think>\n{% endif %}"
    )
    tokenizer = tiny_tokenizer(template)
    rows = [
        {"prompt": [user("A question.")], "completion": [assistant("<thin> reply.")]},
        {"prompt": [system("Short."), user("Two?")], "completion": [assistant("2")]},
    ]
    made, _ = prepared(jsonl(tmp_path / "a.jsonl", rows), tokenizer, tmp_path / "cache")
    assert [learnt(tokenizer, row) for row in arrow_rows(made.train)] == [
        "<thin> reply.<|im_end|>",
        "2<|im_end|>",
    ]


def test_041_space_merge_boundary(tmp_path):
    tokenizer = tiny_tokenizer(template=None)
    pairs = [("The answer is", " forty"), ("un", "happy"), ("Reply:\n", "\nyes"), ("I a", "m Pharos")]
    file = jsonl(
        tmp_path / "a.jsonl", [{"prompt": prompt, "completion": completion} for prompt, completion in pairs]
    )
    made, _ = prepared(file, tokenizer, tmp_path / "cache")
    for row, (prompt, completion) in zip(arrow_rows(made.train), pairs, strict=True):
        assert learnt(tokenizer, row) == completion + tokenizer.eos_token
        # What generation is given: the prompt's own tokens, not ones merged with the answer.
        assert row["input_ids"][: len(tokenizer(prompt).input_ids)] == tokenizer(prompt).input_ids


def test_043_repeated_text_mask(tmp_path):
    tokenizer = tiny_tokenizer()
    turns = [user("OK"), assistant("OK"), user("OK"), assistant("OK"), user("Bye OK"), assistant("OK")]
    made, _ = prepared(jsonl(tmp_path / "a.jsonl", [chat(*turns)]), tokenizer, tmp_path / "cache")
    row = arrow_rows(made.train)[0]
    assert learnt(tokenizer, row) == "OK<|im_end|>" * 3
    masked = tokenizer.decode(
        [i for i, label in zip(row["input_ids"], row["labels"], strict=True) if label == -100]
    )
    assert masked.count("OK") == 3


STRICT = (
    "{% for m in messages %}{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}"
    "{{ raise_exception('roles must alternate') }}{% endif %}[{{ m.role }}]{{ m.content }}{% endfor %}"
)


def test_045_consecutive_user_turns(tmp_path):
    tokenizer = tiny_tokenizer(STRICT)
    file = jsonl(
        tmp_path / "a.jsonl",
        [chat(user("Hello"), user("Anyone?"), assistant("Yes.")), chat(user("a"), assistant("b"))],
    )
    made, told = prepared(file, tokenizer, tmp_path / "cache")
    texts = [tokenizer.decode(row["input_ids"]) for row in arrow_rows(made.train)]
    assert "[user]Hello\nAnyone?[assistant]Yes." in texts[0] and made.report["notes"]["merged_turns"] == 1
    made, _ = prepared({"path": str(file), "turns": "drop"}, tokenizer, tmp_path / "cache")
    assert made.rows == 1 and made.report["reasons"] == {"turns_not_alternating": 1}
    made, told = prepared({"path": str(file), "turns": "keep"}, tokenizer, tmp_path / "cache")
    assert made.report["reasons"] == {"template_refused": 1}
    assert any("roles must alternate" in one.message for one in told)


# Qwen3's rule, in short: thoughts of all answers but the last are cut out of the text.
THINKING = (
    "{%- for m in messages -%}{%- set content = m.content -%}"
    "{%- if m.role == 'assistant' and '</think>' in content and not loop.last -%}"
    "{%- set content = content.split('</think>')[-1].lstrip('\n') -%}{%- endif -%}"
    "{{- '<|im_start|>' + m.role + '\n' + content + '<|im_end|>\n' -}}{%- endfor -%}"
    "{%- if add_generation_prompt -%}{{ '<|im_start|>assistant\n' }}{%- endif -%}"
)


def test_048_think_stripped_from_history(tmp_path):
    tokenizer = tiny_tokenizer(THINKING)
    row = chat(
        user("2+2?"),
        assistant("<think>\n2 and 2\n</think>\n\n4"),
        user("+1?"),
        assistant("<think>\n4+1\n</think>\n\n5"),
    )
    file = jsonl(tmp_path / "a.jsonl", [row])
    made, told = prepared(file, tokenizer, tmp_path / "cache")
    assert learnt(tokenizer, arrow_rows(made.train)[0]) == "4<|im_end|><think>\n4+1\n</think>\n\n5<|im_end|>"
    warning = next(one for one in told if one.code == "data_reasoning_dropped")
    assert "1 row" in warning.message and "only in the last turn" in warning.message
    made, told = prepared({"path": str(file), "one_per_turn": True}, tokenizer, tmp_path / "cache")
    said = [learnt(tokenizer, one) for one in arrow_rows(made.train)]
    assert said == ["<think>\n2 and 2\n</think>\n\n4<|im_end|>", "<think>\n4+1\n</think>\n\n5<|im_end|>"]


def test_051_response_marker_mismatch(tmp_path):
    """There is no marker to type: the mask comes from the template, and the preview shows it."""
    tokenizer = tiny_tokenizer()
    how = PrepareSettings(max_length=128, stage="sft")
    shown = preview({"path": str(jsonl(tmp_path / "a.jsonl", SHELF))}, ("messages",), tokenizer, how, 1)
    tokens = shown["rows"][0]["sequences"][0]["tokens"]
    assert (
        "".join(token["text"] for token in tokens if token["mask"] == "learnt")
        == "Box 0 is on shelf 0.<|im_end|>"
    )


def test_053_image_rows_on_text_model(tmp_path):
    file = jsonl(
        tmp_path / "a.jsonl", [{**chat(user("<image>What?"), assistant("A boat.")), "images": ["boat.png"]}]
    )
    tokenizer = tiny_tokenizer()
    tokenizer.name_or_path = "TINY_CHAT"
    with pytest.raises(FactoryError, match="Column images .* vision model, and TINY_CHAT is text only"):
        prepared(file, tokenizer, tmp_path / "cache")


def test_055_packing_too_small(tmp_path):
    file = jsonl(tmp_path / "a.jsonl", [{"text": "tiny"}])
    made, told = prepared(
        file, tiny_tokenizer(), tmp_path / "cache", "pretrain", packing=True, max_length=2048
    )
    rows = arrow_rows(made.train)
    assert made.rows == 1 and rows[0]["seq_lengths"] == [len(rows[0]["input_ids"])]
    assert "data_packing_short" in codes(told)


def test_057_tokenization_mismatch_ignored(tmp_path):
    template = (
        "{% for m in messages %}{{ 'USER: ' if m.role == 'user' else 'ASSISTANT: ' }}{{ m.content }}"
        "{{ eos_token if m.role == 'assistant' else ' ' }}{% endfor %}"
    )
    tokenizer = tiny_tokenizer(template)
    made, _ = prepared(jsonl(tmp_path / "a.jsonl", SHELF), tokenizer, tmp_path / "cache")
    assert made.rows == 12 and not made.report["reasons"]
    assert learnt(tokenizer, arrow_rows(made.train)[5]) == " Box 5 is on shelf 5.<|im_end|>"


def test_057_many_rows_that_cannot_be_masked_stop_the_run(tmp_path):
    """A template that hides where answers begin is refused, not trained on with a guess."""
    shuffled = "{{ messages | map(attribute='content') | join(' ') | list | sort | join('') }}"
    with pytest.raises(FactoryError) as refused:
        prepared(jsonl(tmp_path / "a.jsonl", SHELF), tiny_tokenizer(shuffled), tmp_path / "cache")
    assert "hides where the answer begins" in str(refused.value)


def test_098_shorter_answer_emptied(tmp_path):
    rows = [
        {"prompt": "p", "chosen": "ok", "rejected": "word " * 150},
        {"prompt": "p", "chosen": "fine then", "rejected": "no"},
    ]
    made, _ = prepared(
        jsonl(tmp_path / "a.jsonl", rows), tiny_tokenizer(), tmp_path / "cache", "dpo", max_length=64
    )
    for row in arrow_rows(made.train):
        assert (
            row["chosen_ids"]
            and row["rejected_ids"]
            and len(row["prompt_ids"]) + len(row["rejected_ids"]) <= 64
        )


def test_111_grpo_prompt_too_long(tmp_path):
    rows = [{"prompt": f"What is {n}+1?", "answer": str(n + 1)} for n in range(8)] + [
        {"prompt": "x " * 5000, "answer": "0"}
    ]
    made, _ = prepared(jsonl(tmp_path / "a.jsonl", rows), tiny_tokenizer(), tmp_path / "cache", "grpo")
    assert made.rows == 8 and made.report["reasons"] == {"too_long": 1}
    assert arrow_rows(made.train)[3]["answer"] == "4"


def test_116_the_same_text_from_training_and_from_a_saved_tokenizer(tmp_path):
    from transformers import AutoTokenizer

    tokenizer = tiny_tokenizer(CHATML)
    tokenizer.save_pretrained(tmp_path / "saved")
    again = AutoTokenizer.from_pretrained(tmp_path / "saved")
    chats = [
        chat(system("s"), user("a"), assistant("b"), user("c"), assistant("d")),
        chat(user("a"), assistant("b")),
    ]
    renderers = [Renderer(Voice.of(one)) for one in (tokenizer, again)]
    assert all(renderers[0].sequences(one) == renderers[1].sequences(one) for one in chats)


def test_152_eval_nan_truncated(tmp_path):
    """A held-out row that loses its answer is left out, and that is told as what it is."""
    rows = jsonl(tmp_path / "a.jsonl", [chat(user("a"), assistant("b"))] * 4)
    held_out = jsonl(
        tmp_path / "e.jsonl", [chat(user("long " * 90), assistant("b")), chat(user("a"), assistant("b"))]
    )
    made, told = prepared(
        {"path": str(rows), "eval": str(held_out)}, tiny_tokenizer(), tmp_path / "c", max_length=64
    )
    about = [one for one in told if one.field == "data.eval"]
    assert len(arrow_rows(made.eval)) == 1
    assert any(one.message.startswith("Held-out rows: 1 row dropped") for one in about), [
        str(one) for one in told
    ]


def test_a_template_that_fails_in_any_way_is_blamed_and_not_the_file(tmp_path):
    file = jsonl(tmp_path / "a.jsonl", [chat(user("a"), assistant("b"))])
    with pytest.raises(FactoryError, match="division by zero") as refused:
        prepared(file, tiny_tokenizer("{{ 1 / 0 }}"), tmp_path / "cache")
    assert "damaged" not in str(refused.value)
