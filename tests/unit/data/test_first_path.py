"""A file becomes token ids and labels, or one clear sentence."""

from __future__ import annotations

import pytest

from data.errors import FactoryError
from tests.tiny import tiny_tokenizer
from tests.unit.data.helpers import arrow_rows, jsonl, prepared

CHAT = [
    {
        "messages": [
            {"role": "user", "content": f"Who are you, {n}?"},
            {"role": "assistant", "content": f"Pharos {n}."},
        ]
    }
    for n in range(12)
]


def learnt_text(tokenizer, row):
    return tokenizer.decode([label for label in row["labels"] if label != -100])


def test_only_the_answer_and_its_end_mark_are_learnt(tmp_path):
    tokenizer = tiny_tokenizer()
    made, _ = prepared(jsonl(tmp_path / "chat.jsonl", CHAT), tokenizer, tmp_path / "cache")
    rows = arrow_rows(made.train)
    assert made.rows == 12 and made.eval is None
    assert learnt_text(tokenizer, rows[3]) == "Pharos 3.<|im_end|>"
    assert tokenizer.decode(rows[3]["input_ids"]) == tokenizer.apply_chat_template(
        CHAT[3]["messages"], tokenize=False
    )


def test_ids_equal_the_tokenizers_own_rendering(tmp_path):
    tokenizer = tiny_tokenizer()
    made, _ = prepared(jsonl(tmp_path / "chat.jsonl", CHAT), tokenizer, tmp_path / "cache")
    for row, chat in zip(arrow_rows(made.train), CHAT, strict=True):
        assert row["input_ids"] == tokenizer.apply_chat_template(chat["messages"], return_dict=False)


def test_alpaca_and_completions_become_rows(tmp_path):
    tokenizer = tiny_tokenizer()
    alpaca = jsonl(tmp_path / "a.jsonl", [{"instruction": "Say", "input": "hi", "output": "Hi."}])
    made, _ = prepared(alpaca, tokenizer, tmp_path / "cache")
    text = tokenizer.decode(arrow_rows(made.train)[0]["input_ids"])
    assert text == "<|im_start|>user\nSay\nhi<|im_end|>\n<|im_start|>assistant\nHi.<|im_end|>\n"
    plain = jsonl(tmp_path / "p.jsonl", [{"prompt": "2+2=", "completion": " 4"}])
    made, _ = prepared(plain, tokenizer, tmp_path / "cache")
    assert learnt_text(tokenizer, arrow_rows(made.train)[0]) == " 4<|im_end|>"


def test_text_is_learnt_whole_and_long_documents_lose_nothing(tmp_path):
    tokenizer = tiny_tokenizer()
    words = " ".join(f"word {n}" for n in range(200))
    made, _ = prepared(jsonl(tmp_path / "t.jsonl", [{"text": words}]), tokenizer, tmp_path / "c", "pretrain")
    rows = arrow_rows(made.train)
    assert len(rows) > 1 and max(len(row["input_ids"]) for row in rows) <= 128
    assert tokenizer.decode([i for row in rows for i in row["input_ids"]]) == words + "<|im_end|>"


def test_packing_keeps_rows_whole(tmp_path):
    tokenizer = tiny_tokenizer()
    made, _ = prepared(jsonl(tmp_path / "chat.jsonl", CHAT), tokenizer, tmp_path / "cache", packing=True)
    plain, _ = prepared(jsonl(tmp_path / "chat.jsonl", CHAT), tokenizer, tmp_path / "cache")
    packed = arrow_rows(made.train)
    assert len(packed) < 12 and all(sum(row["seq_lengths"]) == len(row["input_ids"]) <= 128 for row in packed)
    parts = []
    for row in packed:
        at = 0
        for length in row["seq_lengths"]:
            parts.append((row["input_ids"][at : at + length], row["labels"][at : at + length]))
            at += length
    assert sorted(parts) == sorted((row["input_ids"], row["labels"]) for row in arrow_rows(plain.train))


def test_a_share_is_held_out_the_same_way_every_time(tmp_path):
    tokenizer = tiny_tokenizer()
    file = jsonl(tmp_path / "chat.jsonl", CHAT)
    one, _ = prepared({"path": str(file), "eval": 0.25}, tokenizer, tmp_path / "a")
    other, _ = prepared({"path": str(file), "eval": 0.25}, tokenizer, tmp_path / "b")
    assert arrow_rows(one.eval) == arrow_rows(other.eval) and len(arrow_rows(one.eval)) == 3
    assert len(arrow_rows(one.train)) == 9


def test_a_second_preparation_is_read_from_the_cache(tmp_path):
    file = jsonl(tmp_path / "chat.jsonl", CHAT)
    first, _ = prepared(file, tiny_tokenizer(), tmp_path / "cache")
    again, _ = prepared(file, tiny_tokenizer(), tmp_path / "cache")
    assert not first.cached and again.cached and first.train == again.train


@pytest.mark.parametrize(
    ("content", "code"),
    [
        (None, "data_not_found"),
        (b"", "data_empty"),
        (b"{broken\n{also broken\n", "data_only_broken_rows"),
        (b'{"step": 1, "loss": 2.5}\n', "data_not_recognised"),
        (b'{"prompt": "a", "chosen": "b", "rejected": "c"}\n', "data_shape_does_not_fit"),
    ],
)
def test_what_cannot_be_read_is_one_sentence(tmp_path, content, code):
    file = tmp_path / "rows.jsonl"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(FactoryError) as refused:
        prepared(file, tiny_tokenizer(), tmp_path / "cache")
    assert [finding.code for finding in refused.value.findings] == [code]


def test_rows_whose_every_answer_weighs_nothing_are_refused(tmp_path):
    silent = {"role": "assistant", "content": "Hm.", "weight": 0}
    chats = [{"messages": [{"role": "user", "content": "Hello?"}, silent]}] * 3
    with pytest.raises(FactoryError) as refused:
        prepared(jsonl(tmp_path / "q.jsonl", chats), tiny_tokenizer(), tmp_path / "cache")
    assert refused.value.findings[0].code == "data_nothing_to_learn"


def test_every_label_cut_away_is_refused(tmp_path):
    chats = [{"messages": [{"role": "user", "content": "x " * 200}, {"role": "assistant", "content": "y"}]}]
    with pytest.raises(FactoryError) as refused:
        prepared(jsonl(tmp_path / "q.jsonl", chats), tiny_tokenizer(), tmp_path / "cache")
    assert refused.value.findings[0].code == "data_no_rows_left"
    assert "longer than max_length: 1" in str(refused.value)


def test_a_file_that_does_not_fit_the_stage_names_stages_that_do(tmp_path):
    file = jsonl(tmp_path / "chat.jsonl", CHAT)
    with pytest.raises(FactoryError) as refused:
        prepared(file, tiny_tokenizer(), tmp_path / "cache", "pretrain")
    finding = refused.value.findings[0]
    assert (
        finding.code == "data_shape_does_not_fit"
        and "sft" in finding.message
        and "messages" in finding.message
    )


def test_conversations_need_a_template(tmp_path):
    file = jsonl(tmp_path / "chat.jsonl", CHAT)
    with pytest.raises(FactoryError) as refused:
        prepared(file, tiny_tokenizer(template=None), tmp_path / "cache")
    assert refused.value.findings[0].code == "template_missing"
