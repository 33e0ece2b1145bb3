"""Job texts: what is read, what is refused, and in which words."""

from __future__ import annotations

import json
import sys
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core.job.load import dump_job, load_job, parse_job
from core.job.spec import JobSpec
from data.errors import FactoryError, Finding

SMALLEST = "model: smollm2-135m\ndata: rows.jsonl\nstage: sft\n"


def refusals(
    text: str, overrides: tuple[str, ...] = (), origin: str = "job.yaml"
) -> dict[str | None, Finding]:
    """What is wrong with a text, by field."""
    with pytest.raises(FactoryError) as caught:
        parse_job(text, overrides, origin)
    return {one.field: one for one in caught.value.findings}


def one_refusal(text: str, overrides: tuple[str, ...] = ()) -> Finding:
    (finding,) = refusals(text, overrides).values()
    return finding


# What is read


def test_three_lines_are_a_job():
    job = parse_job(SMALLEST)
    assert (job.model.name, job.data.path, job.stage.name, job.method.name) == (
        "smollm2-135m",
        "rows.jsonl",
        "sft",
        "lora",
    )


def test_short_and_long_forms_are_the_same_job():
    long = "model: {name: smollm2-135m}\ndata: {path: rows.jsonl}\nstage: {name: sft}\nmethod: {name: lora}\n"
    assert parse_job(long) == parse_job(SMALLEST) == parse_job(SMALLEST + "method: lora\n")


@pytest.mark.parametrize(
    ("written", "value"),
    [("1e-4", 1e-4), ("1.0e-4", 1e-4), ("2E-5", 2e-5), (".5", 0.5), ("+0.25", 0.25), ("0", 0), ("1.", 1.0)],
)
def test_numbers_are_those_of_yaml_1_2(written, value):
    job = parse_job(SMALLEST + f"train: {{learning_rate: {written}}}\n")
    assert job.train.learning_rate == value


@pytest.mark.parametrize("word", ["no", "yes", "on", "off", "1:30", "2024-01-01", "1_000", "="])
def test_words_that_yaml_1_1_turns_into_something_else_stay_text(word):
    assert parse_job(f"model: {word}\ndata: rows.jsonl\nstage: sft\n").model.name == word


def test_a_leading_zero_is_not_octal():
    assert parse_job(SMALLEST + "train: {epochs: 010, seed: 0x10, save_steps: 0o10}\n").train.epochs == 10
    assert parse_job(SMALLEST + "train: {seed: 0x10, save_steps: 0o10}\n").train.save_steps == 8


def test_quoted_numbers_are_text():
    assert parse_job("model: '135'\ndata: '1e-4'\nstage: sft\n").data.path == "1e-4"


def test_json_and_yaml_give_the_same_job():
    as_json = (
        '{"model": "smollm2-135m", "data": "rows.jsonl", "stage": "sft", "train": {"learning_rate": 1e-4}}'
    )
    assert parse_job(as_json) == parse_job(SMALLEST + "train: {learning_rate: 1e-4}\n")


def test_yaml_in_braces_is_still_yaml():
    assert parse_job("{model: smollm2-135m, data: rows.jsonl, stage: sft}") == parse_job(SMALLEST)


def test_a_byte_order_mark_is_no_part_of_the_job(tmp_path: Path):
    (tmp_path / "job.yaml").write_bytes(b"\xef\xbb\xbf" + SMALLEST.encode())
    assert load_job(tmp_path / "job.yaml") == parse_job(SMALLEST)


def test_a_part_with_nothing_under_it_is_a_part_left_out():
    assert parse_job(SMALLEST + "train:\n  # epochs: 3\nhardware:\n") == parse_job(SMALLEST)
    assert one_refusal("model: x\ndata: y\nstage:\n").code == "missing_field"


# Overrides


def test_an_override_wins_over_the_text():
    job = parse_job(SMALLEST + "train: {learning_rate: 1}\n", ["train.learning_rate=1e-4", "stage=pretrain"])
    assert (job.train.learning_rate, job.stage.name) == (1e-4, "pretrain")


def test_an_override_reaches_into_shorthands_and_absent_parts():
    job = parse_job(
        SMALLEST, ["method.rank=8", "model.attention=eager", "data.eval=0.1", "hardware.devices=[0]"]
    )
    assert (job.method.name, job.method.rank, job.model.attention) == ("lora", 8, "eager")  # type: ignore[attr-defined]
    assert (job.data.eval, job.hardware.devices) == (0.1, [0])


def test_an_override_can_empty_a_field():
    assert parse_job(SMALLEST + "train: {epochs: 2}\n", ["train.epochs=null"]).train.epochs is None


