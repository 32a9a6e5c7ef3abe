"""Audio features: the same bits whole or in pieces, the right bands, normalized as configured."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kaldi_native_fbank import FbankOptions, OnlineFbank
from support.signals import noise, tone

from ernie.audio.features import FeatureConfig, FeatureState, FeatureStream, Statistics, features, kaldi_bank, mel_bank
from ernie.decode.states import arrays_of, restore
from ernie.errors import UserError

pytest.importorskip("soxr")


TRAINED = Statistics.of(features(FeatureConfig(normalize="none"), np.concatenate([0.1 * noise(4000), noise(4000)])))


def in_pieces(stream: FeatureStream, pieces: list[np.ndarray]) -> np.ndarray:
    state, found = FeatureState(), []
    for piece in pieces:
        state, more = stream.push(state, piece)
        found.append(more)
    return np.concatenate(found)


@settings(max_examples=40)
@given(
    st.sampled_from(["log_mel", "kaldi", "linear"]),
    st.sampled_from(["none", "streaming", "global"]),
    st.sampled_from([(0.025, 0.010), (0.02, 0.02), (0.016, 0.005)]),
    st.lists(st.integers(0, 700), min_size=1, max_size=12),
    st.integers(0, 10**6),
    st.sampled_from([0.0, 0.05, 10.0]),
    st.booleans(),
)
def test_features_of_pieces_equal_those_of_the_whole_bit_for_bit(
    kind, normalize, window, sizes, seed, seconds, removes
) -> None:
    config = FeatureConfig(
        kind=kind,
        normalize=normalize,
        window=window[0],
        hop=window[1],
        bins=20,
        normalize_seconds=seconds,
        remove_dc_offset=removes,
    )
    samples = noise(sum(sizes), seed) * np.where(np.arange(sum(sizes)) // 300 % 3, 1, 0)  # with silences
    statistics = Statistics.of(features(replace(config, normalize="none"), noise(4000, 1)))
    pieces = np.split(samples, np.cumsum(sizes)[:-1])
    whole = features(config, samples, statistics)
    assert whole.shape == (config.frames(len(samples)), config.features)
    np.testing.assert_array_equal(in_pieces(FeatureStream(config, statistics), pieces), whole)


def test_a_state_is_restored_from_its_arrays() -> None:
    for seconds in (0.0, 0.1):
        config = FeatureConfig(normalize="streaming", normalize_seconds=seconds)
        stream, samples = FeatureStream(config, TRAINED), noise(3000)
        state, early = stream.push(FeatureState(), samples[:1234])
        restored = restore(FeatureState, arrays_of(state))
        np.testing.assert_array_equal(
            np.concatenate([early, stream.push(restored, samples[1234:])[1]]), features(config, samples, TRAINED)
        )


@pytest.mark.parametrize("frequency", [300.0, 1000.0, 2500.0])
def test_a_tone_is_loudest_in_its_band(frequency: float) -> None:
    config = FeatureConfig(normalize="none", bins=20)
    loudest = features(config, tone(frequency)).mean(0).argmax()
    peaks = np.fft.rfftfreq(256, 1 / 8000)[np.asarray(mel_bank(8000, 256, 20).todense()).argmax(1)]
    assert np.abs(peaks - frequency).argmin() == loudest


@pytest.mark.parametrize(("rate", "bins"), [(16000, 80), (8000, 40), (16000, 23), (11025, 40)])
@pytest.mark.parametrize("removes", [True, False])
def test_kaldi_features_are_those_of_kaldi(rate: int, bins: int, removes: bool) -> None:
    samples = noise(rate, 3) + tone(440.0, 1.0, rate) + np.float32(0.05)
    options = FbankOptions()
    options.frame_opts.samp_freq, options.frame_opts.dither, options.mel_opts.num_bins = rate, 0, bins
    options.frame_opts.remove_dc_offset = removes
    theirs = OnlineFbank(options)
    theirs.accept_waveform(rate, (samples * 32768).tolist())
    theirs.input_finished()
    expected = np.array([theirs.get_frame(i) for i in range(theirs.num_frames_ready)])
    config = FeatureConfig(kind="kaldi", sample_rate=rate, bins=bins, normalize="none", remove_dc_offset=removes)
    np.testing.assert_allclose(features(config, samples), expected, atol=1e-3)


def test_a_linear_spectrum_has_every_frequency() -> None:
    config = FeatureConfig(kind="linear", normalize="none")
    assert config.features == 129
    assert features(config, tone(1000.0)).mean(0).argmax() == 32  # of 129 up to 4,000 Hz


def test_doubling_the_amplitude_quadruples_the_power() -> None:
    config = FeatureConfig(normalize="none")
    quiet, loud = features(config, noise(2000)), features(config, 2 * noise(2000))
    np.testing.assert_allclose(loud - quiet, np.log(4), rtol=1e-4)


def test_utterance_and_global_normalization_give_mean_zero_and_deviation_one() -> None:
    utterance = features(FeatureConfig(normalize="utterance"), noise(8000))
    raw = [features(FeatureConfig(normalize="none"), noise(8000, seed)) for seed in (1, 2)]
    statistics = Statistics.of(raw[0]).merge(Statistics.of(raw[1]))
    corpus = np.concatenate([features(FeatureConfig(), noise(8000, seed), statistics) for seed in (1, 2)])
    for found in (utterance, corpus):
        np.testing.assert_allclose(found.mean(0), 0, atol=1e-4)
        np.testing.assert_allclose(found.std(0), 1, atol=1e-3)


def test_streaming_normalization_ends_with_the_statistics_of_the_whole() -> None:
    raw = features(FeatureConfig(normalize="none"), noise(8000))
    normalized = features(FeatureConfig(normalize="streaming", normalize_seconds=0), noise(8000))
    np.testing.assert_allclose(normalized[-1], (raw[-1] - raw.mean(0)) / raw.std(0), rtol=1e-3, atol=1e-3)


def test_constant_features_are_scaled_alike_by_global_and_streaming_normalization() -> None:
    raw_FM = features(FeatureConfig(normalize="none"), noise(200)).astype(np.float64)
    count = 10**7
    known = Statistics(count, count * (raw_FM[0] - 0.5), count * (raw_FM[0] - 0.5) ** 2)
    global_FM = features(FeatureConfig(), noise(200), known)
    _, streaming_FM = FeatureStream(FeatureConfig(normalize="streaming", normalize_seconds=0)).push(
        FeatureState(statistics=known), noise(200)
    )
    for found_FM in (global_FM, streaming_FM):
        np.testing.assert_allclose(found_FM, np.full((1, 40), 5.0), rtol=1e-3)


@pytest.mark.parametrize("bank", [mel_bank, kaldi_bank])
@pytest.mark.parametrize("warp", [1.0, 0.8, 1.3])
def test_every_band_of_a_fine_filter_bank_has_weight(bank, warp: float) -> None:
    for bins in (80, 128):
        assert (np.asarray(bank(16000, 512, bins, warp).sum(1)) > 0).all()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"sample_rate": 100}, "sample_rate: expected 1,000 to 1,000,000 samples a second, found 100"),
        ({"window": 0}, "window: expected more than 0 s, found 0"),
        ({"hop": 0.05}, "hop: expected more than 0 and at most the window"),
        ({"window": 0.001, "hop": 0.001}, "too few for a spectrum"),
        ({"bins": 100}, "bins: expected 1 to 64"),
    ],
)
def test_invalid_feature_settings_raise_a_user_error(changes: dict, message: str) -> None:
    with pytest.raises(UserError, match=message):
        FeatureConfig(**changes)


@pytest.mark.parametrize("kind", ["log_mel", "kaldi", "linear"])
@pytest.mark.parametrize("offset", [0.01, 0.05, 0.1, -0.3])
def test_an_offset_of_all_samples_changes_no_feature(kind, offset: float) -> None:
    config, samples = FeatureConfig(kind=kind, normalize="none"), noise(4000) + tone(440)
    plain_FM = features(config, samples)
    np.testing.assert_allclose(features(config, samples + np.float32(offset)), plain_FM, atol=5e-3)
    kept = replace(config, remove_dc_offset=False)
    assert np.abs(features(kept, samples + np.float32(offset)) - features(kept, samples))[:, 0].max() > 0.05


def voice(seconds: int, seed: int) -> np.ndarray:
    """Noise with pauses, three times a second."""
    return noise(8000 * seconds, seed) * np.where(np.arange(8000 * seconds) % 2667 < 2000, 1, 0.01)


@pytest.mark.parametrize("seconds", [1, 5, 60])
@pytest.mark.parametrize("amplitude", [0.0, 1e-5])
def test_silence_before_speech_does_not_change_streaming_features(seconds: int, amplitude: float) -> None:
    config, samples = FeatureConfig(normalize="streaming"), voice(1, 0)
    quiet = amplitude * noise(8000 * seconds, 1)
    alone_FM = features(config, samples, TRAINED)
    assert alone_FM.min() >= -3
    after_FM = features(config, np.concatenate([quiet, samples]), TRAINED)[-len(alone_FM) :]
    np.testing.assert_allclose(after_FM[3:], alone_FM[3:], atol=0.02)
    silence_FM = features(config, quiet, TRAINED)
    global_FM = features(replace(config, normalize="global"), quiet, TRAINED)
    # Silence is not amplified, and never lower than training sounds are.
    np.testing.assert_allclose(silence_FM, np.maximum(global_FM, -3), atol=1e-5)


@pytest.mark.parametrize("amplitude", [0.01, 0.1, 1.0])
def test_a_minute_of_noise_before_speech_changes_streaming_features_no_more_than_a_second_of_it(amplitude) -> None:
    config, speech = FeatureConfig(normalize="streaming"), voice(2, 0)
    second, minute = (
        features(config, np.concatenate([amplitude * noise(8000 * seconds, 1), speech]), TRAINED)[-190:]
        for seconds in (1, 60)
    )
    np.testing.assert_allclose(minute, second, atol=0.05)
    np.testing.assert_allclose(second.mean(), features(config, speech, TRAINED)[-190:].mean(), atol=0.15)


def test_streaming_statistics_follow_a_louder_voice_and_forget_it() -> None:
    config = FeatureConfig(normalize="streaming", normalize_seconds=1.0)
    loud, usual = 4 * voice(10, 2), voice(10, 3)
    found_FM = features(config, np.concatenate([loud, usual]), TRAINED)
    alone_FM = features(config, usual, TRAINED)
    global_FM = features(replace(config, normalize="global"), loud, TRAINED)
    loudest = global_FM[900:990].mean(1) > 1
    assert found_FM[900:990][loudest].mean() < 0.75 * global_FM[900:990][loudest].mean()  # used to the loudness
    np.testing.assert_allclose(found_FM[-1], alone_FM[-1], atol=0.05)


def test_streaming_normalization_over_a_time_needs_the_statistics_of_the_training_set() -> None:
    with pytest.raises(ValueError, match="normalize: streaming needs the statistics of the training set"):
        FeatureStream(FeatureConfig(normalize="streaming"))
    FeatureStream(FeatureConfig(normalize="streaming", normalize_seconds=0))
