"""Reordering, distance and next sentence: labels correct by construction, verified from the sample alone."""

from __future__ import annotations

from collections import Counter
from itertools import permutations

import numpy as np
import pytest
from support.helpers import document, numbered

from ernie.data.document import Document, Mark, Sample
from ernie.errors import UserError
from tasks.base import PretrainTask
from tasks.pretraining.next_sentence import FOLLOWS, OTHER_DOCUMENT, NextSentence
from tasks.pretraining.sentence_distance import ADJACENT, SAME_DOCUMENT, TWO_DOCUMENTS, SentenceDistance
from tasks.pretraining.sentence_reordering import SentenceReordering, arrangements

TOKENIZER = numbered(20_000)


def distinct(lengths: list[int], offset: int = 10, marks: list[int] | None = None) -> Document:
    """A document of distinct tokens, so that a sample shows where each token came from."""
    ids = np.arange(offset, offset + sum(lengths))
    found = np.array(marks or [0] * len(lengths), np.uint8)
    return Document(0, ids, np.zeros(len(ids), np.uint8), np.cumsum(lengths), found)


def samples(task: PretrainTask, items: list[Document], seeds: int = 1) -> list[Sample]:
    return [s for seed in range(seeds) for s in task.samples(items, TOKENIZER, np.random.default_rng(seed))]


def sides(sample: Sample) -> tuple[list[int], list[int]]:
    """The two texts of a pair."""
    first = sample.ids[sample.segments == 0][1:-1].tolist()
    return first, sample.ids[sample.segments == 1][:-1].tolist()


def sentences(text: Document) -> list[list[int]]:
    return [text.sentence(i).ids.tolist() for i in range(len(text))]


def even(labels: list[int], classes: int) -> bool:
    """Whether all classes occur equally often, within five standard deviations."""
    counts = np.bincount(labels, minlength=classes)
    expected = len(labels) / classes
    return len(counts) == classes and bool((np.abs(counts - expected) < 5 * np.sqrt(expected) + 1).all())


# --------------------------------------------------------------------------------------------- reordering


@pytest.mark.parametrize(("segments", "classes"), [(2, 3), (3, 9), (4, 33), (5, 153)])
def test_there_is_a_class_for_every_permutation_of_every_number_of_parts(segments: int, classes: int) -> None:
    assert SentenceReordering(segments=segments).class_count() == classes
    assert len(set(arrangements(segments))) == classes
    assert set(arrangements(segments)) == {
        order for parts in range(1, segments + 1) for order in permutations(range(parts))
    }


def joined(order: tuple[int, ...]) -> tuple[int, ...]:
    """The order after merging parts that stay adjacent."""
    starts = [part for i, part in enumerate(order) if i == 0 or part != order[i - 1] + 1]
    return tuple(sorted(starts).index(part) for part in starts)


@pytest.mark.parametrize(("segments", "orders"), [(2, 2), (3, 5), (4, 16)])
def test_distinct_orders_are_fewer_than_classes(segments: int, orders: int) -> None:
    assert len({joined(order) for order in arrangements(segments)}) == orders


@pytest.mark.parametrize("segments", [2, 3, 4])
def test_undoing_the_labeled_order_restores_the_passage(segments: int) -> None:
    text = distinct([3, 5, 2, 4, 6, 1, 3, 5, 4])
    task = SentenceReordering(segments=segments, max_len=24)
    groups: set[tuple[int, ...]] = set()
    for sample in samples(task, [text], seeds=60):
        shown = sample.ids[1:-1].tolist()
        order = arrangements(segments)[int(sample.labels["label"])]
        # Parts are runs of consecutive tokens: they break where a token does not follow the previous one.
        parts = [list(run) for run in np.split(shown, np.flatnonzero(np.diff(shown) != 1) + 1)]
        restored = sorted(shown)
        assert restored == list(range(restored[0], restored[0] + len(restored)))
        joined = sum(order[i + 1] == order[i] + 1 for i in range(len(order) - 1))  # neighbors that stay adjacent
        assert len(parts) == len(order) - joined
        ranks = np.argsort(np.argsort([part[0] for part in parts])).tolist()
        assert ranks == collapsed(order)
        assert {part[0] for part in parts} <= {int(s[0]) for s in sentences(text)}  # cut at sentence ends only
        groups.add(tuple(restored))
    assert len(groups) == len({group[0] for group in groups})  # always the same passages in any order


