"""Where sound is cut: the likeliest alignment, pieces that are bounded, and labels that none of them loses."""

from __future__ import annotations

from itertools import groupby, product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ernie.audio.lengths import min_vectors
from ernie.decode.segmentation import MAX_TOKENS, Segmentation, align

BLANK = 0
cuttings = st.builds(Segmentation, st.integers(0, 4), st.integers(0, 3), st.integers(1, 9))


def places(path: tuple[int, ...]) -> list[int]:
    """Where each label of an alignment is first told."""
    runs = [(label, len(list(run))) for label, run in groupby(path)]
    begins = np.cumsum([0, *(length for _, length in runs)])
    return [int(begins[n]) for n, (label, _) in enumerate(runs) if label != BLANK]


@settings(max_examples=100, deadline=None)
@given(st.integers(1, 6), st.lists(st.integers(1, 3), max_size=3), st.integers(0, 10**6))
def test_the_alignment_is_the_likeliest_of_all(T: int, labels: list[int], seed: int) -> None:
    scores_TV = np.random.default_rng(seed).normal(0, 2, (T, 4))
    if min_vectors(np.array(labels, np.int64)) > T:
        with pytest.raises(ValueError, match="fewer than"):
            align(scores_TV, labels, BLANK)
        return
    log_TV = scores_TV - np.logaddexp.reduce(scores_TV, 1)[:, None]
    fitting = [path for path in product(range(4), repeat=T) if [x for x, _ in groupby(path) if x != BLANK] == labels]
    best = max(fitting, key=lambda path: sum(log_TV[t, label] for t, label in enumerate(path)))
    assert align(scores_TV, labels, BLANK) == places(best)


@settings(max_examples=200)
@given(cuttings, st.integers(1, 40), st.data())
def test_every_vector_is_in_one_piece_and_no_piece_is_longer_than_allowed(cutting: Segmentation, T: int, data) -> None:
    spikes = sorted(data.draw(st.sets(st.integers(0, T - 1))))
    before, cuts = -1, []
    while (cut := cutting.next_cut(before, spikes, T, ended=True)) is not None:
        assert before < cut <= before + cutting.longest
        cuts.append(cut)
        before = cut
    assert cuts[-1] == T - 1
    assert set(spikes) <= set(cuts)
    windows = cutting.windows(cuts, T)
    inside = [np.arange(window.first, window.last)[window.parts == 1] for window in windows]
    assert np.concatenate(inside).tolist() == list(range(T))
    for window in windows:
        assert (np.diff(window.parts) >= 0).all()
        assert window.last - window.first <= cutting.longest + cutting.back + cutting.ahead


@settings(max_examples=200)
@given(cuttings, st.integers(1, 40), st.data())
def test_cuts_that_are_known_early_are_those_of_the_whole(cutting: Segmentation, T: int, data) -> None:
    spikes = sorted(data.draw(st.sets(st.integers(0, T - 1))))

    def known(vectors: int, ended: bool) -> list[int]:
        before, cuts = -1, []
        heard = [spike for spike in spikes if spike < vectors]
        while (cut := cutting.next_cut(before, heard, vectors, ended)) is not None:
            cuts.append(cut)
            before = cut
        return cuts

    whole = known(T, True)
    for vectors in range(T):
        early = known(vectors, False)
        assert early == whole[: len(early)]


@settings(max_examples=200)
@given(cuttings, st.integers(1, 40), st.data())
def test_pieces_to_learn_from_have_all_labels_and_few_each(cutting: Segmentation, T: int, data) -> None:
    spikes = sorted(data.draw(st.sets(st.integers(0, T - 1))))
    told = sorted(data.draw(st.sets(st.integers(0, T - 1))))
    cuts = cutting.training_cuts(spikes, told, T)
    assert sum(count for _, count in cuts) == len(told)
    assert all(0 <= count <= MAX_TOKENS for _, count in cuts)
    assert [cut for cut, _ in cuts] == sorted({cut for cut, _ in cuts})


def test_no_label_takes_the_only_place_of_the_next_one() -> None:
    cuts = Segmentation(0, 0, 1).training_cuts([12], list(range(13)), 13)
    assert sum(count for _, count in cuts) == 13
    assert cuts[-1] == (12, 1)


def test_what_ctc_has_heard_right_is_one_token_a_piece() -> None:
    cutting = Segmentation(2, 1, 20)
    assert cutting.training_cuts([3, 8, 12], [3, 8, 12], 15) == [(3, 1), (8, 1), (12, 1), (14, 0)]


@pytest.mark.parametrize(
    ("spikes", "cuts"),
    [
        ([4], [(4, 1), (5, 0)]),  # a vector late, a vector early
        ([2], [(2, 1), (5, 0)]),
        ([1], [(1, 0), (3, 1), (5, 0)]),  # two are too many: the spike is one that tells nothing
        ([2, 3, 4], [(2, 0), (3, 1), (4, 0), (5, 0)]),  # what is right counts before what is near
    ],
)
def test_a_label_ends_a_piece_at_the_spike_that_is_next_to_it(spikes: list[int], cuts: list[tuple[int, int]]) -> None:
    assert Segmentation(2, 1, 20).training_cuts(spikes, [3], 6) == cuts


def test_a_token_that_ctc_has_not_heard_comes_with_the_next_and_one_too_many_is_a_piece_without() -> None:
    cutting = Segmentation(2, 1, 20)
    assert cutting.training_cuts([3, 12], [3, 8, 12], 13) == [(3, 1), (12, 2)]
    assert cutting.training_cuts([3, 8, 12], [3, 12], 13) == [(3, 1), (8, 0), (12, 1)]
