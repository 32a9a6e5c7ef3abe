"""The first token of each word of a text."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ernie.decode import timed_words as words
from ernie.text.wordpiece import SPECIAL_TOKENS, WordPiece


@settings(max_examples=60)
@given(st.text("ab' ", max_size=60), st.sampled_from([2, 3, 64]))
def test_first_tokens_equal_those_found_by_decoding_the_whole_text_after_each_token(text: str, again: int) -> None:
    tokenizer = WordPiece([*SPECIAL_TOKENS, "a", "b", "ab", "'", "##a", "##b"])
    ids = tokenizer.encode(text).ids.tolist()
    firsts: list[int] = []
    for n in range(len(ids)):
        count = len(tokenizer.decode(ids[: n + 1]).split())
        firsts = [*firsts[:count], *[n] * (count - len(firsts))]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(words, "AGAIN", again)
        assert words.words_of(ids, tokenizer.decode) == (tokenizer.decode(ids), firsts)


def test_the_words_of_a_long_text_are_found_in_linear_time() -> None:
    tokenizer = WordPiece([*SPECIAL_TOKENS, "a", "##b"])
    decoded = []

    def decode(ids: Sequence[int]) -> str:
        decoded.append(len(ids))
        return tokenizer.decode(ids)

    text, firsts = words.words_of(tokenizer.encode("ab " * 5000).ids.tolist(), decode)
    assert (len(text.split()), firsts) == (5000, list(range(0, 10_000, 2)))
    assert sum(decoded) < 10_000 * 200


def test_a_sound_in_which_nothing_is_recognized_has_no_words() -> None:
    assert words.timed_words([], 10, lambda tokens: "") == ("", [])
