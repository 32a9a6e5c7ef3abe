"""A WaveNet that makes one sample after the other, each from those before it.

Legend: S samples, L layers, C channels, H features of the conditioner, P vectors that a layer looks back on.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ernie.kernels.sampling import Network, draw
from ernie.model.wavenet import WaveNet


@dataclass(frozen=True, eq=False)
class Sampling:
    """What is known of a sound so far: its last sample, and of each layer the vectors (P, C) that it looks back on."""

    last: float
    layers: tuple[np.ndarray, ...]


class Sampler:
    """Draws samples from a WaveNet."""

    def __init__(self, network: WaveNet):
        self.config = network.config
        C, taps = self.config.channels, self.config.taps
        mixes = [layer.mix.weight.numpy() for layer in network.layers]
        leads, on_biases = [], []
        for layer in network.layers:
            leads_on = layer.on is not None  # the last one leads nowhere
            on = layer.on.weight.numpy() if leads_on else np.zeros((C, C), np.float32)
            leads.append(np.concatenate([layer.skip.weight.numpy(), on], axis=1))
            on_biases.append(layer.on.bias.numpy() if leads_on else np.zeros(C, np.float32))
        # What the conditioner adds to the products of all layers, (H, L 2 C), and their biases.
        self._of_conditioner = np.concatenate([mix[taps * C :] for mix in mixes], axis=1)
        self._bias = np.concatenate([layer.mix.bias.numpy() for layer in network.layers])
        self._network = Network(
            self.config.dilations,
            network.loudness,
            first=np.stack([network.first.weight.numpy()[0], network.first.bias.numpy()]),
            mix=np.stack([mix[: taps * C] for mix in mixes]),
            leads=np.stack(leads),
            on_bias=np.stack(on_biases),
            inner=network.inner.weight.numpy(),
            inner_bias=network.inner.bias.numpy(),
            out=network.out.weight.numpy(),
            out_bias=network.out.bias.numpy(),
        )

    def begin(self) -> Sampling:
        """Silence."""
        looked = ((self.config.taps - 1) * dilation for dilation in self.config.dilations)
        # What the layers make of silence is not zero: it is heard until all of them look back on nothing else.
        state = Sampling(0.0, tuple(np.zeros((count, self.config.channels), np.float32) for count in looked))
        quiet = np.zeros((self.config.context, self._of_conditioner.shape[0]), np.float32)
        return self.heard(state, np.zeros(self.config.context, np.float32), quiet)

    def heard(self, state: Sampling, samples: np.ndarray, conditioner_SH: np.ndarray) -> Sampling:
        """What is known after these samples, which were not drawn here."""
        return self._gone_on(state, conditioner_SH, None, np.array(samples, np.float32))[0]

    def draw(self, state: Sampling, conditioner_SH: np.ndarray, noise: np.ndarray) -> tuple[Sampling, np.ndarray]:
        """The next samples (S,), one for each row of the conditioner, made of white noise (S,)."""
        return self._gone_on(state, conditioner_SH, noise, np.empty(len(noise), np.float32))

    def _gone_on(
        self, state: Sampling, conditioner_SH: np.ndarray, noise: np.ndarray | None, samples: np.ndarray
    ) -> tuple[Sampling, np.ndarray]:
        S, C = len(samples), self.config.channels
        if not S:
            return state, samples
        told_SLC = (conditioner_SH @ self._of_conditioner + self._bias).reshape(S, -1, 2 * C)
        # Each layer's vectors, those that it looks back on first: a sample's own is written where it belongs.
        rows = [np.concatenate([held, np.empty((S, C), np.float32)]) for held in state.layers]
        draw(self._network, rows, told_SLC, state.last, noise, samples)
        kept = tuple(own[len(own) - len(held) :] for own, held in zip(rows, state.layers, strict=True))
        return Sampling(float(samples[-1]), kept), samples
