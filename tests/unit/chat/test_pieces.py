"""Streaming text: the pieces are the answer, no character is ever shown broken, stop texts are never shown."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.training.chat.pieces import BROKEN, Pieces, Stops
from tests.tiny import tiny_tokenizer


@pytest.fixture(scope="module")
def tokenizer():
    return tiny_tokenizer()


def said(tokenizer, ids: list[int]) -> list[str]:
    pieces = Pieces(tokenizer)
    return [*(pieces.add(one) for one in ids), pieces.rest()]


@pytest.mark.parametrize("text", ["Straße 北京 🙂👩‍👩‍👧 naïve", "a b  c\n\n  d", "ﷺ 𝔘𝔫𝔦 e\u0301"])
def test_characters_of_several_tokens_come_whole(tokenizer, text):
    parts = said(tokenizer, tokenizer(text, add_special_tokens=False)["input_ids"])
    assert "".join(parts) == text
    assert all(BROKEN not in part for part in parts)
    assert len([part for part in parts if part]) > 3  # it streams


@given(st.text(max_size=60))
def test_the_pieces_of_any_text_are_that_text(text):
    tokenizer = tiny_tokenizer()
    parts = said(tokenizer, tokenizer(text, add_special_tokens=False)["input_ids"])
    assert "".join(parts) == tokenizer.decode(
        tokenizer(text, add_special_tokens=False)["input_ids"], skip_special_tokens=True
    )
    assert BROKEN in text or all(BROKEN not in part for part in parts)


@given(st.lists(st.integers(4, 399), max_size=40))
def test_any_tokens_give_what_they_decode_to_but_for_a_character_cut_in_half(ids):
    tokenizer = tiny_tokenizer()
    whole = tokenizer.decode(ids, skip_special_tokens=True)
    assert "".join(said(tokenizer, ids)) == whole or "".join(said(tokenizer, ids)) == whole.rstrip(BROKEN)


def test_a_character_cut_off_by_the_end_is_left_out(tokenizer):
    ids = tokenizer("ok 🙂", add_special_tokens=False)["input_ids"]
    assert "".join(said(tokenizer, ids[:-1])) == "ok "


@given(
    st.text("abc", max_size=30),
    st.lists(st.text("abc", min_size=1, max_size=3), max_size=3),
    st.integers(1, 5),
)
def test_a_stop_text_cuts_where_it_first_stands_however_the_text_is_chopped(text, stops, size):
    stream = Stops(stops)
    shown = "".join([*(stream.add(text[at : at + size]) for at in range(0, len(text), size)), stream.rest()])
    places = [(text.find(stop) + len(stop), text.find(stop)) for stop in stops if stop in text]
    assert shown == (text[: min(places)[1]] if places else text)
    assert (stream.hit is not None) == bool(places)
