"""Growing text is cut into sentences, and into parts where a sentence is too long to be said at once."""

from __future__ import annotations

import re
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ernie.text.utterances import complete_utterances, utterances


def any_length(text: str) -> bool:
    return True


def up_to_20_characters(text: str) -> bool:
    return len(text) <= 20


def test_a_full_stop_inside_a_sentence_does_not_end_it() -> None:
    sentence = "It costs 3.5 dollars, says Dr. Smith."
    growing = f"{sentence} The"
    assert complete_utterances("", growing, any_length) == ([], growing)  # the next word may be incomplete
    assert complete_utterances("", f"{sentence} Then he", any_length) == ([sentence], "Then he")


def test_text_without_capital_letters_has_sentences_too() -> None:
    text = "red . blue . is it? yes! it costs 3.5 dollars, says dr. smith. he pays"
    found, rest = complete_utterances("", f"{text} all", any_length)
    assert found == ["red .", "blue .", "is it?", "yes!", "it costs 3.5 dollars, says dr. smith."]
    assert rest == "he pays all"
    assert utterances(text, any_length) == [*found, "he pays"]


def test_a_small_letter_after_a_mark_continues_a_sentence_that_has_capitals() -> None:
    assert utterances("Did he? asked Anna. No.", any_length) == ["Did he? asked Anna.", "No."]


def test_japanese_sentences_end_at_their_marks() -> None:
    assert utterances("これはペンです。あれはりんごです。", any_length) == ["これはペンです。", "あれはりんごです。"]


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("one two, three four five six", ["one two,", "three four five six"]),  # rather after a mark than later
        ("one two three four five six", ["one two three four", "five six"]),
        ("abcdefghijklmnopqrstuvwxyz", ["abcdefghijklmnopqrst", "uvwxyz"]),
    ],
)
def test_what_is_too_long_is_cut_at_the_best_break(text: str, parts: list[str]) -> None:
    assert utterances(text, up_to_20_characters) == parts


def test_text_that_no_sentence_ends_in_does_not_wait_for_one() -> None:
    found, rest = complete_utterances("", "and so it goes on " * 20, up_to_20_characters)
    assert len(found) > 15
    assert len(rest) <= 20 + 16  # measured every 16 characters


@pytest.mark.parametrize("nothing", [" ", "\u200b", "\N{SOFT HYPHEN}\t"])
def test_text_without_visible_characters_does_not_grow(nothing: str) -> None:
    found, rest = complete_utterances("", nothing * 100, any_length)
    assert (found, len(rest) < 16) == ([], True)
    assert complete_utterances(rest, "Red. Green red", any_length)[0][0].endswith("Red.")


def test_what_fits_nowhere_is_left_whole() -> None:
    assert utterances("some words", lambda text: False) == ["some words"]


FRAGMENTS = [
    "How many? ",
    "12. ",
    "He left at once. ",
    "\n",
    "Mr. Smith ",
    "你好世界，你好。",
    "再见世界。",
    "e.g. this ",
    "... ",
    "Why not?!",
    "no one, ",
    "word",
]


@given(
    st.lists(st.sampled_from(FRAGMENTS), min_size=1, max_size=12).map("".join),
    st.sampled_from([any_length, up_to_20_characters]),
    st.data(),
)
@settings(max_examples=300, deadline=None)
def test_utterances_do_not_depend_on_how_the_text_is_split_into_pieces(
    text: str, fits: object, data: st.DataObject
) -> None:
    at_once, rest = complete_utterances("", text, fits)  # type: ignore[arg-type]
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=6)))
    found, pending = [], ""
    for piece in (text[i:j] for i, j in pairwise([0, *cuts, len(text)])):
        more, pending = complete_utterances(pending, piece, fits)  # type: ignore[arg-type]
        found += more
    assert (found, pending) == (at_once, rest)
    assert re.sub(r"\s", "", "".join([*found, pending])) == re.sub(r"\s", "", text)
    if fits is up_to_20_characters:
        assert all(len(part) <= 20 for part in found)
