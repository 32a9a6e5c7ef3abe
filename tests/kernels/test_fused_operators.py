"""The library's GPU code with Paddle's own fused operators, of which only the kernels are written for these tests.

Paddle gives shapes and types, and decides which gradients it asks of a kernel.  All types are those of a GPU, bfloat16
included.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import combinations

import numpy as np
import paddle
import pytest
from paddle import Tensor
from paddle.incubate.nn.functional import fused_bias_dropout_residual_layer_norm, fused_matmul_bias
from support.fake_gpu import fake_gpu
from support.kernels.definitions import attention_definition, layer_definition, visible
from support.kernels.fused_operators import FusedOperators, fused_operators
from support.kernels.judging import Results, assert_near, normal

from ernie.data.batch import Layout
from ernie.kernels import linear as linear_kernel
from ernie.kernels import norm as norm_kernel
from ernie.kernels.attention import attention
from ernie.kernels.build import compiler
from ernie.kernels.gpu.linear import constant_weights
from ernie.kernels.layer import transformer_layer
from ernie.kernels.linear import linear
from ernie.kernels.mask import Mask
from ernie.kernels.norm import add_norm
from ernie.kernels.precision import Precision, precision
from ernie.kernels.types import LayerSettings, LayerWeights

pytestmark = pytest.mark.skipif(compiler() is None, reason="needs a C++ compiler")

Frozen = tuple[int, ...]
LAYOUT, KEYS = Layout.of_lengths([3, 1, 5]), Layout.of_lengths([2, 4, 1])
NORM = "fused_bias_dropout_residual_layer_norm"


@pytest.fixture(scope="module")
def operators(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FusedOperators]:
    with fused_operators(tmp_path_factory.mktemp("fused")) as found, fake_gpu(stand_ins=False):
        yield found


def subsets(inputs: int) -> list[Frozen]:
    """Of so many inputs, all that can be frozen while another one learns."""
    return [frozen for size in range(inputs) for frozen in combinations(range(inputs), size)]


def learning(frozen: Frozen, inputs: int) -> str:
    """1 for an input that learns, 0 for a frozen one."""
    return "".join("01"[number not in frozen] for number in range(inputs))


def rounded(values: list[np.ndarray]) -> list[np.ndarray]:
    """The same in bfloat16, so that only sums and results are rounded by what is tested."""
    return [paddle.to_tensor(value).astype("bfloat16").astype("float32").numpy() for value in values]


def results(kernel: Callable[..., Tensor], values: list[np.ndarray], frozen: Frozen = ()) -> Results:
    """The output and the gradients of the sum of its squares, None for frozen inputs."""
    tensors = [paddle.to_tensor(x, stop_gradient=number in frozen) for number, x in enumerate(values)]
    out = kernel(*tensors).astype("float32")
    (out * out).sum().backward()
    return [out.numpy(), *(None if x.grad is None else x.grad.numpy() for x in tensors)]


def assert_right(found: Results, wanted: Results, frozen: Frozen, least: float = 1e-9) -> None:
    """Assert that just the frozen inputs have no gradient, and that all else is near."""
    assert [number for number, grad in enumerate(found[1:]) if grad is None] == list(frozen)
    pairs = [(x, y) for x, y in zip(found, wanted, strict=True) if x is not None]
    assert_near([x for x, _ in pairs], [y for _, y in pairs], least=least)


MASKS = {
    "full": (LAYOUT, None, "flash_attn_unpadded"),
    "other keys": (KEYS, None, "flash_attn_unpadded"),
    "causal": (LAYOUT, Mask.causal(LAYOUT), "flash_attn_unpadded"),
    "window": (LAYOUT, Mask.window(LAYOUT, 1, 2), "flashmask_attention"),
}


@pytest.mark.parametrize("frozen", subsets(3), ids=str)
@pytest.mark.parametrize("name", MASKS)
def test_attention_learns_by_paddles_operators_whatever_is_frozen(
    operators: FusedOperators, name: str, frozen: Frozen
) -> None:
    keys, mask, operator = MASKS[name]
    values = rounded(normal((LAYOUT.tokens, 16), (keys.tokens, 16), (keys.tokens, 16)))
    calls = operators.calls(operator)
    with precision("bf16"):
        found = results(lambda q, k, v: attention(q, k, v, LAYOUT, 2, keys=keys, mask=mask), values, frozen)
    assert operators.calls(operator) == calls + 1
    assert operators.wanted(f"{operator}_grad") == learning(frozen, 3)
    seen = visible(LAYOUT, keys, mask)
    assert_right(found, results(lambda q, k, v: attention_definition(q, k, v, seen, 2), values), frozen)


@pytest.mark.parametrize("mask", [None, Mask.window(LAYOUT, 1, 2)], ids=["full", "window"])
def test_the_gradient_of_attention_drops_the_weights_that_its_output_dropped(
    operators: FusedOperators, mask: Mask | None
) -> None:
    """The output is linear in the values: their product with their gradient is that of the output with its own."""
    values = rounded(normal(*[(LAYOUT.tokens, 16)] * 3))
    with precision("bf16"):
        out, _, _, v_grad = results(lambda q, k, v: attention(q, k, v, LAYOUT, 2, 0.5, mask=mask), values)
        without = results(lambda q, k, v: attention(q, k, v, LAYOUT, 2, mask=mask), values)[0]
    assert out is not None and without is not None and v_grad is not None
    assert np.abs(out - without).max() > 0.1
    assert (values[2] * v_grad).sum() == pytest.approx(2 * (out * out).sum(), rel=0.02)


@pytest.mark.parametrize("frozen", subsets(3), ids=str)
@pytest.mark.parametrize("kind", ["fp32", "bf16"])
def test_a_linear_layer_learns_by_paddles_operators_whatever_is_frozen(
    operators: FusedOperators, kind: Precision, frozen: Frozen
) -> None:
    values = rounded(normal((9, 8), (8, 6), (6,)))
    names = ("fused_gemm_epilogue", "fused_linear_param_grad_add", "fused_gemm_epilogue_grad")
    calls = [operators.calls(name) for name in names]
    with precision(kind):
        found = results(lambda *x: linear(*x, "gelu"), values, frozen)
    made = [operators.calls(name) - before for name, before in zip(names, calls, strict=True)]
    assert made == [1, int(kind == "bf16" and 1 not in frozen), 0]
    assert_right(found, results(lambda *x: linear_kernel.reference(*x, "gelu"), values), frozen)


def test_gradients_of_a_weight_wait_for_the_last_pass_in_paddles_sums(operators: FusedOperators) -> None:
    first, second, weight_DE, bias_E = rounded(normal((9, 8), (9, 8), (8, 6), (6,)))
    shapes = ([8, 6], [6])
    weight, bias = (paddle.create_parameter(shape, "float32") for shape in shapes)
    weight.set_value(weight_DE), bias.set_value(bias_E)
    with precision("bf16"), constant_weights() as passes:
        for x, passes.is_last in ((first, False), (second, True)):
            linear(paddle.to_tensor(x), weight, bias).astype("float32").square().sum().backward()
            assert (weight.grad is None) == (not passes.is_last)
    wanted = results(
        lambda *x: linear_kernel.reference(*x, "none"), [np.concatenate([first, second]), weight_DE, bias_E]
    )
    assert weight.grad.dtype == bias.grad.dtype == paddle.float32
    assert_near([weight.grad.numpy(), bias.grad.numpy()], wanted[2:])


@pytest.mark.parametrize("frozen", subsets(4), ids=str)
@pytest.mark.parametrize("kind", ["fp32", "bf16"])
def test_a_norm_learns_by_paddles_operators_whatever_is_frozen(
    operators: FusedOperators, kind: Precision, frozen: Frozen
) -> None:
    values = normal((9, 8), (9, 8), (8,), (8,))
    calls = operators.calls(NORM)
    with precision(kind):
        found = results(lambda *x: add_norm(*x, 1e-5), values, frozen)
    assert operators.calls(NORM) - calls == (0 not in frozen and 1 not in frozen)
    assert_right(found, results(lambda *x: norm_kernel.reference(*x, 1e-5, 0.0), values), frozen)


def test_the_gradient_of_a_norm_drops_the_elements_that_its_output_dropped(operators: FusedOperators) -> None:
    values = normal((9, 8), (9, 8), (8,), (8,))
    _, residual_grad, x_grad, *_ = results(lambda *x: add_norm(*x, 1e-5, 0.5), values)
    assert residual_grad is not None and x_grad is not None
    dropped = x_grad == 0
    assert 0 < dropped.mean() < 1
    np.testing.assert_allclose(x_grad[~dropped], 2 * residual_grad[~dropped], rtol=1e-5)


SETTINGS = LayerSettings(heads=2, activation="gelu", dropout=0.0, attention_dropout=0.0, epsilon=1e-5)


def layer_values() -> list[np.ndarray]:
    D, F = 16, 24
    square, row = (D, D), (D,)
    shapes = dict.fromkeys(LayerWeights._fields, row) | dict.fromkeys(("q", "k", "v", "out"), square)
    shapes |= {"inner": (D, F), "inner_bias": (F,), "outer": (F, D)}
    return rounded(normal((LAYOUT.tokens, D), *(shapes[name] for name in LayerWeights._fields), scale=0.3))


# The input and the weights of a layer: none, each one, and all but each one.
ONE = [(number,) for number in range(1 + len(LayerWeights._fields))]
ALL_BUT_ONE = [tuple(other for (other,) in ONE if other != number) for (number,) in ONE]


@pytest.mark.parametrize("frozen", [(), *ONE, *ALL_BUT_ONE], ids=str)
def test_a_layer_learns_by_paddles_operators_whatever_is_frozen(operators: FusedOperators, frozen: Frozen) -> None:
    values = layer_values()
    with precision("bf16"):
        found = results(lambda x, *w: transformer_layer(x, LAYOUT, LayerWeights(*w), SETTINGS), values, frozen)
    seen = visible(LAYOUT)
    wanted = results(lambda x, *w: layer_definition(x, LayerWeights(*w), seen, SETTINGS), values)
    assert_right(found, wanted, frozen, least=0.1)  # the gradient of the keys' bias is zero but for rounding


# ---- why the library does not leave frozen inputs to the operators -----------------------------------------------


@pytest.mark.parametrize("frozen", subsets(4), ids=str)
def test_paddle_gives_the_gradient_of_its_norm_no_memory_for_a_frozen_input(
    operators: FusedOperators, frozen: Frozen
) -> None:
    """A GPU's kernel writes to both inputs' gradients: it ends the process where this one raises an error."""
    values = normal((9, 8), (9, 8), (8,), (8,))

    def norm(x: Tensor, residual: Tensor, gain: Tensor, offset: Tensor) -> Tensor:
        return fused_bias_dropout_residual_layer_norm(x, residual, ln_scale=gain, ln_bias=offset, dropout_rate=0.0)

    if 0 in frozen or 1 in frozen:
        with pytest.raises(ValueError, match="no memory for the gradient of an input"):
            results(norm, values, frozen)
    else:
        results(norm, values, frozen)
    x, residual, bias, gain, offset = operators.wanted(f"{NORM}_grad")
    assert x + residual + gain + offset == learning(frozen, 4) and bias == "0"


@pytest.mark.parametrize("frozen", subsets(3), ids=str)
def test_paddles_linear_operator_leaves_out_the_bias_of_a_frozen_weight(
    operators: FusedOperators, frozen: Frozen
) -> None:
    values = normal((9, 8), (8, 6), (6,))
    tensors = [paddle.to_tensor(x, stop_gradient=number in frozen) for number, x in enumerate(values)]
    fused_matmul_bias(*tensors).sum().backward()
    assert operators.wanted("fused_gemm_epilogue_grad") == learning(frozen, 3)
    has_gradient = [x.grad is not None and x.grad._is_initialized() for x in tensors]
    assert has_gradient == [0 not in frozen, 1 not in frozen, 2 not in frozen and 1 not in frozen]
