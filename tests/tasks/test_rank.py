"""Ranking: targets and predicted scores."""

from __future__ import annotations

import numpy as np
import pytest
from support.toys import TOKENIZER

from ernie.data.labeled.row import Row
from tasks.downstream.rank import Rank

ROW = Row({"query": "colour", "text": "blue", "label": "1 "})


def test_whitespace_around_a_label_is_ignored() -> None:
    assert Rank().target(ROW) == ("colour", 1)


@pytest.mark.parametrize("label", [1, 1.0, True, "1.0", "True"])
def test_relevance_may_be_a_fraction_or_a_truth_value_as_tables_have_it(label: object) -> None:
    assert Rank().sample_target(Row({"label": label})) == 1


def test_a_split_whose_rows_are_all_relevant_or_all_not_is_remarked_on() -> None:
    other = Row({"query": "colour", "text": "loud", "label": 0})
    assert Rank().remarks_on([other]) == ["no row is relevant (label 1); MRR and MAP are 0 whatever is answered"]
    assert Rank().remarks_on([ROW]) == ["every row is relevant (label 1)"]
    assert Rank().remarks_on([ROW, other]) == []


@pytest.mark.parametrize("mean", [-16.0, 0.0, 12.0, 16.0])
def test_scores_of_a_confident_model_keep_the_order_of_its_logits(mean: float) -> None:
    task = Rank()
    example = task.example(ROW, TOKENIZER)
    differences = np.random.default_rng(0).normal(mean, 1.0, 200)
    scores = [task.answer(example, [np.array([0.0, difference], np.float32)])["score"] for difference in differences]
    assert np.argsort(scores).tolist() == np.argsort(differences).tolist()
    assert all(0 <= score <= 1 for score in scores)