def collapsed(order: tuple[int, ...]) -> list[int]:
    """The order of the runs that remain after merging consecutive parts: (1, 2, 0) -> [1, 0]."""
    heads = [part for i, part in enumerate(order) if i == 0 or order[i - 1] != part - 1]
    return [sorted(heads).index(part) for part in heads]


@pytest.mark.parametrize("segments", [2, 3, 4])
def test_reordering_classes_are_balanced(segments: int) -> None:
    task = SentenceReordering(segments=segments, max_len=32)
    found = [int(s.labels["label"]) for s in samples(task, [document([4] * 600)], seeds=40)]
    assert even(found, task.class_count())


def test_reordering_skips_headings_and_short_passages() -> None:
    text = distinct([3, 5, 5, 5], marks=[Mark.TITLE, 0, 0, 0])
    (sample,) = samples(SentenceReordering(), [text])
    assert sorted(sample.ids[1:-1].tolist()) == list(range(13, 28))
    assert samples(SentenceReordering(segments=4), [text]) == []


@pytest.mark.parametrize("segments", [1, 6])
def test_an_impossible_number_of_segments_raises_an_error(segments: int) -> None:
    with pytest.raises(UserError, match=f"segments: expected 2 to 5, found {segments}"):
        SentenceReordering(segments=segments)


# ----------------------------------------------------------------------------------------------- distance


def test_the_labeled_distance_is_the_true_one() -> None:
    here, there = distinct([4] * 9), distinct([5] * 6, offset=1000)
    place = {tuple(s): (0, i) for i, s in enumerate(sentences(here))}
    place |= {tuple(s): (1, i) for i, s in enumerate(sentences(there))}
    seen = Counter[int]()
    for sample in samples(SentenceDistance(), [here, there], seeds=100):
        (document_a, i), (document_b, k) = (place[tuple(side)] for side in sides(sample))
        label = int(sample.labels["label"])
        seen[label] += 1
        assert document_a == 0
        if label == ADJACENT:
            assert (document_b, k) == (0, i + 1)
        elif label == SAME_DOCUMENT:
            assert document_b == 0
            assert abs(i - k) > 1
        else:
            assert label == TWO_DOCUMENTS
            assert document_b == 1
    assert even(list(seen.elements()), 3)


