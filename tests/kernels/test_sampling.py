"""The autoregressive sampling loop against its definition in float64."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from judging import needs_kernels, normal, quick

from ernie.kernels import cpu
from ernie.kernels.sampling import Network, draw, reference

S = 12
sizes = st.sampled_from(
    [1, 5, 16, 24, 70]
)  # channels: full vectors, parts of one, more than one product handles at a time


def random_network(C: int, taps: int, dilations: tuple[int, ...]) -> Network:
    L = len(dilations)
    shapes = ((2, C), (L, taps * C, 2 * C), (L, C, 2 * C), (L, C), (C, C), (C,), (C, 2), (2,))
    weights = normal(*shapes, seed=(C, taps, L))
    return Network(dilations, 0.25, *(weight / np.sqrt(2 * C) for weight in weights))


def in_float64(network: Network) -> Network:
    return Network(network.dilations, network.loudness, *(weight.astype(np.float64) for weight in network[2:]))


def filled_rows(network: Network, S: int) -> list[np.ndarray]:
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
@given(sizes, st.integers(2, 3), st.lists(st.sampled_from([1, 2, 4]), min_size=1, max_size=4).map(tuple), st.booleans())
def test_sampling_equals_its_definition(C: int, taps: int, dilations: tuple[int, ...], given_samples: bool) -> None:
    network = random_network(C, taps, dilations)
    conditioner, noise, samples = normal((S, len(dilations), 2 * C), (S,), (S,), seed=(C,))
    used_noise = None if given_samples else noise
    found, wanted = (samples.copy() if given_samples else np.full(S, np.nan, np.float32) for _ in range(2))
    rows, rows64 = filled_rows(network, S), [layer.astype(np.float64) for layer in filled_rows(network, S)]
    cpu.sampling.draw(network, rows, conditioner, 0.1, used_noise, found)
    wanted = wanted.astype(np.float64)
    reference(in_float64(network), rows64, conditioner.astype(np.float64), 0.1, used_noise, wanted)
    np.testing.assert_allclose(found, wanted, atol=1e-4)
    for layer, layer64 in zip(rows, rows64, strict=True):
        np.testing.assert_allclose(layer, layer64, atol=1e-4)


@pytest.mark.parametrize("noise", [3.0, -3.0])
def test_samples_are_clipped_to_the_range_of_a_file(noise: float) -> None:
    network = random_network(5, 2, (1, 2))._replace(loudness=9.0)
    found = np.empty(S, np.float32)
    draw(network, filled_rows(network, S), *normal((S, 2, 10), seed=(1,)), 0.0, np.full(S, noise, np.float32), found)
    assert np.abs(found).max() == 1.0
