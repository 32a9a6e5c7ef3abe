"""Incremental output of a growing token sequence: the text does not depend on how often or how far it is decoded."""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache

import pytest
import sentencepiece
from hypothesis import given, settings
from hypothesis import strategies as st

from ernie.decode.states import BatchState
from ernie.text.scripts import words_in
from ernie.text.subword import SentencePiece
from ernie.text.wordpiece import SPECIAL_TOKENS, WordPiece
from inference.incremental_text import CommittedText

TOKENIZER = WordPiece([*SPECIAL_TOKENS, "red", "blue", "don", "t", "s", "##ly", "##s", "'", ",", ".", "!", "猫", "犬"])


@dataclass(frozen=True)
class Tokens(BatchState):
    """The state of another decoder."""

    texts: tuple[str, ...]


NOTHING = Tokens(("",))
WHOLE = 10**9  # decode all tokens again


@dataclass(frozen=True, eq=False)
class Growing(CommittedText[Tokens]):
    """Streams of committed text."""

    tokens: Tokens


Decode = Callable[[Sequence[int]], str]


def pushed(state: Growing, ids: list[int], again: int, done: bool, decode: Decode) -> tuple[Growing, str]:
    state, (new,) = state.commit(NOTHING, [ids[state.past[0] :]], [done], decode, again)
    return state, new


def committed_pieces(ids: list[int], cuts: list[int], again: int, decode: Decode = TOKENIZER.decode) -> list[str]:
    state, pieces = Growing(NOTHING, ("",), (0,)), []
    for stop in sorted(cuts):
        state, new = pushed(state, ids[:stop], again, False, decode)
        pieces.append(new)
    return [*pieces, pushed(state, ids, again, True, decode)[1]]


@cache
def marking_ends() -> SentencePiece:
    """A vocabulary whose mark for a space stands at the end of a word."""
    texts, model = ["red blue don't sly, reds! 猫 犬猫"] * 50, io.BytesIO()
    options = {"vocab_size": 60, "hard_vocab_limit": False, "minloglevel": 2, "treat_whitespace_as_suffix": True}
    sentencepiece.SentencePieceTrainer.Train(sentence_iterator=iter(texts), model_writer=model, **options)
    return SentencePiece(model.getvalue())


texts_to_write = st.lists(st.sampled_from(["red", "blue", "don't", "sly,", "reds!", "猫", "犬猫"]), max_size=40)


@settings(deadline=None, max_examples=100)
@given(texts_to_write, st.lists(st.integers(0, 90), max_size=20), st.integers(8, 20))
def test_words_are_whole_where_a_vocabulary_marks_their_ends(words: list[str], cuts: list[int], again: int) -> None:
    tokenizer, text = marking_ends(), " ".join(words)
    ids = tokenizer.encode(text).ids.tolist()
    found = committed_pieces(ids, cuts, again, tokenizer.decode)
    assert "".join(found) == tokenizer.decode(ids) == text
    latin = [each for piece in found for each in words_in(piece) if each.isascii()]
    assert latin == [word for word in words if word.isascii()]


ids_of_texts = st.lists(st.integers(len(SPECIAL_TOKENS), TOKENIZER.vocab_size - 1), max_size=60)


@settings(deadline=None, max_examples=300)
@given(ids_of_texts, st.lists(st.integers(0, 60), max_size=30), st.integers(2, 9))
def test_decoding_only_the_end_again_commits_the_same_text(ids: list[int], cuts: list[int], again: int) -> None:
    pieces, of_full_decode = committed_pieces(ids, cuts, again), committed_pieces(ids, cuts, WHOLE)
    assert "".join(pieces) == "".join(of_full_decode)
    words = TOKENIZER.decode(ids).split()
    # An apostrophe after the last word may still belong to it.
    if all(len(TOKENIZER.encode(word).ids) < again for word in words):
        assert pieces == of_full_decode


def test_a_word_that_an_apostrophe_may_continue_is_held_back() -> None:
    ids = TOKENIZER.encode("red don ' t blue don ' s").ids.tolist()
    assert [new.split() for new in committed_pieces(ids, list(range(len(ids))), 8) if new] == [
        ["red"],
        ["don't"],
        ["blue"],
        ["don's"],
    ]


@given(st.integers(2, 9))
def test_an_endless_word_is_committed_early_and_not_decoded_repeatedly(again: int) -> None:
    ids, counts = [*TOKENIZER.encode("red").ids.tolist(), *[TOKENIZER.tokens.index("##ly")] * 80], []

    def decode(ids: Sequence[int]) -> str:
        counts.append(len(ids))
        return TOKENIZER.decode(ids)

    state, text = Growing(NOTHING, ("",), (0,)), ""
    for stop in range(1, len(ids)):
        state, new = pushed(state, ids[:stop], again, False, decode)
        text += new
    assert len(text) >= len(TOKENIZER.decode(ids)) - 2 * (2 * again + 1)
    assert max(counts) <= 2 * again + 1
    assert text + pushed(state, ids, again, True, decode)[1] == TOKENIZER.decode(ids)


def test_only_the_end_of_a_long_text_is_decoded_again() -> None:
    counts: list[int] = []

    def decode(ids: Sequence[int]) -> str:
        counts.append(len(ids))
        return TOKENIZER.decode(ids)

    ids = TOKENIZER.encode("red blue , red . " * 100).ids.tolist()
    state = Growing(NOTHING, ("",), (0,))
    for stop in range(1, len(ids)):
        state, _ = pushed(state, ids[:stop], 16, False, decode)
    assert max(counts) <= 2 * 16 + 1
    assert len(state.committed[0]) <= len(TOKENIZER.decode(ids[-2 * 16 - 1 :]))


@pytest.mark.parametrize("count", [5, 50])
def test_a_state_that_was_saved_or_merged_continues_the_same(count: int) -> None:
    ids = TOKENIZER.encode("red blue , red . " * 20).ids.tolist()
    state, _ = pushed(Growing(NOTHING, ("",), (0,)), ids[:count], 8, False, TOKENIZER.decode)
    _, rest = pushed(state, ids, 8, True, TOKENIZER.decode)
    fresh = Growing(NOTHING, ("",), (0,))
    for other in (Growing.from_arrays(state.arrays()), fresh.concat([state]).select([1])):
        assert pushed(other, ids, 8, True, TOKENIZER.decode)[1] == rest
