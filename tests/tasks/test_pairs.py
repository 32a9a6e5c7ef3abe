"""The two texts of a pair: in order, and each with its own segment, whatever is empty or cut."""

from __future__ import annotations

import numpy as np
import pytest
from support.helpers import vocabulary

from ernie.data.batch import pack
from ernie.data.labeled.row import Row
from tasks.downstream.base import LogitsTask
from tasks.downstream.choose import Choose
from tasks.downstream.classify import Classify
from tasks.downstream.extract import Extract
from tasks.downstream.multilabel import MultiLabel
from tasks.downstream.rank import Rank
from tasks.downstream.regress import Regress

TOKENIZER = vocabulary("a b")
NAMES = {"text": "first", "text_pair": "second"}
KINDS = [
    Classify(labels=("x", "y"), max_len=12, **NAMES),
    MultiLabel(labels=("x", "y"), max_len=12, **NAMES),
    Regress(max_len=12, **NAMES),
    Rank(max_len=12, **NAMES),
    Choose(text="first", choices=("second", "other"), max_len=12),
    Extract(question="first", context="second", max_len=12, max_question=4, stride=2),
]


@pytest.mark.parametrize("task", KINDS, ids=lambda task: task.variant_name)
@pytest.mark.parametrize(("first", "second"), [(2, 3), (0, 3), (2, 0), (0, 0), (30, 1), (1, 30), (30, 30)])
def test_the_first_text_has_segment_0_and_the_second_segment_1(task: LogitsTask, first: int, second: int) -> None:
    row = Row({"first": "a " * first, "second": "b " * second, "other": "b"})
    samples = task.example(row, TOKENIZER).samples
    for sample in samples:
        tokens = [TOKENIZER.tokens[i] for i in sample.ids]
        middle = tokens.index("[SEP]") + 1
        assert set(tokens[1 : middle - 1]) <= {"a"}
        assert set(tokens[middle:-1]) <= {"b"}
        assert sample.segments.tolist() == [0] * middle + [1] * (len(tokens) - middle)
    packed = pack([*samples, *samples])
    assert packed.segments.tolist() == np.concatenate([sample.segments for sample in (*samples, *samples)]).tolist()
