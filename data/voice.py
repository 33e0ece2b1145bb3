"""What rendering must know of a tokenizer, as plain data that another process can be given."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass(frozen=True)
class Voice:
    """What rendering must know of a tokenizer: its template, special tokens, and whether it adds a BOS by itself."""

    template: str | None
    bos: str | None
    eos: str | None
    adds_bos: bool
    specials: Mapping[str, Any] = field(default_factory=dict)
    marks: tuple[str, ...] = ()
    """All special tokens, to see whether a turn ends in one."""

    @classmethod
    def of(cls, tokenizer: Any) -> Voice:
        """The voice of a transformers tokenizer."""
        template = tokenizer.chat_template
        if isinstance(template, Mapping):
            template = template.get("default")
        bos, eos = tokenizer.bos_token, tokenizer.eos_token
        first = tokenizer("a").input_ids[:1]
        adds = bos is not None and first == [tokenizer.convert_tokens_to_ids(bos)]
        marks = tuple(dict.fromkeys([*tokenizer.all_special_tokens, *_added(tokenizer)]))
        return cls(template, bos, eos, adds, dict(tokenizer.special_tokens_map), marks)

    def to_plain(self) -> dict[str, Any]:
        """Plain JSON for the child."""
        return asdict(self)

    @classmethod
    def from_plain(cls, plain: Mapping[str, Any]) -> Voice:
        """The inverse of `to_plain`."""
        return cls(**{**plain, "marks": tuple(plain["marks"])})


def _added(tokenizer: Any) -> list[str]:
    return [token.content for token in tokenizer.added_tokens_decoder.values() if token.special]
