"""Chat's light half: settings in words, who can talk, memory beside a training, rows of feedback."""

from __future__ import annotations

import json
import threading
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.chat import feedback, room
from core.chat.settings import Settings, settings_of, turns_of
from core.chat.speakers import Speaker, by_key, find_speaker, list_speakers
from core.job.machine import Machine
from core.runs.folder import Run, create_run
from core.runs.storage import write_json
from data.errors import FactoryError

ASKED = [{"role": "user", "content": "Who are you?"}]
JOB = {"model": {"name": "smollm2-135m"}, "data": {"path": "rows.jsonl"}, "stage": {"name": "sft"}}


def made_run(home: Path, *, model: bool = True, steps: tuple[int, ...] = (), **parts) -> Run:
    """A run folder with a committed adapter and checkpoints, without training."""
    job = {**JOB, "method": {"name": "lora"}, **parts}
    run = create_run(home, json.dumps(job), job, {"forecast": {"memory_total": 4 << 30, "device": "cpu"}})
    folders = [run.checkpoints / f"checkpoint-{step}" for step in steps] + ([run.model] if model else [])
    for folder in folders:
        folder.mkdir(parents=True)
        (folder / "adapter_config.json").write_text("{}")
        files = {"adapter_config.json": 2}
        write_json(folder / "COMPLETE.json", {"files": files})
    return run


def refused(code: str):
    """A context that expects a refusal with this code, in one sentence."""

    class Expect:
        def __enter__(self):
            return self

        def __exit__(self, kind, error, trace):
            assert isinstance(error, FactoryError), f"{code} was expected"
            assert error.findings[0].code == code, error.findings
            self.text = str(error)
            assert self.text.endswith((".", "!")) and "\n" not in self.text.strip()
            return True

    return Expect()


def test_settings_tell_everything_that_is_wrong_at_once():
    with pytest.raises(FactoryError) as told:
        settings_of({"temperature": -1, "top_p": 2.0, "colour": 1, "max_tokens": "many"})
    assert {one.field for one in told.value.findings} == {"temperature", "top_p", "colour", "max_tokens"}
    assert "there are temperature" in str(told.value)


def test_every_setting_has_its_help():
    from core.job.schema import field_help

    assert set(field_help(Settings)) == set(Settings.model_fields)


@given(
    st.dictionaries(
        st.sampled_from([*Settings.model_fields, "x"]),
        st.one_of(
            st.none(),
            st.booleans(),
            st.integers(),
            st.floats(),
            st.text(max_size=9),
            st.lists(st.text(max_size=3), max_size=3),
        ),
        max_size=4,
    )
)
def test_any_settings_are_taken_or_refused_in_words(values):
    try:
        assert isinstance(settings_of(values), Settings)
    except FactoryError as refusal:
        assert all(one.message.endswith(".") for one in refusal.findings)


@pytest.mark.parametrize(
    "messages",
    [
        None,
        [],
        "hi",
        [{"role": "boss", "content": "x"}],
        [{"role": "user"}],
        [{"role": "user", "content": 3}],
    ],
)
def test_a_conversation_that_is_none_is_refused(messages):
    with pytest.raises(FactoryError):
        turns_of(messages)


def test_a_run_is_found_by_the_end_of_its_id_and_knows_its_base(tmp_path):
    run = made_run(tmp_path, steps=(2, 4))
    found = find_speaker(tmp_path, run.id[-4:])
    assert (found.key, found.adapters, found.name) == (f"run:{run.id}", (str(run.model),), "smollm2-135m")
    base = by_key(tmp_path, found.base)
    assert base.weights == found.weights and base.adapters == ()
    assert find_speaker(tmp_path, run.id, checkpoint=4).adapters == (str(run.checkpoints / "checkpoint-4"),)
    assert by_key(tmp_path, f"run:{run.id}@2").title.endswith("step 2")


def test_who_cannot_talk_is_told_why(tmp_path):
    unfinished = made_run(tmp_path, model=False, steps=(3,), name="half")
    judge = made_run(tmp_path, stage={"name": "reward"}, name="judge")
    with refused("model_not_there") as told:
        find_speaker(tmp_path, unfinished.id)
    assert "--checkpoint 3" in told.text
    with refused("checkpoint_not_found"):
        find_speaker(tmp_path, unfinished.id, checkpoint=7)
    with refused("speaker_is_a_judge"):
        find_speaker(tmp_path, judge.id)
    with refused("speaker_not_found"):
        find_speaker(tmp_path, "nobody")
    with refused("checkpoint_of_a_model"):
        find_speaker(tmp_path, "smollm2-135m", checkpoint=1)
    for key in ("run:", "run:../x", "x", "", "model:", f"run:{unfinished.id}@x"):
        with pytest.raises(FactoryError):
            by_key(tmp_path, key)


