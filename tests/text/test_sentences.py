"""Sentence splitting."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ernie.text.sentences import detect_language, split_sentences


@pytest.mark.parametrize(
    "sentences",
    [
        ["It rained.", "Nobody came."],
        ["Mr. Smith met Dr. Jones at 3.5 p.m. on Jan. 5 in the garden.", "They talked."],
        ["J. R. R. Tolkien wrote it.", "It sold well."],
        ["He worked for Acme Inc. until 1990.", "Then he left."],
        ["She lived in the U.S. for years.", "It was cold."],
        ['"Why?" he asked.', '"Because."', "Nobody spoke."],
        ["Prices rose by 3.14 per cent (see Fig. 3).", "Wages did not."],
        ["Wait... What was that?", "Nothing!"],
        ["Was it true?!", "Perhaps."],
        ["He used tools, e.g. Paddle, i.e. a library.", "Fine."],
        ["See Smith et al. 2019 for more.", "Others differ."],
        ["The clause (see No. 5 of vol. 3) was struck (by Gen. Grant).", "It was long."],
        ["He lived in the U.S.", "The house was small."],
        ["“Stop!”", "The door opened."],
        ["1. First things first.", "Then came I.", "But no one saw me."],
        ["1. It is 12.", "He is 3.", "So are we."],
    ],
)
def test_english_text_is_split_into_its_sentences(sentences: list[str]) -> None:
    found = split_sentences(" ".join(sentences), "en")
    if "Wait..." in sentences[0]:  # an ellipsis before a capital ends a sentence
        sentences = ["Wait...", "What was that?", "Nothing!"]
    assert found == sentences


@pytest.mark.parametrize(
    "sentences",
    [
        ["今天下雨。", "没有人来！", "为什么？"],
        ["他说：“我来了。”", "然后走了。"],
        ["大门开了；", "他走进去……", "再没有出来。"],
        ["价格是3.5元。", "很便宜！"],
        ["“你好。”他说。", "她喊道：“快走！”", "没有人动。"],
        ["《你好！》，是一本书。", "（真的？）", "是。"],
        ["他来了。 ，然后走了。", "“好！” 》是。"],
    ],
)
def test_chinese_text_is_split_into_its_sentences(sentences: list[str]) -> None:
    assert split_sentences("".join(sentences), "zh") == sentences


@given(st.text(alphabet=st.sampled_from("ABab .!?\"')(。！？”…；中文\n1,"), max_size=60), st.sampled_from(["en", "zh"]))
def test_no_character_other_than_white_space_is_lost(text: str, language: str) -> None:
    joined = "".join(split_sentences(text, language))
    assert "".join(joined.split()) == "".join(text.split())


@given(st.text(max_size=60), st.sampled_from(["en", "zh"]))
def test_no_sentence_is_empty(text: str, language: str) -> None:
    assert all(sentence.strip() == sentence != "" for sentence in split_sentences(text, language))


def test_the_language_is_detected_from_the_characters() -> None:
    assert detect_language("今天天气很好, OK") == "zh"
    assert detect_language("The word 中文 means Chinese, and that is all there is to say.") == "en"
    assert detect_language("") == "en"
    assert detect_language("\U00020000\U0002a6d6 rare") == "zh"  # from later Unicode blocks


def test_a_list_number_may_follow_leading_white_space() -> None:
    assert split_sentences(" \u3000 1. It is 12. We are 3.", "en") == ["1. It is 12.", "We are 3."]


def test_a_long_text_with_many_numbers_takes_linear_time() -> None:
    text = "He is 12. " * 100_000  # quadratic time would be far longer
    assert split_sentences(text, "en") == ["He is 12."] * 100_000


def test_a_long_run_of_punctuation_takes_linear_time() -> None:
    text = "Title " + "." * 200_000 + "12 " + "。" * 200_000 + "x"  # quadratic time would be many minutes
    for language in ("en", "zh"):
        assert "".join(split_sentences(text, language)).replace(" ", "") == text.replace(" ", "")
