"""What objectives are made of: single and paired samples, and ways to cut a document."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, ClassVar

import numpy as np
import pytest
from helpers import document, numbered
from hypothesis import given
from hypothesis import strategies as st

import tasks.objectives  # noqa: F401 - registers the tasks
from ernie.data.document import IGNORE, Sample
from ernie.data.stream import Source
from ernie.errors import UserError
from ernie.text.tokenizer import Tokenizer
from tasks.base import PretrainTask, SequenceTask, TokenTask, pair, pretrain_tasks, single
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


@pytest.mark.parametrize("kind", [np.bool_, np.uint8, np.uint16, np.int8, np.int64])
def test_labels_of_every_kind_of_integer_leave_the_special_tokens_out(kind: type) -> None:
    sample = single(TOKENIZER, np.array([7, 8, 9]), label=np.array([0, 1, 0]).astype(kind))
    assert np.asarray(sample.labels["label"]).tolist() == [IGNORE, 0, 1, 0, IGNORE]


def test_labels_in_a_list_are_framed_as_those_in_an_array() -> None:
    sample = single(TOKENIZER, np.array([7, 8, 9]), label=[0, 1, 0])
    assert np.asarray(sample.labels["label"]).tolist() == [IGNORE, 0, 1, 0, IGNORE]


def test_a_pair_may_be_made_of_sentences_of_a_document() -> None:
    it = document([3, 2])
    by_ids = pair(TOKENIZER, it.sentence(0).ids, it.sentence(1).ids, 16, label=1)
    assert pair(TOKENIZER, it.sentence(0), it.sentence(1), 16, label=1).ids.tolist() == by_ids.ids.tolist()


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


# ---------------------------------------------------------------------------------------- samples that are wrong


class OfTokens(TokenTask):
    """Two-way classification of each token."""

    classes: ClassVar[int] = 2

    def samples(self, items: Sequence[Any], tokenizer: Tokenizer, rng: np.random.Generator) -> Iterator[Sample]:
        yield items[0](tokenizer)


class OfSequences(SequenceTask):
    """Three-way classification of each sequence."""

    classes: ClassVar[int] = 3

    def samples(self, items: Sequence[Any], tokenizer: Tokenizer, rng: np.random.Generator) -> Iterator[Sample]:
        yield items[0](tokenizer)


class Forgetful(OfSequences):
    """One that does not say how many classes there are."""

    classes: ClassVar[int] = 0


def framed(label: Any, length: int = 4, key: str = "label") -> Callable[[Tokenizer], Sample]:
    return lambda tokenizer: Sample(np.full(length, 7), np.zeros(length, np.int64), {key: label})


def made_of(token: float) -> Callable[[Tokenizer], Sample]:
    return lambda tokenizer: Sample(np.full(4, token), np.zeros(4, np.int64), {"label": 0})


def given(ids: Any, segments: Any) -> Callable[[Tokenizer], Sample]:
    return lambda tokenizer: Sample(ids, segments, {"label": 0})


def looked_at(task: PretrainTask, *made: Callable[[Tokenizer], Sample]) -> int:
    return Source("own", task, list(made), TOKENIZER, seed=0, budget=64).items_per_block()


@pytest.mark.parametrize(
    ("task", "label"),
    [
        (OfTokens(), np.array([IGNORE, 0, 1, IGNORE])),
        (OfTokens(), np.full(4, IGNORE)),
        (OfSequences(), 2),
        (OfSequences(), np.array(2)),
    ],
)
def test_samples_that_can_be_learnt_from_are_taken(task: PretrainTask, label: Any) -> None:
    assert looked_at(task, framed(label)) == 1


@pytest.mark.parametrize(
    ("task", "made", "sentence"),
    [
        (OfSequences(max_len=16), framed(1, 17), "has 17 tokens, and none may have more than `length`, 16"),
        (OfSequences(), framed(1, key="kind"), r"has no label called 'label' \(it has: kind\)"),
        (OfSequences(), framed(3), "a label is 3, and the task has 3 classes"),
        (OfSequences(), framed(-2), "a label is -2, and the task has 3 classes"),
        (OfSequences(), framed(0.5), "labels are of the type float64; expected integers"),
        (OfSequences(), framed(np.array([0, 1, 2, 0])), "has one label a sequence"),
        (OfSequences(), framed(IGNORE), "a label is IGNORE; for a sequence without a label a SequenceTask must"),
        (OfTokens(), framed(1), r"the labels have the shape \(\), and the sample 4 tokens"),
        (OfTokens(), framed(np.array([0, 1, 0])), r"the labels have the shape \(3,\), and the sample 4 tokens"),
        (OfTokens(), framed(np.array([True, False, True, True])), "labels are of the type bool; expected integers"),
        (OfSequences(), made_of(99_999), "an id of a sample is 99999, but the vocabulary has"),
        (OfSequences(), made_of(1_000), "an id of a sample is 1000, but the vocabulary has 1,000 tokens"),
        (OfSequences(), made_of(-1), "an id of a sample is -1, but the vocabulary has"),
        (OfSequences(), made_of(0.5), "the ids of a sample are of the type float64; expected whole numbers"),
        (OfSequences(), given([7, 8], np.zeros(2, np.int64)), "the ids of a sample are a list; expected a NumPy array"),
        (OfSequences(), given(np.arange(4), np.zeros(4)), "the segments of a sample are of the type float64; expected"),
        (OfSequences(), given(np.arange(4), np.zeros(3, np.int64)), r"ids of the shape \(4,\) and segments of \(3,\)"),
        (OfSequences(), given(np.arange(0), np.arange(0)), "of which there is at least one"),
        (Forgetful(), framed(0), "a label is 0, and the task has 0 classes"),
        (
            OfTokens(),
            framed(np.array([0, 1, -100, 0])),
            "a label is -100, .* that is not scored has the label IGNORE, -1, of ernie",
        ),
        (OfTokens(), lambda tokenizer: None, "its `samples` yields a NoneType; expected a Sample, as `single` and"),
        (OfTokens(), lambda tokenizer: (np.arange(4), 0), "its `samples` yields a tuple; expected a Sample"),
    ],
)
def test_a_sample_that_cannot_be_learnt_from_is_told_with_task_and_document(
    task: PretrainTask, made: Callable[[Tokenizer], Sample], sentence: str
) -> None:
    good = framed(np.array([IGNORE, 0, 1, IGNORE]) if isinstance(task, TokenTask) else 0)
    others = [] if isinstance(task, Forgetful) else [good, good]
    with pytest.raises(UserError, match=f"task 'own', item {len(others)} of its documents: .*{sentence}"):
        looked_at(task, *others, made)


def test_a_task_that_yields_nothing_at_all_is_told() -> None:
    class Silent(OfTokens):
        def samples(self, items: Sequence[Any], tokenizer: Tokenizer, rng: np.random.Generator) -> Any:
            return None

    with pytest.raises(UserError, match="its `samples` returns a NoneType; expected it to yield samples"):
        looked_at(Silent(), framed(0))


def test_samples_of_which_some_have_other_labels_are_told() -> None:
    source = Source("own", OfSequences(), [framed(0), framed(1, key="label"), labeled_twice], TOKENIZER, 0, budget=64)
    with pytest.raises(
        UserError, match="task 'own': its samples do not all have the same labels: some have label; some"
    ):
        source.batches(0, 0, 3)


def labeled_twice(tokenizer: Tokenizer) -> Sample:
    return Sample(np.full(4, 7), np.zeros(4, np.int64), {"label": 0, "more": 1})


def test_an_error_of_a_task_s_own_names_task_and_document() -> None:
    def fails(tokenizer: Tokenizer) -> Sample:
        raise ZeroDivisionError("no words")

    with pytest.raises(RuntimeError, match=r"task 'own' failed at item 0 .*ZeroDivisionError\('no words'\)"):
        looked_at(OfSequences(), fails)
