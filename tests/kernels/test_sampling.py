"""The autoregressive sampling loop against its definition in float64."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.kernels.judging import needs_kernels, normal, quick

from ernie.kernels import cpu
from ernie.kernels.sampling import draw, reference
from ernie.kernels.types import SamplingWeights

S = 12
sizes = st.sampled_from(
    [1, 5, 16, 24, 70]
)  # channels: full vectors, parts of one, more than one product handles at a time


def random_network(C: int, taps: int, dilations: tuple[int, ...]) -> SamplingWeights:
    L = len(dilations)
    shapes = ((2, C), (L, taps * C, 2 * C), (L, C, 2 * C), (L, C), (C, C), (C,), (C, 2), (2,))
    weights = normal(*shapes, seed=(C, taps, L))
    return SamplingWeights(dilations, 0.25, *(weight / np.sqrt(2 * C) for weight in weights))


def in_float64(network: SamplingWeights) -> SamplingWeights:
    return SamplingWeights(network.dilations, network.loudness, *(weight.astype(np.float64) for weight in network[2:]))


def filled_rows(network: SamplingWeights, S: int) -> list[np.ndarray]:
    """The rows of each layer, with its past inputs filled in and the rest NaN."""
    C = network.first.shape[1]
    rows = []
    for number, dilation in enumerate(network.dilations):
        before = (network.taps - 1) * dilation
        (past,) = normal((before, C), seed=(number,))
        rows.append(np.concatenate([past, np.full((S, C), np.nan, np.float32)]))
    return rows


@needs_kernels
@quick
@given(
    sizes,
    st.integers(2, 3),
    st.lists(st.sampled_from([1, 2, 4]), min_size=1, max_size=4).map(tuple),
    st.booleans(),
    st.integers(1, 9),
)
def test_sampling_equals_its_definition(
    C: int, taps: int, dilations: tuple[int, ...], given_samples: bool, sounds: int
) -> None:
    """And the samples of a sound are the same without the others, to the last bit."""
    network = random_network(C, taps, dilations)
    shapes = (sounds, S, len(dilations), 2 * C), (sounds, S), (sounds, S), (sounds,)
    conditioner, noise, samples, last = normal(*shapes, seed=(C,))
    used_noise = None if given_samples else noise
    found, wanted = (samples.copy() if given_samples else np.full_like(samples, np.nan) for _ in range(2))
    rows = [filled_rows(network, S) for _ in range(sounds)]
    rows64 = [[layer.astype(np.float64) for layer in own] for own in rows]
    cpu.sampling.draw(network, rows, conditioner, last, used_noise, found)
    wanted = wanted.astype(np.float64)
    reference(in_float64(network), rows64, conditioner.astype(np.float64), last, used_noise, wanted)
    np.testing.assert_allclose(found, wanted, atol=1e-4)
    for own, own64 in zip(rows, rows64, strict=True):
        for layer, layer64 in zip(own, own64, strict=True):
            np.testing.assert_allclose(layer, layer64, atol=1e-4)
    alone, own_rows = samples[-1:].copy(), filled_rows(network, S)
    own_noise = None if used_noise is None else noise[-1:]
    cpu.sampling.draw(network, [own_rows], conditioner[-1:], last[-1:], own_noise, alone)
    np.testing.assert_array_equal(alone[0], found[-1])
    for layer, among in zip(own_rows, rows[-1], strict=True):
        np.testing.assert_array_equal(layer, among)


@pytest.mark.parametrize("noise", [3.0, -3.0])
def test_samples_are_clipped_to_the_range_of_a_file(noise: float) -> None:
    network = random_network(5, 2, (1, 2))._replace(loudness=9.0)
    found = np.empty((1, S), np.float32)
    conditioner, last = normal((1, S, 2, 10), seed=(1,))[0], np.zeros(1, np.float32)
    draw(network, [filled_rows(network, S)], conditioner, last, np.full((1, S), noise, np.float32), found)
    assert np.abs(found).max() == 1.0
