"""A WaveNet and its stack of gated dilated convolutions against their definitions."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import paddle
import pytest
from hypothesis import given
from hypothesis import strategies as st
from paddle import Tensor
from support.kernels.judging import assert_close, assert_only_frozen_lack_gradients, needs_kernels, normal, quick, run

from ernie.errors import UserError
from ernie.kernels.dilated import gated_stack, more, more_reference, reach, wavenet
from ernie.kernels.types import GatedLayer, WaveNetEnds

N, H, K, OUTPUTS = 2, 3, 5, 2


def stack(*tensors: Tensor, dilations: Sequence[int]) -> Tensor:
    x, conditioner, *flat = tensors
    layers = [GatedLayer(*flat[i : i + 5]) for i in range(0, len(flat), 5)]
    return gated_stack(x, conditioner, layers, dilations)


def random_inputs(C: int, taps: int, dilations: Sequence[int], R: int) -> tuple[list[np.ndarray], np.ndarray]:
    """x, conditioner, the layers' weights, and an upstream gradient."""
    S = R + reach(taps, dilations)
    layer: list[tuple[int, ...]] = [(taps * C + H, 2 * C), (2 * C,), (C, K), (C, C), (C,)]
    shapes = (layer * len(dilations))[:-2]
    x, conditioner, upstream, *weights = normal((N, S, C), (N, S, H), (N, R, K), *shapes, seed=(C, taps, R))
    return [x, conditioner, *(weight / 2 for weight in weights)], upstream


def network(*tensors: Tensor, dilations: Sequence[int]) -> Tensor:
    samples, conditioner, *weights = tensors
    layers = [GatedLayer(*weights[i : i + 5]) for i in range(6, len(weights), 5)]
    return wavenet(samples, conditioner, WaveNetEnds(*weights[:6]), layers, dilations)


def random_network(C: int, taps: int, dilations: Sequence[int], R: int) -> list[np.ndarray]:
    """Samples, conditioner, and the weights of a network: first those of its ends, then those of its layers."""
    (x, conditioner, *layers), _ = random_inputs(C, taps, dilations, R)
    ends = normal((C,), (C,), (K, K), (K,), (K, OUTPUTS), (OUTPUTS,), seed=(C, taps, R, 1))
    return [np.ascontiguousarray(x[:, :, 0]), conditioner, *(weight / 2 for weight in ends), *layers]


@quick
@given(
    st.integers(1, 20),
    st.integers(1, 3),
    st.lists(st.sampled_from([1, 2, 4]), min_size=1, max_size=4),
    st.integers(1, 9),
)
def test_the_stack_equals_its_definition_forward_and_backward(C: int, taps: int, dilations: list[int], R: int) -> None:
    values, upstream = random_inputs(C, taps, dilations, R)

    def kernel(*tensors: Tensor) -> Tensor:
        return stack(*tensors, dilations=dilations)

    assert_close(run(kernel, values, upstream), run(kernel, values, upstream, "float64"), 5e-5)


@quick
@given(
    st.integers(1, 40),
    st.integers(1, 3),
    st.lists(st.sampled_from([1, 2, 4, 32]), min_size=1, max_size=4),
    st.integers(1, 120),
)
def test_without_gradients_a_network_is_the_same(C: int, taps: int, dilations: list[int], R: int) -> None:
    values = random_network(C, taps, dilations, R)
    with_gradients = network(*(paddle.to_tensor(value) for value in values), dilations=dilations)
    with paddle.no_grad():
        without = network(*(paddle.to_tensor(value) for value in values), dilations=dilations)
    assert without.shape == [N, R, OUTPUTS]
    np.testing.assert_allclose(
        without.numpy(), with_gradients.numpy(), atol=2e-5 * np.abs(with_gradients.numpy()).max()
    )


