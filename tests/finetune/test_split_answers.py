"""The answers to the rows of dev, and what a run's report counts in them."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from ernie.data.labeled.row import Row
from finetune.prepare import Prepared
from finetune.report.split_answers import confusion, read_split_answers, surest_mistakes, write_split_answers
from tasks.downstream.classify import Classify
from tasks.downstream.multilabel import MultiLabel


def test_labels_that_look_like_lists_are_counted_as_they_are_written(tmp_path: Path) -> None:
    task = Classify(labels=("(1)", "[1,2]"))
    rows = [Row({"text": "a", "label": label}) for label in task.labels]
    answers = [{"label": label, "probability": 0.9} for label in task.labels]
    write_split_answers(tmp_path, task, Prepared("dev", rows, [], labeled=True), answers)
    records = read_split_answers(tmp_path, "dev")
    assert confusion(records, task.labels) == [[1, 0], [0, 1]]
    assert surest_mistakes(records, 5) == []


def test_arrays_of_labels_are_lists(tmp_path: Path) -> None:
    rows = [Row({"text": "a", "label": np.array([1, 0])})]
    answers = [{"labels": ["x"], "probabilities": [0.9]}]
    write_split_answers(tmp_path, MultiLabel(labels=("x", "y")), Prepared("dev", rows, [], labeled=True), answers)
    assert [record["right"] for record in read_split_answers(tmp_path, "dev")] == [[1, 0]]
