"""Soft labels: rows with a probability for each label, learned as they are and scored by the most probable label."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import paddle
import pytest
from support.toys import TOKENIZER

from ernie.config import build, from_dict
from ernie.data.batch import Packed, pack
from ernie.data.labeled.read import Split
from ernie.data.labeled.row import Row
from ernie.data.raw import Place
from ernie.errors import UserError
from finetune.config import FinetuneConfig
from finetune.prepare import prepare
from tasks.downstream.choose import Choose
from tasks.downstream.classify import Classify
from tasks.downstream.multilabel import MultiLabel
from tasks.downstream.rank import Rank
from tasks.downstream.tag import Tag

SOFT = [{"a": 0.7, "b": 0.2, "c": 0.1}, {"b": 1}, "c", {"a": 0.25, "c": 0.75}]


def rows(*labels: object) -> list[Row]:
    return [
        Row({"text": "a film", "label": label, "w": 1 + n % 3}, Place("train.jsonl", 1 + n))
        for n, label in enumerate(labels)
    ]


def batch_of(task: Any, given: list[Row]) -> Packed:
    return pack(
        [sample for example in prepare(task, Split("train", given), TOKENIZER).examples for sample in example.samples]
    )


def logits_for(task: Any, given: list[Row]) -> np.ndarray:
    return np.random.default_rng(5).normal(0, 2, (len(given), len(task.labels)))


def loss(task: Any, given: list[Row], logits: np.ndarray) -> float:
    found = task.loss(paddle.to_tensor(logits.astype(np.float32)), batch_of(task, given))
    assert found.count == len(given)
    return float(found.total)


class TestClassify:
    def test_a_row_has_a_label_or_the_probability_of_each(self) -> None:
        task = Classify().adapted_to(rows(*SOFT))
        assert (task.labels, task.soft_labels) == (("a", "b", "c"), True)
        assert [task.target(row) for row in rows(*SOFT)] == [0, 1, 2, 2]
        found = batch_of(task, rows(*SOFT)).labels["label"].values
        expected = [[0.7, 0.2, 0.1], [0, 1, 0], [0, 0, 1], [0.25, 0, 0.75]]
        np.testing.assert_allclose(found, expected, atol=1e-7)

    @pytest.mark.parametrize("write", [str, lambda cell: cell], ids=["text", "object"])
    def test_a_table_may_have_them_as_text(self, write: Callable[[object], object]) -> None:
        given = rows(*map(write, SOFT))
        assert Classify().adapted_to(given).target(given[0]) == 0

    def test_each_column_may_have_the_probability_of_a_label(self) -> None:
        given = [Row({"text": "x", "good": "0.3", "bad": 0.7}), Row({"text": "x", "good": 1.0, "bad": None})]
        task = Classify(label=("good", "bad")).adapted_to(given)
        assert (task.labels, task.soft_labels) == (("good", "bad"), True)
        assert [task.target(row) for row in given] == [1, 0]
        assert Classify(label=("good", "bad"), labels=("g", "b")).adapted_to(given).labels == ("g", "b")

    def test_of_equally_probable_labels_the_first_is_the_one_to_score(self) -> None:
        (row,) = rows({"b": 0.5, "a": 0.5})
        assert Classify(labels=("a", "b")).target(row) == 0
        assert Classify(labels=("b", "a")).target(row) == 0

    def test_rounded_probabilities_are_divided_by_their_sum(self) -> None:
        given = rows({"a": 0.33, "b": 0.33, "c": 0.33})
        (values,) = batch_of(Classify().adapted_to(given), given).labels["label"].values
        np.testing.assert_allclose(values, 1 / 3, rtol=1e-6)

    def test_the_most_probable_label_is_learned_where_soft_labels_are_not_wanted(self) -> None:
        task = Classify(soft_labels=False).adapted_to(rows(*SOFT))
        assert batch_of(task, rows(*SOFT)).labels["label"].values.tolist() == [0, 1, 2, 2]

    def test_rows_without_probabilities_are_learned_as_integers(self) -> None:
        task = Classify().adapted_to(rows("a", "b"))
        assert task.soft_labels is None
        assert batch_of(task, rows("a", "b")).labels["label"].values.tolist() == [0, 1]

    def test_the_loss_is_the_cross_entropy_of_the_distributions(self) -> None:
        given = rows(*SOFT)
        task = Classify().adapted_to(given)
        logits = logits_for(task, given)
        p = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
        q = [[0.7, 0.2, 0.1], [0, 1, 0], [0, 0, 1], [0.25, 0, 0.75]]
        expected = -sum(q[n][c] * np.log(p[n, c]) for n in range(4) for c in range(3))
        assert loss(task, given, logits) == pytest.approx(expected, rel=1e-6)

    def test_a_row_is_learned_as_so_many_parts_of_rows_of_a_single_label(self) -> None:
        settings: dict[str, Any] = {"class_weights": {"a": 3, "c": 0.5}, "label_smoothing": 0.2, "focal_gamma": 2.0}
        mixed, parts = rows({"a": 0.75, "b": 0.25}, "c"), rows("a", "a", "a", "b", "c", "c", "c", "c")
        one, other = (Classify(**settings).adapted_to(given) for given in (mixed, parts))
        assert one.mean_weight == pytest.approx(other.mean_weight)
        logits = logits_for(one, mixed)
        apart = loss(other, parts, np.repeat(logits, 4, axis=0))
        assert loss(one, mixed, logits) / 2 == pytest.approx(apart / 8, rel=1e-5)

    def test_balanced_weights_count_probabilities(self) -> None:
        task = Classify(class_weights="balanced").adapted_to(rows({"a": 0.75, "b": 0.25}, {"a": 0.75, "b": 0.25}))
        assert task.class_weights == {"a": 2 / (2 * 1.5), "b": 2 / (2 * 0.5)}

    def test_the_notes_tell_how_many_rows_are_divided(self) -> None:
        given = rows(*SOFT)
        (note,) = Classify().adapted_to(given).loss_notes(given)
        assert note == "soft labels: 2 of 4 rows are divided among several labels"

    @pytest.mark.parametrize(
        ("cell", "message"),
        [
            ({"a": 0.5, "b": 0.3}, "the probabilities of the labels sum to 0.8, expected 1; divide them, or counts of"),
            ({}, "the probabilities of the labels sum to 0, expected 1"),
            ({"a": -0.2, "b": 1.2}, "label 'a': expected a probability from 0 to 1, found -0.2"),
            ({"a": 3, "b": 2}, "label 'a': expected a probability from 0 to 1, found 3"),
            ({"a": True}, "label 'a': expected a probability from 0 to 1, found True"),
            ({"a": "much"}, "label 'a': expected a probability from 0 to 1, found 'much'"),
            ({"a": 0.5, "z": 0.5}, "label 'z' is not one of a, b"),
        ],
    )
    def test_a_faulty_distribution_is_an_error_of_its_row(self, cell: object, message: str) -> None:
        given = [*rows({"a": 0.5, "b": 0.5}), Row({"text": "x", "label": cell}, Place("train.jsonl", 7))]
        with pytest.raises(UserError) as error:
            prepare(Classify(labels=("a", "b")).adapted_to(given), Split("train", given), TOKENIZER)
        assert str(error.value).startswith(f"train.jsonl:7: {message}")

    @pytest.mark.parametrize(
        ("keys", "message"),
        [
            ({"label": ("a",)}, "label: expected one column, or several different ones with a probability each"),
            (
                {"label": ("a", "b"), "labels": ("x", "y", "z")},
                "labels: expected one for each of the 2 columns, found 3",
            ),
        ],
    )
    def test_columns_that_are_no_labels_are_refused(self, keys: dict[str, Any], message: str) -> None:
        with pytest.raises(UserError, match=message):
            Classify(**keys)


class TestMultiLabel:
    def test_a_row_has_labels_or_the_probability_of_each(self) -> None:
        given = rows({"a": 0.7, "b": 0.5, "c": 0.1}, ["b"], {}, {"c": 1.0})
        task = MultiLabel().adapted_to(given)
        assert (task.labels, task.soft_labels, task.multi_hot) == (("a", "b", "c"), True, None)
        assert [task.target(row).tolist() for row in given] == [[1, 1, 0], [0, 1, 0], [0, 0, 0], [0, 0, 1]]
        expected = [[0.7, 0.5, 0.1], [0, 1, 0], [0, 0, 0], [0, 0, 1]]
        np.testing.assert_allclose(batch_of(task, given).labels["label"].values, expected, atol=1e-7)
        assert list(task.loss_notes(given)) == ["soft labels: 1 of 4 rows have a probability between 0 and 1"]
        hard = MultiLabel(soft_labels=False).adapted_to(given)
        assert batch_of(hard, given).labels["label"].values[0].tolist() == [1, 1, 0]

    def test_columns_have_probabilities_if_soft_labels_are_wanted(self) -> None:
        given = [Row({"text": "x", "rude": 0.2, "funny": "0.9"}), Row({"text": "x", "rude": 1, "funny": 0})]
        task = MultiLabel(label=("rude", "funny"), soft_labels=True).adapted_to(given)
        assert [task.target(row).tolist() for row in given] == [[0, 1], [1, 0]]
        np.testing.assert_allclose(batch_of(task, given).labels["label"].values, [[0.2, 0.9], [1, 0]], atol=1e-7)
        with pytest.raises(UserError, match=r"expected 0 or 1, found 0.2; .*; soft_labels: true learns probabilities"):
            MultiLabel(label=("rude", "funny")).adapted_to(given).target(given[0])

    def test_the_loss_is_that_of_each_label_with_its_weights(self) -> None:
        given = rows({"a": 0.7, "b": 0.4}, ["b"], {"a": 0.1})
        task = MultiLabel(class_weights={"a": 3}, row_weight="w", label_smoothing=0.2, focal_gamma=1.5).adapted_to(
            given
        )
        logits, y = logits_for(task, given), np.array([[0.7, 0.4], [0, 1], [0.1, 0]])
        weights, own = np.array([1.0, 2.0, 3.0]), np.array([3.0, 1.0])
        masses = own * y + 1 - y
        mean = (weights * masses.mean(1)).mean()
        p = 1 / (1 + np.exp(-logits))
        yes, no = 0.8 * own * y + 0.1 * masses, 0.8 * (1 - y) + 0.1 * masses
        terms = yes * (1 - p) ** 1.5 * -np.log(p) + no * p**1.5 * -np.log(1 - p)
        assert loss(task, given, logits) == pytest.approx((weights / mean * terms.mean(1)).sum(), rel=1e-5)

    @pytest.mark.parametrize(
        ("cell", "message"),
        [
            ({"a": 1.5}, "label 'a': expected a probability from 0 to 1, found 1.5"),
            ({"z": 1}, "label 'z' is not one of"),
        ],
    )
    def test_a_faulty_probability_is_an_error_of_its_row(self, cell: object, message: str) -> None:
        given = [*rows({"a": 0.5}), Row({"text": "x", "label": cell}, Place("train.jsonl", 7))]
        with pytest.raises(UserError) as error:
            prepare(MultiLabel(labels=("a", "b")).adapted_to(given), Split("train", given), TOKENIZER)
        assert str(error.value).startswith(f"train.jsonl:7: {message}")


class TestRank:
    def test_a_label_may_be_the_probability_that_a_text_is_relevant(self) -> None:
        given = [Row({"query": "q", "text": "x", "label": label}) for label in (0.3, "0.8", 1)]
        task = Rank(soft_labels=True, class_weights={"1": 3}).adapted_to(given)
        assert [task.target(row) for row in given] == [("q", 0), ("q", 1), ("q", 1)]
        np.testing.assert_allclose(
            batch_of(task, given).labels["label"].values, [[0.7, 0.3], [0.2, 0.8], [0, 1]], atol=1e-7
        )
        assert task.mean_weight == pytest.approx(np.mean([0.7 + 3 * 0.3, 0.2 + 3 * 0.8, 3]))
        assert next(iter(task.loss_notes(given))) == "soft labels: probabilities of relevance"
        with pytest.raises(UserError, match="column 'label': expected a probability from 0 to 1, found '2'"):
            task.target(Row({**given[0], "label": 2}))
        with pytest.raises(UserError, match=r"label '0\.3' is not 0 or 1"):
            Rank().target(given[0])


def test_other_kinds_say_which_have_soft_labels() -> None:
    message = (
        r"task: soft_labels: regress has no such key: it is for kinds .* \(choose, classify, multilabel, rank, tag\)"
    )
    with pytest.raises(UserError, match=message):
        build(FinetuneConfig, from_dict({"task": {"kind": "regress", "soft_labels": True}}))


def test_a_number_that_is_none_is_an_error_with_its_line_and_not_an_empty_cell() -> None:
    for cell in (float("nan"), float("inf"), float("-inf")):
        with pytest.raises(UserError, match=r"^train\.jsonl:1: label 'a': expected a probability from 0 to 1, found"):
            prepare(Classify(labels=("a", "b"), soft_labels=True), Split("train", rows({"a": cell, "b": 1})), TOKENIZER)
    columns = [Row({"text": "x", "a": 0.5, "b": float("nan")}, Place("train.jsonl", 3))]
    for task in (Classify(label=("a", "b")), MultiLabel(label=("a", "b"), soft_labels=True)):
        with pytest.raises(
            UserError, match=r"^train\.jsonl:3: label 'b': expected a probability from 0 to 1, found nan"
        ):
            prepare(task.adapted_to(columns), Split("train", columns), TOKENIZER)


class TestChoose:
    @staticmethod
    def rows(*labels: object) -> list[Row]:
        cells = {"text": "a film", "choices": ["it", "the very", "was"]}
        return [Row({**cells, "label": label}, Place("train.jsonl", n)) for n, label in enumerate(labels, 1)]

    def test_each_choice_has_its_probability_by_name_number_letter_or_place(self) -> None:
        given = self.rows({"it": 0.25, "was": 0.75}, {"1": 0.9, "C": 0.1}, [0.2, 0.3, 0.5], "[1, 0, 0]", "it", 1)
        task = Choose().adapted_to(given)
        assert task.soft_labels
        assert [task.target(row) for row in given] == [2, 1, 2, 0, 0, 1]
        given[1]["choices"] = ["it", "the very", "was", "film"]
        labels = batch_of(task, given).labels["choice"]
        expected = [[0.25, 0, 0.75, 0], [0, 0.9, 0.1, 0], [0.2, 0.3, 0.5, 0], [1, 0, 0, 0], [1, 0, 0, 0], [0, 1, 0, 0]]
        np.testing.assert_allclose(labels.values, expected, atol=1e-7)
        assert labels.positions is not None and labels.positions.tolist() == [0, 3, 7, 10, 13, 16]
        assert "soft labels: 3 of 6 rows are divided among several choices" in [*task.loss_notes(given)]

    def test_the_loss_is_the_cross_entropy_with_them(self) -> None:
        given = self.rows({"it": 0.25, "was": 0.75}, 1)
        scores = np.array([1.0, -2.0, 0.5, 0.3, 0.1, 2.0], np.float32)
        task = Choose().adapted_to(given)
        found = task.loss(paddle.to_tensor(scores[:, None]), batch_of(task, given))
        one, other = (part - np.log(np.exp(part).sum()) for part in np.split(scores, 2))
        assert found.count == 2
        assert float(found.total) == pytest.approx(-(0.25 * one[0] + 0.75 * one[2]) - other[1], rel=1e-5)

    @pytest.mark.parametrize(
        ("label", "message"),
        [
            ([0.5, 0.5], "column 'label': expected a probability for each of 3 choices, found 2"),
            ({"it": 0.5, "dog": 0.5}, "label 'dog' is none of the 3 choices"),
            ({"it": 0.5}, "the probabilities of the labels sum to 0.5, expected 1"),
            ([0.5, float("nan"), 0.5], "choice 1: expected a probability from 0 to 1, found nan"),
        ],
    )
    def test_a_mistake_is_an_error_with_its_line(self, label: object, message: str) -> None:
        with pytest.raises(UserError) as error:
            prepare(Choose(), Split("train", self.rows(label)), TOKENIZER)
        assert str(error.value).startswith(f"train.jsonl:1: {message}")


class TestTag:
    @staticmethod
    def rows(*tags: list[object]) -> list[Row]:
        return [
            Row({"token": ["anna", "was", "great"], "tag": each}, Place("train.jsonl", n))
            for n, each in enumerate(tags, 1)
        ]

    def test_each_word_may_have_a_probability_for_each_tag(self) -> None:
        given = self.rows([{"B-PER": 0.6, "B-LOC": 0.4}, "O", {"O": 1}], ["B-PER", "O", "O"])
        task = Tag().adapted_to(given)
        assert (task.labels, task.soft_labels) == (("B-LOC", "B-PER", "I-LOC", "I-PER", "O"), True)
        assert [task.target(row) for row in given] == [["B-PER", "O", "O"]] * 2
        labels = batch_of(task, given).labels["tag"]
        assert labels.positions is not None and labels.positions.tolist() == [1, 2, 3, 6, 7, 8]
        outside = [0, 0, 0, 0, 1]
        expected = [[0.4, 0.6, 0, 0, 0], outside, outside, [0, 1, 0, 0, 0], outside, outside]
        np.testing.assert_allclose(labels.values, expected, atol=1e-7)
        logits = np.random.default_rng(0).normal(size=(10, 5)).astype(np.float32)
        found = task.loss(paddle.to_tensor(logits), batch_of(task, given))
        log_p = logits - np.log(np.exp(logits).sum(1, keepdims=True))
        assert found.count == 6
        assert float(found.total) == pytest.approx(-(labels.values * log_p[labels.positions]).sum(), rel=1e-5)
        assert "soft labels: 1 of 6 words are divided among several tags" in [*task.loss_notes(given)]

    @pytest.mark.parametrize(
        ("tag", "message"),
        [
            ({"B-PER": 0.5}, "tag 1: the probabilities of the labels sum to 0.5, expected 1"),
            ({"B-PER": float("nan"), "O": 1}, "column 'tag': tag 1: 'B-PER': expected a probability from 0 to 1"),
            ({}, "column 'tag': tag 1 has no probabilities"),
            ({"S-PER": 0.5, "O": 0.5}, "tag 1: label 'S-PER' is not one of"),
        ],
    )
    def test_a_mistake_is_an_error_with_its_line(self, tag: dict[str, float], message: str) -> None:
        given = self.rows([tag, "O", "O"], ["B-PER", "O", {"O": 1}])
        with pytest.raises(UserError) as error:
            prepare(Tag().adapted_to(given), Split("train", given), TOKENIZER)
        assert str(error.value).startswith(f"train.jsonl:1: {message}")
