"""Labels of a task, given or collected from the rows, and the tasks that predict them."""

from __future__ import annotations

import re
from contextlib import suppress
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.helpers import vocabulary

from ernie.data.labeled.row import Row
from ernie.data.raw import Place
from ernie.errors import UserError
from tasks.downstream.base import (
    Example,
    FinetuneTask,
    encode_start,
    is_labeled,
)
from tasks.downstream.choose import Choose
from tasks.downstream.classify import Classify
from tasks.downstream.labels import check_labels, collected, index_of
from tasks.downstream.multilabel import MultiLabel
from tasks.downstream.rank import Rank
from tasks.downstream.regress import Regress

NOTHING = Example(())


def rows(*labels: object) -> list[Row]:
    return [Row({"text": "x", "label": label}, Place("train.tsv", 2 + i)) for i, label in enumerate(labels)]


class TestLabelLists:
    def test_labels_are_sorted_as_text_or_numerically_if_all_are_numbers(self) -> None:
        assert collected(["b", "a", "B", "b"]) == ("B", "a", "b")
        assert collected(["10", "9", "-1"]) == ("-1", "9", "10")
        assert collected(["10", "9", "x"]) == ("10", "9", "x")

    @given(st.lists(st.text(max_size=3)))
    def test_the_order_of_the_rows_does_not_matter(self, labels: list[str]) -> None:
        if len({label for label in labels if label.strip()}) < 2:
            with pytest.raises(UserError, match="at least two different ones"):
                collected(labels)
        else:
            assert collected(labels) == collected(labels[::-1])
            assert set(collected(labels)) == {label for label in labels if label.strip()}

    @pytest.mark.parametrize(
        ("labels", "message"), [(("a",), "labels: expected at least two, found a"), (("a", "b", "a"), "'a' stands")]
    )
    def test_fewer_than_two_or_duplicate_labels_raise_an_error(self, labels: tuple[str, ...], message: str) -> None:
        with pytest.raises(UserError, match=message):
            check_labels(labels)

    def test_an_unknown_label_raises_an_error_that_lists_the_known_ones(self) -> None:
        with pytest.raises(UserError, match=r"^label 'ok' is not one of bad, good$"):
            index_of("ok", ["bad", "good"])
        with pytest.raises(UserError, match=r"label '-1' is not one of 0, 1; if it stands for no label, data\.skip"):
            index_of("-1", ["0", "1"])
        many = [f"topic{i}" for i in range(30)]
        with pytest.raises(UserError, match=r"topic9 and 20 more\. Did you mean 'topic17'\?"):
            index_of("topc17", many)


@pytest.mark.parametrize("cell", ["", " ", None, float("nan")])
@pytest.mark.parametrize(
    "task", [Classify(labels=("a", "b")), Regress(), Rank(), Choose()], ids=lambda task: task.variant_name
)
def test_a_row_without_a_label_says_how_such_rows_are_left_out(task: FinetuneTask, cell: object) -> None:
    with pytest.raises(UserError, match=r"; rows without one can be left out by `skip`, with '' for this column$"):
        task.target(Row({"text": "x", "query": "x", "choices": ["a", "b"], "label": cell}))


