"""Pieces of text to token ids, many at a time: fast where that is proven to give the same ids, else Hugging Face's way.

`fastokens` encodes about twenty times faster than `tokenizers`. It is used for a tokenizer only after both gave the
same ids on a probe set (every special token, all scripts, emoji, long blanks, all of Unicode's planes) and on a sample
of the very data; any difference or exception falls back, with a finding that says so.

Pieces are encoded one by one, as generation meets them: the prompt is whole tokens before the answer's first token.
Tokenizers that put a blank before every text (SentencePiece's dummy prefix) get each later piece behind an anchor,
whose ids are cut off again.
"""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from data.errors import Finding

Ids = npt.NDArray[np.int32]
Lengths = npt.NDArray[np.int64]
Tell = Callable[[Finding], None]

SAMPLE = 256
"""So many pieces of the data are encoded both ways before the fast way is trusted with the rest."""


LAZY = 512
"""Fewer pieces than this are encoded before the fast way's model is built (0.3 s for 49,000 tokens) and proven."""


_BUILT: dict[str, Any] = {}
"""Fast tokenizers of this process by their proof's key, the last few."""


class Encoder:
    """Texts to flat ids. `way` says how: fastokens, tokenizers or transformers.

    `proofs` is a folder that keeps which tokenizers are proven; `model` is the backend's JSON, if at hand.
    """

    def __init__(
        self, tokenizer: Any, tell: Tell, proofs: Path | None = None, model: str | None = None
    ) -> None:
        self._tokenizer, self._tell, self._proofs, self._model = tokenizer, tell, proofs, model
        self._slow = _huggingface(tokenizer)
        self._fast: Any = None
        self._undecided = self._slow is not None
        self._count = self._refused = 0
        self.way = "tokenizers" if self._slow is not None else "transformers"
        self._anchor, self._anchor_size = self._find_anchor()

    def encode(self, texts: Sequence[str], later: Sequence[bool] | None = None) -> tuple[Ids, Lengths]:
        """(ids one after another, how many per text). `later` marks texts that continue the one before them."""
        if self._anchor and later is not None:
            return self._encode_anchored(texts, later)
        return self._encode(texts)

    def _encode(self, texts: Sequence[str]) -> tuple[Ids, Lengths]:
        if self._undecided:
            self._count += len(texts)
            return self._encode_first(texts) if self._count >= LAZY else self._encode_slow(texts)
        return self._encode_slow(texts) if self._fast is None else self._try_fast(texts)

    def _encode_first(self, texts: Sequence[str]) -> tuple[Ids, Lengths]:
        """Enough to do for the fast way: prove it, on the probe set and on the first pieces of these."""
        self._undecided = False
        self._fast = self._proven(self._model or self._slow.to_str())
        count = min(len(texts), SAMPLE)
        slow = self._encode_slow(texts[:count])
        if self._fast is not None:
            fast = self._try_fast(texts[:count])
            if not (np.array_equal(slow[0], fast[0]) and np.array_equal(slow[1], fast[1])):
                self._drop_fast("it differs from Hugging Face's on this data")
            else:
                self.way = "fastokens"
        if count == len(texts):
            return slow
        rest = self._encode(texts[count:])
        return np.concatenate([slow[0], rest[0]]), np.concatenate([slow[1], rest[1]])

    def _try_fast(self, texts: Sequence[str]) -> tuple[Ids, Lengths]:
        """The fast way; the part of a batch it refuses (bytes its vocabulary lacks) goes Hugging Face's way."""
        try:
            return _flat(self._fast.encode_batch_flat(list(texts), False))
        except (
            Exception
        ) as error:  # a Rust error can be of any class; what it refuses is encoded the proven way
            if len(texts) > 8:
                half = len(texts) // 2
                one, other = self._try_fast(texts[:half]), self._try_fast(texts[half:])
                return np.concatenate([one[0], other[0]]), np.concatenate([one[1], other[1]])
            if not self._refused:
                words = f"The fast tokenizer refused some rows ({str(error)[:120]}); Hugging Face's encodes those."
                self._tell(Finding("fast_tokenizer_batch", words, "note"))
            self._refused += len(texts)
            return self._encode_slow(texts)

    def _encode_slow(self, texts: Sequence[str]) -> tuple[Ids, Lengths]:
        if self._slow is not None:
            lists = [one.ids for one in self._slow.encode_batch_fast(list(texts), add_special_tokens=False)]
        else:
            lists = [self._tokenizer(text, add_special_tokens=False)["input_ids"] for text in texts]
        lengths = np.fromiter((len(ids) for ids in lists), np.int64, len(lists))
        ids = np.empty(int(lengths.sum()), np.int32)
        at = 0
        for one in lists:
            ids[at : at + len(one)] = one
            at += len(one)
        return ids, lengths

    def _encode_anchored(self, texts: Sequence[str], later: Sequence[bool]) -> tuple[Ids, Lengths]:
        joined = [self._anchor + text if on else text for text, on in zip(texts, later, strict=True)]
        ids, lengths = self._encode(joined)
        cut = np.where(np.asarray(later, bool), self._anchor_size, 0)
        starts = np.cumsum(lengths) - lengths
        place = np.arange(len(ids)) - np.repeat(starts, lengths)
        return ids[place >= np.repeat(cut, lengths)], lengths - cut

    def _find_anchor(self) -> tuple[str, int]:
        """An anchor for later pieces, or none when pieces encode alike alone and behind other text."""
        probes = ["Hello", "word", "7", "été"]
        if all(self._list("x\n" + probe) == self._list("x\n") + self._list(probe) for probe in probes):
            return "", 0
        for anchor in ("\n", "0", "."):
            size = len(self._list(anchor))
            if all(self._list(anchor + probe)[:size] == self._list(anchor) for probe in probes):
                return anchor, size
        return "", 0

    def _list(self, text: str) -> list[int]:
        if self._slow is not None:
            return list(self._slow.encode(text, add_special_tokens=False).ids)
        return list(self._tokenizer(text, add_special_tokens=False)["input_ids"])

    def _drop_fast(self, why: str) -> None:
        self._fast, self.way = None, "tokenizers"
        self._tell(
            Finding(
                "fast_tokenizer_off",
                f"The fast tokenizer is not used: {why}. Hugging Face's encodes the data, which takes longer.",
                "note",
            )
        )

    def _proven(self, model: str) -> Any:
        """The fast tokenizer when it is proven for this tokenizer, else None. The proof is kept in `proofs`."""
        try:
            import fastokens
        except ImportError:
            self._drop_fast("fastokens is not installed")
            return None
        key = hashlib.sha256(f"{fastokens.__name__}{_version('fastokens')}{model}".encode()).hexdigest()[:32]
        if key in _BUILT:
            return _BUILT[key]
        kept = self._proofs / f"{key}.json" if self._proofs is not None else None
        if kept is not None and kept.exists():
            if not json.loads(kept.read_text(encoding="utf-8"))["same"]:
                self._drop_fast("it differs from Hugging Face's for this tokenizer")
                return None
            fast, why = fastokens.Tokenizer.from_json_str(model), ""
        else:
            fast, why = _compare(model, self._slow, self._tokenizer)
        if kept is not None and not kept.exists():
            kept.parent.mkdir(parents=True, exist_ok=True)
            kept.write_text(json.dumps({"same": fast is not None, "why": why}), encoding="utf-8")
        if fast is None:
            self._drop_fast(why)
            return None
        while len(_BUILT) >= 4:
            del _BUILT[next(iter(_BUILT))]
        _BUILT[key] = fast
        return fast


