"""What objectives are made of: single and paired samples, and ways to cut a document."""

from __future__ import annotations

import numpy as np
import pytest
from helpers import document, numbered
from hypothesis import given
from hypothesis import strategies as st

import tasks.objectives  # noqa: F401 - registers the tasks
from ernie.data.document import IGNORE
from ernie.errors import UserError
from tasks.base import PretrainTask, pair, pretrain_tasks, single
from tasks.passages import sentence_groups, stretches

TOKENIZER = numbered()
CLS, SEP = TOKENIZER.cls_id, TOKENIZER.sep_id
sentence_lengths = st.lists(st.integers(min_value=1, max_value=30), max_size=20)
rooms = st.integers(min_value=1, max_value=60)


def test_a_single_sample_is_framed_and_its_token_labels_with_it() -> None:
    sample = single(TOKENIZER, np.array([7, 8]), token=np.array([1, 0]), sequence=3)
    assert sample.ids.tolist() == [CLS, 7, 8, SEP]
    assert sample.segments.tolist() == [0, 0, 0, 0]
    assert sample.labels["token"].tolist() == [IGNORE, 1, 0, IGNORE]  # type: ignore[union-attr]
    assert sample.labels["sequence"] == 3


def test_a_pair_has_two_segments() -> None:
    sample = pair(TOKENIZER, np.array([7, 8]), np.array([9]), 16, label=1)
    assert sample.ids.tolist() == [CLS, 7, 8, SEP, 9, SEP]
    assert sample.segments.tolist() == [0, 0, 0, 0, 1, 1]


@given(st.integers(min_value=1, max_value=60), st.integers(min_value=1, max_value=60), st.integers(8, 70))
def test_a_pair_that_is_too_long_loses_the_end_of_its_longer_side(first: int, second: int, max_len: int) -> None:
    here, there = np.arange(100, 100 + first), np.arange(300, 300 + second)
    ids = pair(TOKENIZER, here, there, max_len).ids.tolist()
    kept = [sum(low <= token < low + 100 for token in ids) for low in (100, 300)]
    assert ids == [CLS, *here[: kept[0]], SEP, *there[: kept[1]], SEP]
    room = max_len - 3
    assert sum(kept) == min(first + second, room)  # nothing is cut that would fit
    assert kept[0] >= min(first, room // 2)  # a side is only cut below half when it is short itself
    assert kept[1] >= min(second, room // 2)


@given(sentence_lengths, rooms)
def test_stretches_cover_a_document_without_gap_and_end_with_sentences(lengths: list[int], room: int) -> None:
    text = document(lengths)
    found = stretches(text, room)
    assert [token for start, stop in found for token in range(start, stop)] == list(range(sum(lengths)))
    ends = set(np.cumsum(lengths).tolist())
    for start, stop in found:
        assert stop - start <= room
        if stop not in ends:  # only a sentence that is longer than the room is cut inside
            assert stop - start == room
            assert not ends & set(range(start + 1, stop + 1))
        elif stop < sum(lengths):  # and no sentence more would have fitted
            following = min(end for end in ends if end > stop)
            assert following - start > room


@given(sentence_lengths, rooms)
def test_sentence_groups_are_whole_sentences_and_each_as_long_as_fits(lengths: list[int], room: int) -> None:
    found = list(sentence_groups(document(lengths), room))
    assert [sentence for first, last in found for sentence in range(first, last)] == list(range(len(lengths)))
    for first, last in found:
        assert sum(lengths[first:last]) <= room or last - first == 1
        assert last == len(lengths) or sum(lengths[first : last + 1]) > room


def test_a_yaml_entry_means_the_task_of_its_name_or_the_one_it_names() -> None:
    cls, consumed = PretrainTask.variant("capitalization", {})
    assert pretrain_tasks.name_of(cls) == "capitalization"
    assert PretrainTask.variant("any", {"task": "capitalization"})[0] is cls
    assert consumed == {"task"}


@pytest.mark.parametrize("wrong", ["capitalisation", None, 3, ["capitalization"], {}])
def test_a_task_that_does_not_exist_is_a_sentence_with_the_nearest_one(wrong: object) -> None:
    with pytest.raises(UserError, match="no pretraining task is called"):
        PretrainTask.variant("any", {"task": wrong})
    with pytest.raises(UserError, match="Did you mean 'capitalization'"):
        PretrainTask.variant("capitalisation", {})


def test_the_longest_sample_is_the_tasks_own_or_the_default() -> None:
    cls = PretrainTask.variant("capitalization", {})[0]
    assert cls(max_len=40).length == 40
    assert cls().length == 128