class TestClassify:
    def test_labels_of_rows_become_classes_with_numbers_as_text(self) -> None:
        task = Classify().adapted_to(rows(10, "9", 10))
        assert task.labels == ("9", "10")
        assert [task.target(row) for row in rows(10, "9")] == [1, 0]

    def test_rows_without_a_usable_label_leave_those_of_the_others(self) -> None:
        """They are reported, or skipped, with all other faulty rows later."""
        given = rows("a", None, "b", ["a"])
        task = Classify().adapted_to(given)
        assert task.labels == ("a", "b")
        with pytest.raises(UserError, match="column 'label': expected text, found nothing"):
            task.target(given[1])

    def test_rows_none_of_which_has_a_usable_label_are_reported_with_file_and_line(self) -> None:
        with pytest.raises(UserError, match=r"train\.tsv:2: column 'label': expected text, found nothing") as caught:
            Classify().adapted_to(rows(None, ["a"]))
        assert "train.tsv:3: column 'label': expected text, found ['a']" in str(caught.value)

    def test_the_most_likely_label_is_predicted_with_its_probability(self) -> None:
        answer = Classify(labels=("a", "b", "c")).answer(NOTHING, [np.log(np.float32([1, 5, 2]))])
        assert answer == {"label": "b", "probability": pytest.approx(5 / 8)}

    def test_the_probability_of_every_label_is_given_on_request(self) -> None:
        task = Classify(labels=("a", "b", "c"), all_labels=True)
        answer = task.answer(NOTHING, [np.log(np.float32([1, 5, 2]))])
        assert answer["all_labels"] == {label: pytest.approx(n / 8) for label, n in (("a", 1), ("b", 5), ("c", 2))}

    def test_the_logit_of_every_label_is_given_on_request(self) -> None:
        logits = {"a": -1.5, "b": 2.0, "c": 0.25}
        task = Classify(labels=("a", "b", "c"), raw_scores=True)
        answer = task.answer(NOTHING, [np.float32([*logits.values()])])
        assert answer["raw_scores"] == logits and "all_labels" not in answer

    def test_labels_are_scored_one_by_one(self) -> None:
        task = Classify(labels=("a", "b", "c"))
        answers = [{"label": label} for label in "abba"]
        assert task.scores_by_label(rows("a", "b", "a", "a"), answers) == {
            "a": {"precision": 1.0, "recall": pytest.approx(2 / 3), "f1": pytest.approx(4 / 5), "targets": 3},
            "b": {"precision": 0.5, "recall": 1.0, "f1": pytest.approx(2 / 3), "targets": 1},
            "c": {"precision": 0.0, "recall": 0.0, "f1": 0.0, "targets": 0},
        }

    def test_a_split_with_one_label_only_is_remarked_on(self) -> None:
        task = Classify(labels=("a", "b"))
        assert task.remarks_on(rows("b", "b ")) == ["every row has the label 'b'"]
        assert task.remarks_on(rows("a", "b")) == task.remarks_on(rows("a")) == []

    def test_huge_logits_do_not_overflow(self) -> None:
        answer = Classify(labels=("a", "b")).answer(NOTHING, [np.float32([-1e30, 1e30])])
        assert answer == {"label": "b", "probability": 1.0}

    def test_binary_f1_is_rejected_for_more_than_two_labels(self) -> None:
        with pytest.raises(UserError, match=r"metrics: f1 is that of one of two labels; for 3 there is macro_f1"):
            Classify(labels=("a", "b", "c"), metrics=("f1",))
        with pytest.raises(UserError, match="for 3 there is macro_f1"):
            Classify(metrics=("accuracy", "f1")).adapted_to(rows("a", "b", "c"))


