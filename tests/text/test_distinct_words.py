"""`Words`: a sequence stored as indices into its distinct words, each of which is processed once."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from ernie.text.segment.base import Words

words_lists = st.lists(st.sampled_from(["a", "b", "river", "", "江"]), max_size=30)


@given(words_lists, st.integers(0, 30), st.integers(0, 30))
def test_words_equal_the_sequence_they_were_made_from(words, start, stop):
    made = Words.of(words)
    assert list(made) == words
    assert [made[i] for i in range(len(made))] == words
    assert made[start:stop] == words[start:stop]
    assert sorted(made.distinct) == sorted(set(words))


@given(words_lists)
def test_values_are_at_the_positions_of_their_words(words):
    made = Words.of(words)
    assert made.map(len).tolist() == [len(word) for word in words]
    assert made.look_up({"a": 7}, -1).tolist() == [7 if word == "a" else -1 for word in words]


@given(words_lists, st.data())
def test_counts_are_those_of_the_chosen_positions(words, data):
    where = data.draw(st.lists(st.booleans(), min_size=len(words), max_size=len(words)))
    chosen = [word for word, taken in zip(words, where, strict=True) if taken]
    counted = dict(Words.of(words).counts(np.array(where, dtype=bool)))
    assert counted == {word: chosen.count(word) for word in set(chosen)}


def test_a_function_is_called_once_for_each_distinct_word():
    calls = []
    Words.of(["a", "b", "a"]).map(lambda word: calls.append(word) or 0)
    assert calls == ["a", "b"]
