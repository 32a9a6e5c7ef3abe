"""CTC beam search: with a wide enough beam the best of all hypotheses, with and without a language model."""

from __future__ import annotations

from itertools import groupby, product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ernie.decode.ctc import Beam, Hypothesis, greedy, stable_length

BLANK = 0


def log_probabilities(scores_TV: np.ndarray) -> dict[tuple[int, ...], float]:
    """The log-probability of every hypothesis, summed over all alignments."""
    log_TV = scores_TV - np.logaddexp.reduce(scores_TV, 1)[:, None]
    found: dict[tuple[int, ...], float] = {}
    for path in product(range(scores_TV.shape[1]), repeat=len(scores_TV)):
        tokens = tuple(token for token, _ in groupby(path) if token != BLANK)
        score = float(sum(log_TV[t, token] for t, token in enumerate(path)))
        found[tokens] = float(np.logaddexp(found.get(tokens, -np.inf), score))
    return found


def rising_model(before: tuple[int, ...], token: int) -> float:
    """A language model that prefers rising tokens."""
    return -0.2 if not before or token > before[-1] else -1.7


cases = st.tuples(st.integers(1, 6), st.integers(2, 4), st.integers(0, 10**6))


def random_scores(case: tuple[int, int, int]) -> np.ndarray:
    T, V, seed = case
    return np.random.default_rng(seed).normal(0, 2, (T, V))


@settings(max_examples=100, deadline=None)
@given(cases, st.booleans())
def test_with_an_unlimited_beam_each_hypothesis_has_its_exact_probability(case, with_model: bool) -> None:
    scores_TV = random_scores(case)
    language = rising_model if with_model else None
    paths = Beam(BLANK, 10_000, language, 0.7, 0.3, mass=1.0).extend([Hypothesis()], scores_TV)
    expected = log_probabilities(scores_TV)
    assert {path.tokens for path in paths} == set(expected)
    for path in paths:
        assert path.acoustic_score == pytest.approx(expected[path.tokens], abs=1e-6)
        lm_score = sum(0.7 * rising_model(path.tokens[:n], token) + 0.3 for n, token in enumerate(path.tokens))
        assert path.lm_score == pytest.approx(lm_score if with_model else 0.3 * len(path.tokens))
    assert paths[0].score == max(path.score for path in paths)


@settings(max_examples=50, deadline=None)
@given(cases, st.integers(0, 6), st.integers(1, 8))
def test_vectors_can_be_added_in_pieces(case, cut: int, width: int) -> None:
    scores_TV = random_scores(case)
    beam = Beam(BLANK, width, rising_model)
    whole = beam.extend([Hypothesis()], scores_TV)
    early = beam.extend([Hypothesis()], scores_TV[:cut])
    assert beam.extend(early, scores_TV[cut:], first=min(cut, len(scores_TV))) == whole


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 300), st.integers(1, 4), st.floats(1.0, 6.0), st.booleans(), st.integers(0, 10**6))
def test_a_long_sound_is_decoded_to_the_tokens_of_the_best_hypothesis(
    vectors: int, width: int, sharpness: float, with_model: bool, seed: int
) -> None:
    scores_TV = sharpness * np.random.default_rng(seed).standard_normal((vectors, 4)).astype(np.float32)
    rising, ends_in_one = (rising_model, lambda tokens: -float(tokens[-1:] != (1,))) if with_model else (None, None)
    beam = Beam(BLANK, width, rising, end_score=ends_in_one)
    decoded = beam.decode(scores_TV)
    assert tuple(token for token, _ in decoded) == beam.best(beam.extend([Hypothesis()], scores_TV)).tokens
    assert [vector for _, vector in decoded] == sorted(vector for _, vector in decoded)


@settings(max_examples=50, deadline=None)
@given(cases)
def test_the_common_prefix_of_all_hypotheses_is_final(case) -> None:
    scores_TV = random_scores(case)
    beam, paths, before = Beam(BLANK, 3), (Hypothesis(),), ()
    for t in range(len(scores_TV)):
        paths = beam.extend(paths, scores_TV[t : t + 1], t)
        now = paths[0].tokens[: stable_length(paths)]
        assert now[: len(before)] == before
        before = now


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 12), st.integers(0, 10**6))
def test_tokens_older_than_the_patience_are_final(patience: int, seed: int) -> None:
    # Every third vector has two possible tokens, and no later vector decides between them.
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