class TestMultiLabel:
    task = MultiLabel(labels=("a", "b", "c"), separator=";", threshold=0.25)

    @pytest.mark.parametrize(
        ("cell", "hot"),
        [("a;c", [1, 0, 1]), (" c ; a ;", [1, 0, 1]), ("", [0, 0, 0]), (["b"], [0, 1, 0]), ([], [0, 0, 0])],
    )
    def test_a_cell_can_be_a_list_or_text_with_separators(self, cell: object, hot: list[int]) -> None:
        assert self.task.target(rows(cell)[0]).tolist() == hot

    @pytest.mark.parametrize("cell", [None, float("nan"), "", " ", "[]", np.array([])])
    def test_a_row_may_have_no_label_whatever_represents_that(self, cell: object) -> None:
        assert self.task.target(rows(cell)[0]).tolist() == [0, 0, 0]

    @pytest.mark.parametrize(
        "cell", ["['a', 'c']", '["a", "c"]', "['a' 'c']", "('a', 'c')", "{'a', 'c'}", " ['c','a',] "]
    )
    def test_a_list_may_be_spelled_as_text_as_in_a_csv_file_of_lists(self, cell: str) -> None:
        assert self.task.target(rows(cell)[0]).tolist() == [1, 0, 1]
        assert MultiLabel().adapted_to(rows(cell, "b")).labels == ("a", "b", "c")

    @pytest.mark.parametrize(
        "cell",
        [
            *("['a', 'b", '["a" b]', "[a, b]", "array(['a'", "[u'a'", "[1, 0", "[0. 0. ... 1. 0.]"),
            *('"[""a"", ""b""]"', "\"['a', 'b']\""),
        ],
    )
    def test_text_that_begins_as_a_list_and_is_none_is_no_label(self, cell: str) -> None:
        with pytest.raises(UserError, match=r"column .label.: .* begins as a list and is none"):
            MultiLabel().adapted_to(rows(cell))

    @pytest.mark.parametrize("cell", [f"[{'a,' * 20_000}x[", f"[{'...' * 20_000}]x", f"[{'[' * 20_000}"])
    def test_long_text_that_begins_as_a_list_is_read_in_one_pass(self, cell: str) -> None:
        with suppress(UserError):
            MultiLabel(labels=("a", "b"), separator="|").target(rows(cell)[0])

    def test_a_list_in_quotes_is_named_with_the_setting_that_removes_them(self) -> None:
        with pytest.raises(UserError, match=r"begins as a list and is none; .*; data\.quote: '\"' removes the quotes"):
            MultiLabel().adapted_to(rows("\"['a']\""))

    @pytest.mark.parametrize("cell", [["a", None], "['a', None]", ["a", float("nan")]])
    def test_a_missing_item_of_a_list_is_no_label(self, cell: object) -> None:
        with pytest.raises(UserError, match=r"column 'label': expected text, found nothing as an item of \['a', "):
            MultiLabel(labels=("a", "b")).target(rows(cell)[0])

    def test_a_label_may_have_brackets(self) -> None:
        assert MultiLabel().adapted_to(rows("[a], b (c)")).labels == ("[a]", "b (c)")

    def test_all_labels_at_or_above_the_threshold_are_predicted(self) -> None:
        odds = np.float32([1 / 3 + 1e-6, 1 / 4, 9])  # probabilities 1/4, 1/5 and 9/10
        answer = self.task.answer(NOTHING, [np.log(odds)])
        assert answer == {"labels": ["a", "c"], "probabilities": [pytest.approx(0.25, abs=1e-5), pytest.approx(0.9)]}

    def test_huge_logits_do_not_overflow(self) -> None:
        with np.errstate(over="raise", invalid="raise"):
            answer = self.task.answer(NOTHING, [np.float32([-1e30, 1e30, -99])])
        assert answer == {"labels": ["b"], "probabilities": [1.0]}

    def test_the_probability_of_every_label_is_given_on_request(self) -> None:
        answer = replace(self.task, all_labels=True).answer(NOTHING, [np.log(np.float32([1, 1 / 4, 9]))])
        assert answer["labels"] == ["a", "c"]
        assert answer["all_labels"] == {label: pytest.approx(p) for label, p in (("a", 0.5), ("b", 0.2), ("c", 0.9))}

    def test_the_logit_of_every_label_is_given_on_request(self) -> None:
        logits = {"a": -1.5, "b": 2.0, "c": 0.25}
        answer = replace(self.task, raw_scores=True).answer(NOTHING, [np.float32([*logits.values()])])
        assert answer["raw_scores"] == logits and "all_labels" not in answer

    def test_labels_are_scored_one_by_one(self) -> None:
        scores = self.task.scores_by_label(rows("a;b", "b"), [{"labels": ["a"]}, {"labels": ["a", "b"]}])
        assert [scores[label]["f1"] for label in "abc"] == pytest.approx([2 / 3, 2 / 3, 0])
        assert [scores[label]["targets"] for label in "abc"] == [1, 2, 0]

    def test_an_unknown_label_among_known_ones_is_reported(self) -> None:
        with pytest.raises(UserError, match="label 'd' is not one of a, b, c"):
            self.task.target(rows("a;d")[0])

    def test_labels_are_collected_from_lists_and_from_text(self) -> None:
        without_labels = replace(self.task, labels=())
        assert without_labels.adapted_to(rows("a;c", ["b", "a"], "")).labels == ("a", "b", "c")

    @pytest.mark.parametrize(("key", "value"), [("threshold", 0.0), ("threshold", 1.0), ("separator", "")])
    def test_invalid_settings_are_rejected(self, key: str, value: object) -> None:
        with pytest.raises(UserError, match=f"^{key}: expected"):
            replace(self.task, **{key: value})


