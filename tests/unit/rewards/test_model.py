"""A reward model of ours scores answers: which folders are accepted, and that its tokens are those of its training."""

from __future__ import annotations

import json

import pytest

from core.rewards import reward_functions
from data.errors import FactoryError
from tests.tiny import tiny_tokenizer


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A tiny sequence classifier with one label and a tokenizer that puts a BOS before every text."""
    return save_classifier(tmp_path_factory.mktemp("model") / "classifier")


def save_classifier(folder, *, labels=1, vocab_size=400, bos=True, **config):
    import torch
    from transformers import LlamaConfig, LlamaForSequenceClassification

    torch.manual_seed(0)
    model = LlamaForSequenceClassification(
        LlamaConfig(
            vocab_size=vocab_size,
            hidden_size=32,
            intermediate_size=64,
            num_hidden_layers=2,
            num_attention_heads=2,
            num_key_value_heads=1,
            max_position_embeddings=128,
            num_labels=labels,
            pad_token_id=0,
            **config,
        )
    )
    model.save_pretrained(folder)
    tiny_tokenizer(bos=bos).save_pretrained(folder)
    return folder


def refusal(action):
    with pytest.raises(FactoryError) as caught:
        action()
    (finding,) = caught.value.findings
    assert "\n" not in finding.message
    return finding


def test_scores_do_not_depend_on_the_batch(bench, folder):
    texts = ["Yes.", "No, I would rather not say anything about that at all.", "", "Oslo"] * 3
    columns = {"prompt": ["What is the capital of Norway?"] * 12}
    one = bench.score({"name": "model", "source": str(folder), "batch_size": 1}, texts, **columns)
    all_at_once = bench.score({"name": "model", "source": str(folder), "batch_size": 12}, texts, **columns)
    assert one == pytest.approx(all_at_once, abs=1e-5)
    assert one[:4] == pytest.approx(one[4:8], abs=1e-6)
    assert len({round(score, 4) for score in one}) == 4


def test_case_148_scoring_has_one_bos_and_the_ids_of_training(bench, folder, tmp_path):
    import pyarrow as pa
    from transformers import AutoTokenizer

    from data.prepare import prepare

    tokenizer = AutoTokenizer.from_pretrained(folder)
    pairs = tmp_path / "pairs.jsonl"
    pair = {"prompt": "Name thing 0.", "chosen": "Thing 0 is a lamp.", "rejected": "No."}
    pairs.write_text(json.dumps(pair) + "\n")
    settings = {"max_length": 128, "stage": "reward"}
    made = prepare({"path": str(pairs)}, ("preference",), tokenizer, settings, tmp_path / "rows")
    row = pa.ipc.open_stream(pa.memory_map(str(made.train))).read_all().to_pylist()[0]
    (one,) = bench.build({"name": "model", "source": str(folder)})
    ids = one.scorer.ids("Name thing 0.", "Thing 0 is a lamp.")
    assert ids.count(tokenizer.bos_token_id) == 1 and ids[0] == tokenizer.bos_token_id
    turns = [
        {"role": "user", "content": "Name thing 0."},
        {"role": "assistant", "content": "Thing 0 is a lamp."},
    ]
    assert one.scorer.ids(turns[:1], turns[1]["content"]) == ids, (
        "a text prompt and a chat are the same question"
    )
    rendered = tokenizer.apply_chat_template(turns, tokenize=False)
    assert ids == row["prompt_ids"] + row["chosen_ids"], "what core.training.pairs.whole_answers trains on"
    assert tokenizer.decode(ids).replace("<s>", "", 1).strip() == rendered.strip()


def test_an_empty_answer_is_scored(bench, folder):
    (score,) = bench.score({"name": "model", "source": str(folder)}, [""], prompt=["2+2?"])
    assert isinstance(score, float)


def test_the_center_is_taken_off(bench, folder):
    reward = {"name": "model", "source": str(folder)}
    (plain,) = bench.score(reward, ["4"], prompt=["2+2?"])
    assert bench.score({**reward, "center": 2.0}, ["4"], prompt=["2+2?"]) == [pytest.approx(plain - 2.0)]


def test_an_answer_longer_than_the_model_reads_gets_no_score_and_a_warning(bench, folder):
    scores = bench.score({"name": "model", "source": str(folder)}, ["word " * 300, "4"], prompt=["a", "b"])
    assert scores[0] is None and scores[1] is not None
    (finding,) = bench.told
    assert finding.code == "reward_model_too_long" and "1 of 2" in finding.message


def test_a_run_is_found_by_its_id_and_by_a_part_of_it(bench, folder):
    from core.rewards.model import find_model

    for name in ("k3f9-first", "k3f9-second", "zz-unfinished"):
        (bench.home / "runs" / name / "model").mkdir(parents=True)
    for name in ("k3f9-first", "k3f9-second"):
        (bench.home / "runs" / name / "model" / "COMPLETE.json").write_text("{}")
    assert find_model("k3f9-first", bench.home).parent.name == "k3f9-first"
    assert find_model("second", bench.home).parent.name == "k3f9-second"
    said = {
        name: refusal(lambda name=name: find_model(name, bench.home)).message for name in ("k3f9", "zz", "no")
    }
    assert "several runs" in said["k3f9"] and "has not delivered" in said["zz"]
    assert "neither a folder nor a run" in said["no"]


def test_trainers_chats_are_scored_with_their_turns(bench, folder):
    scorers = bench.build({"name": "model", "source": str(folder)})
    (function,) = reward_functions(scorers)
    chat = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "2+2?"}]
    (with_turns,) = function(
        prompts=[chat], completions=[[{"role": "assistant", "content": "4"}]], completion_ids=[[1]]
    )
    assert with_turns != scorers[0](["4"], {"prompt": ["2+2?"]})[0]


def test_what_is_no_reward_model_is_refused_before_anything_is_loaded(bench, tmp_path, folder):
    from tests.tiny import save_tiny

    causal = save_tiny(tmp_path / "causal")
    assert "it is a LlamaForCausalLM" in refusal(lambda: build(bench, causal)).message
    many = save_classifier(tmp_path / "many", labels=3)
    assert "it has 3 labels" in refusal(lambda: build(bench, many)).message
    (tmp_path / "empty").mkdir()
    assert refusal(lambda: build(bench, tmp_path / "empty")).code == "reward_model_broken"
    config = json.loads((folder / "config.json").read_text())
    code = save_classifier(tmp_path / "code")
    (code / "config.json").write_text(json.dumps({**config, "auto_map": {"AutoModel": "x.Y"}}))
    assert "run code of its own" in refusal(lambda: build(bench, code)).message


def test_a_reward_model_with_another_models_tokenizer_is_refused(bench, tmp_path):
    small = save_classifier(tmp_path / "small", vocab_size=300)
    (one,) = build(bench, small)
    finding = refusal(lambda: one(["4"], {"prompt": ["2+2?"]}))
    assert finding.code == "reward_model_tokenizer"
    assert "knows 300 tokens and its tokenizer has 400" in finding.message


def test_an_adapter_of_the_reward_stage_is_scored_over_its_base(bench, tmp_path):
    from peft import LoraConfig, get_peft_model
    from transformers import AutoModelForSequenceClassification

    base = save_classifier(tmp_path / "base")
    model = AutoModelForSequenceClassification.from_pretrained(base, num_labels=1)
    adapted = get_peft_model(model, LoraConfig(task_type="SEQ_CLS", r=2, target_modules=["q_proj"]))
    adapted.base_model.model.score.modules_to_save["default"].weight.data.mul_(-1)
    adapted.save_pretrained(tmp_path / "adapter")
    tiny_tokenizer(bos=True).save_pretrained(tmp_path / "adapter")
    columns = {"prompt": ["2+2?"]}
    (plain,) = bench.score({"name": "model", "source": str(base)}, ["4"], **columns)
    assert bench.score({"name": "model", "source": str(tmp_path / "adapter")}, ["4"], **columns) == [
        pytest.approx(-plain, abs=1e-5)
    ]


def build(bench, folder):
    return bench.build({"name": "model", "source": str(folder)})
