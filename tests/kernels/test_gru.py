"""The recurrent layer against its definition in float64, and against Paddle's own."""

from __future__ import annotations

import numpy as np
import paddle
import pytest
from hypothesis import given
from hypothesis import strategies as st
from paddle import Tensor, nn
from support.kernels.judging import assert_close, assert_only_frozen_lack_gradients, normal, quick, run

from ernie.data.batch import Layout
from ernie.kernels.gru import gated_recurrent, reference

lengths = st.lists(st.integers(0, 7), min_size=1, max_size=9).filter(any)


def random_inputs(sizes: list[int], H: int) -> tuple[list[np.ndarray], np.ndarray]:
    """x, weight, bias and initial states, and an upstream gradient."""
    T = sum(sizes)
    x, weight, bias, initial, upstream = normal((T, 3 * H), (H, 3 * H), (3 * H,), (len(sizes), H), (T, H), seed=(T, H))
    return [x, weight / np.float32(np.sqrt(H)), bias, initial], upstream


@quick
@given(lengths, st.sampled_from([1, 3, 16, 17, 40]), st.booleans())
def test_the_layer_equals_its_definition_forward_and_backward(sizes: list[int], H: int, backward: bool) -> None:
    values, upstream = random_inputs(sizes, H)

    def kernel(x: Tensor, weight: Tensor, bias: Tensor, initial: Tensor) -> Tensor:
        return gated_recurrent(x, Layout.of_lengths(sizes), weight, bias, initial, backward=backward)

    assert_close(run(kernel, values, upstream), run(kernel, values, upstream, "float64"), 5e-5)


@paddle.no_grad()
@pytest.mark.parametrize("backward", [False, True])
def test_the_reference_runs_each_step_for_all_sequences_at_once(
    monkeypatch: pytest.MonkeyPatch, backward: bool
) -> None:
    sizes = [3, 0, 7, 1, 7]
    values, _ = random_inputs(sizes, 5)
    x, weight, bias, initial = (paddle.to_tensor(value) for value in values)
    alone, bounds = [], Layout.of_lengths(sizes).offsets
    for n, size in enumerate(sizes):
        if size:
            own = x[int(bounds[n]) : int(bounds[n + 1])]
            alone.append(reference(own, Layout.of_lengths([size]), weight, bias, initial[n : n + 1], backward))
    products, product = [], paddle.matmul
    monkeypatch.setattr(paddle, "matmul", lambda a, b: products.append(len(a)) or product(a, b))
    together = reference(x, Layout.of_lengths(sizes), weight, bias, initial, backward)
    np.testing.assert_allclose(together.numpy(), paddle.concat(alone).numpy(), atol=1e-6)
    assert products == [4, 3, 3, 2, 2, 2, 2]


@pytest.mark.parametrize("frozen", [(0,), (1,), (2,), (3,), (1, 2), (0, 3)])
def test_frozen_inputs_get_no_gradient_and_others_are_unchanged(frozen: tuple[int, ...]) -> None:
    values, upstream = random_inputs([3, 5, 1], 18)

    def kernel(x: Tensor, weight: Tensor, bias: Tensor, initial: Tensor) -> Tensor:
        return gated_recurrent(x, Layout.of_lengths([3, 5, 1]), weight, bias, initial)

    with_frozen, without = (run(kernel, values, upstream, frozen=chosen) for chosen in (frozen, ()))
    assert_only_frozen_lack_gradients(with_frozen, without, frozen)


@paddle.no_grad()
def test_the_layer_equals_paddles_gru() -> None:
    H, steps = 12, 9
    paddle_gru = nn.GRU(5, H)
    (inputs,) = normal((1, steps, 5))
    cell = paddle_gru[0].cell
    x = paddle.matmul(paddle.to_tensor(inputs[0]), cell.weight_ih, transpose_y=True) + cell.bias_ih
    found = gated_recurrent(x, Layout.of_lengths([steps]), cell.weight_hh.t().contiguous(), cell.bias_hh)
    np.testing.assert_allclose(found.numpy(), paddle_gru(paddle.to_tensor(inputs))[0].numpy()[0], atol=1e-5)


@paddle.no_grad()
@pytest.mark.parametrize("cut", [1, 4, 8])
def test_a_sequence_continues_from_its_last_state(cut: int) -> None:
    values, _ = random_inputs([9], 20)
    x, weight, bias, initial = (paddle.to_tensor(value) for value in values)
    whole = gated_recurrent(x, Layout.of_lengths([9]), weight, bias, initial)
    first = gated_recurrent(x[:cut], Layout.of_lengths([cut]), weight, bias, initial)
    rest = gated_recurrent(x[cut:], Layout.of_lengths([9 - cut]), weight, bias, first[-1:])
    np.testing.assert_array_equal(paddle.concat([first, rest]).numpy(), whole.numpy())
