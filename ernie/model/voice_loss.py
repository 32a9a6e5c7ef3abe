"""Training losses of speech synthesis: frames, attention, and the samples of segments of the recordings.

Ping et al., 2019, "ClariNet" (arXiv 1807.07281): all parts have equal weight.

Legend: N sequences, L tokens of the longest, F steps of the longest, M features of the frames of a step, R samples of a
segment, S samples of a segment with its context, H features of the conditioner, K frequencies.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
import paddle
import paddle.nn.functional as F
from paddle import Tensor

from ernie.audio.features import FeatureConfig
from ernie.audio.pitch import MIDDLE, pitch_of_frames
from ernie.data.batch import Packed
from ernie.kernels.precision import in_float32
from ernie.model.gaussian import regularized_divergence
from ernie.model.voice import FramePrediction, Text, VoiceHead

USUAL_LOUDNESS = 0.1  # standard deviation of samples; the losses are those of a sound brought to it
MIN_LOG_SCALE = -9.0  # lower bound of log standard deviations in the likelihood: a few 16-bit quantization steps
_GUIDE_WIDTH = 0.2  # distance from the diagonal, as a share of the text, beyond which attention is penalized strongly
_TINY = 1e-8  # added to a power before its square root
_QUIET = 1e-3  # added to a magnitude before its logarithm
# Seconds on either side of a segment by which its pitch is found: nearly that of the whole sound.
_PITCH_AROUND = 1.0


@dataclass(frozen=True)
class Segment:
    """The training segment of each sound: its first step, (N,), and the number of steps, the same for all."""

    first: np.ndarray
    steps: int


@dataclass(frozen=True)
class Windows:
    """Windows of `width` samples, each `hop` after the one before, and how many `frequencies` their spectra have.

    Magnitudes are multiplied by `scale`.
    """

    width: int
    hop: int
    frequencies: int
    scale: float = 1.0

    @classmethod
    def of(cls, features: FeatureConfig) -> Windows:
        """Return the windows of features."""
        return cls(features.window_samples, features.hop_samples, features.frequencies)

    @classmethod
    def lasting(cls, seconds: float, features: FeatureConfig) -> Windows:
        """Return windows of so many seconds, each a quarter of one after the one before.

        Noise has the magnitude in them that it has in the windows of the features.  So an error of any kind counts as
        much in short windows as in long ones: scaled to a tone, one that is spread over frequencies would count more
        and more.
        """
        width = round(seconds * features.sample_rate) // 2 * 2
        return cls(width, max(1, width // 4), width // 2 + 1, math.sqrt(features.window_samples / width))

    def count(self, samples: int) -> int:
        """Return the number of windows in so many samples."""
        return max(0, 1 + (samples - self.width) // self.hop)


def frame_loss(prediction: FramePrediction, text: Text, frames_NFM: np.ndarray, steps: np.ndarray) -> Tensor:
    """The frame decoder's loss: averaged over the steps of a sequence, and summed over the sequences.

    It adds the absolute error of the frames, the cross entropy of whether a step is the last, and the distance of
    attention from the diagonal.  The last is guided attention (Tachibana et al., 2018, arXiv 1710.08969, section 4.1).
    """
    longest = frames_NFM.shape[1]
    inside_NF = np.arange(longest) < steps[:, None]
    weight_NF = paddle.to_tensor((inside_NF / steps[:, None]).astype(np.float32))
    frame_error_NF = (prediction.frames - paddle.to_tensor(frames_NFM)).abs().mean(-1)
    is_last_NF = (np.arange(longest) == steps[:, None] - 1).astype(np.float32)
    stop_loss_NF = in_float32(F.binary_cross_entropy_with_logits)(
        prediction.stop_logits, paddle.to_tensor(is_last_NF), reduction="none"
    )
    position_NL = text.middles / np.maximum(1, text.letters)[:, None]
    offset_NFL = position_NL[:, None] - ((np.arange(longest) + 0.5) / np.maximum(1, steps[:, None]))[..., None]
    penalty_NFL = paddle.to_tensor((1 - np.exp(-(offset_NFL**2) / (2 * _GUIDE_WIDTH**2))).astype(np.float32))
    return ((frame_error_NF + stop_loss_NF + (prediction.attention * penalty_NFL).sum(-1)) * weight_NF).sum()


def likelihood_loss(
    head: VoiceHead,
    conditioner_NSH: Tensor,
    samples_NS: Tensor,
    inside_NR: Tensor,
    started_NS: Tensor,
    noise_NS: Tensor | None = None,
) -> Tensor:
    """Negative log likelihood of the samples `inside` a sound: their mean, summed over the sequences.

    The first `context` samples only precede the first predicted one.  `noise` is added to the network's input, except
    before the beginning of the sound, where `started` is 0: there the input is silence, as in synthesis.
    """
    context = head.wavenet.config.context
    input_NS = samples_NS if noise_NS is None else samples_NS + noise_NS * started_NS
    times = USUAL_LOUDNESS / head.wavenet.loudness
    gaussian = head.wavenet(input_NS[:, :-1], conditioner_NSH).scaled(times).at_least(MIN_LOG_SCALE)
    nats_NR = gaussian.nats(samples_NS[:, context:] * times) - math.log(times)  # of the samples as they are
    return _mean_inside(nats_NR, inside_NR)


def flow_loss(
    head: VoiceHead,
    conditioner_NSH: Tensor,
    samples_NR: Tensor,
    inside_NR: Tensor,
    started_NS: Tensor,
    noise_NS: Tensor,
    windows: Sequence[Windows],
    log_std_penalty: float,
    spectral: float,
    pulses_NSP: Tensor | None = None,
) -> Tensor:
    """Distillation loss: the divergence of the flow from the WaveNet plus `spectral` times the spectral distance.

    With several kinds of `windows` that is the mean of their distances: long ones tell harmonics apart, short ones
    moments (Yamamoto et al., 2020, "Parallel WaveGAN", arXiv 1910.11480, section 2.2).  Windows shorter than two
    periods of the voice tell where its pulses fall, which the conditioner hardly says.

    The divergence is averaged over the samples; both terms are summed over the sequences.  The flow needs its own
    `context` of noise and also generates that of the WaveNet.  Before the beginning of the sound, where `started` is 0,
    it is silenced: the WaveNet has seen nothing else there.  The flow alone is given `pulses`, beside the conditioner.
    """
    assert head.flow is not None
    R = samples_NR.shape[1]
    given_NSH = conditioner_NSH if pulses_NSP is None else paddle.concat([conditioner_NSH, pulses_NSP], axis=-1)
    generated_NS, flow_gaussian = head.flow(noise_NS, given_NSH)
    generated_NS = generated_NS * started_NS[:, -generated_NS.shape[1] :]
    times = USUAL_LOUDNESS / head.wavenet.loudness
    wavenet_gaussian = head.wavenet(generated_NS[:, :-1], conditioner_NSH).scaled(times)
    flow_gaussian = flow_gaussian.last(R).scaled(times)
    total = _mean_inside(regularized_divergence(flow_gaussian, wavenet_gaussian, log_std_penalty), inside_NR)
    if spectral:
        generated_NR = generated_NS[:, -R:] * inside_NR
        distances = [spectral_distance(generated_NR * times, samples_NR * times, each) for each in windows]
        total = total + spectral * paddle.add_n(distances) / len(distances)
    return total


def pitch_loss(head: VoiceHead, windows_NFD: Tensor, f0_NF: np.ndarray) -> Tensor:
    """The error of the pitch that is predicted for the last frames of the windows, but for those around them.

    It adds the cross entropy of whether there is a voice, averaged over the frames, and the error of F0 in octaves,
    averaged over those with a voice.  Both are summed over the sequences.
    """
    assert head.pitch is not None
    predicted_NF2 = head.pitch(windows_NFD, head.bridge.reach)[:, -f0_NF.shape[1] :]
    voiced_NF = (f0_NF > 0).astype(np.float32)
    octaves_NF = np.log2(np.where(f0_NF > 0, f0_NF, MIDDLE) / MIDDLE).astype(np.float32)
    voice_NF = in_float32(F.binary_cross_entropy_with_logits)(
        predicted_NF2[:, :, 1], paddle.to_tensor(voiced_NF), reduction="none"
    )
    off_NF = (predicted_NF2[:, :, 0] - paddle.to_tensor(octaves_NF)).abs()
    share_NF = paddle.to_tensor(voiced_NF / np.maximum(1, voiced_NF.sum(1, keepdims=True)))
    return voice_NF.mean(1).sum() + (off_NF * share_NF).sum()


def spectral_distance(generated_NR: Tensor, samples_NR: Tensor, windows: Windows) -> Tensor:
    """Squared error of magnitude spectra plus absolute error of their logarithms.

    Both are averaged over frequencies and frames, and summed over the sequences.  Without the second, after Yamamoto et
    al., 2020 (arXiv 1910.11480), equation 5, only loud sound counts: silence came out as noise.
    """
    ours, theirs = (magnitudes(samples, windows) for samples in (generated_NR, samples_NR))
    squared = (ours - theirs) ** 2
    logarithmic = (paddle.log(ours + _QUIET) - paddle.log(theirs + _QUIET)).abs()
    return (squared + logarithmic).mean([1, 2]).sum()


def magnitudes(samples_NR: Tensor, windows: Windows) -> Tensor:
    """Return the magnitude spectra of windows of samples, (N, windows, K)."""
    N, R = samples_NR.shape
    count, width = windows.count(R), windows.width
    rows = (windows.hop * np.arange(count)[:, None] + np.arange(width)).reshape(-1)
    parts = paddle.gather(samples_NR, paddle.to_tensor(rows), axis=1).reshape([N * count, width])
    cosines, sines = _transform(width, windows.frequencies)
    real, imaginary = paddle.matmul(parts, cosines), paddle.matmul(parts, sines)
    found = paddle.sqrt(real * real + imaginary * imaginary + _TINY).reshape([N, count, -1])
    return found if windows.scale == 1 else found * windows.scale


@cache
def _transform(width: int, frequencies: int) -> tuple[Tensor, Tensor]:
    """Return a windowed Fourier basis, cosines and sines, (width, K) each; a matmul has a gradient on every device."""
    angles = np.pi * np.arange(width)[:, None] * np.arange(frequencies) / (frequencies - 1)
    window = np.hanning(width)[:, None]
    cosines, sines = (paddle.to_tensor((window * wave(angles)).astype(np.float32)) for wave in (np.cos, np.sin))
    return cosines, sines


def segment_samples(
    batch: Packed, segment: Segment, step_samples: int, context: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Cut out each sound's segment, with `context` samples before it.

    Returns the samples (N, context + R), zero where there are none.  Also returns which of the last R are inside the
    sound, and which of all of them are not before its beginning.
    """
    R = segment.steps * step_samples
    samples = np.zeros((len(batch.sounds), context + R), np.float32)
    inside = np.zeros((len(batch.sounds), R), np.float32)
    for row, (sound, first) in enumerate(zip(batch.sounds, segment.first * step_samples, strict=True)):
        start, end = first - context, min(len(sound), first + R)
        samples[row, max(0, -start) : end - start] = sound[max(0, start) : end]
        inside[row, : end - first] = 1
    return samples, inside, _started(segment, step_samples, context)


