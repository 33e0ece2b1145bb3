"""Every shape people bring is detected, and its first row is what the stage should see."""

from __future__ import annotations

import pytest

from data.errors import FactoryError
from data.formats import FORMATS
from tests.unit.data.helpers import flow
from tests.unit.data.shapes import SHAPES, write


@pytest.mark.parametrize("name", SHAPES)
def test_first_row(tmp_path, name):
    path = write(tmp_path, name)
    _, _, stage, wanted = SHAPES[name]
    if wanted is None:
        with pytest.raises(FactoryError) as refused:
            flow(path, stage)
        assert refused.value.findings[0].code == "data_needs_vision"
        assert refused.value.findings[0].params["column"] in str(refused.value)
        return
    rows, made = flow(path, stage)
    assert rows[0] == wanted
    for info in made.files:
        assert info.tally.read == info.tally.kept + sum(info.tally.reasons.values())


@pytest.mark.parametrize(
    ("name", "stage", "reasons"),
    [
        ("hh_rlhf", "dpo", {"empty_answer": 1}),
        ("webgpt_comparisons", "dpo", {"tie": 1}),
        ("ultrafeedback_scored", "dpo", {"same_answers": 1}),
        ("arena_pairwise", "dpo", {"tie": 1}),
        ("squad_nested", "sft", {"unanswerable": 1}),
        ("faq_export", "sft", {"empty_row": 1}),
    ],
)
def test_what_is_left_out_is_counted(tmp_path, name, stage, reasons):
    _, made = flow(write(tmp_path, name), stage)
    assert dict(made.files[0].tally.reasons) == reasons


@pytest.mark.parametrize(
    ("name", "stages"),
    [
        ("alpaca", ["sft"]),
        ("ultrafeedback_binarized", ["sft", "reward", "dpo", "orpo"]),
        ("preference_explicit_text", ["reward", "dpo", "orpo"]),
        ("hh_rlhf", ["reward", "dpo", "orpo"]),
        ("sharegpt_dpo", ["reward", "dpo", "orpo"]),
        ("kto", ["kto"]),
        ("gsm8k", ["sft", "ppo", "grpo", "rloo"]),
        ("rlvr_messages", ["ppo", "grpo", "rloo"]),
        ("pretrain_text", ["pretrain", "sft"]),
        ("helpsteer", ["sft", "reward", "dpo", "orpo", "kto"]),
        ("oasst_tree", ["sft", "reward", "dpo", "orpo"]),
    ],
)
def test_the_stages_a_file_fits(tmp_path, name, stages):
    _, made = flow(write(tmp_path, name), SHAPES[name][2])
    said = made.files[0].stages
    assert [stage for stage, fits in said.items() if fits is True] == stages
    assert all(isinstance(fits, str) and "needs" in fits for fits in said.values() if fits is not True)


def test_a_folder_leaves_out_hidden_and_binary_files_and_says_so(tmp_path):
    rows, made = flow(write(tmp_path, "text_folder"), "pretrain")
    assert rows[1] == {"text": "Zwei Zeilen\nmit Öl\n"}
    assert len(rows) == 2 and made.ignored == {".hidden": "hidden", "photo.png": "not a data file"}


def test_a_workbook_says_which_sheet_and_a_named_one_is_taken(tmp_path):
    path = write(tmp_path, "faq_export")
    rows, made = flow(path)
    assert rows[1]["messages"][1]["content"] == "815"
    assert "sheet:FAQ" in made.files[0].tally.notes
    with pytest.raises(FactoryError, match="Read me, FAQ"):
        flow(path, sheet="Read me")


def test_all_pairs_can_be_made_of_ranked_answers(tmp_path):
    rows, _ = flow(write(tmp_path, "nectar_ranked"), "dpo", pairs="all")
    said = [(row["chosen"][0]["content"], row["rejected"][0]["content"]) for row in rows]
    assert said == [("April.", "May."), ("April.", "Never."), ("May.", "Never.")]


