"""Prepared rows: cache keys, mixing, held-out rows, registries, all row shapes, what the trainer would read."""

from __future__ import annotations

import json
import sys

import pytest

from data.errors import FactoryError
from data.pack import pack
from data.prepare import PrepareSettings
from data.preview import preview
from data.report import quick_findings
from tests.tiny import CHATML, tiny_tokenizer
from tests.unit.data.helpers import arrow_rows, jsonl, prepared
from tests.unit.data.shapes import assistant, chat, user

ROWS = [chat(user(f"Say {n}"), assistant(f"{n}!")) for n in range(40)]


def texts(made, tokenizer):
    return [tokenizer.decode([i for i in row["labels"] if i != -100]) for row in arrow_rows(made.train)]


def test_everything_that_decides_the_ids_is_in_the_key(tmp_path):
    file, cache = jsonl(tmp_path / "a.jsonl", ROWS), tmp_path / "cache"
    first, _ = prepared(file, tiny_tokenizer(), cache)
    changed = [
        prepared(file, tiny_tokenizer(vocab_size=420), cache),
        prepared(file, tiny_tokenizer(CHATML + "{# changed #}"), cache),
        prepared(file, tiny_tokenizer(bos=True), cache),
        prepared(file, tiny_tokenizer(), cache, max_length=64),
        prepared(file, tiny_tokenizer(), cache, train_on="all"),
        prepared({"path": str(file), "duplicates": "drop"}, tiny_tokenizer(), cache),
    ]
    assert not any(made.cached for made, _ in changed)
    jsonl(file, ROWS[:-1])
    assert not prepared(file, tiny_tokenizer(), cache)[0].cached
    jsonl(tmp_path / "moved.jsonl", ROWS)
    assert prepared(tmp_path / "moved.jsonl", tiny_tokenizer(), cache)[0].train == first.train


def test_a_cached_result_tells_its_findings_again(tmp_path):
    file = jsonl(tmp_path / "a.jsonl", [*ROWS, ROWS[0]])
    told = [[one.code for one in prepared(file, tiny_tokenizer(), tmp_path / "c")[1]] for _ in range(2)]
    assert told[0] == told[1] and "data_duplicates" in told[0]


def test_a_failed_preparation_leaves_nothing_that_looks_whole(tmp_path):
    file = jsonl(tmp_path / "a.jsonl", [chat(user("x"))] * 2)
    with pytest.raises(FactoryError):
        prepared(file, tiny_tokenizer(), tmp_path / "cache")
    assert not [path for path in (tmp_path / "cache").iterdir() if path.name != "proofs"]


def test_sources_are_mixed_by_weight_and_take_and_the_mix_is_told(tmp_path):
    one, other = jsonl(tmp_path / "a.jsonl", ROWS[:10]), jsonl(tmp_path / "b.jsonl", ROWS[10:30])
    data = {"sources": [{"path": str(one), "weight": 2.0}, {"path": str(other), "take": 8, "weight": 0.5}]}
    made, told = prepared(data, tiny_tokenizer(), tmp_path / "cache")
    mix = next(one for one in told if one.code == "data_mix")
    assert "a.jsonl 20 rows (" in mix.message and "b.jsonl 4 rows" in mix.message
    said = texts(made, tiny_tokenizer())
    assert [said.count(f"{n}!<|im_end|>") for n in range(10)] == [2] * 10
    assert sum(f"{n}!<|im_end|>" in said for n in range(10, 30)) == 4
    assert [info["used"] for info in made.report["files"]] == [20, 4]
    assert "duplicates" not in made.report["notes"]


def test_missing_sources_are_all_told_at_once(tmp_path):
    data = {"sources": [{"path": str(tmp_path / "x.jsonl")}, {"path": str(tmp_path / "y.jsonl")}]}
    with pytest.raises(FactoryError) as refused:
        prepared(data, tiny_tokenizer(), tmp_path / "cache")
    assert [one.code for one in refused.value.findings] == ["data_not_found"] * 2


