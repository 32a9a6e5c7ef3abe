"""Streaming speech synthesis: samples are returned while later steps are still being computed.

Legend: L tokens, D width, S samples, H features of the conditioner.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator
from typing import Protocol

import numpy as np
import paddle

from ernie.data.batch import Layout
from ernie.decode.sampler import Sampler
from ernie.errors import Remark
from ernie.kernels.precision import to_numpy
from ernie.model.inference import finite
from ernie.model.voice import FramePrediction, Text, VoiceHead
from ernie.model.wavenet import Flow, FlowCache, WaveNet

_MOST_LOGIT = 50.0  # where exp is still finite
_LIMIT_FACTOR, _MIN_LIMIT = 4, 20  # the limit of steps is this multiple of the expected number, at least the latter


class Vocoder(Protocol):
    """Generates samples from the conditioner, piece by piece."""

    def more(self, conditioner_SH: np.ndarray) -> np.ndarray:
        """Return the next samples (S,), one for each row of the conditioner."""


class WaveNetVocoder:
    """Samples a WaveNet autoregressively."""

    def __init__(self, network: WaveNet, rng: np.random.Generator):
        self._sampler, self._rng = Sampler(network), rng
        self._state = self._sampler.begin()

    def more(self, conditioner_SH: np.ndarray) -> np.ndarray:
        """Return the next samples (S,), one for each row of the conditioner."""
        noise = self._rng.standard_normal(len(conditioner_SH)).astype(np.float32)
        self._state, samples = self._sampler.draw(self._state, conditioner_SH, noise)
        return samples


class FlowVocoder:
    """Transforms noise into samples by a flow, in parallel."""

    def __init__(self, flow: Flow, rng: np.random.Generator):
        self._flow, self._rng = flow, rng
        self._cache: FlowCache | None = None

    def more(self, conditioner_SH: np.ndarray) -> np.ndarray:
        """Return the next samples (S,), one for each row of the conditioner."""
        if not len(conditioner_SH):
            return np.zeros(0, np.float32)
        if self._cache is None:  # noise before the first sample, under a conditioner of zeros
            before = np.zeros((self._flow.context, conditioner_SH.shape[1]), np.float32)
            conditioner_SH = np.concatenate([before, conditioner_SH])
        noise_S = self._rng.standard_normal(len(conditioner_SH)).astype(np.float32)
        with paddle.no_grad():
            samples_NS, _, self._cache = self._flow.forward_cached(
                paddle.to_tensor(noise_S[None]), paddle.to_tensor(conditioner_SH[None]), self._cache
            )
        return np.clip(to_numpy(samples_NS)[0], -1, 1)


def steps_of(head: VoiceHead, text: Text) -> Iterator[FramePrediction]:
    """Yield the decoder's predictions for one text, step by step, until it has probably spoken all of it.

    Warns (a Remark) when it goes on to a multiple of the usual number of steps.  Raises NotFinite when the predictions
    are not finite.
    """
    tokens = int(text.lengths[0])
    max_steps = max(_MIN_LIMIT, round(_LIMIT_FACTOR * text.letters[0] / head.decoder.pace))
    before = paddle.zeros([1, 1, head.decoder.frames.weight.shape[1]])
    cache, going_on = None, 1.0  # the probability that no step so far was the last
    for _ in range(max_steps):
        with paddle.no_grad():
            prediction, cache = head.decoder.forward_cached(before, text, cache)
        finite(to_numpy(paddle.concat([prediction.frames.flatten(), prediction.stop_logits.flatten()])))
        before = prediction.frames
        yield prediction
        going_on *= 1 / (1 + math.exp(min(prediction.stop_logits.item(), _MOST_LOGIT)))
        # Where recordings end with pauses of different lengths, no single step is probably the last.
        if going_on < 0.5 and int(prediction.attention.argmax()) >= tokens - 2:  # the last token but [SEP]
            return
    warnings.warn(
        f"the voice did not stop by itself and was cut after {max_steps} steps, {_LIMIT_FACTOR} times as many as it "
        "takes for such a text on average",
        Remark,
        stacklevel=2,
    )


def speak(
    head: VoiceHead, encoded_LD: paddle.Tensor, ids_L: np.ndarray, vocoder: Vocoder, chunk: int
) -> Iterator[np.ndarray]:
    """Yield the samples of one text, `chunk` steps at a time, as soon as their receptive field is complete.

    Raises NotFinite when the model's outputs are not finite.
    """
    with paddle.no_grad():
        text = head.decoder.read(encoded_LD, ids_L, Layout.of_lengths([len(ids_L)]))
    states: list[paddle.Tensor] = []
    done = 0
    for prediction in steps_of(head, text):
        states.append(prediction.states)
        if len(states) >= done + chunk + head.bridge.reach:
            yield finite(vocoder.more(_conditioner(head, states, done, done + chunk)))
            done += chunk
    if done < len(states):
        yield finite(vocoder.more(_conditioner(head, states, done, len(states))))


def _conditioner(head: VoiceHead, states: list[paddle.Tensor], first: int, stop: int) -> np.ndarray:
    """Return the conditioner for the samples of the steps [first, stop), (S, H)."""
    reach, unit = head.bridge.reach, head.bridge.samples
    silence = [paddle.zeros_like(states[0])] * reach  # before the first step and after the last, as in training
    padded = [*silence, *states, *silence][first : stop + 2 * reach]
    with paddle.no_grad():
        conditioner_NSH = head.bridge(paddle.concat(padded, axis=1))
    return finite(to_numpy(conditioner_NSH)[0, reach * unit : (reach + stop - first) * unit])