class TestRegress:
    @pytest.mark.filterwarnings("error")
    @pytest.mark.parametrize("huge", [1e300, "-1e300", "9" * 40])
    def test_a_number_that_is_too_large_to_learn_from_is_refused(self, huge: object) -> None:
        given = rows(1.5, huge, 2.5)
        task = Regress().adapted_to(given)
        assert task.scale == (2.0, 0.5)
        with pytest.raises(UserError, match=r"column 'label': .* is too large to learn from, at most 1e\+15"):
            task.target(given[1])

    def test_rows_that_all_have_the_same_number_are_remarked_on(self) -> None:
        assert Regress().remarks_on(rows(2.5, "2.5")) == ["every row has the number 2.5; no correlation is defined"]
        assert Regress().remarks_on(rows(2.5, 2)) == []

    def test_a_single_number_below_zero_may_mark_rows_without_one(self) -> None:
        assert Regress().remarks_on(rows(2.5, -1, 0, "-1.0")) == [
            "-1 (2 of 4) is the only number below 0; if it marks rows without a number, data.skip can leave them out"
        ]
        assert Regress().remarks_on(rows(2.5, -1.5, 0)) == Regress().remarks_on(rows(2, -1, -2)) == []
        assert Regress().remarks_on(rows(-1, -1, 0)) == []

    @pytest.mark.parametrize("cell", ["x", "nan", "inf", "1,5", "1_5"])
    def test_a_value_that_is_not_a_finite_number_is_quoted(self, cell: str) -> None:
        with pytest.raises(UserError, match=f"column 'label': expected a number, found '{cell}'"):
            Regress().target(rows(cell)[0])

    def test_values_may_be_numbers_or_text(self) -> None:
        assert [Regress().target(row) for row in rows("-1.5", 3, 2.25, " 1e2 ")] == [-1.5, 3, 2.25, 100]

    @pytest.mark.parametrize(("logit", "value"), [(-1.0, 0.0), (2.5, 2.5), (7.0, 5.0)])
    def test_predictions_are_clipped_to_the_limits(self, logit: float, value: float) -> None:
        assert Regress(limits=(0, 5)).answer(NOTHING, [np.float32([logit])]) == {"value": value}
        assert Regress().answer(NOTHING, [np.float32([logit])]) == {"value": logit}

    def test_targets_are_standardized_by_mean_and_standard_deviation(self) -> None:
        task = Regress().adapted_to(rows(300_000, "not yet known", 100_000, 500_000))
        assert task.scale == pytest.approx((300_000, 163_299.316))
        assert [task.sample_target(row) for row in rows(300_000, 100_000)] == pytest.approx([0, -1.224745])
        assert task.answer(NOTHING, [np.float32([-1.2247449])])["value"] == pytest.approx(100_000, rel=1e-6)
        assert task.adapted_to(rows(1, 2)) == task

    def test_constant_values_have_deviation_1(self) -> None:
        task = Regress().adapted_to(rows(7, 7))
        assert (task.scale, task.sample_target(rows(7)[0])) == ((7, 1), 0)

    @pytest.mark.parametrize("scale", [None, (2.5, 1.5)])
    @pytest.mark.parametrize("limits", [None, (0.0, 3.0)])
    def test_the_code_that_reads_exported_logits_gives_the_answers(
        self, scale: tuple[float, float] | None, limits: tuple[float, float] | None
    ) -> None:
        task = Regress(scale=scale, limits=limits)
        known: dict[str, Any] = {"logits": np.array([[-3.0], [0.25], [3.0]])}
        exec(task.reading_code, known)
        answers = [task.answer(NOTHING, [row])["value"] for row in known["logits"]]
        assert known["values"][:, 0].tolist() == answers
        assert ("predictions are clipped between 0 and 3." in task.reading) == (limits is not None)

    def test_small_numbers_are_not_rounded_away(self) -> None:
        task = Regress(scale=(2e-9, 1e-9))
        assert task.answer(NOTHING, [np.float32([0.5])]) == {"value": pytest.approx(2.5e-9, rel=1e-12)}

    def test_labels_outside_of_the_limits_are_counted(self) -> None:
        task, labels = Regress(limits=(0, 1)), rows(0, 1, 2, 3, 1.5)
        assert task.remarks_on(labels) == ["3 of 5 labels outside of task.limits, 0 to 1, to which answers are clipped"]
        assert task.remarks_on(labels[:2]) == Regress().remarks_on(labels) == []

    def test_the_deviation_must_be_above_zero(self) -> None:
        with pytest.raises(UserError, match=r"scale: expected a mean and a deviation above 0, found \[0, 0\]"):
            Regress(scale=(0, 0))

    def test_limits_must_be_a_smaller_and_a_larger_number(self) -> None:
        with pytest.raises(UserError, match=r"limits: expected a smaller and a larger number, found \[5, 0\]"):
            Regress(limits=(5, 0))