def test_beam_search_sums_over_alignments() -> None:
    # A blank has probability 0.4 in each vector; together the three alignments of the token are more probable.
    scores_TV = np.log([[0.4, 0.35, 0.25], [0.4, 0.35, 0.25]])
    assert greedy(scores_TV, BLANK) == []
    assert Beam(BLANK, 8).extend([Hypothesis()], scores_TV)[0].tokens == (1,)


def test_confident_scores_are_decoded_greedily_with_the_first_vector_of_each_token() -> None:
    labels = [0, 3, 3, 0, 3, 2, 0]
    scores_TV = np.full((len(labels), 5), -8.0)
    scores_TV[np.arange(len(labels)), labels] = 8.0
    best = Beam(BLANK, 4).extend([Hypothesis()], scores_TV)[0]
    assert list(zip(best.tokens, best.vectors, strict=True)) == [(3, 1), (3, 4), (2, 5)]


def test_the_best_hypothesis_includes_the_score_of_the_end() -> None:
    scores_TV = np.log([[0.05, 0.9, 0.05], [0.45, 0.05, 0.5]])

    def ends_with_one(tokens: tuple[int, ...]) -> float:
        return -0.1 if tokens[-1:] == (1,) else -3.0

    beam = Beam(BLANK, 8, lambda _before, _token: -1.0, alpha=0.5, end_score=ends_with_one)
    hypotheses = beam.extend([Hypothesis()], scores_TV)
    assert beam.best(hypotheses).tokens == (1,)
    strict = Beam(BLANK, 8, lambda _before, _token: -1.0, alpha=0.5, beta=0.6)
    assert strict.best(strict.extend([Hypothesis()], scores_TV)).tokens == (1, 2)
    assert Beam(BLANK, 8, strict.language_model, alpha=0.5, beta=0.6, end_score=ends_with_one).best(
        strict.extend([Hypothesis()], scores_TV)
    ).tokens == (1,)


@pytest.mark.parametrize(
    ("share", "most", "expected"),
    [(0.4, 40, {1}), (0.7, 40, {1, 2}), (0.8, 40, {1, 2}), (0.9, 40, {1, 2, 3}), (1, 2, {1, 2})],
)
def test_only_the_most_probable_tokens_of_a_vector_are_candidates(share: float, most: int, expected: set[int]) -> None:
    scores_TV = np.log([[0.12, 0.5, 0.25, 0.08, 0.05]])
    found = Beam(BLANK, 100, mass=share, max_candidates=most).extend([Hypothesis()], scores_TV)
    assert {path.tokens for path in found} == {(), *((token,) for token in expected)}


@pytest.mark.parametrize(("alpha", "expected"), [(0.2, (1,)), (1.0, (2,))])
def test_the_score_of_the_end_is_weighted_like_the_language_model(alpha: float, expected: tuple[int, ...]) -> None:
    paths = [
        Hypothesis((token,), (0,), log_blank=-np.inf, log_nonblank=float(np.log(p)))
        for token, p in ((1, 0.6), (2, 0.4))
    ]
    beam = Beam(BLANK, 8, alpha=alpha, end_score=lambda tokens: -1.0 if tokens == (1,) else 0.0)
    assert beam.best(paths).tokens == expected


def trigram_model(before: tuple[int, ...], token: int) -> float:
    """A language model that depends on the last two tokens."""
    return -0.3 * ((7 * sum(before[-2:-1]) + 3 * sum(before[-1:]) + token) % 5)


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10**6))
def test_trimmed_hypotheses_continue_like_complete_ones(seed: int) -> None:
    scores_TV = np.random.default_rng(seed).normal(0, 3, (24, 4))
    beam = Beam(BLANK, 4, trigram_model, alpha=2.0, history=2)
    paths, removed = (Hypothesis(),), ()
    for t in range(len(scores_TV)):
        paths = beam.extend(paths, scores_TV[t : t + 1], t)
        before = paths[0].tokens
        paths, count = beam.trim(paths, stable_length(paths))
        removed += before[:count]
    best = beam.extend([Hypothesis()], scores_TV)[0]
    assert (*removed, *paths[0].tokens) == best.tokens
    assert paths[0].score == pytest.approx(best.score)


def test_a_language_model_decides_between_uncertain_tokens() -> None:
    scores_TV = np.log([[0.02, 0.49, 0.49], [0.9, 0.05, 0.05], [0.02, 0.02, 0.96]])
    assert Beam(BLANK, 8, rising_model, alpha=2.0).extend([Hypothesis()], scores_TV)[0].tokens == (1, 2)
