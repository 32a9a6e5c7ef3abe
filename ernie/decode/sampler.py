"""A WaveNet that makes one sample after the other, each from those before it.

A step is a few dozen products of a vector with a small matrix: NumPy starts one in a microsecond, Paddle in ten.

Legend: S samples, C channels, H features of the conditioner, P samples that a layer looks back.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ernie.model.wavenet import WaveNet


@dataclass(frozen=True, eq=False)
class Sampling:
    """What is known of a sound so far: its last sample, and of each layer the vectors (P, C) that it looks back on."""

    last: float
    layers: tuple[np.ndarray, ...]


class Sampler:
    """Draws samples from a WaveNet."""

    def __init__(self, network: WaveNet):
        self.config, self._loudness = network.config, network.loudness
        C, taps = self.config.channels, self.config.taps

        def weights(layer: object) -> tuple[np.ndarray, np.ndarray]:
            return layer.weight.numpy(), layer.bias.numpy()  # type: ignore[attr-defined]

        self._first, self._inner, self._out = weights(network.first), weights(network.inner), weights(network.out)
        self._layers = []
        for layer in network.layers:
            mix, bias = weights(layer.mix)
            on = None if layer.on is None else weights(layer.on)
            self._layers.append((mix[: taps * C], mix[taps * C :], bias, layer.skip.weight.numpy(), on))

    def begin(self) -> Sampling:
        """Silence."""
        looked = ((self.config.taps - 1) * dilation for dilation in self.config.dilations)
        # What the layers make of silence is not zero: it is heard until all of them look back on nothing else.
        state = Sampling(0.0, tuple(np.zeros((count, self.config.channels), np.float32) for count in looked))
        quiet = np.zeros((self.config.context, self._layers[0][1].shape[0]), np.float32)
        return self.heard(state, np.zeros(self.config.context, np.float32), quiet)

    def heard(self, state: Sampling, samples: np.ndarray, conditioner_SH: np.ndarray) -> Sampling:
        """What is known after these samples, which were not drawn here."""
        return self._run(state, conditioner_SH, None, samples)[0]

    def draw(self, state: Sampling, conditioner_SH: np.ndarray, noise: np.ndarray) -> tuple[Sampling, np.ndarray]:
        """The next samples (S,), one for each row of the conditioner, made of white noise (S,)."""
        return self._run(state, conditioner_SH, noise, None)

    def _run(
        self, state: Sampling, conditioner_SH: np.ndarray, noise: np.ndarray | None, given: np.ndarray | None
    ) -> tuple[Sampling, np.ndarray]:
        S, C, taps = len(conditioner_SH), self.config.channels, self.config.taps
        told = [conditioner_SH @ of_conditioner + bias for _, of_conditioner, bias, _, _ in self._layers]
        # Each layer's vectors, those that it looks back on first: a sample's own is written where it belongs.
        rows = [np.concatenate([held, np.empty((S, C), np.float32)]) for held in state.layers]
        found, last = np.empty(S, np.float32), np.float32(state.last)
        joined = np.empty(taps * C, np.float32)
        for s in range(S):
            x = last / self._loudness * self._first[0][0] + self._first[1]
            total = np.zeros(C, np.float32)
            for number, (mix, _, _, skip, on) in enumerate(self._layers):
                own, dilation = rows[number], self.config.dilations[number]
                at = len(state.layers[number]) + s
                own[at] = x
                for tap in range(taps):
                    joined[tap * C : (tap + 1) * C] = own[at - (taps - 1 - tap) * dilation]
                inner = joined @ mix
                inner += told[number][s]
                gated = np.tanh(inner[:C]) / (1 + np.exp(-inner[C:]))
                total += gated @ skip
                if on is not None:
                    x = x + gated @ on[0] + on[1]
            if given is not None:
                last = given[s]
            else:
                hidden = np.maximum(np.maximum(total, 0) @ self._inner[0] + self._inner[1], 0)
                mean, log_scale = hidden @ self._out[0] + self._out[1]
                assert noise is not None
                last = np.float32(np.clip(self._loudness * (mean + np.exp(log_scale) * noise[s]), -1, 1))
            found[s] = last
        kept = tuple(own[len(own) - len(held) :] for own, held in zip(rows, state.layers, strict=True))
        return Sampling(float(last), kept), found
