"""Voice losses: before its first sample a sound is silent, in training as in synthesis."""

from __future__ import annotations

import numpy as np
import paddle
import pytest

from ernie.audio.features import FeatureConfig
from ernie.audio.voice import VoiceConfig, WaveNetConfig
from ernie.data.batch import Layout, Packed
from ernie.decode.synthesis import WaveNetVocoder
from ernie.model.gaussian import regularized_divergence
from ernie.model.voice import FramePrediction, Text, VoiceHead
from ernie.model.voice_loss import (
    MIN_LOG_SCALE,
    Segment,
    conditioners,
    flow_loss,
    frame_loss,
    likelihood_loss,
    segment_samples,
)

HOP, BINS, WIDTH, STEPS = 20, 4, 8, 3
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
    paddle.seed(4)
    head = VoiceHead(WIDTH, SIZES, BINS, HOP, np.ones(9), pace=1.0, loudness=0.5, flow=True)
    head.initialize()
    return head


def training_inputs(head: VoiceHead, context: int) -> tuple[paddle.Tensor, ...]:
    """For a whole sound: the conditioner, the samples, and masks of those inside and of those that have begun."""
    nothing = np.zeros(1, np.int64)
    sound = 0.3 * normal(STEPS * HOP)
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
    loss = float(likelihood_loss(head, given, samples, first_only(inside), begun, noise))
    spoken = []  # the samples for noise 0 and 1 give the mean and the deviation
    for value in (0.0, 1.0):
        vocoder = WaveNetVocoder(head.wavenet, ConstantNoise(value))  # type: ignore[arg-type]
        spoken.append(float(vocoder.more(given.numpy()[0, context : context + 1])[0]))
    mean, log_scale = spoken[0], max(MIN_LOG_SCALE, np.log(spoken[1] - spoken[0]))
    expected = (
        0.5 * ((float(samples[0, context]) - mean) / np.exp(log_scale)) ** 2 + log_scale + 0.5 * np.log(2 * np.pi)
    )
    assert loss == pytest.approx(expected, rel=1e-4)


class ConstantNoise:
    """A generator that returns one value instead of random numbers."""

    def __init__(self, value: float):
        self._value = value

    def standard_normal(self, count: int) -> np.ndarray:
        return np.full(count, self._value)


@paddle.no_grad()
def test_the_first_sample_of_a_flow_is_compared_with_the_wavenet_after_silence(head: VoiceHead) -> None:
    assert head.flow is not None
    flow_context, context = head.flow.context, head.wavenet.config.context
    given, samples, inside, begun = training_inputs(head, flow_context + context)
    noise = paddle.to_tensor(normal(*samples.shape, seed=3))
    features = FeatureConfig(rate=8000, window=0.005, hop=HOP / 8000, bins=BINS)
    first = first_only(inside)
    loss = flow_loss(head, given, samples[:, flow_context + context :], first, begun, noise, features, 4.0, 0.0)
    _, gaussian = head.flow(noise, given)
    silence = paddle.zeros([1, context])
    teacher = head.wavenet(silence, given[:, flow_context + 1 : flow_context + context + 1])
    at = paddle.to_tensor([context])
    q = type(gaussian)(*(paddle.gather(part, at, axis=1) for part in gaussian))
    assert float(loss) == pytest.approx(regularized_divergence(q, teacher, 4.0).item(), rel=1e-4)


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
