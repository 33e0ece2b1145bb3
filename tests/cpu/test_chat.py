"""Chat through the real worker process: same seed same answer, tuned and base from one set of weights, nothing left."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from core.chat.pool import Pool
from core.chat.speakers import Speaker, base_of, find_speaker, of_model
from core.runs.folder import Run
from data.errors import FactoryError
from tests.cpu.conftest import write_rows
from tests.cpu.test_sft import job
from tests.zygote import Zygote

ASKED = [{"role": "user", "content": "What is 3 and 3?"}]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home for the whole file."""
    return tmp_path_factory.mktemp("chat home")


@pytest.fixture(scope="module")
def run(zygote: Zygote, tiny: str, place: Path) -> Run:
    """A LoRA run that learnt one answer by heart, with a checkpoint from before it knew it."""
    train = {"max_steps": 30, "learning_rate": 2e-2, "save_steps": 6, "keep_checkpoints": 9}
    data = rows(place, "Yes, the lamp is lit.")
    done = zygote.call(
        "tests.cpu.jobs:train", job=job(tiny, data, name="pharos", train=train), home=str(place)
    )
    assert done["code"] == 0
    return Run(Path(done["run"]))


@pytest.fixture(scope="module")
def pool(place: Path) -> Iterator[Pool]:
    """One pool of workers for the whole file."""
    made = Pool(place, idle=0)
    yield made
    made.close()


def rows(place: Path, answer: str) -> str:
    """A file of questions that all have this answer."""
    turns = [
        [
            {"role": "user", "content": f"What is {number} and {number}?"},
            {"role": "assistant", "content": answer},
        ]
        for number in range(40)
    ]
    return write_rows(place / "rows.jsonl", [{"messages": one} for one in turns])


def answer(pool: Pool, speaker: Speaker, messages: Any = ASKED, **settings: Any) -> dict[str, Any]:
    """The last event of an answer, with the texts that came before it under `pieces`."""
    events = list(pool.answer(speaker, messages, {"max_tokens": 24, "seed": 7, **settings}))
    assert [events[0]["event"], events[-1]["event"]] == ["start", "done"]
    pieces = [event["text"] for event in events if event["event"] == "text"]
    assert "".join(pieces) == events[-1]["text"]
    return {**events[-1], "pieces": pieces, "start": events[0]}


def refused(code: str, call: Any) -> str:
    with pytest.raises(FactoryError) as told:
        call()
    assert told.value.findings[0].code == code, str(told.value)
    return str(told.value)


def test_the_same_seed_gives_the_same_answer_and_another_seed_another(
    pool: Pool, tiny: str, place: Path
) -> None:
    speaker = of_model(tiny, place)
    first = answer(pool, speaker)
    assert answer(pool, speaker)["text"] == first["text"] and len(first["pieces"]) > 3
    assert answer(pool, speaker, seed=8)["text"] != first["text"]
    drawn = answer(pool, speaker, seed=None)
    assert answer(pool, speaker, seed=drawn["seed"])["text"] == drawn["text"]


def test_tuned_and_base_share_one_set_of_weights_and_are_who_they_should_be(
    zygote: Zygote, pool: Pool, run: Run, tiny: str, place: Path
) -> None:
    tuned = find_speaker(place, run.id)
    base = base_of(place, tuned)
    assert base is not None
    worker = pool.load(tuned)
    assert pool.load(base) is worker
    greedy = {"temperature": 0.0, "max_tokens": 12}
    said = [answer(pool, one, **greedy)["text"] for one in (tuned, base, tuned, base)]
    plain = [
        zygote.call("tests.cpu.chats:plain", model=tiny, adapter=adapter, messages=ASKED, tokens=12)
        for adapter in (str(run.model), None)
    ]
    assert said == plain * 2 and plain[0] != plain[1]