class TestMultiHot:
    """One 0 or 1 for each label in place of a list of labels."""

    @pytest.mark.parametrize(
        "cells",
        [
            ([1.0, 0.0, 0.0], [0.0, 1.0, 1.0]),
            ([1, 0, 0], [0, 1, 1]),
            ([True, False, False], [False, True, True]),
            ("1,0,0", "0, 1, 1"),
            ("1.0,0.0,0.0", "0.0,1.0,1.0"),
            ("[1, 0, 0]", "[0, 1, 1]"),
            ("[1. 0. 0.]", "[0. 1. 1.]"),
            (["1", "0", "0"], ["0", "1", "1"]),
            (np.array([1, 0, 0]), np.array([0, 1, 1], np.float32)),
            ((1, 0, 0), (0, 1, 1)),
        ],
    )
    @pytest.mark.parametrize("names", [(), ("x", "y", "z")])
    def test_equal_lists_of_0_and_1_have_one_for_each_label(self, cells: Any, names: tuple[str, ...]) -> None:
        task = MultiLabel(labels=names).adapted_to(rows(*cells))
        assert task.labels == (names or ("0", "1", "2"))
        assert [task.target(row).tolist() for row in rows(*cells)] == [[1, 0, 0], [0, 1, 1]]

    def test_two_labels_are_told_from_lists_of_their_numbers(self) -> None:
        task = MultiLabel().adapted_to(rows([1, 0], [0, 1]))
        assert [task.target(row).tolist() for row in rows([1, 0], [0, 1], [0, 0], None)] == [
            [1, 0],
            [0, 1],
            [0, 0],
            [0, 0],
        ]

    @pytest.mark.parametrize("cells", [([0, 2], [1]), ([0], [1], [0]), ("0,1", "1"), ([0, 1], [1], []), ([3, 1, 0],)])
    def test_other_lists_of_numbers_name_the_labels_that_apply(self, cells: Any) -> None:
        task = MultiLabel().adapted_to(rows(*cells, "7"))
        assert task.multi_hot is None
        for cell in cells:
            numbers = cell.split(",") if isinstance(cell, str) else map(str, cell)
            assert {label for label, on in zip(task.labels, task.target(rows(cell)[0]), strict=True) if on} == {
                *numbers
            }

    def test_two_named_0_and_1_can_be_read_either_way_unless_the_key_says_so(self) -> None:
        given = rows([0, 1], [1, 0])
        with pytest.raises(UserError, match=r"may be the labels 0 and 1, or one .* task\.multi_hot: false or true"):
            MultiLabel(labels=("0", "1")).adapted_to(given)
        named = MultiLabel(labels=("0", "1"), multi_hot=False).adapted_to(given)
        hot = MultiLabel(labels=("0", "1"), multi_hot=True).adapted_to(given)
        assert (named.target(given[0]).tolist(), hot.target(given[0]).tolist()) == ([1, 1], [0, 1])

    @pytest.mark.parametrize(
        ("cell", "message"),
        [
            ([1, 0], "expected one 0 or 1 for each of 3 labels, found 2 values"),
            ([1, 0, 0.5], r"expected one 0 or 1 for each label, found \[1, 0, 0.5\]"),
            ("x", r"expected one 0 or 1 for each label, found \['x'\]"),
        ],
    )
    def test_lists_of_other_lengths_and_values_are_refused(self, cell: Any, message: str) -> None:
        given = rows([1.0, 0.0, 0.0], [0.0, 1.0, 0.0], cell)
        task = MultiLabel().adapted_to(given)
        with pytest.raises(UserError, match=f"column 'label': {message}"):
            task.target(given[2])

    def test_a_number_that_is_named_twice_among_names_is_refused(self) -> None:
        task = MultiLabel().adapted_to(rows([0, 2], [1]))
        with pytest.raises(UserError, match=r"column 'label': \[1, 0, 0\] names a label twice"):
            task.target(rows([1, 0, 0])[0])

    def test_two_names_for_each_label_are_refused_with_the_way_to_0_and_1(self) -> None:
        with pytest.raises(UserError, match=r"'no' or 'yes', as if .*data\.values can make one of them 0"):
            MultiLabel().adapted_to(rows(["yes", "no", "no"], ["no", "yes", "no"]))

    @pytest.mark.parametrize("mark", [" ", ";", "|", "\t", ""])
    def test_with_another_separator_or_none_they_are_refused_and_not_one_label(self, mark: str) -> None:
        cells = [mark.join(values) for values in ("101", "010")]
        with pytest.raises(UserError, match=f"'{re.escape(cells[0])}' has one 0 or 1 for each label"):
            MultiLabel().adapted_to(rows(*cells))
        if mark.strip():
            assert MultiLabel(separator=mark).adapted_to(rows(*cells)).target(rows(cells[0])[0]).tolist() == [1, 0, 1]

    @pytest.mark.parametrize("cells", [("10", "11"), ("1.0", "0.0"), ("1", "0"), ("0-1", "1-0"), ("010", "x")])
    def test_codes_that_only_look_alike_are_labels(self, cells: tuple[str, str]) -> None:
        assert set(MultiLabel().adapted_to(rows(*cells)).labels) == {*cells}

    def test_one_value_for_one_label_is_refused(self) -> None:
        with pytest.raises(UserError, match=r"^\[0\.0\] has one value, for one label; .* the kind classify"):
            MultiLabel().adapted_to(rows([0.0], [1.0]))