def test_held_out_rows_hang_on_their_content_alone(tmp_path):
    tokenizer = tiny_tokenizer()

    def held_out(rows):
        made, _ = prepared(
            {"path": str(jsonl(tmp_path / "a.jsonl", rows)), "eval": 0.2}, tokenizer, tmp_path / "c"
        )
        return {tokenizer.decode(row["input_ids"]) for row in arrow_rows(made.eval)}, made

    out, made = held_out(ROWS)
    assert len(out) == 8 and made.report["counts"]["train"]["rows"] == 32
    assert held_out(list(reversed(ROWS)))[0] == out
    twice, made = held_out(ROWS + ROWS)
    train = {tokenizer.decode(row["input_ids"]) for row in arrow_rows(made.train)}
    assert not twice & train


def test_held_out_rows_can_be_a_file_of_their_own(tmp_path):
    data = {
        "path": str(jsonl(tmp_path / "a.jsonl", ROWS)),
        "eval": str(jsonl(tmp_path / "b.jsonl", ROWS[:3])),
    }
    made, _ = prepared(data, tiny_tokenizer(), tmp_path / "cache")
    assert len(arrow_rows(made.train)) == 40 and len(arrow_rows(made.eval)) == 3


def test_too_few_rows_to_hold_out_is_told_and_not_fatal(tmp_path):
    made, told = prepared(
        {"path": str(jsonl(tmp_path / "a.jsonl", ROWS[:1])), "eval": 0.5}, tiny_tokenizer(), tmp_path / "c"
    )
    assert made.eval is None and "data_too_few_to_hold_out" in [one.code for one in told]


def test_duplicates_are_counted_or_dropped(tmp_path):
    file = jsonl(tmp_path / "a.jsonl", [*ROWS[:3], *ROWS[:2]])
    made, _ = prepared(file, tiny_tokenizer(), tmp_path / "cache")
    assert made.rows == 5 and made.report["notes"]["duplicates"] == 2
    made, _ = prepared({"path": str(file), "duplicates": "drop"}, tiny_tokenizer(), tmp_path / "cache")
    assert made.rows == 3 and made.report["reasons"] == {"duplicate": 2}


def test_a_dataset_info_json_is_read_as_it_is(tmp_path):
    rows = [
        {"chats": [{"who": "x", "from": "human", "value": "Hi"}, {"from": "gpt", "value": "Ho"}], "fns": ""}
    ]
    (tmp_path / "mine.json").write_text(json.dumps(rows))
    registry = {
        "mine": {
            "file_name": "mine.json",
            "formatting": "sharegpt",
            "columns": {"messages": "chats", "tools": "fns"},
        },
        "far": {"hf_hub_url": "org/name"},
        "other": {"script_url": "x"},
    }
    file = tmp_path / "dataset_info.json"
    file.write_text(json.dumps(registry))
    made, _ = prepared({"registry": str(file), "name": "mine"}, tiny_tokenizer(), tmp_path / "cache")
    assert made.rows == 1 and made.report["files"][0]["columns"] == {"messages": "chats", "tools": "fns"}
    for name, code in {"min": "registry_entry_missing", "other": "registry_entry_unsupported"}.items():
        with pytest.raises(FactoryError) as refused:
            prepared({"registry": str(file), "name": name}, tiny_tokenizer(), tmp_path / "cache")
        assert refused.value.findings[0].code == code


def test_hub_ids_are_checked_before_anything_is_fetched(tmp_path):
    with pytest.raises(FactoryError) as refused:
        prepared("hub:../../etc/passwd", tiny_tokenizer(), tmp_path)
    assert refused.value.findings[0].code == "hub_id_broken"


