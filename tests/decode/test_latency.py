"""Latency against examples computed by hand, and SimulEval's scorers where they are installed."""

from __future__ import annotations

import itertools
import warnings
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ernie.decode import latency
from ernie.decode.wait_k import WaitK
from ernie.errors import UserError


def delays_of(policy: WaitK, source: int, written: int) -> list[float]:
    return policy.reads(np.arange(written), np.full(written, source)).astype(float).tolist()


@pytest.mark.parametrize("k", [1, 3, 5])
def test_wait_k_on_equal_lengths_lags_by_k(k: int) -> None:
    assert latency.average_lagging(delays_of(WaitK(k), 8, 8), 8, 8) == pytest.approx(k)


def test_waiting_for_the_full_sentence_lags_by_its_length() -> None:
    delays = delays_of(WaitK(None), 6, 9)
    assert delays == [6.0] * 9
    assert latency.average_lagging(delays, 6, 9) == 6
    assert latency.average_proportion(delays, 6) == 1
    assert latency.consecutive_wait(delays) == 6


def test_examples_computed_by_hand() -> None:
    # Source of 4, reads 2 3 4 4 before its 4 tokens: until the third the lags are 2, 2, 2.
    assert latency.average_lagging([2, 3, 4, 4], 4, 4) == 2
    assert latency.average_proportion([2, 3, 4, 4], 4) == 13 / 16
    # With the last token, which cannot be written sooner than one pace after the third: 2, 2, 2 and 5 - 3.
    assert latency.differentiable_average_lagging([2, 3, 4, 4], 4) == 2
    assert latency.consecutive_wait([2, 3, 4, 4]) == 4 / 3
    # Two tokens for a source of 4: the first comes after 1, and the second, two later, after 3.
    assert latency.differentiable_average_lagging([1, 2], 4) == (1 + (3 - 2)) / 2
    # The output is twice as long as the reference: AL counts that as being early, LAAL does not.
    assert latency.average_lagging([1, 1, 2, 2], 2, 2) == pytest.approx((1 + 0 + 0) / 3)
    assert latency.length_adaptive_average_lagging([1, 1, 2, 2], 2, 2) == pytest.approx((1 + 0.5 + 1) / 3)
    # Half as long: both compare with the reference, with one source token for each of its tokens.
    assert latency.length_adaptive_average_lagging([1, 2], 4, 4) == latency.average_lagging([1, 2], 4, 4) == 1
    # A target of 25 for a source of 20, wait-3: the lag grows, and catch-up keeps it (Ma et al., section 3.2).
    assert latency.average_lagging(delays_of(WaitK(3), 20, 25), 20, 25) == pytest.approx(4.7)
    assert latency.average_lagging(delays_of(WaitK(3, 0.2), 20, 25), 20, 25) == pytest.approx(3.19, abs=0.005)
    assert latency.average_lagging(delays_of(WaitK(1), 25, 20), 25, 20) == pytest.approx(-1.38, abs=0.005)


@given(st.integers(1, 9), st.integers(1, 40), st.integers(1, 40), st.sampled_from([0.1, 0.3, 0.4, 1 / 3]))
def test_the_lag_in_seconds_is_that_in_words_times_the_seconds_of_a_word(
    k: int, source: int, written: int, seconds: float
) -> None:
    delays = delays_of(WaitK(k), source, written)
    came = list(itertools.accumulate([seconds] * source))  # 0.1 eight times is less than 0.8
    in_seconds = [came[int(delay) - 1] for delay in delays]
    for measure in (latency.average_lagging, latency.length_adaptive_average_lagging):
        found = measure(in_seconds, seconds * source, written)
        assert found == pytest.approx(seconds * measure(delays, source, written), abs=1e-6)


@given(st.integers(1, 9), st.integers(1, 12), st.integers(1, 40), st.integers(1, 40))
def test_the_average_proportion_is_at_most_one_for_all_lengths(
    k: int, source: int, written: int, reference: int
) -> None:
    found = latency.Latency.of(delays_of(WaitK(k), source, written), source, reference).proportion
    assert 0 < found <= 1
    assert latency.Latency.of([source] * written, source, reference).proportion == 1