def _version(package: str) -> str:
    from importlib.metadata import version

    return version(package)


def _huggingface(tokenizer: Any) -> Any:
    """The Rust backend, or a copy of it that neither cuts nor pads; None for a tokenizer written in Python."""
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is None:
        return None
    if backend.truncation is None and backend.padding is None:
        return backend
    import tokenizers

    copy = tokenizers.Tokenizer.from_str(backend.to_str())
    copy.no_truncation()
    copy.no_padding()
    return copy


def _compare(model: str, slow: Any, tokenizer: Any) -> tuple[Any, str]:
    """(the fast tokenizer, "") when it gives the same ids on the whole probe set, else (None, why not)."""
    import fastokens

    probes = probe_texts(list(tokenizer.get_added_vocab()))
    expected = slow.encode_batch_fast(probes, add_special_tokens=False)
    try:
        fast = fastokens.Tokenizer.from_json_str(model)
    except Exception as error:  # whatever it cannot load, Hugging Face's can
        return None, f"it cannot load this tokenizer ({str(error)[:120]})"
    refused = 0
    for text, one in zip(probes, expected, strict=True):
        try:
            ids, _ = _flat(fast.encode_batch_flat([text], False))
        except Exception:  # refusing is allowed: such rows go Hugging Face's way; giving other ids is not
            refused += 1
            continue
        if one.ids != ids.tolist():
            return None, f"it differs from Hugging Face's on {text[:40]!r}"
    if refused > len(probes) // 2:
        return None, f"it refuses {refused} of {len(probes)} probe texts"
    return fast, ""