class TestColumnsOfLabels:
    """One column for each label, as in Kaggle's data of toxic comments."""

    task = MultiLabel(label=("toxic", "obscene"))

    def test_each_column_has_the_0_or_1_of_a_label(self) -> None:
        given = [Row({"toxic": 1, "obscene": "0"}), Row({"toxic": False, "obscene": 1.0})]
        task = self.task.adapted_to(given)
        assert task.labels == ("toxic", "obscene")
        assert [task.target(row).tolist() for row in given] == [[1, 0], [0, 1]]
        named = MultiLabel(label=("toxic", "obscene"), labels=("t", "o")).adapted_to(given)
        assert (named.labels, named.target(given[0]).tolist()) == (("t", "o"), [1, 0])
        assert is_labeled(self.task, given)
        assert not is_labeled(self.task, [Row({"text": "a"}), Row({"toxic": "", "obscene": None})])

    @pytest.mark.parametrize(("cell", "found"), [(None, "nothing"), ("-1", "'-1'"), (0.3, "0.3"), ("yes", "'yes'")])
    def test_other_cells_are_refused_with_their_column(self, cell: Any, found: str) -> None:
        task = self.task.adapted_to([])
        with pytest.raises(UserError, match=f"column 'obscene': expected 0 or 1, found {found}; data.values can make"):
            task.target(Row({"toxic": 0, "obscene": cell}))
        with pytest.raises(UserError, match="there is no column 'obscene'"):
            task.target(Row({"toxic": 0}))

    @pytest.mark.parametrize(
        ("keys", "message"),
        [
            (
                {"label": ("a", "b"), "labels": ("x", "y", "z")},
                "labels: expected one for each of the 2 columns, found 3",
            ),
            ({"label": ("a", "a")}, "label: expected one column, or several different ones"),
            ({"label": ("a",)}, "label: expected one column, or several different ones"),
            ({"label": ("a", "b"), "multi_hot": False}, "multi_hot: several columns have one 0 or 1 each"),
        ],
    )
    def test_columns_that_are_no_labels_are_refused(self, keys: dict[str, Any], message: str) -> None:
        with pytest.raises(UserError, match=message):
            MultiLabel(**keys)


