"""Answers, token by token, several at once from one set of weights: they pass the model on after every token."""

from __future__ import annotations

import secrets
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any

import torch
from transformers import GenerationConfig, StoppingCriteria, StoppingCriteriaList

from core.chat.settings import Settings
from core.training.chat.pieces import Pieces, Stops
from core.training.chat.prompt import Prompt
from core.training.chat.weights import Loaded, Weights

Emit = Callable[[dict[str, Any]], None]


class Baton:
    """Lets one answer at a time use the model, in turn. Whoever gets it finds its adapters on and its own dice."""

    def __init__(self, weights: Weights) -> None:
        self._weights = weights
        self._waiting: deque[Answer] = deque()
        self._holder: Answer | None = None
        self._changed = threading.Condition()

    def take(self, answer: Answer) -> None:
        """Wait for the model."""
        with self._changed:
            self._waiting.append(answer)
            self._next_if_free()
            self._changed.wait_for(lambda: self._holder is answer)
        self._weights.wear(answer.loaded.adapters)

    def hand_on(self, answer: Answer) -> None:
        """Let the others that wait have a token each."""
        with self._changed:
            if not self._waiting:
                return
        dice = _dice(self._weights.device)
        self.give_up()
        self.take(answer)
        _throw_from(dice, self._weights.device)

    def give_up(self) -> None:
        """Leave the model to the next."""
        with self._changed:
            self._holder = None
            self._next_if_free()

    def _next_if_free(self) -> None:
        if self._holder is None and self._waiting:
            self._holder = self._waiting.popleft()
            self._changed.notify_all()


class Answer:
    """One answer being made. It is a streamer of transformers' `generate`, which calls `put` with every token."""

    def __init__(self, loaded: Loaded, prompt: Prompt, settings: Settings, emit: Emit) -> None:
        self.loaded, self.prompt, self.settings, self._emit = loaded, prompt, settings, emit
        self.seed = secrets.randbits(31) if settings.seed is None else settings.seed
        self.stopped = threading.Event()
        self.tokens: list[int] = []
        self.text = ""
        self.first: float | None = None
        self._pieces, self._stops = Pieces(loaded.tokenizer), Stops(settings.stop)
        self._baton: Baton | None = None
        self._prompt_seen = False

    def make(self, weights: Weights, baton: Baton) -> None:
        """Generate to the end and tell how it ended. Called in a thread of its own."""
        self._baton = baton
        ids = torch.tensor([self.prompt.ids], device=weights.device)
        began = time.perf_counter()
        baton.take(self)
        try:
            torch.manual_seed(self.seed)
            if not self.stopped.is_set():
                with torch.inference_mode():
                    weights.model.generate(
                        input_ids=ids,
                        attention_mask=torch.ones_like(ids),
                        generation_config=self._config(weights),
                        streamer=self,
                        stopping_criteria=StoppingCriteriaList([_WhenStopped(self)]),
                    )
        finally:
            baton.give_up()
        self._show(self._stops.add(self._pieces.rest()))
        self._show(self._stops.rest())
        self._emit(self._ended(began, time.perf_counter()))

    def put(self, value: Any) -> None:
        """Take the newest token; the first call brings the prompt."""
        if not self._prompt_seen:
            self._prompt_seen = True
            return
        token = int(value.reshape(-1)[0])
        if self.first is None:
            self.first = time.perf_counter()
        self.tokens.append(token)
        if token not in self.loaded.ends:
            self._show(self._stops.add(self._pieces.add(token)))
        if self._stops.hit is not None:
            self.stopped.set()
        if not self.stopped.is_set() and self._baton is not None:
            self._baton.hand_on(self)

    def end(self) -> None:
        """Called by generate when it is over; `make` tells so itself."""

    def _show(self, text: str) -> None:
        if text:
            self.text += text
            self._emit({"event": "text", "text": text, "tokens": len(self.tokens)})

    def _ended(self, began: float, now: float) -> dict[str, Any]:
        ended = bool(self.tokens) and self.tokens[-1] in self.loaded.ends
        done = ended or self._stops.hit is not None
        reason = "stop" if done else "stopped" if self.stopped.is_set() else "length"
        first = self.first or now
        rest = len(self.tokens) - 1
        return {
            "event": "done",
            "reason": reason,
            "text": self.text,
            "tokens": len(self.tokens),
            "prompt_tokens": len(self.prompt.ids),
            "seconds": round(now - began, 4),
            "first": round(first - began, 4),
            "tokens_per_second": round(rest / (now - first), 2) if rest > 0 and now > first else None,
            "seed": self.seed,
        }

    def drawing(self) -> dict[str, Any]:
        """The settings in force: the user's, else the model's own."""
        own = self.loaded.defaults
        chosen = {name: getattr(self.settings, name) for name in own}
        return {name: own[name] if value is None else value for name, value in chosen.items()}

    def _config(self, weights: Weights) -> GenerationConfig:
        most, context = self.settings.max_tokens, weights.context
        if context is not None:
            most = min(most, context - len(self.prompt.ids))
        drawing = self.drawing()
        if drawing["temperature"] > 0:
            sampling = {name: drawing[name] for name in ("temperature", "top_p", "top_k")}
            sampling["do_sample"] = True
        else:
            sampling = {"do_sample": False}
        pad = self.loaded.tokenizer.pad_token_id
        return GenerationConfig(
            max_new_tokens=most,
            repetition_penalty=drawing["repetition_penalty"],
            eos_token_id=self.loaded.ends or None,
            pad_token_id=pad if pad is not None else (self.loaded.ends or [0])[0],
            use_cache=True,
            **sampling,
        )


class _WhenStopped(StoppingCriteria):
    """Ends generating at the token at which somebody asked to stop."""

    def __init__(self, answer: Answer) -> None:
        self._answer = answer

    def __call__(self, input_ids: Any, scores: Any, **kwargs: Any) -> Any:
        return torch.full((input_ids.shape[0],), self._answer.stopped.is_set(), device=input_ids.device)


def _dice(device: str) -> Any:
    return torch.get_rng_state() if device == "cpu" else torch.cuda.get_rng_state(device)


def _throw_from(state: Any, device: str) -> None:
    if device == "cpu":
        torch.set_rng_state(state)
    else:
        torch.cuda.set_rng_state(state, device)
