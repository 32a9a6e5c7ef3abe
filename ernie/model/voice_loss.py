"""What a voice learns from: frames, where it looks, and the samples of stretches of the recordings.

Ping et al., 2019, "ClariNet" (arXiv 1807.07281): all parts count alike.

Legend: N sequences, L tokens of the longest, F steps of the longest, M features of the frames of a step, R samples of a
stretch, K frequencies.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np
import paddle
import paddle.nn.functional as F
from paddle import Tensor

from ernie.audio.features import FeatureConfig
from ernie.data.batch import Packed
from ernie.model.gaussian import regularized_divergence
from ernie.model.voice import Text, Told, VoiceHead

LEAST = -9.0  # of the logarithm of a deviation that a likelihood is computed with: a few steps of 16 bits
_WIDE = 0.2  # how far from the diagonal attention may look, as a share of the text, before it costs much
_TINY = 1e-8  # of a power, below its root


@dataclass(frozen=True)
class Stretch:
    """Where samples are learnt from: the first step of each sound's stretch, (N,), and how many steps all have."""

    first: np.ndarray
    steps: int


def frame_loss(told: Told, text: Text, frames_NFM: np.ndarray, steps: np.ndarray) -> Tensor:
    """How far frames are from those that were spoken, whether the last one is known, and how far from the diagonal
    attention is, all in the mean of the steps; summed over the sequences.

    The last is guided attention: Tachibana et al., 2018 (arXiv 1710.08969), section 4.1.
    """
    longest = frames_NFM.shape[1]
    inside_NF = np.arange(longest) < steps[:, None]
    share_NF = paddle.to_tensor((inside_NF / steps[:, None]).astype(np.float32))
    apart_NF = (told.frames - paddle.to_tensor(frames_NFM)).abs().mean(-1)
    last_NF = (np.arange(longest) == steps[:, None] - 1).astype(np.float32)
    wrong_NF = F.binary_cross_entropy_with_logits(told.last, paddle.to_tensor(last_NF), reduction="none")
    place_NL = text.middles / np.maximum(1, text.letters)[:, None]
    away_NFL = place_NL[:, None] - ((np.arange(longest) + 0.5) / np.maximum(1, steps[:, None]))[..., None]
    costs_NFL = paddle.to_tensor((1 - np.exp(-(away_NFL**2) / (2 * _WIDE**2))).astype(np.float32))
    return ((apart_NF + wrong_NF + (told.looked * costs_NFL).sum(-1)) * share_NF).sum()


def likelihood_loss(
    head: VoiceHead,
    conditioner_NSH: Tensor,
    samples_NS: Tensor,
    inside_NR: Tensor,
    begun_NS: Tensor,
    noise_NS: Tensor | None = None,
) -> Tensor:
    """-log of the density of the samples `inside` a sound, in their mean; summed over the sequences.

    Of the samples the first `context` are those before the first that is learnt.  `noise` is added to what the network
    sees before each, but to nothing where the sound has not `begun`: where it is spoken there is silence, too.
    """
    context = head.wavenet.config.context
    seen_NS = samples_NS if noise_NS is None else samples_NS + noise_NS * begun_NS
    found = head.wavenet(seen_NS[:, :-1], conditioner_NSH[:, 1:])
    nats_NR = found.at_least(LEAST).nats(samples_NS[:, context:])
    return _mean_inside(nats_NR, inside_NR)


def flow_loss(
    head: VoiceHead,
    conditioner_NSH: Tensor,
    samples_NR: Tensor,
    inside_NR: Tensor,
    begun_NS: Tensor,
    noise_NS: Tensor,
    features: FeatureConfig,
    apart: float,
    spectral: float,
) -> Tensor:
    """The divergence of a flow from the WaveNet, in the mean of the samples, plus how far its spectra are from the
    recordings'; summed over the sequences.

    The flow needs its own `context` of noise, and then makes that of the WaveNet too, but silence where the sound has
    not `begun`: the WaveNet knows nothing else there.
    """
    assert head.flow is not None
    R = samples_NR.shape[1]
    made_NS, drawn = head.flow(noise_NS, conditioner_NSH)
    made_NS = made_NS * begun_NS[:, -made_NS.shape[1] :]
    behind = conditioner_NSH[:, -made_NS.shape[1] :]
    known = head.wavenet(made_NS[:, :-1], behind[:, 1:])
    total = _mean_inside(regularized_divergence(drawn.last(R), known, apart), inside_NR)
    if spectral:
        total = total + spectral * spectral_distance(made_NS[:, -R:] * inside_NR, samples_NR, features)
    return total


