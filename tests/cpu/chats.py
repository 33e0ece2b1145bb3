"""What chat tests do in a forked child: the same answer by a hand-written script."""

from __future__ import annotations

from typing import Any


def plain(model: str, adapter: str | None, messages: list[dict[str, str]], tokens: int) -> str:
    """A greedy answer as a user would get it with transformers and peft."""
    import torch
    from peft import PeftModel
    from transformers import AutoModelForCausalLM, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(adapter or model)
    loaded: Any = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32).eval()
    if adapter:
        loaded = PeftModel.from_pretrained(loaded, adapter)
    ids = tokenizer.apply_chat_template(
        messages, add_generation_prompt=True, return_tensors="pt", return_dict=True
    )
    out = loaded.generate(**ids, max_new_tokens=tokens, do_sample=False)
    return str(tokenizer.decode(out[0, ids["input_ids"].shape[1] :], skip_special_tokens=True))


def converse(home: str, model: str, requests: list[dict[str, Any]]) -> list[list[dict[str, Any]]]:
    """The events of each request, asked of the worker's own code in this process, one after the other.

    Every request is about the model in `model` (a folder, or an adapter's), which is loaded first.
    """
    import io
    import json
    import time
    from pathlib import Path

    from core.chat.speakers import find_speaker
    from core.chat.worker import ENDS
    from core.training.chat.__main__ import Room

    out = io.StringIO()
    room = Room(Path(home), out)
    speaker = find_speaker(Path(home), model)
    told = []
    for number, request in enumerate([{"do": "load", "speaker": speaker.to_json()}, *requests]):
        room.hear({"speaker": speaker.key, "id": number, **request})
        deadline = time.monotonic() + 60
        events: list[dict[str, Any]] = []
        while not (events and events[-1]["event"] in ENDS) and time.monotonic() < deadline:
            time.sleep(0.01)
            events = [one for one in map(json.loads, out.getvalue().splitlines()) if one["id"] == number]
        told.append(events)
    return told
