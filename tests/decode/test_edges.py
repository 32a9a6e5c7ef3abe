"""Where tokens begin and end: against sounds whose words are put at known places, predicted late."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ernie.audio.features import FeatureConfig, FeatureStream, features
from ernie.audio.lengths import STRIDE
from ernie.decode.ctc import Spike
from ernie.decode.edges import Edges, placed
from ernie.decode.states import arrays_of, restore
from ernie.decode.timed_words import timed_words

CONFIG = FeatureConfig(sample_rate=8000, bins=20, normalize="none")
HOP, MIDDLE = 0.01, 0.0125  # seconds from frame to frame, and from the beginning of one to its middle

Said = list[tuple[float, float]]  # the seconds of the pause before a word, and of the word


def sound(said: Said, after: float, seed: int) -> tuple[np.ndarray, list[float], list[float]]:
    """The loudness of tones in noise, and the seconds at which each begins and ends."""
    rng, parts, begins, ends = np.random.default_rng(seed), [], [], []
    for pause, word in said:
        parts.append(np.zeros(round(8000 * pause)))
        begins.append(sum(map(len, parts)) / 8000)
        count = round(8000 * word)
        tone = 0.3 * np.sin(np.arange(count) * rng.uniform(0.2, 2)) * (1 + 0.3 * np.sin(np.arange(count) * 0.01))
        parts.append(tone)
        ends.append(sum(map(len, parts)) / 8000)
    samples = np.concatenate([*parts, np.zeros(round(8000 * after))])
    noise = rng.normal(0, 0.002, len(samples))
    return heard_as(samples + noise), begins, ends


def heard_as(samples: np.ndarray) -> np.ndarray:
    return FeatureStream(CONFIG).loudness(features(CONFIG, samples.astype(np.float32)))


def late(begins: list[float], ends: list[float], delay: float) -> list[Spike]:
    """Tokens that are predicted after this part of their sound."""
    moments = [begin + delay * (end - begin) for begin, end in zip(begins, ends, strict=True)]
    return [Spike(5, int(moment / HOP / STRIDE), 0.9) for moment in moments]


pauses, lengths = st.floats(0.08, 0.6), st.floats(0.15, 0.5)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(pauses, lengths), min_size=1, max_size=6), st.floats(0.3, 1.1), st.integers(0, 99))
def test_words_begin_and_end_where_they_were_put_however_late_they_are_predicted(
    said: Said, delay: float, seed: int
) -> None:
    loudness_F, begins, ends = sound(said, 0.3, seed)
    spikes, end = placed(late(begins, ends, delay), loudness_F)
    found = [spike.begin * HOP + MIDDLE for spike in spikes]
    assert found == pytest.approx(begins, abs=0.03)
    stops = [spike.quiet * HOP + MIDDLE for spike in spikes[1:]]
    assert [*stops, end * HOP + MIDDLE] == pytest.approx(ends, abs=0.03)


def test_words_without_a_pause_are_parted_where_the_sound_is_quietest() -> None:
    times = np.arange(2400) / 8000
    word = 0.3 * np.sin(2 * np.pi * 700 * times) * np.sin(np.pi * times / 0.3)
    loudness_F = heard_as(np.concatenate([word, word, word]))
    spikes, _ = placed(late([0, 0.3, 0.6], [0.3, 0.6, 0.9], 0.7), loudness_F)
    assert [spike.begin * HOP + MIDDLE for spike in spikes[1:]] == pytest.approx([0.3, 0.6], abs=0.05)


@settings(max_examples=30, deadline=None)
@given(st.lists(st.integers(1, 40), min_size=3, max_size=8), st.integers(0, 99))
def test_a_stream_that_is_kept_as_arrays_has_the_same_edges(cuts: list[int], seed: int) -> None:
    loudness_F, begins, ends = sound([(0.3, 0.3), (2.5, 0.2), (0.1, 0.4)], 0.4, seed)
    spikes = late(begins, ends, 0.8)
    expected, end = placed(spikes, loudness_F)
    edges, waiting, found, heard = Edges(), list(spikes), [], 0
    for cut in [*np.cumsum(cuts).tolist(), len(loudness_F)]:
        while waiting and STRIDE * (waiting[0].vector + 1) <= cut:
            now = STRIDE * (waiting[0].vector + 1)
            edges, (own,) = edges.heard(loudness_F[heard:now]).placed([waiting.pop(0)])
            found, heard = [*found, own], max(now, heard)
        edges, heard = restore(Edges, arrays_of(edges.heard(loudness_F[heard:cut]))), max(cut, heard)
    while waiting:
        edges, (own,) = edges.placed([waiting.pop(0)])
        found.append(own)
    assert [spike.begin for spike in found] == [spike.begin for spike in expected]
    assert edges.end == end


def test_the_end_of_a_word_is_settled_long_before_the_next_one() -> None:
    loudness_F, begins, ends = sound([(0.2, 0.3), (30.0, 0.3)], 0.3, 0)
    spikes, end = placed(late(begins, ends, 0.8), loudness_F)
    assert spikes[1].quiet * HOP == pytest.approx(0.5, abs=0.03)
    assert spikes[1].begin * HOP == pytest.approx(30.5, abs=0.03)
    assert end * HOP == pytest.approx(30.8, abs=0.03)


def test_the_confidence_of_a_word_is_the_mean_probability_of_its_tokens() -> None:
    names = {5: "play", 6: "ing", 7: "on"}

    def decode(tokens: list[int]) -> str:
        return " ".join(names[token] for token in tokens).replace("play ing", "playing")

    spikes = [Spike(5, 3, 0.9, 10, 4), Spike(6, 5, 0.4, 15, 14), Spike(7, 9, 0.5, 40, 30)]
    text, words = timed_words(spikes, 55, decode)
    assert text == "playing on"
    assert [word[:3] for word in words] == [("playing", 10, 30), ("on", 40, 55)]
    assert [word.confidence for word in words] == pytest.approx([0.6, 0.5])
    assert [word.tokens for word in words] == [(5, 6), (7,)]