@needs_kernels
@paddle.no_grad()
def test_an_output_does_not_depend_on_how_many_others_are_computed() -> None:
    dilations = (1, 2, 4)
    samples, conditioner, *weights = random_network(20, 3, dilations, 300)
    whole = network(*(paddle.to_tensor(value) for value in (samples, conditioner, *weights)), dilations=dilations)
    for first in (1, 50, 299):
        part = [np.ascontiguousarray(samples[:, first:]), np.ascontiguousarray(conditioner[:, first:]), *weights]
        found = network(*(paddle.to_tensor(value) for value in part), dilations=dilations)
        np.testing.assert_array_equal(found.numpy(), whole.numpy()[:, first:])


def continued(values: Sequence[np.ndarray], dilations: Sequence[int], cuts: Sequence[int]) -> list[np.ndarray]:
    """The outputs of a network for its samples in pieces, and the past after them."""
    samples, conditioner, *weights = (paddle.to_tensor(value) for value in values)
    layers = [GatedLayer(*weights[i : i + 5]) for i in range(6, len(weights), 5)]
    past, outputs = None, []
    for a, b in pairwise([0, *cuts, samples.shape[1]]):
        piece, given = samples[:, a:b].contiguous(), conditioner[:, a:b].contiguous()
        output, past = more(piece, given, WaveNetEnds(*weights[:6]), layers, dilations, past)
        outputs.append(output.numpy())
    assert past is not None
    return [np.concatenate(outputs, axis=1), past.numpy()]


@needs_kernels
@paddle.no_grad()
@quick
@given(
    st.integers(1, 5),
    st.lists(st.sampled_from([1, 2, 4, 32]), min_size=1, max_size=4),
    st.lists(st.integers(0, 700), max_size=3),
)
def test_samples_in_pieces_have_the_same_outputs_bit_for_bit(
    sequences: int, dilations: list[int], cuts: list[int]
) -> None:
    samples, conditioner, *weights = random_network(12, 3, dilations, 701)
    values = [np.repeat(samples[:1], sequences, 0), np.repeat(conditioner[:1], sequences, 0), *weights]
    values[0][1:] += normal(values[0][1:].shape, seed=1)[0]
    first = reach(3, dilations)  # samples before the first output
    at_once = continued(values, dilations, [])
    whole = network(*(paddle.to_tensor(value) for value in values), dilations=dilations)
    np.testing.assert_array_equal(at_once[0], whole.numpy())
    in_pieces = continued(values, dilations, [first + cut for cut in sorted({*cuts})])
    for found, expected in zip(in_pieces, at_once, strict=True):
        np.testing.assert_array_equal(found, expected)


@paddle.no_grad()
@quick
@given(st.integers(1, 20), st.integers(1, 3), st.lists(st.sampled_from([1, 2, 4]), min_size=1, max_size=4))
def test_what_follows_a_past_is_what_the_definition_says(C: int, taps: int, dilations: list[int]) -> None:
    samples, conditioner, *flat = (paddle.to_tensor(value) for value in random_network(C, taps, dilations, 30))
    layers = [GatedLayer(*flat[i : i + 5]) for i in range(6, len(flat), 5)]
    first, past = reach(taps, dilations), None
    for a, b in ((0, first + 5), (first + 5, first + 30)):
        given = samples[:, a:b].contiguous(), conditioner[:, a:b].contiguous(), WaveNetEnds(*flat[:6]), layers
        expected = more_reference(*given, dilations, past)
        found = more(*given, dilations, past)
        for ours, theirs in zip(found, expected, strict=True):
            assert ours.shape == theirs.shape
            np.testing.assert_allclose(ours.numpy(), theirs.numpy(), atol=2e-5 * np.abs(theirs.numpy()).max(initial=1))
        past = found[1]


