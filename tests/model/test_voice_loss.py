"""Voice losses: before its first sample a sound is silent, in training as in synthesis."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import paddle
import pytest
from paddle import nn
from support.helpers import perturbed
from support.vowels import vowel

from ernie.audio.features import FeatureConfig
from ernie.audio.pitch import pitch_of_frames
from ernie.audio.voice import VoiceConfig, WaveNetConfig
from ernie.data.batch import Layout, Packed
from ernie.decode.synthesis import WaveNetVocoder
from ernie.model.gaussian import regularized_divergence
from ernie.model.voice import FramePrediction, Pitch, Text, VoiceHead
from ernie.model.voice_loss import (
    MIN_LOG_SCALE,
    USUAL_LOUDNESS,
    Segment,
    Windows,
    conditioners,
    flow_loss,
    frame_loss,
    likelihood_loss,
    magnitudes,
    pitch_loss,
    segment_pitch,
    segment_samples,
    spectral_distance,
    state_windows,
)

HOP, BINS, WIDTH, STEPS = 20, 4, 8, 3
FEATURES = FeatureConfig(sample_rate=8000, window=0.016, hop=0.004, bins=BINS)
SIZES = VoiceConfig(
    reduction=1,
    conditioner=5,
    wavenet=WaveNetConfig(channels=6, stacks=1, depth=4),
    flows=2,
    flow=WaveNetConfig(channels=6, stacks=1, depth=3),
)


def normal(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


@pytest.fixture
def head() -> VoiceHead:
    return new_head(0.5)


def new_head(loudness: float) -> VoiceHead:
    """A head with the same weights for any loudness, none of them zero.

    With this seed what precedes the first sample matters: not all units after the WaveNet's rectifiers are 0 there.
    """
    paddle.seed(3)
    head = VoiceHead(WIDTH, SIZES, BINS, HOP, np.ones(9), pace=1.0, loudness=loudness, vocoder="flow")
    head.initialize()
    perturbed(head)
    return head


def training_inputs(head: VoiceHead, context: int, times: float = 1.0) -> tuple[paddle.Tensor, ...]:
    """For a whole sound: the conditioner, the samples, and masks of those inside and of those that have begun."""
    nothing = np.zeros(1, np.int64)
    sound = times * 0.3 * normal(STEPS * HOP)
    batch = Packed(nothing, nothing, Layout.of_lengths([1]), {}, np.zeros((1, 3), np.int64), sounds=(sound,))
    whole = Segment(nothing, STEPS)
    states = paddle.to_tensor(normal(1, STEPS, WIDTH, seed=1))
    given = conditioners(head, states, np.array([STEPS]), whole, context)
    return given, *map(paddle.to_tensor, segment_samples(batch, whole, HOP, context))


def first_only(inside_NR: paddle.Tensor) -> paddle.Tensor:
    """A mask of the first of the samples inside."""
    mask = np.zeros(inside_NR.shape, np.float32)
    mask[:, 0] = 1
    return paddle.to_tensor(mask)


@paddle.no_grad()
def test_the_first_sample_follows_silence_in_training_as_in_synthesis(head: VoiceHead) -> None:
    """Input noise is added to samples only: there are none before the first."""
    context = head.wavenet.config.context
    given, samples, inside, begun = training_inputs(head, context)
    noise = paddle.to_tensor(normal(*samples.shape, seed=2))
    loss, unlike = (
        float(likelihood_loss(head, given, samples, first_only(inside), mask, noise))
        for mask in (begun, paddle.ones_like(begun))
    )
    spoken = []  # the samples for noise 0 and 1 give the mean and the deviation
    for value in (0.0, 1.0):
        vocoder, constant = WaveNetVocoder(head.wavenet), np.full((1, 1), value, np.float32)
        _, sample = vocoder.more([vocoder.begin()], given.numpy()[:1, context : context + 1], constant)
        spoken.append(float(sample[0, 0]))
    mean, log_scale = spoken[0], np.log(spoken[1] - spoken[0])
    expected = (
        0.5 * ((float(samples[0, context]) - mean) / np.exp(log_scale)) ** 2 + log_scale + 0.5 * np.log(2 * np.pi)
    )
    assert loss == pytest.approx(expected, rel=1e-4)
    assert abs(unlike - expected) > 1e-2, "noise before the sound would not matter"


@paddle.no_grad()
def test_losses_do_not_depend_on_how_loud_the_recordings_are() -> None:
    """Recordings that are quieter, by a factor, have as much more nats a sample as the density is compressed."""
    windows = [Windows.of(FeatureConfig(sample_rate=8000, window=0.005, hop=HOP / 8000, bins=BINS))]
    nats, distilled = [], []
    for loudness in (0.5, 0.0005):
        head = new_head(loudness)
        assert head.flow is not None
        context = head.wavenet.config.context
        nats.append(float(likelihood_loss(head, *training_inputs(head, context, loudness))))
        context += head.flow.context
        given, samples, inside, begun = training_inputs(head, context, loudness)
        noise = paddle.to_tensor(normal(*samples.shape, seed=3))
        distilled.append(
            [
                float(flow_loss(head, given, samples[:, context:], inside, begun, noise, windows, *weights))
                for weights in ((4.0, 0.0), (4.0, 2.0), (0.0, 0.0))
            ]
        )
    assert nats[1] - nats[0] == pytest.approx(np.log(0.0005 / 0.5), rel=1e-4)
    assert distilled[1] == pytest.approx(distilled[0], rel=1e-3)
    divergence, with_spectra, without_apart = distilled[0]
    assert with_spectra - divergence > 0.01
    assert divergence - without_apart > 0.01


@paddle.no_grad()
def test_a_flow_begins_as_noise_as_loud_as_the_recordings() -> None:
    paddle.seed(4)
    head = VoiceHead(WIDTH, SIZES, BINS, HOP, np.ones(9), pace=1.0, loudness=0.02, vocoder="flow")
    head.initialize()
    assert head.flow is not None
    noise = normal(1, 400)
    found, gaussian = head.flow(paddle.to_tensor(noise), paddle.to_tensor(normal(1, 400, SIZES.conditioner)))
    np.testing.assert_allclose(found.numpy(), 0.02 * noise[:, head.flow.context :], rtol=1e-5)
    np.testing.assert_allclose(np.exp(gaussian.log_scale.numpy()), 0.02, rtol=1e-5)


def test_magnitudes_are_those_of_windowed_spectra() -> None:
    features, sound = FeatureConfig(sample_rate=8000, window=0.016, hop=0.004, bins=BINS), normal(1, 500)
    found = magnitudes(paddle.to_tensor(sound), Windows.of(features)).numpy()[0]
    windows = np.lib.stride_tricks.sliding_window_view(sound[0], 128)[::32]
    expected = np.abs(np.fft.rfft(windows * np.hanning(128), 2 * (features.frequencies - 1)))
    np.testing.assert_allclose(found, expected, atol=1e-3)
    other = normal(1, 500, seed=1)
    distance = spectral_distance(paddle.to_tensor(sound), paddle.to_tensor(other), Windows.of(features))
    other_windows = np.lib.stride_tricks.sliding_window_view(other[0], 128)[::32]
    others = np.abs(np.fft.rfft(other_windows * np.hanning(128), 2 * (features.frequencies - 1)))
    logarithmic = np.abs(np.log(expected + 1e-3) - np.log(others + 1e-3))
    assert float(distance) == pytest.approx(((expected - others) ** 2 + logarithmic).mean(), rel=1e-3)


def test_noise_in_silence_is_far_from_it_however_loud_the_speech_beside_it_is() -> None:
    windows = Windows.of(FeatureConfig(sample_rate=8000, window=0.016, hop=0.004, bins=BINS))
    speech, silence, noise = 0.3 * normal(1, 400), 0.0003 * normal(1, 400, seed=1), 0.003 * normal(1, 400, seed=2)
    recording, noisy, other = (
        paddle.to_tensor(np.concatenate([speech, after], axis=1))
        for after in (silence, noise, 0.0003 * normal(1, 400, seed=3))
    )
    assert float(spectral_distance(noisy, recording, windows)) > 1.5 * float(
        spectral_distance(other, recording, windows)
    )


def test_windows_of_some_seconds_are_as_long_and_overlap_by_three_quarters() -> None:
    windows = Windows.lasting(0.032, FEATURES)
    assert (windows.width, windows.hop, windows.frequencies) == (256, 64, 129)
    sound = normal(1, 500)
    found = magnitudes(paddle.to_tensor(sound), windows).numpy()[0]
    parts = np.lib.stride_tricks.sliding_window_view(sound[0], 256)[::64]
    np.testing.assert_allclose(2**0.5 * found, np.abs(np.fft.rfft(parts * np.hanning(256))), atol=1e-3)


def test_noise_is_as_far_from_other_noise_in_windows_of_any_length() -> None:
    one, other = (paddle.to_tensor(0.1 * normal(1, 20_000, seed=seed)) for seed in range(2))
    kinds = [Windows.of(FEATURES), *(Windows.lasting(seconds, FEATURES) for seconds in (0.064, 0.01, 0.004))]
    distances = [float(spectral_distance(one, other, windows)) for windows in kinds]
    np.testing.assert_allclose(distances, distances[0], rtol=0.1)


def test_long_windows_tell_pitches_apart_whatever_the_moment_and_short_ones_moments_whatever_the_pitch() -> None:
    times = np.arange(800) / 8000

    def voice(pitch: float, late: float) -> paddle.Tensor:
        waves = (np.sin(2 * np.pi * pitch * overtone * (times - late)) for overtone in range(1, 9))
        return paddle.to_tensor(0.05 * np.sum([*waves], axis=0, dtype=np.float32)[None])

    recording, higher, later = voice(120, 0), voice(135, 0), voice(120, 0.5 / 120)
    for seconds, tells_pitches in ((0.064, True), (0.004, False)):
        windows = Windows.lasting(seconds, FEATURES)
        pitch, moment = (float(spectral_distance(other, recording, windows)) for other in (higher, later))
        assert pitch > 5 * moment if tells_pitches else pitch < 2 * moment


@paddle.no_grad()
def test_distances_of_several_kinds_of_windows_are_averaged(head: VoiceHead) -> None:
    assert head.flow is not None
    context = head.wavenet.config.context + head.flow.context
    given, samples, inside, begun = training_inputs(head, context)
    noise = paddle.to_tensor(normal(*samples.shape, seed=3))
    kinds = [Windows.lasting(seconds, FEATURES) for seconds in (0.002, 0.006)]
    nothing, first, second, both = (
        float(flow_loss(head, given, samples[:, context:], inside, begun, noise, chosen, 4.0, weight))
        for chosen, weight in ((kinds, 0.0), (kinds[:1], 1.0), (kinds[1:], 1.0), (kinds, 1.0))
    )
    assert abs(first - second) > 1e-3
    assert both - nothing == pytest.approx((first + second) / 2 - nothing, rel=1e-3)


@paddle.no_grad()
def test_states_after_the_end_of_a_sound_condition_nothing(head: VoiceHead) -> None:
    states, whole = normal(1, STEPS, WIDTH, seed=1), Segment(np.zeros(1, np.int64), STEPS)
    longer = np.concatenate([states, normal(1, 4, WIDTH, seed=2)], axis=1)
    found, expected = (conditioners(head, paddle.to_tensor(x), np.array([STEPS]), whole, 5) for x in (longer, states))
    np.testing.assert_array_equal(found.numpy(), expected.numpy())


@paddle.no_grad()
@pytest.mark.parametrize("scale", [-40.0, -9.5])
def test_a_peaked_distribution_counts_as_one_of_the_least_deviation(head: VoiceHead, scale: float) -> None:
    context = head.wavenet.config.context
    given, samples, inside, begun = training_inputs(head, context)
    bias = np.array([0.0, scale], np.float32)
    paddle.assign(paddle.zeros_like(head.wavenet.out.weight), head.wavenet.out.weight)
    paddle.assign(paddle.to_tensor(bias), head.wavenet.out.bias)
    times = USUAL_LOUDNESS / head.wavenet.loudness
    z = samples.numpy()[0, context:] * times / np.exp(MIN_LOG_SCALE)
    expected = (0.5 * z**2).mean() + MIN_LOG_SCALE + 0.5 * np.log(2 * np.pi) - np.log(times)
    assert float(likelihood_loss(head, given, samples, inside, begun)) == pytest.approx(expected, rel=1e-4)


def test_attention_along_the_diagonal_is_penalized_least() -> None:
    steps, tokens, M = np.array([8]), np.array([8]), 2
    text = Text(paddle.zeros([1]), tokens, tokens.astype(float), (np.arange(8) + 0.5)[None])
    frames, stop, states = (paddle.zeros(shape) for shape in ([1, 8, M], [1, 8], [1, 8, WIDTH]))
    along, across = (
        float(frame_loss(FramePrediction(frames, stop, states, paddle.to_tensor(x[None])), text, frames.numpy(), steps))
        for x in (np.eye(8, dtype=np.float32), np.eye(8, dtype=np.float32)[::-1].copy())
    )
    assert along == pytest.approx(np.log(2), rel=1e-4)  # the uncertain end alone
    assert across > along + 0.5


@paddle.no_grad()
def test_the_first_sample_of_a_flow_is_compared_with_the_wavenet_after_silence(head: VoiceHead) -> None:
    assert head.flow is not None
    flow_context, context = head.flow.context, head.wavenet.config.context
    given, samples, inside, begun = training_inputs(head, flow_context + context)
    noise = paddle.to_tensor(normal(*samples.shape, seed=3))
    first = first_only(inside)
    samples_NR = samples[:, flow_context + context :]
    loss, unlike = (
        float(flow_loss(head, given, samples_NR, first, mask, noise, [], 4.0, 0.0))
        for mask in (begun, paddle.ones_like(begun))
    )
    _, gaussian = head.flow(noise, given)
    silence = paddle.zeros([1, context])
    teacher = head.wavenet(silence, given[:, flow_context + 1 : flow_context + context + 1])
    at = paddle.to_tensor([context])
    q = type(gaussian)(*(paddle.gather(part, at, axis=1) for part in gaussian))
    times = USUAL_LOUDNESS / head.wavenet.loudness
    expected = regularized_divergence(q.scaled(times), teacher.scaled(times), 4.0)
    assert loss == pytest.approx(expected.item(), rel=1e-4)
    assert abs(unlike - expected.item()) > 1e-2, "what the flow generates before the sound would not matter"


def test_the_frame_loss_of_sounds_of_different_lengths_is_the_sum_of_their_own() -> None:
    """Steps after the end of a shorter sound do not count."""
    steps, tokens = np.array([6, 3, 1]), np.array([4, 2, 3])
    N, F, M, L, D = len(steps), int(steps.max()), 5, int(tokens.max()), WIDTH
    arrays = normal(N, F, M), normal(N, F, seed=1), normal(N, F, D, seed=2), np.abs(normal(N, F, L, seed=3))
    targets_NFM, middles_NL = normal(N, F, M, seed=4), np.abs(normal(N, L, seed=5))

    def loss(rows: slice, longest: int) -> float:
        prediction = FramePrediction(*(paddle.to_tensor(array[rows, :longest]) for array in arrays))
        text = Text(paddle.zeros([1]), tokens[rows], 2 * tokens[rows], middles_NL[rows])
        return float(frame_loss(prediction, text, targets_NFM[rows, :longest], steps[rows]))

    alone = [loss(np.s_[n : n + 1], int(count)) for n, count in enumerate(steps)]
    assert loss(np.s_[:], F) == pytest.approx(sum(alone), rel=1e-5)


def test_the_pitch_of_a_segment_is_that_of_its_frames_in_the_sound() -> None:
    """Frames before the sound and after it have none."""
    rate, hop, unit = 8000, 80, 160
    features = FeatureConfig(sample_rate=rate, window=0.02, hop=hop / rate, bins=BINS)
    sound = np.concatenate([vowel(90.0, (500.0,), 0.4), vowel(150.0, (700.0,), 0.4)])
    nothing, frames = np.zeros(1, np.int64), pitch_of_frames(sound, rate, hop)
    batch = Packed(nothing, nothing, Layout.of_lengths([1]), {}, np.zeros((1, 3), np.int64), sounds=(sound,))
    for first, steps, context in ((0, 5, 700), (10, 8, 700), (36, 9, 300)):
        segment = Segment(np.array([first]), steps)
        (found,) = segment_pitch(batch, segment, features, unit, context, loudness=0.1)
        start, end = 2 * (first - -(-context // unit)), 2 * (first + steps)
        assert len(found) == end - start
        inside = [frames[n] if 0 <= n < len(frames) else 0.0 for n in range(start, end)]
        np.testing.assert_allclose(found, inside, rtol=0.02)  # filters know more of the whole sound
        quiet = replace(batch, sounds=(0.01 * sound,))
        np.testing.assert_allclose(segment_pitch(quiet, segment, features, unit, context, 0.001), [found], rtol=1e-3)


def test_the_loss_of_the_pitch_is_zero_where_it_is_right_and_teaches_the_pitch_alone() -> None:
    paddle.seed(0)
    sizes = replace(SIZES, pulses=True)
    head = VoiceHead(WIDTH, sizes, BINS, HOP, np.ones(9), pace=1.0, loudness=1.0, vocoder="flow")
    head.initialize()
    assert head.pitch is not None
    f0 = np.array([[0.0, 60.0, 120.0], [240.0, 0.0, 0.0]])
    states = paddle.to_tensor(normal(2, 3 + 2 * head.bridge.reach, WIDTH))
    loss = pitch_loss(head, states, f0)
    loss.backward()
    assert {name.split(".")[0] for name, each in head.named_parameters() if each.grad is not None} == {"pitch"}
    octaves = np.log2(np.maximum(f0, 60) / 120)

    class Right(nn.Layer):
        """A pitch that is right, but for one frame that is an octave too high."""

        def forward(self, states: paddle.Tensor, around: int) -> paddle.Tensor:
            high = octaves + (f0 == 120)
            return paddle.to_tensor(np.stack([high, np.where(f0 > 0, 40.0, -40.0)], axis=-1).astype(np.float32))

    head.pitch = Right()
    assert float(pitch_loss(head, states, f0)) == pytest.approx(1 / 2)  # of two frames with a voice


def test_f0_is_that_of_the_octaves_within_the_range_of_voices() -> None:
    pitch = Pitch(WIDTH, SIZES)
    with paddle.no_grad():
        paddle.assign(paddle.zeros_like(pitch.out.weight), pitch.out.weight)
        for octaves, logit, expected in ((1.0, 2.0, 240.0), (1.0, -2.0, 0.0), (9.0, 2.0, 400.0), (-3.0, 2.0, 60.0)):
            paddle.assign(paddle.to_tensor([octaves, logit]), pitch.out.bias)
            np.testing.assert_allclose(pitch.f0(paddle.to_tensor(normal(1, 5, WIDTH)), 1), np.full((1, 3), expected))


@paddle.no_grad()
def test_the_pitch_of_a_segment_is_predicted_for_the_frames_that_it_has_in_the_sound() -> None:
    """As in synthesis, from all states, and for the frames whose true pitch `segment_pitch` gives."""
    sizes = replace(SIZES, reduction=2)
    head = VoiceHead(WIDTH, replace(sizes, pulses=True), BINS, HOP, np.ones(9), pace=1.0, loudness=1.0, vocoder="flow")
    head.initialize()
    assert head.pitch is not None
    states, reach, context = paddle.to_tensor(normal(1, 9, WIDTH)), head.bridge.reach, 3 * head.bridge.samples - 7
    around = paddle.concat([paddle.zeros([1, reach, WIDTH]), states, paddle.zeros([1, reach, WIDTH])], axis=1)
    whole = head.pitch(around, reach).numpy()
    windows = state_windows(head, states, np.array([9]), Segment(np.array([5]), 4), context)
    part = head.pitch(windows, reach).numpy()
    assert part.shape[1] == 2 * (3 + 4)  # with the steps before that hold the context
    np.testing.assert_allclose(part, whole[:, 2 * (5 - 3) :], atol=1e-5)


@paddle.no_grad()
def test_the_flow_is_given_pulses_and_the_wavenet_is_not() -> None:
    paddle.seed(3)
    sizes = replace(SIZES, pulses=True)
    head = VoiceHead(WIDTH, sizes, BINS, HOP, np.ones(9), pace=1.0, loudness=0.5, vocoder="flow")
    head.initialize()
    perturbed(head)
    assert head.flow is not None
    context = head.wavenet.config.context + head.flow.context
    given, samples, inside, begun = training_inputs(head, context)
    noise = paddle.to_tensor(normal(*samples.shape, seed=3))
    arguments = (head, given, samples[:, context:], inside, begun, noise, [], 4.0, 0.0)
    silent, loud = (
        float(flow_loss(*arguments, paddle.to_tensor(np.full((1, samples.shape[1], 2), value, np.float32))))
        for value in (0.0, 1.0)
    )
    assert abs(silent - loud) > 1e-3
