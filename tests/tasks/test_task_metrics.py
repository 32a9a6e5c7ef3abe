"""Every measure against cases worked out by hand, with the arithmetic alongside."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from itertools import pairwise, permutations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.fft import dct

from ernie.audio.features import FeatureConfig, features
from ernie.audio.wave import Wave
from ernie.data.labeled.row import Row
from ernie.errors import UserError
from tasks.downstream import metrics
from tasks.downstream.metrics import (
    accuracy,
    cer,
    cosine_spearman,
    deletions,
    entity_f1,
    entity_precision,
    entity_recall,
    entity_scores,
    exact_sets,
    f1,
    insertions,
    label_scores,
    macro_f1,
    matthews,
    mcd,
    mean_average_precision,
    mean_reciprocal_rank,
    mean_squared_error,
    partner_recall,
    partner_reciprocal_rank,
    pearson,
    ranked_accuracy,
    ranked_f1,
    set_macro_f1,
    set_micro_f1,
    spearman,
    substitutions,
    tag_accuracy,
    tag_scores,
    wer,
)
from tasks.downstream.scoring import score_answers
from tasks.downstream.tag import Tag

RIGHT, GIVEN = [1, 1, 1, 0, 0, 0, 0, 0], [1, 1, 0, 1, 0, 0, 0, 0]
# Class 1: 2 true positives, 1 false negative, 1 false positive; class 0: 4, 1, 1.


def sets(*rows: str) -> list[np.ndarray]:
    """Rows such as "ab" as multi-hot vectors over the labels a, b, c."""
    return [np.array([int(label in row) for label in "abc"]) for row in rows]


class TestClassification:
    def test_accuracy_is_the_share_of_correct_predictions(self) -> None:
        assert accuracy(RIGHT, GIVEN) == 6 / 8

    def test_f1_is_computed_for_class_1(self) -> None:
        # Precision 2/3, recall 2/3.
        assert f1(RIGHT, GIVEN) == pytest.approx(2 / 3)
        assert f1([1 - a for a in RIGHT], [1 - a for a in GIVEN]) == pytest.approx(4 / 5)

    def test_macro_f1_is_the_unweighted_mean_over_classes(self) -> None:
        assert macro_f1(RIGHT, GIVEN) == pytest.approx((2 / 3 + 4 / 5) / 2)
        # Class 2 is never predicted: 0; class 0: 2*2 / (2 + 3); class 1: 1.
        assert macro_f1([0, 0, 1, 2], [0, 0, 1, 0]) == pytest.approx((4 / 5 + 1 + 0) / 3)

    def test_macro_f1_ignores_classes_in_neither_targets_nor_predictions(self) -> None:
        assert macro_f1([0, 2, 2], [0, 2, 2]) == 1

    def test_each_label_has_its_own_precision_recall_and_f1(self) -> None:
        assert label_scores(RIGHT, GIVEN, ("no", "yes", "never")) == {
            "no": {"precision": 4 / 5, "recall": 4 / 5, "f1": pytest.approx(4 / 5), "targets": 5},
            "yes": {"precision": 2 / 3, "recall": 2 / 3, "f1": pytest.approx(2 / 3), "targets": 3},
            "never": {"precision": 0, "recall": 0, "f1": 0, "targets": 0},
        }

    def test_matthews_is_the_correlation_of_the_confusion_matrix(self) -> None:
        # (2*4 - 1*1) / sqrt(3 * 3 * 5 * 5)
        assert matthews(RIGHT, GIVEN) == pytest.approx(7 / 15)
        assert matthews([0, 1, 0, 1], [1, 0, 1, 0]) == pytest.approx(-1)

    @pytest.mark.parametrize("predicted", [0, 1])
    def test_constant_predictions_have_no_correlation_and_no_warning(self, predicted: int) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert matthews(RIGHT, [predicted] * 8) == 0
            # All 1: precision 3/8, recall 1, so 2*3 / (3 + 8).
            assert f1(RIGHT, [predicted] * 8) == pytest.approx(6 / 11 if predicted else 0)
            # All 0: F1 of class 0 is 2*5 / (5 + 8).
            assert macro_f1(RIGHT, [predicted] * 8) == pytest.approx((6 / 11 if predicted else 10 / 13) / 2)


class TestRegression:
    def test_pearson_is_the_covariance_over_both_standard_deviations(self) -> None:
        # Deviations -1 0 1 and -2 1 1: 3 / sqrt(2 * 6).
        assert pearson([1, 2, 3], [0, 3, 3]) == pytest.approx(3 / 12**0.5)

    def test_spearman_uses_ranks_only_and_averages_ties(self) -> None:
        assert spearman([1, 2, 3, 4], [0.1, 0.2, 0.3, 900]) == pytest.approx(1)
        # Ranks 1 2 3 and 1 2.5 2.5: deviations -1 0 1 and -1 .5 .5, 1.5 / sqrt(2 * 1.5).
        assert spearman([1, 2, 3], [0, 7, 7]) == pytest.approx(1.5 / 3**0.5)

    def test_mean_squared_error_is_in_squared_units_of_the_data(self) -> None:
        assert mean_squared_error([1, 2, 3], [1, 4, 0]) == pytest.approx((0 + 4 + 9) / 3)

    @pytest.mark.parametrize(("right", "given"), [([1, 2, 3], [2, 2, 2]), ([2, 2, 2], [1, 2, 3]), ([1], [1])])
    def test_correlation_with_a_constant_is_zero_without_a_warning(
        self, right: list[float], given: list[float]
    ) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert pearson(right, given) == spearman(right, given) == 0


class TestSetsOfLabels:
    right, given = sets("ab", "a", "", "c"), sets("a", "ab", "", "")
    # a: 2 true positives.  b: 1 false negative, 1 false positive.  c: 1 false negative.

    def test_micro_f1_counts_all_labels_together(self) -> None:
        # 2 true positives, 4 targets, 3 predictions.
        assert set_micro_f1(self.right, self.given) == pytest.approx(2 * 2 / (4 + 3))

    def test_macro_f1_is_the_mean_over_labels(self) -> None:
        assert set_macro_f1(self.right, self.given) == pytest.approx((1 + 0 + 0) / 3)

    def test_exact_is_the_share_of_rows_without_errors(self) -> None:
        assert exact_sets(self.right, self.given) == 1 / 4  # the row without labels

    def test_no_predictions_score_zero_without_a_warning(self) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert set_micro_f1(self.right, sets("", "", "", "")) == 0
            assert set_macro_f1(self.right, sets("", "", "", "")) == 0


class TestEntities:
    right = ("B-PER I-PER O B-LOC".split(), "O B-ORG O".split())
    # The person is right, the location has another type, the organization is a word too long, one is spurious.
    given = ("B-PER I-PER O B-ORG".split(), "B-LOC B-ORG I-ORG".split())

    def test_type_and_first_and_last_word_must_match(self) -> None:
        assert entity_precision(self.right, self.given) == pytest.approx(1 / 4)
        assert entity_recall(self.right, self.given) == pytest.approx(1 / 3)
        assert entity_f1(self.right, self.given) == pytest.approx(2 / (4 + 3))

    def test_each_type_and_each_tag_has_its_own_scores(self) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            types = entity_scores(self.right, self.given)
        assert list(types) == ["LOC", "ORG", "PER"]
        assert types["PER"] == {"precision": 1, "recall": 1, "f1": 1, "targets": 1}
        assert types["LOC"] == types["ORG"] == {"precision": 0, "recall": 0, "f1": 0, "targets": 1}
        tags = tag_scores(self.right, self.given)
        assert tags["B-ORG"] == {"precision": 1 / 2, "recall": 1, "f1": pytest.approx(2 / 3), "targets": 1}
        assert tags["I-ORG"]["targets"] == 0
        assert entity_scores([["O"]], [["O"]]) == tag_scores([[]], [[]]) == {}

    def test_two_adjacent_entities_are_not_one(self) -> None:
        assert entity_f1(["B-PER B-PER".split()], ["B-PER I-PER".split()]) == 0

    def test_no_entities_on_one_side_score_zero_without_a_warning(self) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert entity_f1(self.right, ["O O O O".split(), "O O O".split()]) == 0
            assert entity_f1([["O"]], [["B-PER"]]) == 0
            assert entity_f1([["O"]], [["O"]]) == 0

    def test_accuracy_counts_words_not_rows(self) -> None:
        assert tag_accuracy(self.right, self.given) == pytest.approx(4 / 7)
        assert tag_accuracy([[]], [[]]) == 0

    def test_bio_and_iob1_of_the_same_entities_have_the_same_scores(self) -> None:
        task = Tag(labels=("B-LOC", "B-PER", "I-LOC", "I-PER", "O"))
        bio = "B-PER I-PER O B-LOC B-LOC I-LOC B-PER".split()
        iob1 = "I-PER I-PER O I-LOC B-LOC I-LOC I-PER".split()
        answer = {"tags": "B-PER O O B-LOC B-LOC I-LOC B-PER".split()}
        scores = [score_answers(task, [Row({"tag": tags})], [answer]) for tags in (bio, iob1)]
        assert scores[0] == scores[1]
        assert scores[0]["f1"] == pytest.approx(3 / 4)  # the first person is truncated, the other three are right


def _descending(scores: Sequence[int], order: Sequence[int]) -> bool:
    return all(scores[a] >= scores[b] for a, b in pairwise(order))


class TestRanking:
    right = (("a", 0), ("a", 1), ("a", 1), ("b", 1), ("b", 0), ("c", 0), ("c", 0))
    scores = (0.9, 0.8, 0.1, 0.3, 0.2, 0.7, 0.6)
    # Relevant texts rank 2 and 3 for a, 1 for b; c has none.

    def test_mrr_is_the_mean_reciprocal_of_the_first_relevant_rank(self) -> None:
        assert mean_reciprocal_rank(self.right, self.scores) == pytest.approx((1 / 2 + 1) / 2)

    def test_map_is_the_mean_precision_at_the_relevant_ranks(self) -> None:
        assert mean_average_precision(self.right, self.scores) == pytest.approx(((1 / 2 + 2 / 3) / 2 + 1) / 2)

    def test_with_equal_scores_the_order_of_the_rows_does_not_matter(self) -> None:
        for grades in set(permutations((1, 0, 0))):
            right = [("a", grade) for grade in grades]
            assert mean_reciprocal_rank(right, [0.5] * 3) == pytest.approx((1 + 1 / 2 + 1 / 3) / 3)
            assert mean_average_precision(right, [0.5] * 3) == pytest.approx((1 + 1 / 2 + 1 / 3) / 3)

    @given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 1)), min_size=1, max_size=6))
    def test_ties_score_the_mean_over_all_orders_that_sort_the_scores(self, texts) -> None:
        right, scores = [("a", grade) for _, grade in texts], [score for score, _ in texts]
        orders = [[right[i] for i in order] for order in permutations(range(len(texts))) if _descending(scores, order)]
        distinct = [float(-place) for place in range(len(texts))]
        for measure in (mean_reciprocal_rank, mean_average_precision):
            assert measure(right, scores) == pytest.approx(np.mean([measure(order, distinct) for order in orders]))

    def test_rows_of_a_query_need_not_be_adjacent(self) -> None:
        order = [5, 0, 3, 1, 6, 4, 2]
        right, scores = [self.right[i] for i in order], [self.scores[i] for i in order]
        assert mean_average_precision(right, scores) == mean_average_precision(self.right, self.scores)

    def test_queries_without_a_relevant_text_are_ignored(self) -> None:
        assert mean_reciprocal_rank([("c", 0)], [0.7]) == mean_average_precision([("c", 0)], [0.7]) == 0

    def test_a_score_of_one_half_counts_as_relevant(self) -> None:
        # Predicted relevant: 0.8 and 0.5, which are, and 0.9, which is not.
        right, scores = [("a", 0), ("a", 1), ("a", 1), ("a", 1)], [0.9, 0.8, 0.5, 0.499]
        assert ranked_accuracy(right, scores) == 2 / 4
        assert ranked_f1(right, scores) == pytest.approx(2 * 2 / (3 + 3))


class TestTranscription:
    def test_word_error_rate_is_edits_per_reference_word(self) -> None:
        # A substitution and a deletion in four words, an insertion in one: three errors in five words.
        assert wer(["a b c d", "e"], ["a x c", "e f"]) == pytest.approx(3 / 5)
        assert wer(["a b"], ["a b"]) == 0

    def test_the_word_error_rate_has_three_parts(self) -> None:
        said, written = ["a b c d", "e", "", "你好吗"], ["a x c", "E f", "g", "你好 嘛"]
        assert [measure(said, written) for measure in (substitutions, deletions, insertions)] == [2 / 8, 1 / 8, 2 / 8]
        assert wer(said, written) == 5 / 8
        assert (
            deletions(["well, now"], ["now"]) == 2 / 3 and deletions(["well, now"], ["now"], punctuation=False) == 1 / 2
        )
        for measure in (substitutions, deletions, insertions):
            assert measure(["a b"], ["a b"]) == 0
            with pytest.raises(UserError, match="every transcript is empty"):
                measure(["", ""], ["a", "b"])

    def test_case_is_ignored(self) -> None:
        assert wer(["MR SMITH"], ["mr Smith"]) == cer(["Ab"], ["aB"]) == 0

    def test_word_error_rate_may_exceed_one(self) -> None:
        assert wer(["a"], ["b c d"]) == pytest.approx(3)

    @pytest.mark.parametrize(
        ("said", "written"),
        [
            ("yes ma'am", "yes ma ' am"),
            ("twenty-one", "twenty - one"),
            ("the dogs' well", "the dogs ' well"),
            ("aujourd'hui, l'eau qu'il a", "aujourd ' hui , l ' eau qu ' il a"),
            ("in the u.s. it is", "in the u. s. it is"),
            ("Well, (maybe) 'so'!", "well, ( maybe ) ' so '!"),
            ("你好，世界", "你 好 ， 世 界"),
            ("10,000.50 at 12:30", "10, 000. 50 at 12 : 30"),
            ("and/or a_b at example.com", "and / or a _ b at example. com"),
            ("हिन्दी, दी", "हिन्दी , दी"),
        ],
    )
    def test_spacing_by_the_tokenizer_is_not_an_error(self, said: str, written: str) -> None:
        assert wer([said], [written]) == cer([said], [written]) == 0

    def test_characters_of_scripts_without_spaces_and_punctuation_marks_count_as_words(self) -> None:
        assert wer(["你好世界"], ["你 们 世 界"]) == pytest.approx(1 / 4)
        assert cer(["你好世界"], ["你 们 世 界"]) == pytest.approx(1 / 4)
        assert wer(["well, now"], ["well now"]) == pytest.approx(1 / 3)
        assert wer(["don't go"], ["dont go"]) == pytest.approx(1 / 2)

    def test_separate_words_stay_separate_beside_marks(self) -> None:
        assert wer(["the boys' toys are here"], ["the boys toys are here"]) == pytest.approx(1 / 6)  # a mark is missing
        assert wer(["plan a. i went home"], ["plan b. i went home"]) == pytest.approx(1 / 5)
        assert wer(["yes - no"], ["yes no"]) == wer(["twenty-one"], ["twenty one"]) == 0  # inaudible
        assert wer(["yes - no"], ["yes yes"]) == pytest.approx(1 / 2)
        assert wer(["it's the boy's"], ["it is the boy's"]) == pytest.approx(2 / 3)

    @pytest.mark.parametrize(
        ("said", "written", "expected"),
        [
            ("rock 'n' roll", "rock n roll", 1 / 3),
            ("rock n roll", "rock ’n’ roll", 1 / 3),
            ("a 'nice' day", "a nice day", 1 / 3),
            ('a "nice" day', "a nice day", 1 / 3),
            ("we said “go away” now", "we said go away now", 2 / 5),
            ("rock 'n' roll", "rock ' n ' roll", 0),
            ("a 'nice' day", "a ' nice ' day", 0),
            ('the "big red" bus', "the “ big red ” bus", 0),
            ("that's 'nice'", "that ' s ' nice '", 0),
            ("it isn’t", "it isn't", 0),
        ],
    )
    def test_quotation_marks_belong_to_the_words_they_enclose(self, said: str, written: str, expected: float) -> None:
        assert wer([said], [written]) == pytest.approx(expected)

    def test_punctuation_can_be_ignored_and_case_can_count(self) -> None:
        said, written = "Well, 'so' it's a (twenty-one) rock 'n' roll.", "well so it's a twenty one rock n roll"
        assert wer([said], [written], punctuation=False) == cer([said], [written], punctuation=False) == 0
        assert (
            wer(["你好，世界。"], ["你好世界"], punctuation=False)
            == cer(["你好，世界。"], ["你好世界"], punctuation=False)
            == 0
        )
        assert wer(["日本「の」夏。"], ["日本の冬"], punctuation=False) == pytest.approx(1 / 4)
        assert wer(["five $ and 3 %"], ["five and 3"], punctuation=False) == pytest.approx(2 / 5)  # both are spoken
        assert wer(["♪ la ♪ 😀👍🏻 👨\u200d👩\u200d👧 ☺\ufe0f"], ["la"], punctuation=False) == 0
        assert wer(["5 °C or €5"], ["5 C or 5"], punctuation=False) == pytest.approx(2 / 6)
        assert wer(["it's"], ["its"], punctuation=False) == 1  # the apostrophe is part of the word
        assert wer(["Mr Smith"], ["mr Smith"], case=True) == pytest.approx(1 / 2)
        assert cer(["Ab"], ["ab"], case=True) == pytest.approx(1 / 2)

    @pytest.mark.parametrize(
        ("said", "written"),
        [
            ("1,000 cats", "1000 cats"),
            ("it is 1,000,000.", "it is 1 , 000 , 000"),
            ("$10,000.50", "$ 10000 . 50"),
            ("第1,000名", "第1000名"),
            ("1'000 francs", "1000 francs"),
            ("1, 2, 3 and 10:30", "1 2 3 and 10 30"),
            ("in 1999, 2000", "in 1999 2000"),
            ("the '90s, at 5 o’clock", "the 90s at 5 o'clock"),
            ("twenty\u2010one e\u2011mails", "twenty-one e mails"),
            ("3.5 percent.", "3. 5 percent"),
        ],
    )
    def test_a_comma_inside_a_number_belongs_to_it_where_punctuation_is_ignored(self, said: str, written: str) -> None:
        assert wer([said], [written], punctuation=False) == cer([said], [written], punctuation=False) == 0

    @pytest.mark.parametrize(
        ("said", "written"),
        [
            ("In 1999. 30 people came.", "in 1999. 30 people came"),  # as a vocabulary spaces marks
            ("In 1999. 30 people came.", "in 1999 30 people came"),
            ("rooms 1, 200, 300", "rooms 1, 200, 300"),
            ("rooms 1, 200, 300", "rooms 1 200 300"),
            ("on 3. 5. 2024", "on 3 5 2024"),
        ],
    )
    def test_marks_between_two_numbers_belong_to_neither(self, said: str, written: str) -> None:
        assert wer([said], [written], punctuation=False) == cer([said], [written], punctuation=False) == 0

    def test_wide_letters_and_digits_are_the_same_as_narrow_ones(self) -> None:
        said, written = "共１，０００元，ＯＫ！ｶﾞｽ", "共1,000元,OK!ガス"
        for options in ({}, {"punctuation": False}, {"case": True}):
            assert wer([said], [written], **options) == cer([said], [written], **options) == 0
        assert wer(["ＯＫ吗"], ["NO吗"]) == pytest.approx(1 / 2)

    def test_a_decimal_point_is_spoken(self) -> None:
        for punctuation in (False, True):
            assert wer(["3.5 percent"], ["3 5 percent"], punctuation=punctuation) == pytest.approx(1 / 4)
        assert wer(["1,000"], ["1000"]) == 1  # where marks count, the comma is a word
        assert wer(["dont go"], ["don't go"], punctuation=False) == pytest.approx(1 / 2)

    def test_words_where_nothing_is_said_are_insertions_and_silence_deletes_all(self) -> None:
        assert wer(["", "a b"], ["x", "a b"]) == pytest.approx(1 / 2)
        assert wer(["", "a b"], ["", ""]) == 1
        assert cer(["", "ab"], ["x", "ab"]) == pytest.approx(1 / 2)
        for texts, options in ((["", " "], {}), (["...", "“”"], {"punctuation": False})):
            with pytest.raises(UserError, match="every transcript is empty, and an error rate divides by"):
                wer(texts, ["x", "y"], **options)

    def test_an_accent_is_not_punctuation_in_any_encoding(self) -> None:
        assert wer(["Café"], ["cafe\u0301"]) == cer(["Café"], ["cafe\u0301"]) == 0
        assert wer(["वह हिन्दी बोलती है"], ["वह हिंदी बोलती है"]) == pytest.approx(1 / 4)

    def test_character_error_rate_counts_characters_and_spaces(self) -> None:
        assert cer(["ab cd"], ["ab cx"]) == pytest.approx(1 / 5)


class TestSpeech:
    def test_distortion_ignores_loudness_and_tempo(self) -> None:
        wave = tone(500, 1000)
        assert mcd([wave], [wave]) == 0
        assert mcd([wave], [Wave(2 * wave.samples, wave.rate)]) == pytest.approx(0, abs=1e-4)
        slower = Wave(np.concatenate([tone(500).samples, tone(500, 500, 1000).samples]), 8000)
        assert mcd([slower], [wave]) < mcd([tone(1500, 3000)], [wave]) / 3

    def test_a_sound_shorter_than_a_window_can_be_measured(self) -> None:
        short, other = (Wave(tone(hertz).samples[:50], 8000) for hertz in (500, 1500))
        assert mcd([short], [short]) == 0 < mcd([short], [other]) < np.inf

    def test_distortion_is_the_cepstral_distance_in_decibels(self) -> None:
        # Two sounds of one frame each, computed by hand from their cepstra.
        config = FeatureConfig(bins=24, normalize="none", remove_dc_offset=False)
        first, second = (Wave(tone(hertz).samples[:200], 8000) for hertz in (500, 1500))
        cepstra = [dct(features(config, wave.samples)[0] / 2, norm="ortho")[1:13] for wave in (first, second)]
        expected = 10 / np.log(10) * np.sqrt(2 * ((cepstra[0] - cepstra[1]) ** 2).sum())
        assert mcd([first], [second]) == pytest.approx(expected, rel=1e-6)

    @given(st.integers(1, 7), st.integers(1, 7), st.integers(0, 2**31))
    def test_alignment_matches_the_cell_by_cell_recurrence(self, rows: int, columns: int, seed: int) -> None:
        costs = np.random.default_rng(seed).random((rows, columns))
        sums = {(-1, -1): 0.0}
        for i, j in np.ndindex(rows, columns):
            sums[i, j] = costs[i, j] + min(sums[at] for at in ((i - 1, j - 1), (i - 1, j), (i, j - 1)) if at in sums)
        assert metrics._warped_sum(costs) == pytest.approx(sums[rows - 1, columns - 1], rel=1e-12)

    @pytest.mark.parametrize("more", [400, 2000, 8000])
    def test_distortion_does_not_fall_if_a_prediction_goes_on_after_its_end(self, more: int) -> None:
        rng = np.random.default_rng(0)
        spoken, pause = tone(500, 1500), 0.001 * rng.standard_normal(800)
        target = Wave(np.concatenate([spoken.samples, pause]).astype(np.float32), spoken.rate)
        ended = Wave(np.concatenate([tone(600, 1600).samples, pause]).astype(np.float32), spoken.rate)
        silence = 0.001 * rng.standard_normal(more)
        going_on = Wave(np.concatenate([ended.samples, silence]).astype(np.float32), spoken.rate)
        assert mcd([target], [going_on]) > mcd([target], [ended])


def tone(*hertz: int, samples: int = 1600) -> Wave:
    time = np.arange(samples) / 8000
    noise = np.random.default_rng(0).normal(0, 0.01, samples)
    return Wave(
        np.concatenate([0.3 * np.sin(2 * np.pi * frequency * time) + noise for frequency in hertz]).astype(np.float32),
        8000,
    )


def test_every_public_measure_is_imported_here() -> None:
    public = {name for name, item in vars(metrics).items() if getattr(item, "__module__", "") == metrics.__name__}
    assert {name for name in public if not name.startswith("_")} <= set(globals())


X, Y = np.array([1.0, 0.0]), np.array([0.0, 1.0])


def test_the_rank_of_a_pair_is_among_all_different_pairs() -> None:
    targets = [("a", "x", None), ("b", "y", None), ("a", "y", None), ("c", "x", None)]
    near_y = np.array([0.6, 0.8])
    found = [(near_y, X), (near_y, Y), (near_y, Y), (near_y, X)]
    # Both belong to "a"; y is the nearest of "b"; y is nearer to "c" than its own.
    assert partner_recall(targets, found) == pytest.approx(3 / 4)
    assert partner_reciprocal_rank(targets, found) == pytest.approx((1 + 1 + 1 + 1 / 2) / 4)
    assert partner_recall([("a", "x", None), ("b", "y", None)], [(X, X), (X, X)]) == 0  # as near counts as nearer


def test_pairs_of_the_highest_score_are_those_to_be_found() -> None:
    targets, found = [("a", "x", 5.0), ("b", "y", 1.0)], [(X, X), (X, Y)]
    assert partner_recall(targets, found) == 1
    assert cosine_spearman(targets, found) == pytest.approx(1)