def _flat(made: tuple[bytes, bytes]) -> tuple[Ids, Lengths]:
    ids = np.frombuffer(made[0], np.uint32).astype(np.int32)
    return ids, np.asarray(np.diff(np.frombuffer(made[1], np.uint64).astype(np.int64)), np.int64)


_SCRIPTS = (
    "The quick brown fox, 12,345.67 times; it's (not) \"done\"... #hash @at $5 50% a_b-c/d\\e <tag> {x: [1]}",
    "def f(x):\n    return x ** 2\n\n\tif True:\r\n\t\tpass  # tabs and CRLF",
    "Füße, naïve, façade, Ångström, Łódź, İstanbul ıI, ﬁ ligature, e\u0301 combining, Ω≈ç√∫",
    "Привет, мир! Съешь ещё этих мягких французских булок",
    "你好，世界。三座桥；最老的是石桥。繁體中文測試",
    "こんにちは、カタカナ。ﾊﾝｶｸ 안녕하세요 세계",
    "مرحبا بالعالم ١٢٣ שלום עולם हिन्दी ไทยไม่มีช่องว่าง தமிழ் ქართული ἑλληνική",
    "👩‍👩‍👧‍👦🏳️‍🌈🙂🇩🇪👍🏽 ☃️ 𝕳𝖊𝖑𝖑𝖔 𒀀 \U0010ffff",
    " " * 300 + "x" + "\n" * 40 + "\t" * 30 + "y" + "\u3000\u00a0\u2009\u200b\u200d\ufeff",
    "a" * 500 + "1" * 100 + "!" * 100 + "ab" * 200,
    "\x00\x01\x1b[0m\x7f\x85\u2028\u2029\ufffd\ue000",
    " leading", "trailing ", "  two  blanks  ", "\n\n\nlines\n\n", "", " ", "\n", "'s 't 're I'll WE'VE", "3.14159e-10",
)  # fmt: skip


def probe_texts(special: Sequence[str]) -> list[str]:
    """Texts that tell two tokenizers apart: scripts, blanks, every special token in several surroundings, random
    strings over all planes of Unicode (seeded, without surrogates: those are replaced before encoding)."""
    texts = list(_SCRIPTS)
    for token in special[:2000]:
        texts += [token, f"a{token}b", f" {token} ", f"{token}\n{token}", f"{token[:-1]} {token}{token}"]
    source = random.Random(7)
    planes = (
        (0x20, 0x7F),
        (0x20, 0x250),
        (0x370, 0x1FFF),
        (0x2000, 0x2FFF),
        (0x3000, 0xD7FF),
        (0xE000, 0x10FFFF),
    )
    for count in range(600):
        low, high = planes[count % len(planes)]
        texts.append("".join(chr(source.randint(low, high - 1)) for _ in range(source.randint(1, 40))))
    words = " ".join(_SCRIPTS[:8]).split()
    texts += [" ".join(source.choices(words, k=12)) for _ in range(200)]
    return [text.encode("utf-8", "ignore").decode("utf-8") for text in texts]
