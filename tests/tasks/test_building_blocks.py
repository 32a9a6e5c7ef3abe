"""Building blocks of pretraining tasks: single and paired samples, document splitting, sample checks."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, ClassVar

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.helpers import document, numbered

from ernie.data.document import IGNORE, Sample
from ernie.data.stream import Source
from ernie.errors import UserError
from ernie.text.tokenizer import Tokenizer
from tasks import pretraining  # noqa: F401 - registers the tasks
from tasks.base import PretrainTask, SequenceTask, TokenTask, pair, pretrain_tasks, single
from tasks.passages import sentence_groups, token_spans

TOKENIZER = numbered()
CLS, SEP = TOKENIZER.cls_id, TOKENIZER.sep_id
sentence_lengths = st.lists(st.integers(min_value=1, max_value=30), max_size=20)
token_limits = st.integers(min_value=1, max_value=60)


def test_single_adds_special_tokens_and_pads_the_token_labels_to_match() -> None:
    sample = single(TOKENIZER, np.array([7, 8]), token=np.array([1, 0]), sequence=3)
    assert sample.ids.tolist() == [CLS, 7, 8, SEP]
    assert sample.segments.tolist() == [0, 0, 0, 0]
    assert sample.labels["token"].tolist() == [IGNORE, 1, 0, IGNORE]  # type: ignore[union-attr]
    assert sample.labels["sequence"] == 3


@pytest.mark.parametrize("kind", [np.bool_, np.uint8, np.uint16, np.int8, np.int64])
def test_labels_of_any_integer_type_ignore_the_special_tokens(kind: type) -> None:
    sample = single(TOKENIZER, np.array([7, 8, 9]), label=np.array([0, 1, 0]).astype(kind))
    assert np.asarray(sample.labels["label"]).tolist() == [IGNORE, 0, 1, 0, IGNORE]


def test_labels_in_a_list_are_treated_like_those_in_an_array() -> None:
    sample = single(TOKENIZER, np.array([7, 8, 9]), label=[0, 1, 0])
    assert np.asarray(sample.labels["label"]).tolist() == [IGNORE, 0, 1, 0, IGNORE]


def test_a_pair_can_be_made_of_sentences_of_a_document() -> None:
    text = document([3, 2])
    by_ids = pair(TOKENIZER, text.sentence(0).ids, text.sentence(1).ids, 16, label=1)
    assert pair(TOKENIZER, text.sentence(0), text.sentence(1), 16, label=1).ids.tolist() == by_ids.ids.tolist()


def test_a_pair_has_two_segments() -> None:
    sample = pair(TOKENIZER, np.array([7, 8]), np.array([9]), 16, label=1)
    assert sample.ids.tolist() == [CLS, 7, 8, SEP, 9, SEP]
    assert sample.segments.tolist() == [0, 0, 0, 0, 1, 1]


@given(st.integers(min_value=1, max_value=60), st.integers(min_value=1, max_value=60), st.integers(8, 70))
def test_a_pair_that_is_too_long_is_truncated_at_the_end_of_its_longer_side(
    first: int, second: int, max_len: int
) -> None:
    left, right = np.arange(100, 100 + first), np.arange(300, 300 + second)
    ids = pair(TOKENIZER, left, right, max_len).ids.tolist()
    kept = [sum(low <= token < low + 100 for token in ids) for low in (100, 300)]
    assert ids == [CLS, *left[: kept[0]], SEP, *right[: kept[1]], SEP]
    available = max_len - 3
    assert sum(kept) == min(first + second, available)  # nothing that fits is cut
    assert kept[0] >= min(first, available // 2)  # a side falls below half only if it is short itself
    assert kept[1] >= min(second, available // 2)


@given(sentence_lengths, token_limits)
def test_token_spans_cover_a_document_and_end_at_sentence_ends(lengths: list[int], max_tokens: int) -> None:
    text = document(lengths)
    found = token_spans(text, max_tokens)
    assert [token for start, stop in found for token in range(start, stop)] == list(range(sum(lengths)))
    ends = set(np.cumsum(lengths).tolist())
    for start, stop in found:
        assert stop - start <= max_tokens
        if stop not in ends:  # only a sentence longer than max_tokens is split
            assert stop - start == max_tokens
            assert not ends & set(range(start + 1, stop + 1))
        elif stop < sum(lengths):  # and the next sentence would not have fit
            following = min(end for end in ends if end > stop)
            assert following - start > max_tokens


@given(sentence_lengths, token_limits)
def test_sentence_groups_hold_as_many_whole_sentences_as_fit(lengths: list[int], max_tokens: int) -> None:
    found = list(sentence_groups(document(lengths), max_tokens))
    assert [sentence for first, last in found for sentence in range(first, last)] == list(range(len(lengths)))
    for first, last in found:
        assert sum(lengths[first:last]) <= max_tokens or last - first == 1
        assert last == len(lengths) or sum(lengths[first : last + 1]) > max_tokens


def test_a_yaml_entry_selects_the_task_by_its_key_or_by_its_task_field() -> None:
    cls, consumed = PretrainTask.variant("capitalization", {})
    assert pretrain_tasks.name_of(cls) == "capitalization"
    assert PretrainTask.variant("any", {"task": "capitalization"})[0] is cls
    assert consumed == {"task"}


@pytest.mark.parametrize("wrong", ["capitalisation", None, 3, ["capitalization"], {}])
def test_an_unknown_task_raises_an_error_that_suggests_the_nearest_name(wrong: object) -> None:
    with pytest.raises(UserError, match="no pretraining task is called"):
        PretrainTask.variant("any", {"task": wrong})
    with pytest.raises(UserError, match="Did you mean 'capitalization'"):
        PretrainTask.variant("capitalisation", {})


def test_the_sample_length_is_the_tasks_own_or_the_default() -> None:
    cls = PretrainTask.variant("capitalization", {})[0]
    assert cls(max_len=40).length == 40
    assert cls().length == 128


# ---------------------------------------------------------------------------------------- invalid samples


class TokenToy(TokenTask):
    """Two-way classification of each token."""

    classes: ClassVar[int] = 2

    def samples(self, items: Sequence[Any], tokenizer: Tokenizer, rng: np.random.Generator) -> Iterator[Sample]:
        yield items[0](tokenizer)


class SequenceToy(SequenceTask):
    """Three-way classification of each sequence."""

    classes: ClassVar[int] = 3

    def samples(self, items: Sequence[Any], tokenizer: Tokenizer, rng: np.random.Generator) -> Iterator[Sample]:
        yield items[0](tokenizer)


class WithoutClasses(SequenceToy):
    """A task that does not declare its number of classes."""

    classes: ClassVar[int] = 0


def sample_with_label(label: Any, length: int = 4, key: str = "label") -> Callable[[Tokenizer], Sample]:
    return lambda tokenizer: Sample(np.full(length, 7), np.zeros(length, np.int64), {key: label})


def sample_with_token(token: float) -> Callable[[Tokenizer], Sample]:
    return lambda tokenizer: Sample(np.full(4, token), np.zeros(4, np.int64), {"label": 0})


def sample_of(ids: Any, segments: Any) -> Callable[[Tokenizer], Sample]:
    return lambda tokenizer: Sample(ids, segments, {"label": 0})


def items_per_block(task: PretrainTask, *makers: Callable[[Tokenizer], Sample]) -> int:
    return Source("own", task, list(makers), TOKENIZER, seed=0, micro_batch_tokens=64).items_per_block()


@pytest.mark.parametrize(
    ("task", "label"),
    [
        (TokenToy(), np.array([IGNORE, 0, 1, IGNORE])),
        (TokenToy(), np.full(4, IGNORE)),
        (SequenceToy(), 2),
        (SequenceToy(), np.array(2)),
    ],
)
def test_valid_samples_are_accepted(task: PretrainTask, label: Any) -> None:
    assert items_per_block(task, sample_with_label(label)) == 1


@pytest.mark.parametrize(
    ("task", "maker", "message"),
    [
        (SequenceToy(max_len=16), sample_with_label(1, 17), "has 17 tokens, and none may have more than `length`, 16"),
        (SequenceToy(), sample_with_label(1, key="kind"), r"has no label called 'label' \(it has: kind\)"),
        (SequenceToy(), sample_with_label(3), "a label is 3, and the task has 3 classes"),
        (SequenceToy(), sample_with_label(-2), "a label is -2, and the task has 3 classes"),
        (SequenceToy(), sample_with_label(0.5), "labels are of the type float64; expected integers"),
        (SequenceToy(), sample_with_label(np.array([0, 1, 2, 0])), "has one label a sequence"),
        (
            SequenceToy(),
            sample_with_label(IGNORE),
            "a label is IGNORE; for a sequence without a label a SequenceTask must",
        ),
        (TokenToy(), sample_with_label(1), r"the labels have the shape \(\), and the sample 4 tokens"),
        (
            TokenToy(),
            sample_with_label(np.array([0, 1, 0])),
            r"the labels have the shape \(3,\), and the sample 4 tokens",
        ),
        (
            TokenToy(),
            sample_with_label(np.array([True, False, True, True])),
            "labels are of the type bool; expected integers",
        ),
        (SequenceToy(), sample_with_token(99_999), "an id of a sample is 99999, but the vocabulary has"),
        (SequenceToy(), sample_with_token(1_000), "an id of a sample is 1000, but the vocabulary has 1,000 tokens"),
        (SequenceToy(), sample_with_token(-1), "an id of a sample is -1, but the vocabulary has"),
        (SequenceToy(), sample_with_token(0.5), "the ids of a sample are of the type float64; expected whole numbers"),
        (
            SequenceToy(),
            sample_of([7, 8], np.zeros(2, np.int64)),
            "the ids of a sample are a list; expected a NumPy array",
        ),
        (
            SequenceToy(),
            sample_of(np.arange(4), np.zeros(4)),
            "the segments of a sample are of the type float64; expected",
        ),
        (
            SequenceToy(),
            sample_of(np.arange(4), np.zeros(3, np.int64)),
            r"ids of the shape \(4,\) and segments of \(3,\)",
        ),
        (SequenceToy(), sample_of(np.arange(0), np.arange(0)), "of which there is at least one"),
        (WithoutClasses(), sample_with_label(0), "a label is 0, and the task has 0 classes"),
        (
            TokenToy(),
            sample_with_label(np.array([0, 1, -100, 0])),
            "a label is -100, .* that is not scored has the label IGNORE, -1, of ernie",
        ),
        (TokenToy(), lambda tokenizer: None, "its `samples` yields a NoneType; expected a Sample, as `single` and"),
        (TokenToy(), lambda tokenizer: (np.arange(4), 0), "its `samples` yields a tuple; expected a Sample"),
    ],
)
def test_an_invalid_sample_raises_an_error_that_names_task_and_document(
    task: PretrainTask, maker: Callable[[Tokenizer], Sample], message: str
) -> None:
    good = sample_with_label(np.array([IGNORE, 0, 1, IGNORE]) if isinstance(task, TokenTask) else 0)
    others = [] if isinstance(task, WithoutClasses) else [good, good]
    with pytest.raises(UserError, match=f"task 'own', item {len(others)} of its documents: .*{message}"):
        items_per_block(task, *others, maker)


def test_a_task_whose_samples_method_returns_none_raises_an_error() -> None:
    class ReturnsNone(TokenToy):
        def samples(self, items: Sequence[Any], tokenizer: Tokenizer, rng: np.random.Generator) -> Any:
            return None

    with pytest.raises(UserError, match="its `samples` returns a NoneType; expected it to yield samples"):
        items_per_block(ReturnsNone(), sample_with_label(0))


def test_samples_with_differing_label_names_raise_an_error() -> None:
    source = Source(
        "own",
        SequenceToy(),
        [sample_with_label(0), sample_with_label(1, key="label"), sample_with_two_labels],
        TOKENIZER,
        0,
        micro_batch_tokens=64,
    )
    with pytest.raises(
        UserError, match="task 'own': its samples do not all have the same labels: some have label; some"
    ):
        source.batches(0, 0, 3)


def sample_with_two_labels(tokenizer: Tokenizer) -> Sample:
    return Sample(np.full(4, 7), np.zeros(4, np.int64), {"label": 0, "more": 1})


def test_an_exception_inside_a_task_is_reported_with_task_and_document() -> None:
    def fails(tokenizer: Tokenizer) -> Sample:
        raise ZeroDivisionError("no words")

    with pytest.raises(RuntimeError, match=r"task 'own' failed at item 0 .*ZeroDivisionError\('no words'\)"):
        items_per_block(SequenceToy(), fails)