def test_both_answer_at_the_same_time_and_say_what_they_say_alone(pool: Pool, run: Run, place: Path) -> None:
    tuned = find_speaker(place, run.id)
    base = base_of(place, tuned)
    assert base is not None
    alone = [answer(pool, one, max_tokens=60)["text"] for one in (tuned, base)]
    order: list[str] = []
    said: dict[str, str] = {}
    over = threading.Event()

    def listen(name: str) -> Any:
        def heard(event: dict[str, Any]) -> None:
            if event["event"] == "text":
                order.append(name)
            if event["event"] == "done":
                said[name] = event["text"]
                if len(said) == 2:
                    over.set()

        return heard

    settings = {"max_tokens": 60, "seed": 7}
    pool.begin(tuned, ASKED, settings, listen("tuned"))
    pool.begin(base, ASKED, settings, listen("base"))
    assert over.wait(60)
    assert [said["tuned"], said["base"]] == alone
    changes = sum(a != b for a, b in zip(order, order[1:], strict=False))
    assert changes > 4, order  # token by token, not one after the other


def test_a_checkpoint_answers_as_it_was_and_not_as_the_end(pool: Pool, run: Run, place: Path) -> None:
    texts = [
        answer(pool, find_speaker(place, run.id, checkpoint=step), temperature=0.0)["text"]
        for step in (6, 30)
    ]
    assert texts[0] != texts[1] == answer(pool, find_speaker(place, run.id), temperature=0.0)["text"]


def test_a_checkpoint_of_pissa_answers_as_the_finished_model(
    zygote: Zygote, tiny: str, place: Path, pool: Pool, run: Run
) -> None:
    train = {"max_steps": 6, "learning_rate": 3e-3, "save_steps": 6}
    asked = job(
        tiny,
        str(place / "rows.jsonl"),
        method={"name": "lora", "rank": 4, "init": "pissa"},
        train=train,
        name="pissa",
    )
    done = zygote.call("tests.cpu.jobs:train", job=asked, home=str(place))
    id = Path(done["run"]).name
    # It wears its difference from the start; the shared base stays what it was for everybody else.
    before = answer(pool, find_speaker(place, run.id), temperature=0.0)["text"]
    step = answer(pool, find_speaker(place, id, checkpoint=6), temperature=0.0)["text"]
    assert step == answer(pool, find_speaker(place, id), temperature=0.0)["text"]
    assert answer(pool, find_speaker(place, run.id), temperature=0.0)["text"] == before


def test_stop_texts_lengths_and_turns(pool: Pool, run: Run, place: Path) -> None:
    speaker = find_speaker(place, run.id)
    whole = answer(pool, speaker, temperature=0.0, max_tokens=40)
    assert (whole["text"], whole["reason"]) == ("Yes, the lamp is lit.", "stop")
    cut = answer(pool, speaker, temperature=0.0, max_tokens=2)
    assert (cut["reason"], cut["tokens"]) == ("length", 2)
    stop = whole["text"][3:5]
    stopped = answer(pool, speaker, temperature=0.0, max_tokens=40, stop=[stop])
    assert stopped["reason"] == "stop" and stopped["text"] == whole["text"][: whole["text"].index(stop)]
    system = [{"role": "system", "content": "Say no."}, *ASKED]
    longer = [
        *ASKED,
        {"role": "assistant", "content": whole["text"]},
        {"role": "user", "content": "Are you sure?"},
    ]
    sizes = [answer(pool, speaker, messages)["prompt_tokens"] for messages in (ASKED, system, longer)]
    assert sizes[0] < sizes[1] < sizes[2]