def test_any_sentence_that_is_far_enough_away_can_be_the_second() -> None:
    """If second sentences were, say, only beginnings of documents, their content would give the label away."""
    here, there = distinct([4] * 7), distinct([5] * 6, offset=1000)
    found: dict[int, set[tuple[int, int]]] = {ADJACENT: set(), SAME_DOCUMENT: set(), TWO_DOCUMENTS: set()}
    for sample in samples(SentenceDistance(), [here, there], seeds=300):
        first, second = (side[0] for side in sides(sample))
        label = int(sample.labels["label"])
        place = (second - 1000) // 5 if label == TWO_DOCUMENTS else (second - 10) // 4
        found[label].add(((first - 10) // 4, place))
    assert found[SAME_DOCUMENT] == {(i, k) for i in (0, 2, 4) for k in range(7) if abs(i - k) > 1}
    assert found[TWO_DOCUMENTS] == {(i, k) for i in (0, 2, 4) for k in range(6)}


def test_distance_skips_headings_and_needs_four_sentences() -> None:
    other = distinct([5] * 6, offset=1000)
    assert samples(SentenceDistance(), [distinct([4] * 3), other]) == []
    assert samples(SentenceDistance(), [distinct([4] * 4), distinct([])]) == []
    headed = distinct([4] * 5, marks=[0, 0, Mark.HEADING, 0, 0])
    shown = [token for s in samples(SentenceDistance(), [headed, other], seeds=30) for token in sides(s)[0]]
    assert shown
    assert not set(shown) & set(sentences(headed)[2])


# ------------------------------------------------------------------------------------------ next sentence


def test_the_second_passage_follows_the_first_or_comes_from_another_document() -> None:
    here, there = distinct([4, 6, 5, 3] * 6), distinct([5] * 30, offset=1000)
    seen = Counter[int]()
    for sample in samples(NextSentence(max_len=40), [here, there], seeds=60):
        first, second = sides(sample)
        label = int(sample.labels["label"])
        seen[label] += 1
        assert first == list(range(first[0], first[-1] + 1))
        assert second == list(range(second[0], second[-1] + 1))
        assert second[0] >= 1000 if label != FOLLOWS else second[0] == first[-1] + 1
    assert even(list(seen.elements()), 2)


def test_passages_split_after_any_sentence_and_random_ones_too() -> None:
    here, there = distinct([4, 4, 4]), distinct([2] * 9, offset=1000)
    starts: dict[int, set[int]] = {}
    lengths = set()
    for sample in samples(NextSentence(), [here, there], seeds=400):
        first, second = sides(sample)
        starts.setdefault(int(sample.labels["label"]), set()).add(second[0])
        lengths.add((len(first), len(second)))
    assert starts == {FOLLOWS: {14, 18}, OTHER_DOCUMENT: {1002 + 2 * i for i in range(8)}}
    # A little less than the shorter candidate: of 2 to 8 tokens after the first sentence, 2 or 4 after the second.
    assert lengths == {*((4, second) for second in (1, 3, 4, 5, 6, 7)), (8, 1), (8, 3)}


def test_the_end_of_a_sentence_does_not_tell_whether_a_passage_follows() -> None:
    rng = np.random.default_rng(0)
    ends: dict[bool, list[bool]] = {True: [], False: []}
    for seed in range(200):
        here, there = (distinct(rng.integers(3, 15, 60).tolist(), offset=offset) for offset in (10, 1000))
        last = {int(sentence[-1]) for document in (here, there) for sentence in sentences(document)}
        for sample in NextSentence(max_len=64).samples([here, there], TOKENIZER, np.random.default_rng(seed)):
            ends[int(sample.labels["label"]) == FOLLOWS].append(sides(sample)[1][-1] in last)
    assert abs(np.mean(ends[True]) - np.mean(ends[False])) < 0.06


def test_lengths_and_the_end_of_a_sentence_together_do_not_tell_whether_a_passage_follows() -> None:
    """A long first passage leaves little of its group, so that one that follows would often be the shorter."""
    rng = np.random.default_rng(0)
    found: list[tuple[tuple[int, int, bool], bool]] = []
    for seed in range(900):
        here, there = (distinct(rng.integers(3, 15, 60).tolist(), offset=offset) for offset in (10, 1000))
        last = {int(sentence[-1]) for document in (here, there) for sentence in sentences(document)}
        for sample in NextSentence(max_len=64).samples([here, there], TOKENIZER, np.random.default_rng(seed)):
            first, second = sides(sample)
            seen = len(first) // 6, len(second) // 6, second[-1] in last
            found.append((seen, int(sample.labels["label"]) == FOLLOWS))
    learned, asked = found[::2], found[1::2]
    votes: dict[tuple[int, int, bool], int] = {}
    for seen, follows in learned:
        votes[seen] = votes.get(seen, 0) + (1 if follows else -1)
    right = [follows == (votes.get(seen, 0) > 0) for seen, follows in asked]
    assert abs(np.mean(right) - 0.5) < 0.04


def test_lengths_do_not_reveal_whether_a_passage_follows() -> None:
    here = distinct([4, 6, 5, 3] * 6)
    for other_lengths in ([2] * 60, [12] * 9):  # shorter sentences, longer ones
        there = distinct(other_lengths, offset=1000)
        lengths: dict[bool, Counter[tuple[int, int]]] = {True: Counter(), False: Counter()}
        for sample in samples(NextSentence(max_len=40), [here, there], seeds=400):
            first, second = sides(sample)
            assert second[0] < 1000 or second[0] in [sentence[0] for sentence in sentences(there)]
            lengths[int(sample.labels["label"]) == FOLLOWS][len(first), len(second)] += 1
        shares = [{pair: count / found.total() for pair, count in found.items()} for found in lengths.values()]
        assert max(abs(shares[0].get(pair, 0) - shares[1].get(pair, 0)) for pair in {*shares[0], *shares[1]}) < 0.05
    assert samples(NextSentence(max_len=40), [here, distinct([2], offset=1000)], seeds=20) == []
