"""What a voice learns from: before its first sample a sound is silent, wherever it is learnt or spoken."""

from __future__ import annotations

import numpy as np
import paddle
import pytest

from ernie.audio.features import FeatureConfig
from ernie.audio.voice import VoiceConfig, WaveNetConfig
from ernie.data.batch import Layout, Packed
from ernie.decode.synthesis import WaveNetVocoder
from ernie.model.gaussian import regularized_divergence
from ernie.model.voice import VoiceHead
from ernie.model.voice_loss import MIN_LOG_SCALE, Segment, conditioners, flow_loss, likelihood_loss, segment_samples

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


def learnt(head: VoiceHead, context: int) -> tuple[paddle.Tensor, ...]:
    """The conditioner, the samples, which of them are inside and which have begun, of a sound from its beginning."""
    nothing = np.zeros(1, np.int64)
    sound = 0.3 * normal(STEPS * HOP)
    batch = Packed(nothing, nothing, Layout.of_lengths([1]), {}, np.zeros((1, 3), np.int64), sounds=(sound,))
    whole = Segment(nothing, STEPS)
    states = paddle.to_tensor(normal(1, STEPS, WIDTH, seed=1))
    given = conditioners(head, states, np.array([STEPS]), whole, context)
    return given, *map(paddle.to_tensor, segment_samples(batch, whole, HOP, context))


def first_only(inside_NR: paddle.Tensor) -> paddle.Tensor:
    """Of the samples inside, the first alone."""
    found = np.zeros(inside_NR.shape, np.float32)
    found[:, 0] = 1
    return paddle.to_tensor(found)


@paddle.no_grad()
def test_the_first_sample_is_learnt_from_the_silence_that_it_is_spoken_from(head: VoiceHead) -> None:
    """Noise on what the network sees is for samples: there are none before the first."""
    context = head.wavenet.config.context
    given, samples, inside, begun = learnt(head, context)
    noise = paddle.to_tensor(normal(*samples.shape, seed=2))
    loss = float(likelihood_loss(head, given, samples, first_only(inside), begun, noise))
    spoken = []  # noise 0 and 1 tell the mean and the deviation of what is drawn
    for drawn in (0.0, 1.0):
        maker = WaveNetVocoder(head.wavenet, Told(drawn))  # type: ignore[arg-type]
        spoken.append(float(maker.more(given.numpy()[0, context : context + 1])[0]))
    mean, log_scale = spoken[0], max(MIN_LOG_SCALE, np.log(spoken[1] - spoken[0]))
    wanted = 0.5 * ((float(samples[0, context]) - mean) / np.exp(log_scale)) ** 2 + log_scale + 0.5 * np.log(2 * np.pi)
    assert loss == pytest.approx(wanted, rel=1e-4)


class Told:
    """Numbers in the place of random ones."""

    def __init__(self, value: float):
        self._value = value

    def standard_normal(self, count: int) -> np.ndarray:
        return np.full(count, self._value)


@paddle.no_grad()
def test_a_flow_is_compared_at_the_first_sample_with_what_the_wavenet_says_behind_silence(head: VoiceHead) -> None:
    assert head.flow is not None
    own, behind = head.flow.context, head.wavenet.config.context
    given, samples, inside, begun = learnt(head, own + behind)
    noise = paddle.to_tensor(normal(*samples.shape, seed=3))
    features = FeatureConfig(rate=8000, window=0.005, hop=HOP / 8000, bins=BINS)
    first = first_only(inside)
    loss = flow_loss(head, given, samples[:, own + behind :], first, begun, noise, features, 4.0, 0.0)
    _, drawn = head.flow(noise, given)
    silence = paddle.zeros([1, behind])
    known = head.wavenet(silence, given[:, own + 1 : own + behind + 1])
    at = paddle.to_tensor([behind])
    q = type(drawn)(*(paddle.gather(part, at, axis=1) for part in drawn))
    assert float(loss) == pytest.approx(regularized_divergence(q, known, 4.0).item(), rel=1e-4)
