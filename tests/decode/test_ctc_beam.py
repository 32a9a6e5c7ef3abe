"""Beam search over CTC: with room enough the best of all readings, with a language model and without."""

from __future__ import annotations

from itertools import groupby, product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ernie.decode.ctc import Beam, Hypothesis, greedy, stable_length

BLANK = 0


def listed(scores_TV: np.ndarray) -> dict[tuple[int, ...], float]:
    """The logarithm of the probability of every reading, by all alignments there are."""
    log_TV = scores_TV - np.logaddexp.reduce(scores_TV, 1)[:, None]
    found: dict[tuple[int, ...], float] = {}
    for path in product(range(scores_TV.shape[1]), repeat=len(scores_TV)):
        tokens = tuple(token for token, _ in groupby(path) if token != BLANK)
        told = float(sum(log_TV[t, token] for t, token in enumerate(path)))
        found[tokens] = float(np.logaddexp(found.get(tokens, -np.inf), told))
    return found


def likes_rising(before: tuple[int, ...], token: int) -> float:
    """A language model of a kind: tokens rise."""
    return -0.2 if not before or token > before[-1] else -1.7


cases = st.tuples(st.integers(1, 6), st.integers(2, 4), st.integers(0, 10**6))


def drawn(case: tuple[int, int, int]) -> np.ndarray:
    T, V, seed = case
    return np.random.default_rng(seed).normal(0, 2, (T, V))


@settings(max_examples=100, deadline=None)
@given(cases, st.booleans())
def test_with_room_for_all_readings_each_has_the_probability_of_all_its_alignments(case, models: bool) -> None:
    scores_TV = drawn(case)
    language = likes_rising if models else None
    paths = Beam(BLANK, 10_000, language, 0.7, 0.3, mass=1.0).extend([Hypothesis()], scores_TV)
    expected = listed(scores_TV)
    assert {path.tokens for path in paths} == set(expected)
    for path in paths:
        assert path.acoustic_score == pytest.approx(expected[path.tokens], abs=1e-6)
        said = sum(0.7 * likes_rising(path.tokens[:n], token) + 0.3 for n, token in enumerate(path.tokens))
        assert path.lm_score == pytest.approx(said if models else 0.3 * len(path.tokens))
    assert paths[0].score == max(path.score for path in paths)


@settings(max_examples=50, deadline=None)
@given(cases, st.integers(0, 6), st.integers(1, 8))
def test_vectors_may_come_in_pieces(case, cut: int, width: int) -> None:
    scores_TV = drawn(case)
    beam = Beam(BLANK, width, likes_rising)
    whole = beam.extend([Hypothesis()], scores_TV)
    early = beam.extend([Hypothesis()], scores_TV[:cut])
    assert beam.extend(early, scores_TV[cut:], first=min(cut, len(scores_TV))) == whole


@settings(max_examples=50, deadline=None)
@given(cases)
def test_what_all_readings_begin_with_is_never_taken_back(case) -> None:
    scores_TV = drawn(case)
    beam, paths, told = Beam(BLANK, 3), (Hypothesis(),), ()
    for t in range(len(scores_TV)):
        paths = beam.extend(paths, scores_TV[t : t + 1], t)
        now = paths[0].tokens[: stable_length(paths)]
        assert now[: len(told)] == told
        told = now


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 12), st.integers(0, 10**6))
def test_what_was_told_longer_ago_than_it_is_patient_is_settled(patience: int, seed: int) -> None:
    # Every third vector one of two tokens, the other of which stays possible: nothing that comes later decides.
    generator, scores_TV = np.random.default_rng(seed), np.full((60, 9), -14.0)
    scores_TV[:, BLANK] = 0
    for t in range(1, 40, 3):
        first, second = generator.permutation(np.arange(1, 9))[:2]
        scores_TV[t, [BLANK, first, second]] = -8, 0, -3
    beam, paths = Beam(BLANK, 16, patience=patience), (Hypothesis(),)
    for t in range(len(scores_TV)):
        paths = beam.extend(paths, scores_TV[t : t + 1], t)
        settled = [token for token, at in zip(paths[0].tokens, paths[0].vectors, strict=True) if at < t - patience]
        assert stable_length(paths) >= len(settled)
    assert stable_length(paths) == len(paths[0].tokens) == 13