class TestRank:
    def test_texts_are_ranked_within_their_query_or_group(self) -> None:
        row = Row({"query": "q", "text": "t", "label": "1", "topic": 7})
        assert Rank().target(row) == ("q", 1)
        assert Rank(group="topic").target(row) == ("7", 1)

    def test_a_grade_must_be_0_or_1(self) -> None:
        with pytest.raises(UserError, match="label '2' is not 0 or 1"):
            Rank().target(Row({"query": "q", "text": "t", "label": 2}))

    def test_the_score_is_the_probability_of_relevance(self) -> None:
        assert Rank().answer(NOTHING, [np.log(np.float32([1, 3]))]) == {"score": pytest.approx(0.75)}

    def test_a_raw_score_is_the_logit_of_the_score_also_where_that_is_1(self) -> None:
        answer = Rank(raw_scores=True).answer(NOTHING, [np.float32([-1, 2])])
        assert answer == {"score": pytest.approx(1 / (1 + np.exp(-3))), "raw_score": 3.0}
        assert Rank(raw_scores=True).answer(NOTHING, [np.float32([-40, 60])]) == {"score": 1.0, "raw_score": 100.0}


def test_labels_in_a_list_may_be_text_numbers_or_booleans_only() -> None:
    task = MultiLabel(labels=("1", "a", "true"))
    assert task.target(Row({"label": ["a", 1, True]})).tolist() == [1, 1, 1]
    for wrong in (None, {"x": 1}):
        with pytest.raises(UserError, match="column 'label': expected text"):
            task.target(Row({"label": [wrong]}))


def test_rows_with_an_empty_label_column_are_not_labeled() -> None:
    for empty in ("", " ", None, float("nan")):
        assert not is_labeled(Classify(), rows(empty, empty))
        assert is_labeled(Classify(), rows(empty, "a"))
        assert is_labeled(Regress(), rows(empty, 0.0))
        assert not is_labeled(MultiLabel(), rows(empty, empty))


def test_of_a_very_long_text_of_which_the_beginning_is_used_only_that_is_tokenized() -> None:
    tokenizer = vocabulary("the film was good", "un", "##believ", "##able")
    text = "the unbelievable film was good " * 100_000
    ids = encode_start(tokenizer, text, 32)
    assert np.array_equal(ids[:1000], tokenizer.encode(text[:40_000]).ids[:1000])
    assert 32 < len(ids) < 100_000 < len(encode_start(tokenizer, text[:260_000], 32)) * 2
    late = " " * 600_000 + "good"
    assert encode_start(tokenizer, late, 32).tolist() == tokenizer.encode("good").ids.tolist()