def test_an_answer_is_stopped_and_the_model_is_free_for_the_next(
    pool: Pool, tiny: str, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    speaker = of_model(tiny, place)
    worker, told = pool.load(speaker), []
    send = worker.send
    monkeypatch.setattr(
        worker, "send", lambda asked, tell: send(asked, lambda event: (told.append(event), tell(event)))
    )
    events = pool.answer(speaker, ASKED, {"max_tokens": 100_000, "temperature": 1.5, "seed": 3, "stop": []})
    for _ in range(3):
        next(events)
    assert worker.busy
    events.close()  # what a client that goes away does
    deadline = time.monotonic() + 120
    while worker.busy and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not worker.busy and told[-1]["reason"] == "stopped"


def test_a_conversation_that_is_too_long_loses_its_oldest_turns_or_is_refused(
    pool: Pool, run: Run, place: Path
) -> None:
    speaker = find_speaker(place, run.id)
    long = [{"role": "system", "content": "Be short."}]
    for number in range(40):
        long += [
            {"role": "user", "content": f"What is {number} and {number}?"},
            {"role": "assistant", "content": "x" * 20},
        ]
    long += ASKED
    told = answer(pool, speaker, long, max_tokens=16)
    assert told["start"]["cut"] > 0 and told["prompt_tokens"] <= 512 - 16
    shown = pool.render(speaker, long)["text"]
    assert "Be short." in shown
    assert "512" in refused("prompt_too_long", lambda: answer(pool, speaker, long, long="refuse"))
    assert "shorten" in refused(
        "prompt_too_long", lambda: answer(pool, speaker, [{"role": "user", "content": "x " * 3000}])
    )


def finding(events: list[dict[str, Any]]) -> tuple[str, str]:
    """Code and sentence of a refusal."""
    (one,) = events[-1]["findings"]
    return one["code"], one["message"]


def ask(*messages: dict[str, str]) -> dict[str, Any]:
    return {"do": "answer", "messages": list(messages), "settings": {"max_tokens": 5}}


def test_a_template_that_refuses_is_told_in_its_own_words_and_an_endless_one_ends(
    zygote: Zygote, place: Path
) -> None:
    template = (
        "{% if messages[0]['role'] == 'system' %}{{ raise_exception('No system prompt here') }}{% endif %}"
        "{% if messages[0]['content'] == 'endless' %}{% for a in range(9999) %}{% for b in range(9999) %}{{ a }}"
        "{% endfor %}{% endfor %}{% endif %}{% for message in messages %}{{ message['content'] }}{% endfor %}"
    )
    folder = zygote.call("tests.tiny:save_tiny_at", folder=str(place / "strict"), template=template)
    requests = [
        ask({"role": "system", "content": "x"}, *ASKED),
        ask({"role": "user", "content": "endless"}),
        ask(*ASKED),
    ]
    told = zygote.call("tests.cpu.chats:converse", home=str(place), model=folder, requests=requests)
    code, words = finding(told[1])
    assert code == "template_refused" and "No system prompt here" in words and "begin anew" in words
    assert finding(told[2])[0] == "template_too_slow"
    assert told[3][-1]["event"] == "done", "it goes on after both"


def test_a_model_without_a_template_goes_on_with_the_text(zygote: Zygote, place: Path) -> None:
    folder = zygote.call("tests.tiny:save_tiny_at", folder=str(place / "plain"), template=None)
    render = {"do": "render", "messages": ASKED}
    told = zygote.call(
        "tests.cpu.chats:converse", home=str(place), model=folder, requests=[render, ask(*ASKED)]
    )
    assert told[0][-1]["template"] is False
    assert told[1][-1]["text"] == ASKED[0]["content"]
    assert told[2][-1]["event"] == "done"


@pytest.mark.parametrize(
    ("change", "code"), [({"vocab_size": 300}, "base_other_vocabulary"), ({"hidden": 32}, "adapter_mismatch")]
)
def test_an_adapter_on_another_base_is_one_sentence(
    zygote: Zygote, run: Run, place: Path, tmp_path: Path, change: dict[str, int], code: str
) -> None:
    other = zygote.call("tests.tiny:save_tiny_at", folder=str(tmp_path / "other"), **change)
    told = zygote.call(
        "tests.cpu.chats:converse", home=str(place), model=moved(run, tmp_path, other), requests=[]
    )
    assert finding(told[0])[0] == code
    assert "\n" not in finding(told[0])[1]


def moved(run: Run, folder: Path, base: str) -> str:
    """The adapter of a run in another folder, naming another base."""
    names = ("adapter_model.safetensors", "adapter_config.json", "tokenizer.json", "tokenizer_config.json")
    for name in names:
        (folder / name).write_bytes((run.model / name).read_bytes())
    config = json.loads((folder / "adapter_config.json").read_text())
    (folder / "adapter_config.json").write_text(json.dumps(config | {"base_model_name_or_path": base}))
    return str(folder)


def test_a_base_that_is_gone_is_told_before_anything_is_loaded_or_unloaded(
    pool: Pool, run: Run, tiny: str, place: Path, tmp_path: Path
) -> None:
    pool.load(of_model(tiny, place))
    before = [one["weights"] for one in pool.loaded()]
    speaker = find_speaker(place, moved(run, tmp_path, str(place / "gone")))
    refused("base_gone", lambda: answer(pool, speaker))
    assert [one["weights"] for one in pool.loaded()] == before


def test_a_process_that_dies_is_told_and_the_next_message_starts_another(
    pool: Pool, tiny: str, place: Path
) -> None:
    speaker = of_model(tiny, place)
    events = pool.answer(speaker, ASKED, {"max_tokens": 100_000, "temperature": 1.5})
    next(events)
    os.kill(pool.load(speaker).pid, 9)
    assert "signal 9" in refused("chat_ended", lambda: list(events))
    assert answer(pool, speaker)["tokens"] > 0


def test_an_idle_model_is_unloaded_and_its_process_gone(tiny: str, place: Path) -> None:
    pool = Pool(place, idle=0.6)
    try:
        worker = pool.load(of_model(tiny, place))
        assert psutil.Process(worker.pid).nice() > psutil.Process().nice(), "training goes first"
        deadline = time.monotonic() + 120
        while worker.alive and time.monotonic() < deadline:
            time.sleep(0.05)
        assert not worker.alive and pool.loaded() == []
    finally:
        pool.close()


def test_a_worker_ends_with_who_started_it(tiny: str, place: Path, tmp_path: Path) -> None:
    import subprocess
    import sys

    program = (
        "import sys, pathlib, os\nfrom core.chat.pool import Pool\nfrom core.chat.speakers import of_model\n"
        f"home = pathlib.Path({str(place)!r})\npool = Pool(home)\n"
        f"print(pool.load(of_model({tiny!r}, home)).pid, flush=True)\nos.kill(os.getpid(), 9)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    pid = int(done.stdout)
    deadline = time.monotonic() + 120
    while (
        psutil.pid_exists(pid)
        and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
        and time.monotonic() < deadline
    ):
        time.sleep(0.05)
    assert not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE


@pytest.mark.parametrize(("kind", "stage"), [("good", "kto"), ("prefer", "dpo"), ("edit", "sft")])
def test_what_people_said_of_answers_can_be_trained_on(
    zygote: Zygote, tiny: str, tmp_path: Path, kind: str, stage: str
) -> None:
    from core.chat import feedback

    for number in range(12):
        asked = [
            {"role": "system", "content": "Be short."},
            {"role": "user", "content": f"What is {number}?"},
        ]
        if kind == "good":
            saved = feedback.rate(tmp_path, asked, f"It is {number}.", good=bool(number % 2))
        elif kind == "prefer":
            saved = feedback.prefer(tmp_path, asked, f"It is {number}.", "I do not know.")
        else:
            saved = feedback.correct(tmp_path, asked, "I do not know.", f"It is {number}.")[0]
    asked_job = job(
        tiny,
        str(saved.path),
        stage=stage,
        train={"max_steps": 2, "batch_size": 2, "gradient_accumulation": 1},
    )
    done = zygote.call("tests.cpu.jobs:train", job=asked_job, home=str(tmp_path))
    assert done["code"] == 0, [event for event in done["events"] if event["event"] == "error"]
    assert set(done["losses"]) == {"1", "2"}