def test_pairs_become_prompt_chosen_and_rejected_ids(tmp_path):
    tokenizer = tiny_tokenizer()
    file = jsonl(tmp_path / "a.jsonl", [{"prompt": "Hi", "chosen": "Ho", "rejected": "No", "margin": 1}])
    made, _ = prepared(file, tokenizer, tmp_path / "cache", "dpo")
    row = arrow_rows(made.train)[0]
    prompt = tokenizer.apply_chat_template([user("Hi")], add_generation_prompt=True, return_dict=False)
    assert row["prompt_ids"] == prompt
    assert [tokenizer.decode(row[f"{side}_ids"]) for side in ("chosen", "rejected")] == [
        "Ho<|im_end|>\n",
        "No<|im_end|>\n",
    ]


def test_pairs_that_are_the_same_after_cutting_are_dropped_and_counted(tmp_path):
    same = "word " * 100
    file = jsonl(tmp_path / "a.jsonl", [{"prompt": "p", "chosen": same + "good", "rejected": same + "bad"},
                                        {"prompt": "p", "chosen": "good", "rejected": "bad"}])  # fmt: skip
    made, _ = prepared(file, tiny_tokenizer(), tmp_path / "cache", "dpo", max_length=64)
    assert made.rows == 1 and made.report["reasons"] == {"same_after_cut": 1}


def test_labels_and_answers_travel_with_their_rows(tmp_path):
    file = jsonl(
        tmp_path / "a.jsonl", [{"prompt": "Hi", "completion": "Ho", "label": n == 0} for n in range(3)]
    )
    made, _ = prepared(file, tiny_tokenizer(), tmp_path / "cache", "kto")
    assert [row["label"] for row in arrow_rows(made.train)] == [True, False, False]
    file = jsonl(tmp_path / "b.jsonl", [{"prompt": "Hi", "words": 3}])
    made, _ = prepared(file, tiny_tokenizer(), tmp_path / "cache", "grpo")
    row = arrow_rows(made.train)[0]
    assert json.loads(row["extra"]) == {"words": 3} and "labels" not in row


def test_the_preview_shows_the_very_ids_and_mask_that_are_trained(tmp_path):
    tokenizer = tiny_tokenizer()
    file = jsonl(tmp_path / "a.jsonl", ROWS[:3])
    made, _ = prepared(file, tokenizer, tmp_path / "cache", max_length=22)
    shown = preview(
        {"path": str(file)}, ("messages",), tokenizer, PrepareSettings(max_length=22, stage="sft"), 3
    )
    for row, one in zip(arrow_rows(made.train), shown["rows"], strict=True):
        kept = [token for token in one["sequences"][0]["tokens"] if token["mask"] in ("learnt", "read")]
        assert [token["id"] for token in kept] == row["input_ids"]
        assert [token["id"] if token["mask"] == "learnt" else -100 for token in kept] == row["labels"]


def test_the_preview_of_a_text_agrees_on_its_first_token_too(tmp_path):
    tokenizer, file = tiny_tokenizer(), jsonl(tmp_path / "a.jsonl", [{"text": "Oak is hard."}])
    made, _ = prepared(file, tokenizer, tmp_path / "cache", "pretrain")
    how = PrepareSettings(max_length=128, stage="pretrain", train_on="all", split_long=True)
    tokens = preview({"path": str(file)}, ("text",), tokenizer, how, 1)["rows"][0]["sequences"][0]["tokens"]
    assert [one["id"] if one["mask"] == "learnt" else -100 for one in tokens] == arrow_rows(made.train)[0][
        "labels"
    ]


def test_the_collator_hands_the_model_what_the_preview_shows(tmp_path):
    from trl.trainer.sft_trainer import DataCollatorForLanguageModeling

    tokenizer = tiny_tokenizer()
    file = jsonl(
        tmp_path / "a.jsonl", [*ROWS[:2], chat(user("Say more"), assistant("More and more and more."))]
    )
    made, _ = prepared(file, tokenizer, tmp_path / "cache")
    batch = DataCollatorForLanguageModeling(tokenizer.pad_token_id)(arrow_rows(made.train))
    shown = preview(
        {"path": str(file)}, ("messages",), tokenizer, PrepareSettings(max_length=128, stage="sft"), 3
    )
    for row, one in enumerate(shown["rows"]):
        tokens = one["sequences"][0]["tokens"]
        assert batch["input_ids"][row].tolist() == [token["id"] for token in tokens]
        assert batch["attention_mask"][row].tolist() == [int(token["mask"] != "padding") for token in tokens]
        assert batch["labels"][row].tolist() == [t["id"] if t["mask"] == "learnt" else -100 for t in tokens]


