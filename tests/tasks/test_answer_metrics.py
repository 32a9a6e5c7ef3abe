"""Exact match and F1 for question answering, worked out by hand from the definitions of SQuAD and CMRC 2018."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.downstream.answer_metrics import cmrc_exact, cmrc_f1, cmrc_units, squad_exact, squad_f1, squad_words
from tasks.downstream.base import Metric


class TestSquad:
    @pytest.mark.parametrize(
        ("right", "given"),
        [
            ("the Eiffel Tower", "Eiffel tower"),  # articles, case
            ("A cat and an owl", "cat and owl"),
            ("U.S.", "us"),  # punctuation is removed without leaving a gap
            ("mother-in-law", "motherinlaw"),
            ("  two \t words\n", "two words"),
            ("'1999'", "1999"),
        ],
    )
    def test_case_articles_punctuation_and_spaces_are_ignored(self, right: str, given: str) -> None:
        assert squad_exact([[right]], [given]) == 1
        assert squad_f1([[right]], [given]) == 1

    @pytest.mark.parametrize(("right", "given"), [("theatre", "atre"), ("Anna", "nna"), ("two-one", "two one")])
    def test_only_whole_word_articles_are_removed_and_punctuation_is_not_a_space(self, right: str, given: str) -> None:
        assert squad_exact([[right]], [given]) == 0

    def test_f1_counts_shared_words_with_multiplicity(self) -> None:
        # Shared: very, very, big.  The reference has 3 words, the prediction 5.
        assert squad_f1([["very very big"]], ["a very big very odd very"]) == pytest.approx(2 * 3 / (3 + 5))
        assert squad_f1([["one two"]], ["two one"]) == 1  # in any order
        assert squad_f1([["one"]], ["two"]) == 0

    def test_of_several_references_the_best_match_counts(self) -> None:
        right = [["in the year 1999", "1999", "year"]]
        assert squad_exact(right, ["1999"]) == 1
        # Against "in year 1999" 2*2 / (3 + 2), against "1999" 2*1 / (1 + 2), against "year" the same.
        assert squad_f1(right, ["year 1999"]) == pytest.approx(4 / 5)

    def test_the_right_prediction_for_an_unanswerable_question_is_empty(self) -> None:
        assert squad_exact([[], []], ["", "something"]) == 1 / 2
        assert squad_f1([[], []], ["", "something"]) == 1 / 2
        assert squad_f1([["something"]], [""]) == squad_exact([["something"]], [""]) == 0

    @pytest.mark.parametrize("measure", [squad_exact, squad_f1])
    def test_a_reference_that_normalizes_to_nothing_does_not_make_an_empty_answer_right(self, measure: Metric) -> None:
        assert measure([["the", "cat"]], [""]) == 0
        assert measure([["the", "cat"]], ["cat"]) == 1
        assert measure([["a", "..."]], [""]) == measure([["", "cat"]], ["cat"]) == 1  # none of them is left

    def test_the_score_is_the_mean_over_questions(self) -> None:
        assert squad_exact([["one"], ["two"], ["three"]], ["one", "x", "y"]) == pytest.approx(1 / 3)

    def test_normalized_words(self) -> None:
        assert squad_words("The U.S.A.'s  an-them: “a” song") == ["usas", "anthem", "“", "”", "song"]


class TestCmrc:
    @pytest.mark.parametrize("measure", [cmrc_exact, cmrc_f1])
    def test_a_reference_of_marks_does_not_make_an_empty_answer_right(self, measure: Metric) -> None:
        assert measure([["。", "猫"]], [""]) == 0
        assert measure([["。", "猫"]], ["猫"]) == 1

    @pytest.mark.parametrize(
        ("right", "given"),
        [("《红楼梦》", "红楼梦"), ("1999年，夏天。", "1999年夏天"), ("ERNIE模型", "ernie模型"), ("（北京）", "北京")],
    )
    def test_case_and_most_punctuation_are_ignored(self, right: str, given: str) -> None:
        assert cmrc_exact([[right]], [given]) == 1
        assert cmrc_f1([[right]], [given]) == 1

    def test_punctuation_that_the_official_script_keeps_matters(self) -> None:
        assert cmrc_exact([["北京…"]], ["北京"]) == 0
        assert cmrc_exact([["北 京"]], ["北京"]) == 0
        assert cmrc_f1([["北 京"]], ["北京"]) == 1  # Chinese characters are units with or without spaces

    def test_the_empty_answer_is_right_where_there_is_none(self) -> None:
        assert cmrc_exact([[]], [""]) == cmrc_f1([[]], [""]) == 1
        assert cmrc_f1([[]], ["北京"]) == cmrc_f1([["北京"]], [""]) == 0

    def test_f1_uses_the_longest_common_substring(self) -> None:
        # 天安门 is common; the reference has 5 characters, the prediction 4.
        assert cmrc_f1([["北京天安门"]], ["天安门前"]) == pytest.approx(2 * 3 / (5 + 4))
        # 北京 and 门 are shared, but not contiguous: 2 of 5 and 4.
        assert cmrc_f1([["北京天安门"]], ["北京的门"]) == pytest.approx(2 * 2 / (5 + 4))
        assert cmrc_f1([["北京"]], ["上海"]) == 0

    def test_words_of_other_scripts_and_numbers_are_single_units(self) -> None:
        assert cmrc_units("在2018年用BERT base模型") == ["在", "2018", "年", "用", "bert", "base", "模", "型"]
        assert cmrc_units("涨了3.5%") == ["涨", "了", "3.5", "%"]
        # Shared: 用 bert.  The reference has 3 units, the prediction 2.
        assert cmrc_f1([["用BERT做"]], ["用bert"]) == pytest.approx(2 * 2 / (3 + 2))

    def test_of_several_references_the_best_match_counts(self) -> None:
        assert cmrc_f1([["北京市", "北京"]], ["北京"]) == 1
        assert cmrc_exact([["北京市", "北京"]], ["北京"]) == 1


@given(st.text(alphabet="ab the北京1.,。 ", max_size=12), st.text(alphabet="ab the北京1.,。 ", max_size=12))
def test_an_exact_match_has_f1_1_and_f1_is_symmetric(first: str, second: str) -> None:
    for exact, f1, units in ((squad_exact, squad_f1, squad_words), (cmrc_exact, cmrc_f1, cmrc_units)):
        assert 0 <= f1([[first]], [second]) <= 1
        assert f1([[first]], [second]) == f1([[second]], [first])
        if exact([[first]], [second]) and units(first):
            assert f1([[first]], [second]) == 1
