"""Autoregressive sampling from a WaveNet.

Legend: N sounds, S samples, L layers, C channels, H features of the conditioner, P past vectors in receptive fields.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import paddle

from ernie.kernels.linear import linear
from ernie.kernels.precision import batch_invariant, precision
from ernie.kernels.sampling import draw
from ernie.kernels.types import SamplingWeights
from ernie.model.wavenet import WaveNet


class SamplerState(NamedTuple):
    """The state of a sound: its last sample (1,), and the past vectors in the receptive field of each layer, (P, C).

    Those of the first layer come first.
    """

    last: np.ndarray
    past: np.ndarray


class Sampler:
    """Draws samples from a WaveNet."""

    def __init__(self, network: WaveNet):
        self.config = network.config
        C, taps = self.config.channels, self.config.taps
        mixes = [layer.mix.weight.numpy() for layer in network.layers]
        outputs, output_biases = [], []
        for layer in network.layers:
            has_output = layer.on is not None  # the last layer has only a skip output
            on = layer.on.weight.numpy() if has_output else np.zeros((C, C), np.float32)
            outputs.append(np.concatenate([layer.skip.weight.numpy(), on], axis=1))
            output_biases.append(layer.on.bias.numpy() if has_output else np.zeros(C, np.float32))
        # The conditioner's projections for all layers, (H, L 2 C), and the layers' biases.
        conditioner_weight = np.concatenate([mix[taps * C :] for mix in mixes], axis=1)
        self._features, self._conditioner_weight = len(conditioner_weight), paddle.to_tensor(conditioner_weight)
        self._bias = paddle.to_tensor(np.concatenate([layer.mix.bias.numpy() for layer in network.layers]))
        self._past_counts = [(taps - 1) * dilation for dilation in self.config.dilations]
        self._network = SamplingWeights(
            self.config.dilations,
            network.loudness,
            first=np.stack([network.first.weight.numpy()[0], network.first.bias.numpy()]),
            mix=np.stack([mix[: taps * C] for mix in mixes]),
            skip_residual=np.stack(outputs),
            residual_bias=np.stack(output_biases),
            inner=network.inner.weight.numpy(),
            inner_bias=network.inner.bias.numpy(),
            out=network.out.weight.numpy(),
            out_bias=network.out.bias.numpy(),
        )

    def begin(self) -> SamplerState:
        """Return the state after silence."""
        past_PC = np.zeros((sum(self._past_counts), self.config.channels), np.float32)
        # The layers' outputs for silence are not zero: feed it until it fills the receptive field of all of them.
        silence_S, zeros_SH = (np.zeros([self.config.context, *rest], np.float32) for rest in ((), (self._features,)))
        return self.feed(SamplerState(np.zeros(1, np.float32), past_PC), silence_S, zeros_SH)

    def feed(self, state: SamplerState, samples: np.ndarray, conditioner_SH: np.ndarray) -> SamplerState:
        """Return the state after given samples (S,), without drawing any."""
        ((after,), _) = self._advance([state], conditioner_SH[None], None, np.array(samples[None], np.float32))
        return after

    def draw(
        self, states: Sequence[SamplerState], conditioner_NSH: np.ndarray, noise_NS: np.ndarray
    ) -> tuple[list[SamplerState], np.ndarray]:
        """Draw the next samples (N, S), one for each row of the conditioner, from white noise (N, S).

        The samples of a sound depend on no other.
        """
        return self._advance(states, conditioner_NSH, noise_NS, np.empty(noise_NS.shape, np.float32))

    def _advance(
        self,
        states: Sequence[SamplerState],
        conditioner_NSH: np.ndarray,
        noise_NS: np.ndarray | None,
        samples_NS: np.ndarray,
    ) -> tuple[list[SamplerState], np.ndarray]:
        (N, S), C = samples_NS.shape, self.config.channels
        if not S:
            return list(states), samples_NS
        conditioner_RH = paddle.to_tensor(conditioner_NSH.reshape(N * S, -1))
        with paddle.no_grad(), precision("fp32"), batch_invariant():
            conditioned = linear(conditioner_RH, self._conditioner_weight, self._bias).numpy()
        # Each layer's vectors, the past ones first; the kernel writes those of the new samples.
        past = [np.split(state.past, np.cumsum(self._past_counts)[:-1]) for state in states]
        rows = [[np.concatenate([before, np.empty((S, C), np.float32)]) for before in own] for own in past]
        last_N = np.concatenate([state.last for state in states])
        draw(self._network, rows, conditioned.reshape(N, S, -1, 2 * C), last_N, noise_NS, samples_NS)
        after = []
        for n, own in enumerate(rows):
            kept = [layer_rows[-count:] for layer_rows, count in zip(own, self._past_counts, strict=True)]
            after.append(SamplerState(samples_NS[n, -1:].copy(), np.concatenate(kept)))
        return after, samples_NS