def test_it_finds_readings_that_no_single_alignment_shows() -> None:
    # Each vector tells a blank with 0.4; the token's two ways and both together are likelier than silence.
    scores_TV = np.log([[0.4, 0.35, 0.25], [0.4, 0.35, 0.25]])
    assert greedy(scores_TV, BLANK) == []
    assert Beam(BLANK, 8).extend([Hypothesis()], scores_TV)[0].tokens == (1,)


def test_sharp_scores_are_read_as_greedily_and_a_token_has_the_vector_where_it_is_first_told() -> None:
    told = [0, 3, 3, 0, 3, 2, 0]
    scores_TV = np.full((len(told), 5), -8.0)
    scores_TV[np.arange(len(told)), told] = 8.0
    best = Beam(BLANK, 4).extend([Hypothesis()], scores_TV)[0]
    assert list(zip(best.tokens, best.vectors, strict=True)) == [(3, 1), (3, 4), (2, 5)]


def test_once_a_sound_is_over_a_reading_counts_with_its_end() -> None:
    scores_TV = np.log([[0.05, 0.9, 0.05], [0.45, 0.05, 0.5]])

    def ends_with_one(tokens: tuple[int, ...]) -> float:
        return -0.1 if tokens[-1:] == (1,) else -3.0

    beam = Beam(BLANK, 8, lambda _before, _token: -1.0, alpha=0.5, end_score=ends_with_one)
    readings = beam.extend([Hypothesis()], scores_TV)
    assert beam.best(readings).tokens == (1,)
    strict = Beam(BLANK, 8, lambda _before, _token: -1.0, alpha=0.5, beta=0.6)
    assert strict.best(strict.extend([Hypothesis()], scores_TV)).tokens == (1, 2)
    assert Beam(BLANK, 8, strict.language_model, alpha=0.5, beta=0.6, end_score=ends_with_one).best(
        strict.extend([Hypothesis()], scores_TV)
    ).tokens == (1,)


@pytest.mark.parametrize(
    ("share", "most", "told"),
    [(0.4, 40, {1}), (0.7, 40, {1, 2}), (0.8, 40, {1, 2}), (0.9, 40, {1, 2, 3}), (1, 2, {1, 2})],
)
def test_of_a_vector_the_likeliest_tokens_are_looked_at_up_to_a_share_and_a_number(
    share: float, most: int, told: set[int]
) -> None:
    scores_TV = np.log([[0.12, 0.5, 0.25, 0.08, 0.05]])
    found = Beam(BLANK, 100, mass=share, max_candidates=most).extend([Hypothesis()], scores_TV)
    assert {path.tokens for path in found} == {(), *((token,) for token in told)}


@pytest.mark.parametrize(("alpha", "expected"), [(0.2, (1,)), (1.0, (2,))])
def test_the_end_counts_as_much_as_the_language_model_does(alpha: float, expected: tuple[int, ...]) -> None:
    paths = [
        Hypothesis((token,), (0,), log_blank=-np.inf, log_nonblank=float(np.log(p)))
        for token, p in ((1, 0.6), (2, 0.4))
    ]
    beam = Beam(BLANK, 8, alpha=alpha, end_score=lambda tokens: -1.0 if tokens == (1,) else 0.0)
    assert beam.best(paths).tokens == expected


def likes_what_two_before_say(before: tuple[int, ...], token: int) -> float:
    """A language model that looks at two tokens."""
    return -0.3 * ((7 * sum(before[-2:-1]) + 3 * sum(before[-1:]) + token) % 5)


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10**6))
def test_readings_without_their_past_go_on_as_they_would_have_with_it(seed: int) -> None:
    scores_TV = np.random.default_rng(seed).normal(0, 3, (24, 4))
    beam = Beam(BLANK, 4, likes_what_two_before_say, alpha=2.0, history=2)
    paths, gone = (Hypothesis(),), ()
    for t in range(len(scores_TV)):
        paths = beam.extend(paths, scores_TV[t : t + 1], t)
        before = paths[0].tokens
        paths, past = beam.trim(paths, stable_length(paths))
        gone += before[:past]
    best = beam.extend([Hypothesis()], scores_TV)[0]
    assert (*gone, *paths[0].tokens) == best.tokens
    assert paths[0].score == pytest.approx(best.score)


def test_a_language_model_decides_what_is_heard_badly() -> None:
    scores_TV = np.log([[0.02, 0.49, 0.49], [0.9, 0.05, 0.05], [0.02, 0.02, 0.96]])
    assert Beam(BLANK, 8, likes_rising, alpha=2.0).extend([Hypothesis()], scores_TV)[0].tokens == (1, 2)