def test_an_override_mends_what_the_text_got_wrong():
    assert parse_job(SMALLEST + "train: {epochs: .nan}\n", ["train.epochs=2"]).train.epochs == 2


@pytest.mark.parametrize(
    "override", ["train.epochs", "=3", "train..epochs=3", "train epochs=3", "", "a[0]=1"]
)
def test_an_override_that_is_no_assignment_is_refused(override):
    assert one_refusal(SMALLEST, (override,)).code == "bad_override"


def test_a_wrong_override_is_blamed_on_the_command_line():
    finding = one_refusal(SMALLEST + "train: {epochs: 1}\n", ("train.epochs=many",))
    assert "(-o train.epochs)" in finding.message and finding.params["origin"] == "-o"


# Refusals in our words


def test_everything_wrong_is_told_at_once_in_the_order_of_the_text():
    text = "modle: x\nstage: {name: sft, max_lenght: 9}\ntrain:\n  epochs: -1\n  epochs: 2\n  seed: .inf\n"
    with pytest.raises(FactoryError) as caught:
        parse_job(text)
    lines = [one.params.get("line", 0) for one in caught.value.findings]
    assert (
        lines == sorted(lines) and len(lines) == 6
    )  # `modle` says what is missing: no line of its own for model


def test_a_typo_names_the_nearest_field_and_its_place():
    finding = one_refusal(SMALLEST + "train:\n  learning_rat: 1e-4\n")
    assert finding.field == "train.learning_rat"
    assert finding.message == (
        "train.learning_rat is not a field of a job; did you mean train.learning_rate? "
        "(job.yaml, line 5, column 3)."
    )


@pytest.mark.parametrize(
    ("key", "meant"),
    [
        ("learning_rate", "train.learning_rate"),
        ("per_device_train_batch_size", "train.batch_size"),
        ("lora_rank", "method.rank"),
        ("cutoff_len", "stage.max_length"),
        ("methd", "method"),
    ],
)
def test_a_misplaced_or_foreign_name_finds_its_field(key, meant):
    assert one_refusal(SMALLEST + f"{key}: 1\n").params["nearest"] == meant


def test_every_foreign_name_points_at_a_field_that_exists():
    from core.job.schema import all_fields
    from core.job.words import OTHER_NAMES

    assert set(OTHER_NAMES.values()) <= set(all_fields())


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("train: {epochs: many}", 'train.epochs must be a number above 0 up to 10,000; got "many"'),
        ("train: {batch_size: 0}", "train.batch_size must be a whole number from 1 to 65,536; got 0"),
        ("stage: {name: grpo, num_generations: 1}", "it needs at least 2; got 1"),
        ("data: {path: a.jsonl, labels: {good: 5}}", "data.labels.good must be true or false; got 5"),
        ("data: {path: a.jsonl, delimiter: ab}", 'data.delimiter must be text of 1 character; got "ab"'),
        ("train: {max_steps: true}", "got true"),
        ("train: {max_steps: 1e3}", "got 1000.0: write 1000"),
        ("train: {max_steps: '10'}", 'got "10": write 10 without quotes'),
        ("train: {keep_best: no}", "write true or false, YAML 1.2 reads yes, no, on and off as text"),
        ("train: {scheduler: cosin}", "did you mean cosine?"),
        ("method: {name: lora, dropout: 1.0}", "a number from 0 and below 1; got 1.0"),
        ("method: lorra", 'method must be one of full, lora, qlora, freeze; got "lorra"; did you mean lora?'),
        ("method: {rank: 8}", "method.name is missing; add it: one of full, lora, qlora, freeze"),
        ("hardware: {devices: [0, x]}", "hardware.devices[1] must be a whole number"),
        ("trust_remote_code: true", "code that comes with a model is never run"),
        ("resume_from_checkpoint: /tmp/x", "factory resume"),
        ("schema_version: 2", "schema_version must be 1; got 2"),
    ],
)
def test_a_wrong_value_is_told_with_what_is_allowed(line, says):
    key = line.split(":")[0]
    smallest = "".join(one for one in SMALLEST.splitlines(keepends=True) if not one.startswith(key + ":"))
    finding = one_refusal(smallest + line + "\n")
    assert says in finding.message and "job.yaml" in finding.message


def test_a_secret_under_a_wrong_key_is_not_repeated():
    canary = "hf_CANARYCANARYCANARY"
    finding = one_refusal(SMALLEST + f"hub_token: {canary}\n")
    assert "holds no secrets" in finding.message and canary not in json.dumps(finding.to_json())
    finding = one_refusal(SMALLEST + f"train: {{epochs: {canary}}}\n")
    assert canary not in json.dumps(finding.to_json())