def test_the_list_has_who_can_talk_and_nobody_else(tmp_path):
    done = made_run(tmp_path, steps=(2,), name="done")
    half = made_run(tmp_path, model=False, steps=(2, 5), name="half")
    made_run(tmp_path, model=False, name="nothing")
    made_run(tmp_path, stage={"name": "reward"}, name="judge")
    told = {one["title"]: one for one in list_speakers(tmp_path)}
    assert set(told) == {"done", "half", "smollm2-135m"}
    assert (told["done"]["key"], told["half"]["key"]) == (f"run:{done.id}", f"run:{half.id}@5")
    assert told["half"]["checkpoints"] == [2, 5] and told["half"]["finished"] is False


def test_an_adapters_folder_speaks_through_the_base_it_names(tmp_path):
    folder = tmp_path / "adapter"
    folder.mkdir()
    (folder / "adapter_config.json").write_text(json.dumps({"base_model_name_or_path": "smollm2-135m"}))
    found = find_speaker(tmp_path, str(folder))
    assert (found.name, found.adapters, found.base) == ("smollm2-135m", (str(folder),), "model:smollm2-135m")
    (folder / "adapter_config.json").write_text("{}")
    with refused("base_unknown"):
        find_speaker(tmp_path, str(folder))


def machine(gib: float) -> Machine:
    return Machine("test", "3", cores=2, memory=64 << 30, memory_free=int(gib * (1 << 30)))


def test_a_model_that_does_not_fit_is_refused_with_what_it_needs(tmp_path):
    speaker = Speaker("model:smollm2-135m", "smollm2-135m", "smollm2-135m")
    assert room.check_room(speaker, tmp_path, machine(8), gpu=False) is False
    with refused("memory_too_small") as told:
        room.check_room(speaker, tmp_path, machine(1), gpu=False)
    assert "GiB" in told.text and "close other models" in told.text
    need = room.need_of(speaker, tmp_path, gpu=False)
    between = (need.half + need.full) / 2 / (1 << 30) + 0.5
    assert room.check_room(speaker, tmp_path, machine(between), gpu=False) is True  # in 16 bits it fits


def test_what_a_training_still_needs_is_not_given_away(tmp_path, monkeypatch):
    run = made_run(tmp_path)
    speaker = Speaker("model:smollm2-135m", "smollm2-135m", "smollm2-135m")
    room.check_room(speaker, tmp_path, machine(5), gpu=False)
    monkeypatch.setattr(room, "training", lambda home: [run])
    with refused("memory_too_small") as told:
        room.check_room(speaker, tmp_path, machine(5), gpu=False)  # 4 GiB are its plan's
    assert "beside the training" in told.text


def test_rows_of_feedback_are_whole_lines_even_when_many_write_at_once(tmp_path):
    def write(number: int) -> None:
        for turn in range(2):
            feedback.rate(tmp_path, ASKED, f"answer {number} {turn} " + "x" * 5000, good=bool(number % 2))

    threads = [threading.Thread(target=write, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    rows = [json.loads(line) for line in (tmp_path / "data" / feedback.FEEDBACK).read_text().splitlines()]
    assert len(rows) == 12 and {row["label"] for row in rows} == {True, False}
    assert rows[0]["prompt"] == ASKED and rows[0]["completion"][0]["role"] == "assistant"


def test_an_edited_answer_is_a_row_to_learn_and_a_preference(tmp_path):
    first, second = feedback.correct(tmp_path, ASKED, "I am a model.", "I am Pharos.")
    learnt = json.loads(first.path.read_text())
    pair = json.loads(second.path.read_text())
    assert learnt["messages"][-1] == {"role": "assistant", "content": "I am Pharos."}
    assert (pair["chosen"][0]["content"], pair["rejected"][0]["content"]) == ("I am Pharos.", "I am a model.")
    for turns, answer, better in ((ASKED, "a", "a"), ([], "a", "b"), (ASKED, "a", "  ")):
        with pytest.raises(FactoryError):
            feedback.correct(tmp_path, turns, answer, better)


def test_a_file_without_a_last_newline_keeps_its_last_row(tmp_path):
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / feedback.FEEDBACK).write_text('{"mine": 1}')
    assert feedback.rate(tmp_path, ASKED, "yes", good=True).rows == 2
    for line in (tmp_path / "data" / feedback.FEEDBACK).read_text().splitlines():
        json.loads(line)


def test_a_full_disk_leaves_the_file_as_it_was(tmp_path, monkeypatch):
    feedback.rate(tmp_path, ASKED, "yes", good=True)
    before = (tmp_path / "data" / feedback.FEEDBACK).read_bytes()
    write = feedback.os.write

    def half(descriptor: int, content: bytes) -> int:
        write(descriptor, content[:10])
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(feedback.os, "write", half)
    with refused("disk_full"):
        feedback.rate(tmp_path, ASKED, "no", good=False)
    assert (tmp_path / "data" / feedback.FEEDBACK).read_bytes() == before