def spectral_distance(made_NR: Tensor, samples_NR: Tensor, features: FeatureConfig) -> Tensor:
    """The squared difference of magnitudes of spectra, in the mean of frequencies and frames; summed over sequences."""
    apart = magnitudes(made_NR, features) - magnitudes(samples_NR, features)
    return (apart * apart).mean([1, 2]).sum()


def magnitudes(samples_NR: Tensor, features: FeatureConfig) -> Tensor:
    """The magnitudes of the spectra of windows of samples, (N, frames, K)."""
    N, R = samples_NR.shape
    count, width, hop = features.frames(R), features.window_samples, features.hop_samples
    places = (hop * np.arange(count)[:, None] + np.arange(width)).reshape(-1)
    windows = paddle.gather(samples_NR, paddle.to_tensor(places), axis=1).reshape([N * count, width])
    cosines, sines = _transform(width, features.frequencies)
    real, imaginary = paddle.matmul(windows, cosines), paddle.matmul(windows, sines)
    return paddle.sqrt(real * real + imaginary * imaginary + _TINY).reshape([N, count, -1])


@cache
def _transform(width: int, frequencies: int) -> tuple[Tensor, Tensor]:
    """A window times cosines and sines, (width, K) each: as a product it has a gradient on every device."""
    angles = np.pi * np.arange(width)[:, None] * np.arange(frequencies) / (frequencies - 1)
    window = np.hanning(width)[:, None]
    cosines, sines = (paddle.to_tensor((window * wave(angles)).astype(np.float32)) for wave in (np.cos, np.sin))
    return cosines, sines


def stretches(
    batch: Packed, stretch: Stretch, step_samples: int, context: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The samples of each sound's stretch with `context` before them, (N, context + R), silence where there are none;
    which of the R are inside of the sound; and which of all of them do not lie before it."""
    R = stretch.steps * step_samples
    found = np.zeros((len(batch.sounds), context + R), np.float32)
    inside = np.zeros((len(batch.sounds), R), np.float32)
    for row, (sound, first) in enumerate(zip(batch.sounds, stretch.first * step_samples, strict=True)):
        begin, behind = first - context, min(len(sound), first + R)
        found[row, max(0, -begin) : behind - begin] = sound[max(0, begin) : behind]
        inside[row, : behind - first] = 1
    return found, inside, _begun(stretch, step_samples, context)


def _begun(stretch: Stretch, step_samples: int, context: int) -> np.ndarray:
    places = stretch.first[:, None] * step_samples - context + np.arange(context + stretch.steps * step_samples)
    return (places >= 0).astype(np.float32)


def conditioners(head: VoiceHead, states_NFD: Tensor, steps: np.ndarray, stretch: Stretch, context: int) -> Tensor:
    """What the samples of each stretch, and the `context` before them, are conditioned on, (N, context + R, H).

    Before the first sample of a sound it is zero.
    """
    N, _, D = states_NFD.shape
    reach, unit = head.bridge.reach, head.bridge.samples
    lead = -(-context // unit)
    within = paddle.to_tensor((np.arange(states_NFD.shape[1]) < steps[:, None]).astype(np.float32))
    left, right = lead + reach, stretch.steps + reach
    padded = paddle.concat(
        [paddle.zeros([N, left, D]), states_NFD * within.unsqueeze(-1), paddle.zeros([N, right, D])], 1
    )
    windows = [padded[n : n + 1, first : first + left + right] for n, first in enumerate(stretch.first.tolist())]
    found_NSH = head.bridge(paddle.concat(windows, axis=0))[:, (left * unit - context) :]
    begun_NS = _begun(stretch, unit, context)
    return found_NSH[:, : begun_NS.shape[1]] * paddle.to_tensor(begun_NS).unsqueeze(-1)


def _mean_inside(values_NR: Tensor, inside_NR: Tensor) -> Tensor:
    return ((values_NR * inside_NR).sum(1) / inside_NR.sum(1)).sum()