def test_what_is_missing_is_named_with_an_example():
    found = refusals("name: x\n")
    assert set(found) == {"model", "data", "stage"}
    assert found["stage"].message == "stage is missing; add it, such as stage: sft (job.yaml)."


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("", "job_empty"),
        ("# only a comment\n", "job_empty"),
        ("- a\n", "job_not_a_mapping"),
        ("just words", "job_not_a_mapping"),
        ("a: b: c", "job_syntax"),
        ("a:\n\t- b", "job_syntax"),
        ("a: [1", "job_syntax"),
        ("a: '", "job_syntax"),
        ("a: \x01", "job_syntax"),
    ],
)
def test_a_text_that_is_no_job_says_why(text, code):
    assert one_refusal(text).code == code


def test_broken_json_in_a_json_file_is_told_with_its_place():
    (finding,) = refusals('{"model": }', origin="job.json").values()
    assert finding.code == "job_syntax" and "line 1, column 11" in finding.message


# Files


def test_a_missing_file_names_its_neighbour(tmp_path: Path):
    (tmp_path / "quickstart.yaml").write_text(SMALLEST)
    with pytest.raises(FactoryError, match=r"did you mean .*quickstart\.yaml\?"):
        load_job(tmp_path / "quickstrat.yaml")


def test_folders_and_other_encodings_are_refused(tmp_path: Path):
    with pytest.raises(FactoryError, match="is not a file"):
        load_job(tmp_path)
    (tmp_path / "latin.yaml").write_bytes("model: x\nname: caf\xe9\n".encode("latin-1"))
    with pytest.raises(FactoryError, match=r"not UTF-8 text \(line 2\)"):
        load_job(tmp_path / "latin.yaml")


# Hostile texts: a typed refusal within 0.1 s, naming the field where there is one

