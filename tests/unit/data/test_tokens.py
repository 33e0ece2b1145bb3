"""Token ids: the fast way only where it is proven to give the same ones."""

from __future__ import annotations

import numpy as np
import pytest

from data import tokens
from data.tokens import LAZY, Encoder, probe_texts
from tests.tiny import tiny_tokenizer


@pytest.fixture(autouse=True)
def nothing_built_yet(monkeypatch):
    monkeypatch.setattr(tokens, "_BUILT", {})


TEXTS = [f"Number {n} is a number. <|im_start|>é🙂" for n in range(LAZY + 50)]


def plain(tokenizer, texts):
    return [tokenizer(text, add_special_tokens=False).input_ids for text in texts]


def split(made):
    ids, lengths = made
    return [part.tolist() for part in np.split(ids, np.cumsum(lengths)[:-1])]


def test_ids_are_the_tokenizers_own_whichever_way(tmp_path):
    tokenizer, told = tiny_tokenizer(), []
    encoder = Encoder(tokenizer, told.append, tmp_path)
    assert split(encoder.encode(TEXTS)) == plain(tokenizer, TEXTS)
    assert encoder.way == "fastokens" and not told
    probes = probe_texts(list(tokenizer.get_added_vocab()))
    assert split(encoder.encode(probes)) == plain(tokenizer, probes)


def test_few_texts_never_build_the_fast_way(tmp_path):
    encoder = Encoder(tiny_tokenizer(), lambda finding: None, tmp_path)
    encoder.encode(TEXTS[:10])
    assert encoder.way == "tokenizers" and not list(tmp_path.iterdir())


def test_a_proof_is_kept_and_a_failed_one_too(tmp_path, monkeypatch):
    told = []
    Encoder(tiny_tokenizer(), told.append, tmp_path).encode(TEXTS)
    assert len(list(tmp_path.iterdir())) == 1
    monkeypatch.setattr(tokens, "_compare", lambda *_: pytest.fail("proven already"))
    tokens._BUILT.clear()
    Encoder(tiny_tokenizer(), told.append, tmp_path).encode(TEXTS)
    tokens._BUILT.clear()
    next(tmp_path.iterdir()).write_text('{"same": false, "why": "x"}')
    encoder = Encoder(tiny_tokenizer(), told.append, tmp_path)
    encoder.encode(TEXTS)
    assert encoder.way == "tokenizers" and [one.code for one in told] == ["fast_tokenizer_off"]


class Liar:
    """A fast tokenizer that is wrong about one word, or refuses it."""

    def __init__(self, real, word, refuses):
        self.real, self.word, self.refuses = real, word, refuses

    def encode_batch_flat(self, texts, special):
        if self.refuses and any(self.word in text for text in texts):
            raise ValueError("no token for it")
        return self.real.encode_batch_flat([text.replace(self.word, "?") for text in texts], special)


@pytest.mark.parametrize("refuses", [False, True])
def test_a_difference_on_the_data_falls_back_and_a_refusal_only_for_its_rows(tmp_path, monkeypatch, refuses):
    import fastokens

    class Tokenizer:
        @staticmethod
        def from_json_str(model):
            return Liar(real.from_json_str(model), "zebra", refuses)

    real = fastokens.Tokenizer
    monkeypatch.setattr(fastokens, "Tokenizer", Tokenizer)
    tokenizer, told = tiny_tokenizer(), []
    texts = ["zebra", *TEXTS, "another zebra"]
    encoder = Encoder(tokenizer, told.append, tmp_path)
    assert split(encoder.encode(texts)) == plain(tokenizer, texts)
    assert [one.code for one in told] == ["fast_tokenizer_batch" if refuses else "fast_tokenizer_off"]
    assert encoder.way == ("fastokens" if refuses else "tokenizers")


def sentencepiece_like():
    """A tokenizer that puts a blank before every text, as Llama 2's does."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    letters = "▁\nabcdefghijklmnopqrstuvwxyzHW0123456789.:é</s>"
    vocab = {letter: n for n, letter in enumerate(dict.fromkeys(letters))}
    for word in ("▁an", "▁H", "an", "▁w", "<unk>", "</s>"):
        vocab.setdefault(word, len(vocab))
    merges = [("▁", "a"), ("▁a", "n"), ("▁", "H"), ("a", "n"), ("▁", "w")]
    vocab.setdefault("▁a", len(vocab))
    backend = Tokenizer(models.BPE(vocab=vocab, merges=merges, unk_token="<unk>"))
    backend.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="always", split=False)
    backend.decoder = decoders.Metaspace()
    return PreTrainedTokenizerFast(tokenizer_object=backend, eos_token="</s>", unk_token="<unk>")


def test_a_later_piece_gets_no_blank_that_is_not_in_the_text():
    tokenizer = sentencepiece_like()
    encoder = Encoder(tokenizer, lambda finding: None)
    pieces = split(encoder.encode(["Hi:", "an answer", " an"], [False, True, True]))
    assert tokenizer.convert_ids_to_tokens(pieces[0])[0].startswith("▁")
    assert tokenizer.convert_ids_to_tokens(pieces[1])[0] == "an"
    assert tokenizer.convert_ids_to_tokens(pieces[2]) == ["▁an"]
    assert tokenizer("Hi:an answer").input_ids == pieces[0] + pieces[1]


def test_truncation_and_padding_of_a_saved_tokenizer_are_switched_off():
    tokenizer = tiny_tokenizer()
    tokenizer.backend_tokenizer.enable_truncation(3)
    tokenizer.backend_tokenizer.enable_padding(length=8)
    ids, lengths = Encoder(tokenizer, lambda finding: None).encode(["a long text with many words", "b"])
    assert lengths.tolist()[0] > 3 and lengths.tolist()[1] == 1
