"""Autoregressive sampling from a WaveNet.

Legend: S samples, L layers, C channels, H features of the conditioner, P past vectors in a layer's receptive field.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ernie.kernels.sampling import Network, draw
from ernie.model.wavenet import WaveNet


@dataclass(frozen=True, eq=False)
class SamplerState:
    """The state of a sound: its last sample, and for each layer the past vectors (P, C) in its receptive field."""

    last: float
    layers: tuple[np.ndarray, ...]


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
        self._conditioner_weight = np.concatenate([mix[taps * C :] for mix in mixes], axis=1)
        self._bias = np.concatenate([layer.mix.bias.numpy() for layer in network.layers])
        self._network = Network(
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
        past_counts = ((self.config.taps - 1) * dilation for dilation in self.config.dilations)
        # The layers' outputs for silence are not zero: feed it until it fills the receptive field of all of them.
        state = SamplerState(0.0, tuple(np.zeros((count, self.config.channels), np.float32) for count in past_counts))
        zeros_SH = np.zeros((self.config.context, self._conditioner_weight.shape[0]), np.float32)
        return self.feed(state, np.zeros(self.config.context, np.float32), zeros_SH)

    def feed(self, state: SamplerState, samples: np.ndarray, conditioner_SH: np.ndarray) -> SamplerState:
        """Return the state after given samples (S,), without drawing any."""
        return self._advance(state, conditioner_SH, None, np.array(samples, np.float32))[0]

    def draw(
        self, state: SamplerState, conditioner_SH: np.ndarray, noise: np.ndarray
    ) -> tuple[SamplerState, np.ndarray]:
        """Draw the next samples (S,), one for each row of the conditioner, from white noise (S,)."""
        return self._advance(state, conditioner_SH, noise, np.empty(len(noise), np.float32))

    def _advance(
        self, state: SamplerState, conditioner_SH: np.ndarray, noise: np.ndarray | None, samples: np.ndarray
    ) -> tuple[SamplerState, np.ndarray]:
        S, C = len(samples), self.config.channels
        if not S:
            return state, samples
        conditioned_SLC = (conditioner_SH @ self._conditioner_weight + self._bias).reshape(S, -1, 2 * C)
        # Each layer's vectors, the past ones first; the kernel writes those of the new samples.
        rows = [np.concatenate([before, np.empty((S, C), np.float32)]) for before in state.layers]
        draw(self._network, rows, conditioned_SLC, state.last, noise, samples)
        past = tuple(own[len(own) - len(before) :] for own, before in zip(rows, state.layers, strict=True))
        return SamplerState(float(samples[-1]), past), samples