def _started(segment: Segment, step_samples: int, context: int) -> np.ndarray:
    rows = segment.first[:, None] * step_samples - context + np.arange(context + segment.steps * step_samples)
    return (rows >= 0).astype(np.float32)


def conditioners(head: VoiceHead, states_NFD: Tensor, steps: np.ndarray, segment: Segment, context: int) -> Tensor:
    """Return the conditioner of each segment and the `context` samples before it, (N, context + R, H).

    It is zero before the first sample of a sound.
    """
    unit = head.bridge.samples
    windows_NFD = state_windows(head, states_NFD, steps, segment, context)
    started_NS = _started(segment, unit, context)
    first = (windows_NFD.shape[1] - segment.steps - 2 * head.bridge.reach) * unit - context
    conditioner_NSH = head.bridge(windows_NFD, head.bridge.reach)[:, first : first + started_NS.shape[1]]
    return conditioner_NSH * paddle.to_tensor(started_NS).unsqueeze(-1)


def state_windows(head: VoiceHead, states_NFD: Tensor, steps: np.ndarray, segment: Segment, context: int) -> Tensor:
    """Return the states of each segment and of the whole steps with `context` samples before it, (N, F, D).

    As many on either side as the upsampler sees are among them; states are zero before a sound and after it.
    """
    N, _, D = states_NFD.shape
    reach = head.bridge.reach
    is_inside = paddle.to_tensor((np.arange(states_NFD.shape[1]) < steps[:, None]).astype(np.float32))
    left, right = -(-context // head.bridge.samples) + reach, segment.steps + reach
    padded = paddle.concat(
        [paddle.zeros([N, left, D]), states_NFD * is_inside.unsqueeze(-1), paddle.zeros([N, right, D])], 1
    )
    windows = [padded[n : n + 1, first : first + left + right] for n, first in enumerate(segment.first.tolist())]
    return paddle.concat(windows, axis=0)


def segment_pitch(
    batch: Packed, segment: Segment, features: FeatureConfig, step_samples: int, context: int, loudness: float
) -> np.ndarray:
    """Return F0 in Hz of each frame of the segments and of the whole steps with `context` samples before, (N, frames).

    It is 0 where there is no voice, and before a sound and after it.  `loudness` is the standard deviation of the
    recordings, which tells what is audible.
    """
    hop, rate = features.hop_samples, features.sample_rate
    count = -(-context // step_samples) + segment.steps
    around = -(-_PITCH_AROUND * rate // step_samples)  # steps
    found_NF = np.zeros((len(batch.sounds), count * step_samples // hop))
    for f0_F, sound, end in zip(found_NF, batch.sounds, segment.first + segment.steps, strict=True):
        first, last = (int(step) * step_samples for step in (end - count - around, end + around))
        part = np.pad(sound[max(0, first) : max(0, last)], (max(0, -first), max(0, last - len(sound))))
        edge = int(around) * step_samples // hop
        starts = first + hop * np.arange(edge, edge + len(f0_F))
        is_inside = (starts >= 0) & (starts < len(sound))
        found_F = pitch_of_frames(part * (USUAL_LOUDNESS / loudness), rate, hop)
        f0_F[:] = np.where(is_inside, found_F[edge : edge + len(f0_F)], 0.0)
    return found_NF


def _mean_inside(values_NR: Tensor, inside_NR: Tensor) -> Tensor:
    return ((values_NR * inside_NR).sum(1) / inside_NR.sum(1)).sum()
