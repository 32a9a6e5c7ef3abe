"""Speech step by step: sound is given out while the rest of it is still to be made.

Legend: L tokens, D width, S samples, H features of the conditioner.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

import numpy as np
import paddle

from ernie.data.batch import Layout
from ernie.decode.sampler import Sampler
from ernie.kernels.precision import to_numpy
from ernie.model.voice import Text, Told, VoiceHead
from ernie.model.wavenet import Flow, WaveNet

_PATIENCE, _LEAST = 4, 20  # times the steps that a text of its length takes, after which it is over; or so many


class Vocoder(Protocol):
    """What makes samples of a conditioner, piece by piece."""

    def more(self, conditioner_SH: np.ndarray) -> np.ndarray:
        """The next samples (S,)."""


class OneByOne:
    """Samples drawn from a WaveNet, each after those before it."""

    def __init__(self, network: WaveNet, rng: np.random.Generator):
        self._sampler, self._rng = Sampler(network), rng
        self._state = self._sampler.begin()

    def more(self, conditioner_SH: np.ndarray) -> np.ndarray:
        """The next samples (S,)."""
        noise = self._rng.standard_normal(len(conditioner_SH)).astype(np.float32)
        self._state, found = self._sampler.draw(self._state, conditioner_SH, noise)
        return found


class AllAtOnce:
    """Samples that a flow makes of noise."""

    def __init__(self, flow: Flow, rng: np.random.Generator):
        self._flow, self._rng = flow, rng
        self._noise = self._drawn(flow.context)
        self._conditioner: np.ndarray | None = None

    def more(self, conditioner_SH: np.ndarray) -> np.ndarray:
        """The next samples (S,)."""
        held = self._conditioner
        if held is None:
            held = np.zeros((self._flow.context, conditioner_SH.shape[1]), np.float32)
        noise = np.concatenate([self._noise, self._drawn(len(conditioner_SH))])
        whole = np.concatenate([held, conditioner_SH])
        self._noise, self._conditioner = noise[-self._flow.context :], whole[-self._flow.context :]
        with paddle.no_grad():
            found, _ = self._flow(paddle.to_tensor(noise[None]), paddle.to_tensor(whole[None]))
        return np.clip(to_numpy(found)[0], -1, 1)

    def _drawn(self, count: int) -> np.ndarray:
        return self._rng.standard_normal(count).astype(np.float32)


def steps_of(head: VoiceHead, text: Text) -> Iterator[Told]:
    """What the decoder tells of each step of one text, one after the other."""
    tokens = int(text.lengths[0])
    most = max(_LEAST, round(_PATIENCE * text.letters[0] / head.decoder.pace))
    before = paddle.zeros([1, 1, head.decoder.frames.weight.shape[1]])
    kept = None
    for _ in range(most):
        with paddle.no_grad():
            told, kept = head.decoder.go_on(before, text, kept)
        before = told.frames
        yield told
        if told.last.item() > 0 and int(told.looked.argmax()) >= tokens - 2:  # the last token but [SEP]
            return


def speak(
    head: VoiceHead, encoded_LD: paddle.Tensor, ids_L: np.ndarray, vocoder: Vocoder, chunk: int
) -> Iterator[np.ndarray]:
    """The samples of one text's speech, `chunk` steps at a time, as soon as all that they depend on is there."""
    with paddle.no_grad():
        text = head.decoder.read(encoded_LD, ids_L, Layout.of_lengths([len(ids_L)]))
    states: list[paddle.Tensor] = []
    done = 0
    for told in steps_of(head, text):
        states.append(told.states)
        if len(states) >= done + chunk + head.bridge.reach:
            yield vocoder.more(_conditioner(head, states, done, done + chunk))
            done += chunk
    if done < len(states):
        yield vocoder.more(_conditioner(head, states, done, len(states)))


def _conditioner(head: VoiceHead, states: list[paddle.Tensor], first: int, behind: int) -> np.ndarray:
    """What the samples of the steps from `first` on are conditioned on."""
    reach, unit = head.bridge.reach, head.bridge.samples
    silence = [paddle.zeros_like(states[0])] * reach  # before the first step and behind the last, as in learning
    around = [*silence, *states, *silence][first : behind + 2 * reach]
    with paddle.no_grad():
        found_NSH = head.bridge(paddle.concat(around, axis=1))
    return to_numpy(found_NSH)[0, reach * unit : (reach + behind - first) * unit]
