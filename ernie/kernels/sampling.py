"""Samples of a WaveNet one after the other, each from those before it: the loop that draws them.

Ping et al., 2019, "ClariNet" (arXiv 1807.07281), section 3.

Legend: S samples, L layers, C channels, P vectors that a layer looks back on.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from ernie.kernels import cpu
from ernie.kernels.cpu.library import library


class Network(NamedTuple):
    """What draws samples, in arrays of float32.

    A sample, in `loudness`, is made a vector by `first` (2, C), weight and bias.  Layer by layer `mix` (L, taps C, 2 C)
    has the oldest tap first, `leads` (L, C, 2 C) lead out of the stack and on to the next layer, whose bias is
    `on_bias` (L, C).  Through `inner` (C, C) and `out` (C, 2) what leads out becomes the mean of the next sample and
    the logarithm of its deviation, all but the last counted in `loudness`.
    """

    dilations: tuple[int, ...]
    loudness: float
    first: np.ndarray
    mix: np.ndarray
    leads: np.ndarray
    on_bias: np.ndarray
    inner: np.ndarray
    inner_bias: np.ndarray
    out: np.ndarray
    out_bias: np.ndarray

    @property
    def taps(self) -> int:
        """How many vectors a layer sees."""
        return self.mix.shape[1] // self.first.shape[1]


def draw(
    network: Network,
    rows: Sequence[np.ndarray],
    told_SLC: np.ndarray,
    last: float,
    noise_S: np.ndarray | None,
    samples_S: np.ndarray,
) -> None:
    """Draw the samples that follow `last` by white noise, or, without any, go through those that are there already.

    `rows` are the vectors of each layer (P + S, C), of which the first P are there; `told` (S, L, 2 C) is what the
    conditioner adds to each product.  What is missing of rows and samples is filled in.
    """
    body = reference if library() is None else cpu.sampling.draw
    body(network, rows, told_SLC, last, noise_S, samples_S)


def reference(
    network: Network,
    rows: Sequence[np.ndarray],
    told_SLC: np.ndarray,
    last: float,
    noise_S: np.ndarray | None,
    samples_S: np.ndarray,
) -> None:
    """What the loop does."""
    C, taps = network.first.shape[1], network.taps
    for s in range(len(samples_S)):
        x = last / network.loudness * network.first[0] + network.first[1]
        total = np.zeros(C, x.dtype)
        for own, dilation, mix, leads, bias, told in zip(
            rows, network.dilations, network.mix, network.leads, network.on_bias, told_SLC[s], strict=True
        ):
            own[s + (taps - 1) * dilation] = x
            inner = own[s : s + (taps - 1) * dilation + 1 : dilation].ravel() @ mix + told
            both = np.tanh(inner[:C]) / (1 + np.exp(-inner[C:])) @ leads
            total += both[:C]
            x = x + both[C:] + bias
        if noise_S is not None:
            hidden = np.maximum(np.maximum(total, 0) @ network.inner + network.inner_bias, 0)
            mean, log_scale = hidden @ network.out + network.out_bias
            samples_S[s] = np.clip(network.loudness * (mean + np.exp(log_scale) * noise_S[s]), -1, 1)
        last = samples_S[s]