@paddle.no_grad()
def test_a_past_of_another_length_and_too_few_samples_without_one_are_errors() -> None:
    samples, conditioner, *flat = (paddle.to_tensor(value) for value in random_network(4, 2, (1, 2), 5))
    layers = [GatedLayer(*flat[i : i + 5]) for i in range(6, len(flat), 5)]
    ends = WaveNetEnds(*flat[:6])
    with pytest.raises(UserError, match=r"past_NPC has 2 vectors: expected 3, as many as the layers see"):
        more(samples, conditioner, ends, layers, (1, 2), paddle.zeros([N, 2, 4]))
    with pytest.raises(ValueError, match=r"2 samples: expected at least 3"):
        more(samples[:, :2].contiguous(), conditioner, ends, layers, (1, 2))


def test_a_conditioner_may_begin_before_the_samples_and_only_its_last_rows_matter() -> None:
    values, upstream = random_inputs(4, 2, (1, 2), 5)
    earlier = normal((N, 7, H), seed=1)[0]

    def kernel(*tensors: Tensor) -> Tensor:
        return stack(*tensors, dilations=(1, 2))

    longer = [values[0], np.concatenate([earlier, values[1]], axis=1), *values[2:]]
    for precision in ("float32", "float64"):
        expected, found = (run(kernel, inputs, upstream, precision) for inputs in (values, longer))
        gradient = found[2]
        np.testing.assert_array_equal(gradient[:, :7], 0)
        for ours, theirs in zip([*found[:2], gradient[:, 7:], *found[3:]], expected, strict=True):
            np.testing.assert_array_equal(ours, theirs)
    samples, conditioner, *weights = random_network(4, 2, (1, 2), 5)
    longer = [samples, np.concatenate([earlier, conditioner], axis=1), *weights]
    with paddle.no_grad():
        whole, ends = (
            network(*map(paddle.to_tensor, inputs), dilations=(1, 2))
            for inputs in ([samples, conditioner, *weights], longer)
        )
    np.testing.assert_array_equal(ends.numpy(), whole.numpy())


def test_a_conditioner_with_too_few_rows_is_an_error() -> None:
    samples, conditioner, *weights = random_network(4, 2, (1, 2), 5)
    inputs = [samples, np.ascontiguousarray(conditioner[:, 1:]), *weights]
    with pytest.raises(UserError, match=r"conditioner_NAH has 7 rows: expected at least 8, one for each sample"):
        network(*map(paddle.to_tensor, inputs), dilations=(1, 2))


@pytest.mark.parametrize("frozen", [(0,), (1,), (0, 1), (2, 3, 4), (5, 6), tuple(range(1, 10)), tuple(range(2, 10))])
def test_frozen_inputs_get_no_gradient_and_others_are_unchanged(frozen: tuple[int, ...]) -> None:
    values, upstream = random_inputs(4, 2, (1, 2), 5)

    def kernel(*tensors: Tensor) -> Tensor:
        return stack(*tensors, dilations=(1, 2))

    with_frozen, without = (run(kernel, values, upstream, frozen=chosen) for chosen in (frozen, ()))
    assert_only_frozen_lack_gradients(with_frozen, without, frozen)


@needs_kernels
def test_saturated_gates_are_what_tanh_times_sigmoid_is() -> None:
    values, _ = random_inputs(1, 1, (1,), 3)
    values[2][:] = 0  # the bias alone decides
    for a in (-1e4, -60, -44, -43, -20, -9, 0.5, 44, 1e4):
        for b in (-1e4, -60, -30, -3, -1.6, 0, 2, 44, 1e4):
            values[3] = np.array([a, b], np.float32)
            found = stack(*(paddle.to_tensor(value) for value in values), dilations=(1,))
            gate = np.tanh(a) / (1 + np.exp(-max(b, -700.0)))
            np.testing.assert_allclose(found.numpy(), np.broadcast_to(gate * values[4], found.shape), 1e-5, 1e-12)


def test_too_few_samples_for_one_output_are_an_error() -> None:
    values, _ = random_inputs(2, 2, (1, 2), 1)
    tensors = [paddle.to_tensor(value) for value in values]
    with pytest.raises(ValueError, match="before the first"):
        stack(tensors[0][:, 1:], tensors[1][:, 1:], *tensors[2:], dilations=(1, 2))
