"""The process itself: `python -m core.training.chat HOME`, a JSON object a line on stdin, answers on stdout.

Requests: load {speaker, half}, answer {speaker, messages, settings}, render {speaker, messages}, stop {of}. Each has
an `id`, and every line that answers it bears that id and an `event`: loaded, start, text, done, rendered or refused.
It holds one set of weights, lets everybody else on the machine go first, and ends when stdin ends.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import threading
import time
import traceback
from pathlib import Path
from typing import Any, TextIO

NICE = 10
"""Below training processes, which run at 0."""
MOST = 8
"""Answers made at once; each has a cache of its own."""


class Room:
    """The weights and the answers that are being made with them."""

    def __init__(self, home: Path, out: TextIO) -> None:
        self._home, self._out = home, out
        self._writing = threading.Lock()
        self._weights: Any = None
        self._baton: Any = None
        self._answers: dict[Any, Any] = {}

    def hear(self, request: dict[str, Any]) -> None:
        """Do what one line asks. What the user can mend is told as a refusal; so are our own faults."""
        id = request.get("id")
        try:
            {"load": self._load, "answer": self._answer, "render": self._render, "stop": self._stop}[
                request["do"]
            ](id, request)
        except Exception as problem:
            self._refuse(id, problem)

    def _load(self, id: Any, request: dict[str, Any]) -> None:
        from core.chat.speakers import Speaker
        from core.training.lean import in_few_bits, leave_out_bitsandbytes

        began = time.perf_counter()
        speaker = Speaker.from_json(request["speaker"])
        if self._weights is None and not in_few_bits(speaker.name, speaker.revision, self._home):
            leave_out_bitsandbytes()
        from core.training.chat.answer import Baton
        from core.training.chat.weights import Weights

        if self._weights is None:
            self._weights = Weights(speaker, self._home, half=bool(request.get("half")))
            self._baton = Baton(self._weights)
        loaded = self._weights.introduce(speaker)
        self._tell(
            id,
            {
                "event": "loaded",
                "seconds": round(time.perf_counter() - began, 3),
                "context": self._weights.context,
                "template": loaded.template is not None,
                "device": self._weights.device,
                "dtype": self._weights.dtype,
                "parameters": self._weights.parameters,
                "defaults": loaded.defaults,
            },
        )

    def _answer(self, id: Any, request: dict[str, Any]) -> None:
        from core.chat.settings import settings_of
        from core.training.chat.answer import Answer
        from core.training.chat.prompt import prompt
        from data.errors import refuse

        if len(self._answers) >= MOST:
            text = f"{MOST} answers are being made at once already; try again when one has ended."
            raise refuse("chat_busy", text, value=MOST)
        loaded = self._weights.loaded[request["speaker"]]
        settings = settings_of(request.get("settings") or {})
        fed = prompt(
            loaded,
            request["messages"],
            context=self._weights.context,
            answer=settings.max_tokens,
            long=settings.long,
        )
        answer = Answer(loaded, fed, settings, lambda event: self._tell(id, event))
        start = {"event": "start", "prompt_tokens": len(fed.ids), "cut": fed.cut, "seed": answer.seed}
        self._tell(id, start | {"settings": answer.drawing()})
        self._answers[id] = answer
        threading.Thread(target=self._make, args=(id, answer), daemon=True).start()

    def _make(self, id: Any, answer: Any) -> None:
        try:
            answer.make(self._weights, self._baton)
        except Exception as problem:
            self._refuse(id, problem)
        finally:
            self._answers.pop(id, None)

    def _render(self, id: Any, request: dict[str, Any]) -> None:
        from core.training.chat.prompt import render

        loaded = self._weights.loaded[request["speaker"]]
        text = render(loaded, request["messages"])
        ids = loaded.tokenizer(text, add_special_tokens=loaded.template is None)["input_ids"]
        special = set(loaded.tokenizer.all_special_ids)
        tokens = [[loaded.tokenizer.decode([one]), one in special] for one in ids[:20_000]]
        self._tell(id, {"event": "rendered", "text": text, "count": len(ids), "tokens": tokens})

    def _stop(self, id: Any, request: dict[str, Any]) -> None:
        answer = self._answers.get(request["of"])
        if answer is not None:
            answer.stopped.set()

    def _refuse(self, id: Any, problem: Exception) -> None:
        traceback.print_exception(problem)
        self._tell(id, {"event": "refused", "findings": [one.to_json() for one in explain(problem)]})

    def _tell(self, id: Any, event: dict[str, Any]) -> None:
        line = json.dumps({"id": id, **event}, ensure_ascii=False) + "\n"
        with self._writing:
            self._out.write(line)
            self._out.flush()


def explain(problem: BaseException) -> list[Any]:
    """Findings for what went wrong, in the words of a chat."""
    from core.training import faults
    from data.errors import FactoryError, Finding

    if isinstance(problem, FactoryError):
        return list(problem.findings)
    known = faults.explain(problem, Path.cwd())[0]
    if known.code == "out_of_memory":
        text = "Memory ran out while answering; begin a new conversation, lower max tokens, or close other models."
        return [Finding("out_of_memory", text)]
    if known.code != "internal_error":
        return [known]
    first = (str(problem).strip().splitlines() or [""])[0][:200]
    text = f"The chat process failed with {type(problem).__name__}: {first}; its log has the rest."
    return [Finding("internal_error", text, params={"type": type(problem).__name__})]


def main(home: str) -> int:
    """Serve until stdin ends. What the libraries say goes to stderr."""
    out = os.fdopen(os.dup(1), "w", encoding="utf-8", errors="backslashreplace")
    os.dup2(2, 1)
    os.nice(NICE)
    logging.getLogger("bitsandbytes.backends.cpu.ops").setLevel(logging.ERROR)
    from transformers.utils import logging as library

    library.disable_progress_bar()
    room = Room(Path(home), out)
    for line in sys.stdin:
        room.hear(json.loads(line))
    sys.stderr.flush()
    os._exit(0)  # an answer that is still being made has nobody to read it


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