@pytest.mark.parametrize(
    ("stage", "rows"),
    [
        ("pretrain", [{"text": "Oak."}]),
        ("sft", ROWS[:1]),
        ("dpo", [{"prompt": "Hi", "chosen": "Ho", "rejected": "No"}]),
        ("kto", [{"prompt": "Hi", "completion": "Ho", "label": True}]),
        ("grpo", [{"prompt": "Hi", "words": 3}]),
    ],
)
def test_every_row_shape_has_a_preview(tmp_path, stage, rows):
    from data.detect import STAGE_NEEDS

    how = PrepareSettings(max_length=64, stage=stage, train_on="all" if stage == "pretrain" else "assistant")
    shown = preview(
        {"path": str(jsonl(tmp_path / "a.jsonl", rows))}, STAGE_NEEDS[stage], tiny_tokenizer(), how, 3
    )
    names = [sequence["name"] for sequence in shown["rows"][0]["sequences"]]
    assert names == {"dpo": ["chosen", "rejected"], "grpo": ["prompt"]}.get(stage, ["row"])
    learnt = [
        token["mask"] == "learnt"
        for sequence in shown["rows"][0]["sequences"]
        for token in sequence["tokens"]
    ]
    assert any(learnt) == (stage != "grpo")
    assert not [one for one in shown["findings"] if one["level"] == "error"]


def test_padding_and_cut_answers_show(tmp_path):
    rows = [chat(user("a"), assistant("b")), chat(user("a"), assistant("b " * 60))]
    how = PrepareSettings(max_length=32, stage="sft")
    shown = preview({"path": str(jsonl(tmp_path / "a.jsonl", rows))}, ("messages",), tiny_tokenizer(), how, 2)
    masks = [{token["mask"] for token in row["sequences"][0]["tokens"]} for row in shown["rows"]]
    assert "padding" in masks[0] and "cut" in masks[1]
    assert {"data_answers_cut", "data_learnt_share"} <= {one["code"] for one in shown["findings"]}


def test_a_quick_look_tells_without_raising(tmp_path):
    assert [one.code for one in quick_findings({"path": str(tmp_path / "no.jsonl")}, ("messages",))] == [
        "data_not_found"
    ]
    file = jsonl(tmp_path / "a.jsonl", ROWS)
    assert quick_findings({"path": str(file)}, ("messages",), "sft") == []
    wrong = quick_findings({"path": str(file)}, ("preference",), "dpo")
    assert [one.code for one in wrong] == ["data_shape_does_not_fit"] and wrong[0].fix == {
        "stage.name": "sft"
    }


def test_packing_fills_each_sequence_as_well_as_it_can():
    lengths = [7, 2, 5, 3, 9, 1, 4]
    packs = pack(lengths, 10)
    assert sorted(row for one in packs for row in one) == list(range(7))
    assert all(sum(lengths[row] for row in one) <= 10 for one in packs) and len(packs) == 4
    assert pack([], 10) == [] and pack([10, 10], 10) == [[0], [1]]


def test_packing_does_work_in_proportion_to_rows():
    def lines_run(count):
        ran = 0

        def trace(frame, event, argument):
            nonlocal ran
            ran += event == "line"
            return trace

        lengths = [1 + n * 7919 % 500 for n in range(count)]
        before = sys.gettrace()
        sys.settrace(trace)
        try:
            pack(lengths, 2048)
        finally:
            sys.settrace(before)
        return ran

    assert lines_run(8_000) < 9 * lines_run(1_000)