def test_a_wait_or_a_catch_up_beyond_all_numbers_reads_all_or_writes_last() -> None:
    steps, lengths = np.arange(3), np.full(3, 7)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert WaitK(10**20).reads(steps, lengths).tolist() == [7, 7, 7]
        assert WaitK(1, -1e300).reads(steps, lengths).tolist() == [7, 7, 7]


def test_invalid_policies_and_empty_delays_are_refused() -> None:
    with pytest.raises(UserError, match="wait_k: expected at least 1, found 0"):
        WaitK(0)
    with pytest.raises(UserError, match="catch_up: expected less than 1, found 1"):
        WaitK(3, 1.0)
    with pytest.raises(UserError, match="confidence: expected a probability, from 0 to 1, found 2"):
        WaitK(3, confidence=2)
    with pytest.raises(UserError, match="max_wait_k: expected at least 1, found 0"):
        WaitK(3, confidence=0.5, most=0)
    with pytest.raises(UserError, match="agreement: expected at least 0, found -1"):
        WaitK(3, agreement=-1)
    for measure in (latency.average_lagging, latency.length_adaptive_average_lagging):
        with pytest.raises(ValueError, match="no token"):
            measure([], 3, 3)
    for measure in (latency.differentiable_average_lagging, latency.average_proportion):
        with pytest.raises(ValueError, match="no token"):
            measure([], 3)


def test_a_source_or_reference_without_length_is_refused() -> None:
    for source, reference in ((0, 3), (3, 0), (-1, 3)):
        with pytest.raises(ValueError, match=f"a source of length {source} and a reference of {reference} tokens"):
            latency.average_lagging([1, 2], source, reference)
    for measure in (latency.differentiable_average_lagging, latency.average_proportion):
        with pytest.raises(ValueError, match="a source of length 0"):
            measure([1, 2], 0)


def test_delays_may_be_an_array_and_each_measure_is_averaged() -> None:
    found = [latency.Latency.of(WaitK(k).reads(np.arange(4), np.full(4, 4)), 4, 4) for k in (1, 1, 3)]
    assert [each.lagging for each in found] == [1, 1, 3]
    mean = latency.Latency.mean(found)
    for short, name in latency.MEASURES:
        assert getattr(mean, name) == pytest.approx(sum(getattr(each, name) for each in found) / 3), short


@given(st.integers(1, 12), st.integers(-20, 18).map(lambda n: n / 20), st.integers(1, 30), st.integers(1, 40))
def test_reads_are_monotonic_and_within_the_source(k: int, catch_up: float, source: int, written: int) -> None:
    reads = delays_of(WaitK(k, catch_up), source, written)
    assert all(1 <= now <= source for now in reads)
    assert reads == sorted(reads)
    assert reads[0] == min(source, max(1, k - int(np.floor(catch_up))))


@given(st.lists(st.integers(1, 12), min_size=1, max_size=20), st.integers(1, 15), st.integers(1, 20))
def test_the_measures_match_simuleval(given_delays: list[int], beyond: int, reference: int) -> None:
    scorers: Any = pytest.importorskip("simuleval.evaluator.scorers.latency_scorer")
    delays = sorted(given_delays)
    source = max(1, delays[-1] - 3 + beyond // 4)
    delays = [min(delay, source) for delay in delays]
    instance = SimpleNamespace(
        delays=delays,
        elapsed=delays,
        source_length=source,
        reference_length=reference,
        reference="x " * reference,
        prediction_length=len(delays),
    )
    for name, found in (
        ("AL", latency.average_lagging(delays, source, reference)),
        ("LAAL", latency.length_adaptive_average_lagging(delays, source, reference)),
        ("AP", latency.average_proportion(delays, source)),
        ("DAL", latency.differentiable_average_lagging(delays, source)),
    ):
        scorer = getattr(scorers, f"{name}Scorer")(use_ref_len=name != "AP")  # AP uses the length of the translation
        assert found == pytest.approx(scorer.compute(instance)), name


def test_catch_up_is_robust_to_rounding_errors() -> None:
    steps = np.arange(40)
    lengths = np.full(40, 100)
    np.testing.assert_array_equal(WaitK(3, 1 - 1 / 1.25).reads(steps, lengths), WaitK(3, 0.2).reads(steps, lengths))
