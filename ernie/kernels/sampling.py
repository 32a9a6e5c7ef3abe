"""Autoregressive sampling from a WaveNet: the loop that draws each sample from those before it.

Ping et al., 2019, "ClariNet" (arXiv 1807.07281), section 3.

Legend: N sounds, S samples of each, L layers, C channels, P past vectors that a layer sees.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ernie.errors import UserError
from ernie.kernels import cpu
from ernie.kernels.choose import choose_for_arrays
from ernie.kernels.types import SamplingWeights


def draw(
    network: SamplingWeights,
    rows: Sequence[Sequence[np.ndarray]],
    conditioning_NSLC: np.ndarray,
    last_N: np.ndarray,
    noise_NS: np.ndarray | None,
    samples_NS: np.ndarray,
) -> None:
    """Draw the samples of sounds that follow `last` from white noise or, without noise, process the samples given.

    `rows` are the vectors (P + S, C) of each layer, for each sound; the first P of them are given.  `conditioning` (N,
    S, L, 2 C) is what the conditioner adds to each matrix product.  The other rows and the samples are written in
    place: both have to be contiguous float32.  On a CPU the samples of a sound do not depend on the others.  Raises
    UserError if the shapes or types do not fit.
    """
    (C, L), (N, S) = (network.first.shape[1], len(network.dilations)), samples_NS.shape
    shapes = {
        "first": (2, C),
        "mix": (L, network.taps * C, 2 * C),
        "skip_residual": (L, C, 2 * C),
        "residual_bias": (L, C),
        "inner": (C, C),
        "inner_bias": (C,),
        "out": (C, 2),
        "out_bias": (2,),
    }
    for name, shape in shapes.items():
        _check(f"network.{name}", getattr(network, name), shape)
    if len(rows) != N:
        raise UserError(f"rows of {len(rows)} sounds: expected {N}, as there are samples")
    for sound, own in enumerate(rows):
        if len(own) != L:
            raise UserError(f"rows[{sound}] of {len(own)} layers: expected {L}, one for each dilation")
        for number, (layer_rows, dilation) in enumerate(zip(own, network.dilations, strict=True)):
            _check(f"rows[{sound}][{number}]", layer_rows, ((network.taps - 1) * dilation + S, C), written=True)
    _check("conditioning", conditioning_NSLC, (N, S, L, 2 * C))
    _check("last", last_N, (N,))
    _check("samples", samples_NS, (N, S), written=True)
    if noise_NS is not None:
        _check("noise", noise_NS, (N, S))
    impl = choose_for_arrays(reference, cpu.sampling.draw)
    impl(network, rows, conditioning_NSLC, last_N, noise_NS, samples_NS)


def _check(name: str, array: np.ndarray, shape: tuple[int, ...], written: bool = False) -> None:
    """Raise UserError unless an array has this shape and, if it is written in place, allows that."""
    if array.shape != shape:
        raise UserError(f"{name} has the shape {array.shape}: expected {shape}")
    if written and not (array.dtype == np.float32 and array.flags.carray):
        raise UserError(f"{name}: expected a contiguous array of float32, which can be written to")


def reference(
    network: SamplingWeights,
    rows: Sequence[Sequence[np.ndarray]],
    conditioning_NSLC: np.ndarray,
    last_N: np.ndarray,
    noise_NS: np.ndarray | None,
    samples_NS: np.ndarray,
) -> None:
    """Reference implementation in NumPy, one sound after the other."""
    for n, samples_S in enumerate(samples_NS):
        noise_S = None if noise_NS is None else noise_NS[n]
        _draw_one(network, rows[n], conditioning_NSLC[n], last_N[n], noise_S, samples_S)


def _draw_one(
    network: SamplingWeights,
    rows: Sequence[np.ndarray],
    conditioning_SLC: np.ndarray,
    last: float,
    noise_S: np.ndarray | None,
    samples_S: np.ndarray,
) -> None:
    C, taps = network.first.shape[1], network.taps
    for s in range(len(samples_S)):
        x = last / network.loudness * network.first[0] + network.first[1]
        total = np.zeros(C, x.dtype)
        weights = network.dilations, network.mix, network.skip_residual, network.residual_bias
        for history, conditioning, dilation, mix, skip_residual, bias in zip(
            rows, conditioning_SLC[s], *weights, strict=True
        ):
            history[s + (taps - 1) * dilation] = x
            inner = history[s : s + (taps - 1) * dilation + 1 : dilation].ravel() @ mix + conditioning
            outputs = np.tanh(inner[:C]) / (1 + np.exp(-inner[C:])) @ skip_residual
            total += outputs[:C]
            x = x + outputs[C:] + bias
        if noise_S is not None:
            hidden = np.maximum(np.maximum(total, 0) @ network.inner + network.inner_bias, 0)
            mean, log_scale = hidden @ network.out + network.out_bias
            samples_S[s] = np.clip(network.loudness * (mean + np.exp(log_scale) * noise_S[s]), -1, 1)
        last = samples_S[s]