def test_the_named_score_decides_where_there_are_several(tmp_path):
    rows = "prompt,response,helpfulness,verbosity\nKnot?,A mile an hour.,4,1\nKnot?,Rope,1,4\n"
    path = tmp_path / "a.csv"
    path.write_text(rows)
    for setting, chosen in (({}, "A mile an hour."), ({"score": "verbosity"}, "Rope")):
        ((row,), _) = flow(path, "dpo", **setting)
        assert row["chosen"] == chosen


def test_scores_become_labels_at_a_threshold(tmp_path):
    path = write(tmp_path, "helpsteer")
    assert [row["label"] for row in flow(path, "kto")[0]] == [True, False]
    assert [row["label"] for row in flow(path, "kto", threshold=5.0)[0]] == [False, False]
    assert len(flow(path, "sft", threshold=3.0)[0]) == 1


def test_signs_of_rewards_become_labels(tmp_path):
    assert [row["label"] for row in flow(write(tmp_path, "reward_scores"), "kto")[0]] == [False, True]


def test_the_context_can_stand_last_and_the_separator_is_a_choice(tmp_path):
    rows, _ = flow(write(tmp_path, "dolly"), context="last")
    assert rows[0]["messages"][0]["content"] == "How deep?\n\nThe bay is 9 m deep."
    path = tmp_path / "b.json"
    path.write_text('[{"instruction": "Do", "input": "it", "output": "Done"}]')
    rows, made = flow(path, separator=" -> ")
    assert rows[0]["messages"][0]["content"] == "Do -> it"
    assert made.files[0].match.asks[0].code == "data_separator"


def test_a_line_of_instruction_stands_before_plain_pairs(tmp_path):
    rows, made = flow(write(tmp_path, "pairs_tsv"), instruction="Into English:")
    assert rows[1]["messages"][0]["content"] == "Into English:\nAbend"
    assert made.files[0].match.asks[0].code == "data_instruction"


def test_marked_texts_can_be_trained_as_they_stand(tmp_path):
    path = write(tmp_path, "text_formatted")
    rows, made = flow(path, format="text")
    assert rows[0] == {"text": "### Human: Is oak hard?### Assistant: Yes."}
    rows, made = flow(path)
    assert [len(row["messages"]) for row in rows] == [2, 2, 2]
    assert made.files[0].match.asks[0].fix == {"data.format": "text"}


def test_words_of_a_label_that_are_not_clear_are_asked_for(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("prompt,completion,label\nHi,Ho,keep\nHi,No,bin\n")
    rows, made = flow(path, "kto")
    assert not rows and made.files[0].tally.reasons["label_unclear"] == 2
    assert made.files[0].match.asks[0].code == "data_labels_unclear"
    rows, _ = flow(path, "kto", labels={"keep": True, "bin": False})
    assert [row["label"] for row in rows] == [True, False]


def test_broken_trees_are_counted_not_followed(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("id,parent_id,instruction,output\n1,,A,a\n2,9,B,b\n3,4,C,c\n4,3,D,d\n", encoding="utf-8")
    rows, made = flow(path)
    assert len(rows) == 1 and dict(made.files[0].tally.reasons) == {"orphan": 1, "cycle": 2}


def test_columns_can_be_kept_for_rewards(tmp_path):
    rows, _ = flow(write(tmp_path, "rlvr_messages"), "grpo", keep=["dataset"])
    assert rows[0]["extra"] == {"dataset": "arith"}


def test_two_unknown_text_columns_are_a_guess_that_is_told(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("Frage;Antwort\nWas?;Das.\n")
    rows, made = flow(path)
    assert rows[0]["messages"][0]["content"] == "Was?" and made.files[0].match.sure <= 0.6


def test_every_format_is_listed_once_and_described():
    from pathlib import Path

    folder = Path(FORMATS[0].__file__).parent
    helpers = {"__init__", "base", "turns", "marked", "pairs"}
    assert {path.stem for path in folder.glob("*.py")} - helpers == {
        module.__name__.rpartition(".")[2] for module in FORMATS
    }
    assert len({module.NAME for module in FORMATS}) == len(FORMATS)
    assert all(module.ABOUT and module.__doc__ for module in FORMATS)