_BOMB = "a: &a [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{b}: &{b} [{', '.join(['*' + a] * 9)}]\n" for a, b in zip("abcdefgh", "bcdefghi", strict=True)
)
HOSTILE = {
    "alias bomb": (_BOMB, "a", "yaml_anchor"),
    "recursive alias": ("train: &t {epochs: *t}\n", "train.epochs", "yaml_alias"),
    "python tag": ("name: !!python/object/apply:os.system [touch PWN]\n", "name", "yaml_tag"),
    "python tag on a plain value": ("name: !!python/name:os.system x\n", "name", "yaml_tag"),
    "merge key": ("<<: {name: x}\n", None, "yaml_merge"),
    "duplicate key": ("train: {epochs: 1, epochs: 2}\n", "train.epochs", "duplicate_key"),
    "duplicate key in JSON": ('{"train": {"epochs": 1, "epochs": 2}}', "train.epochs", "duplicate_key"),
    "nan": ("train: {epochs: .nan}\n", "train.epochs", "bad_number"),
    "inf": ("train: {epochs: -.inf}\n", "train.epochs", "bad_number"),
    "NaN in JSON": ('{"train": {"epochs": NaN}}', "train.epochs", "bad_number"),
    "Infinity in JSON": ('{"train": {"epochs": -Infinity}}', "train.epochs", "bad_number"),
    "negative zero": ("train: {learning_rate: -0.0}\n", "train.learning_rate", "bad_number"),
    "overflow": ("train: {epochs: 1e999}\n", "train.epochs", "bad_number"),
    "overflow in JSON": ('{"train": {"epochs": 1e999}}', "train.epochs", "bad_number"),
    "5,000 digits": (f"train: {{epochs: {'9' * 5000}}}\n", "train.epochs", "bad_number"),
    "5,000 hexadecimal digits": (f"train: {{seed: 0x{'f' * 5000}}}\n", "train.seed", "bad_number"),
    "5,000 digits in JSON": (f'{{"train": {{"epochs": {"9" * 5000}}}}}', "train.epochs", "bad_number"),
    "10^30 steps": (f"train: {{max_steps: 1{'0' * 30}}}\n", "train.max_steps", "out_of_range"),
    "newline in a name": ('name: "a\\n"\n', "name", "invalid_value"),
    "NUL in a name": ('name: "a\\0"\n', "name", "invalid_value"),
    "half a surrogate pair": ('{"name": "\\ud800"}', "name", "invalid_value"),
    "deep JSON": ('{"a":' * 100_000, None, "job_too_large"),
    "deep JSON within the size": ('{"a":' * 50_000, None, "job_too_deep"),
    "deep flow sequences": ("a: " + "[" * 100_000, None, "job_too_deep"),
    "deep flow mappings": ("a: " + "{a: " * 50_000, None, "job_too_deep"),
    "deep block sequences": ("- " * 100_000, None, "job_too_deep"),
    "deep keys": ("? " * 100_000, None, "job_too_deep"),
    "100,000 keys": ("".join(f"k{n}: 1\n" for n in range(25_000)), None, "job_too_many_nodes"),
    "many keys in JSON": (json.dumps({f"k{n}": 1 for n in range(20_000)}), None, "job_too_many_nodes"),
    "300 KiB": ("name: " + "x" * 300 * 1024, None, "job_too_large"),
    "a long value": ("name: " + "x" * 250 * 1024, "name", "invalid_value"),
    "a long key": ("x" * 250 * 1024 + ": 1\n", None, "job_syntax"),
    "quotes that never end": ('{"' + '\\"' * 120_000, None, "job_syntax"),
    "a second document": ("name: x\n---\nname: y\n", None, "second_document"),
    "a code switch": ("trust_remote_code: true\n", "trust_remote_code", "unknown_field"),
    "2,000 unknown keys": ("".join(f"key{n}: 1\n" for n in range(990)), "key7", "unknown_field"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_text_gets_a_typed_refusal_at_once(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    text, field, code = HOSTILE[name]
    parse_or_none(SMALLEST)  # warm: the spec's schema is built once per process
    parse_or_none("modle: x")
    calls = Counter()
    sys.setprofile(lambda frame, event, what: calls.update([event]))
    try:
        with pytest.raises(FactoryError) as caught:
            parse_job(text, origin="job")
    finally:
        sys.setprofile(None)
    assert calls["call"] < 200_000 and calls["c_call"] < 1_000_000
    assert (code, field) in {(one.code, one.field) for one in caught.value.findings}
    assert not list(tmp_path.iterdir())


def parse_or_none(text: str) -> JobSpec | None:
    try:
        return parse_job(text)
    except FactoryError:
        return None


# Any input

_SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20)
_KEYS = st.sampled_from([*JobSpec.model_fields, "path", "epochs", "rank", "devices", "eval"]) | st.text(
    max_size=10
)
_VALUES = st.recursive(
    _SCALARS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(_KEYS, inner, max_size=6),
    max_leaves=20,
)


@given(_VALUES)
def test_any_json_is_a_job_or_a_refusal(value):
    parse_or_none(json.dumps(value))


@given(st.text(max_size=200))
def test_any_text_is_a_job_or_a_refusal(text):
    parse_or_none(text)


@given(st.text(alphabet=st.sampled_from("ab:-?[]{},&*!|>'\"%@`#~<=. \n\t0129eE+xo_\\"), max_size=60))
@settings(max_examples=300)
def test_any_yaml_like_text_is_a_job_or_a_refusal(text):
    parse_or_none(text)


def _jobs() -> st.SearchStrategy[JobSpec]:
    text = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=20)
    rate = st.floats(0, 1, allow_subnormal=False).map(abs)
    train = st.fixed_dictionaries(
        {},
        optional={
            "learning_rate": st.none() | rate,
            "max_steps": st.none() | st.integers(1, 100_000_000),
            "scheduler": st.sampled_from(["linear", "cosine", None]),
            "weight_decay": rate,
            "keep_best": st.booleans(),
        },
    )
    method = st.just("full") | st.fixed_dictionaries(
        {"name": st.just("lora")}, optional={"rank": st.integers(1, 9)}
    )
    return st.builds(
        lambda **fields: JobSpec.model_validate(fields),
        model=text,
        data=text,
        stage=st.sampled_from(["sft", "pretrain"]),
        method=method,
        train=train,
        evaluate=st.fixed_dictionaries({"prompts": st.lists(text, max_size=3)}),
    )


@given(_jobs())
def test_a_job_written_down_and_read_again_is_the_same_job(job):
    assert parse_job(dump_job(job)) == job


@pytest.mark.parametrize("name", ["my fox", "Übung 3", "狐狸-1", "ม้า", "Ελλάδα_2"])
def test_a_name_may_have_letters_of_any_script(name: str):
    assert parse_job(f"model: m\ndata: d.jsonl\nstage: sft\nname: {name}\n").name == name


@pytest.mark.parametrize("name", ["-fox", "a/b", "..", "fox\u202e", "fox\u200b", "a\tb", "🦊", "x" * 65])
def test_a_name_is_letters_digits_and_a_few_marks(name: str):
    with pytest.raises(FactoryError, match="letters \\(of any script\\)"):
        parse_job(json.dumps({"model": "m", "data": "d.jsonl", "stage": "sft", "name": name}))
