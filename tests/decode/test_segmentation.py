"""Segmentation of audio: the most probable alignment, segments of bounded length, and no lost labels."""

from __future__ import annotations

from itertools import groupby, product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ernie.audio.lengths import min_vectors
from ernie.decode.segmentation import MAX_TOKENS, Segmentation, align

BLANK = 0
segmentations = st.builds(Segmentation, st.integers(0, 4), st.integers(0, 3), st.integers(1, 9))


def first_positions(path: tuple[int, ...]) -> list[int]:
    """The first position of each label of an alignment."""
    runs = [(label, len(list(run))) for label, run in groupby(path)]
    begins = np.cumsum([0, *(length for _, length in runs)])
    return [int(begins[n]) for n, (label, _) in enumerate(runs) if label != BLANK]


@settings(max_examples=100, deadline=None)
@given(st.integers(1, 6), st.lists(st.integers(1, 3), max_size=3), st.integers(0, 10**6))
def test_the_alignment_is_the_most_probable_one(T: int, labels: list[int], seed: int) -> None:
    scores_TV = np.random.default_rng(seed).normal(0, 2, (T, 4))
    if min_vectors(np.array(labels, np.int64)) > T:
        with pytest.raises(ValueError, match="fewer than"):
            align(scores_TV, labels, BLANK)
        return
    log_TV = scores_TV - np.logaddexp.reduce(scores_TV, 1)[:, None]
    fitting = [path for path in product(range(4), repeat=T) if [x for x, _ in groupby(path) if x != BLANK] == labels]
    best = max(fitting, key=lambda path: sum(log_TV[t, label] for t, label in enumerate(path)))
    assert align(scores_TV, labels, BLANK) == first_positions(best)


@settings(max_examples=200)
@given(segmentations, st.integers(1, 40), st.data())
def test_every_vector_is_in_one_segment_of_bounded_length(segmentation: Segmentation, T: int, data) -> None:
    spikes = sorted(data.draw(st.sets(st.integers(0, T - 1))))
    before, cuts = -1, []
    while (cut := segmentation.next_cut(before, spikes, T, ended=True)) is not None:
        assert before < cut <= before + segmentation.longest
        cuts.append(cut)
        before = cut
    assert cuts[-1] == T - 1
    assert set(spikes) <= set(cuts)
    windows = segmentation.windows(cuts, T)
    inside = [np.arange(window.first, window.last)[window.parts == 1] for window in windows]
    assert np.concatenate(inside).tolist() == list(range(T))
    for window in windows:
        assert (np.diff(window.parts) >= 0).all()
        assert window.last - window.first <= segmentation.longest + segmentation.back + segmentation.ahead


@settings(max_examples=200)
@given(segmentations, st.integers(1, 40), st.data())
def test_cuts_found_early_are_those_of_the_whole(segmentation: Segmentation, T: int, data) -> None:
    spikes = sorted(data.draw(st.sets(st.integers(0, T - 1))))

    def cuts_of(vectors: int, ended: bool) -> list[int]:
        before, cuts = -1, []
        arrived = [spike for spike in spikes if spike < vectors]
        while (cut := segmentation.next_cut(before, arrived, vectors, ended)) is not None:
            cuts.append(cut)
            before = cut
        return cuts

    whole = cuts_of(T, True)
    for vectors in range(T):
        early = cuts_of(vectors, False)
        assert early == whole[: len(early)]


@settings(max_examples=200)
@given(segmentations, st.integers(1, 40), st.data())
def test_training_segments_have_all_labels_and_few_each(segmentation: Segmentation, T: int, data) -> None:
    spikes = sorted(data.draw(st.sets(st.integers(0, T - 1))))
    positions = sorted(data.draw(st.sets(st.integers(0, T - 1))))
    cuts = segmentation.training_cuts(spikes, positions, T)
    assert sum(count for _, count in cuts) == len(positions)
    assert all(0 <= count <= MAX_TOKENS for _, count in cuts)
    assert [cut for cut, _ in cuts] == sorted({cut for cut, _ in cuts})


def test_no_label_takes_the_only_position_of_the_next_one() -> None:
    cuts = Segmentation(0, 0, 1).training_cuts([12], list(range(13)), 13)
    assert sum(count for _, count in cuts) == 13
    assert cuts[-1] == (12, 1)


def test_where_ctc_is_right_each_segment_has_one_token() -> None:
    segmentation = Segmentation(2, 1, 20)
    assert segmentation.training_cuts([3, 8, 12], [3, 8, 12], 15) == [(3, 1), (8, 1), (12, 1), (14, 0)]


@pytest.mark.parametrize(
    ("spikes", "cuts"),
    [
        ([4], [(4, 1), (5, 0)]),  # a vector late, a vector early
        ([2], [(2, 1), (5, 0)]),
        ([1], [(1, 0), (3, 1), (5, 0)]),  # two vectors are too far: the spike stands for no label
        ([2, 3, 4], [(2, 0), (3, 1), (4, 0), (5, 0)]),  # an exact match is preferred to a near one
    ],
)
def test_a_label_ends_a_segment_at_the_spike_next_to_it(spikes: list[int], cuts: list[tuple[int, int]]) -> None:
    assert Segmentation(2, 1, 20).training_cuts(spikes, [3], 6) == cuts


def test_a_missed_token_joins_the_next_segment_and_a_spurious_spike_is_an_empty_one() -> None:
    segmentation = Segmentation(2, 1, 20)
    assert segmentation.training_cuts([3, 12], [3, 8, 12], 13) == [(3, 1), (12, 2)]
    assert segmentation.training_cuts([3, 8, 12], [3, 12], 13) == [(3, 1), (8, 0), (12, 1)]
