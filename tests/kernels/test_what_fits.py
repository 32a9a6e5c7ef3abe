"""Every kernel refuses arguments whose shapes do not fit, before it reads or writes anything."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import paddle
import pytest
from paddle import Tensor, ones
from support.kernels.judging import needs_kernels, normal

from ernie.data.batch import Layout
from ernie.errors import UserError
from ernie.kernels.adamw import adamw
from ernie.kernels.argument_checks import sizes
from ernie.kernels.attention import attention
from ernie.kernels.dilated import gated_stack, wavenet
from ernie.kernels.embedding import embed
from ernie.kernels.gru import gated_recurrent
from ernie.kernels.layer import transformer_layer
from ernie.kernels.linear import linear
from ernie.kernels.mask import Mask
from ernie.kernels.norm import add_norm
from ernie.kernels.sampling import draw
from ernie.kernels.stack import TransformerStack
from ernie.kernels.types import AdamStep, GatedLayer, LayerSettings, LayerWeights, SamplingWeights, WaveNetEnds
from ernie.kernels.vocabulary import vocabulary_cross_entropy, vocabulary_logits

T, D, F = 8, 6, 10
LAYOUT = Layout.of_lengths([3, 5])
SETTINGS = LayerSettings(2, "gelu", 1e-5)
X = ones([T, D])


def weights(**replaced: Tensor) -> LayerWeights:
    """The weights of a layer, some of them replaced."""
    shapes = [[D, D]] * 4 + [[D, F], [F, D]] + [[D]] * 4 + [[F]] + [[D]] * 5
    return LayerWeights(*map(ones, shapes))._replace(**replaced)


def stacked(x: Tensor, layout: Layout = LAYOUT, heads: int = 2, **replaced: Tensor) -> Tensor:
    return TransformerStack()(x, layout, [weights(), weights(**replaced)], LayerSettings(heads, "gelu", 1e-5))


def convolved(mix: list[int], skip: list[int], conditioner: list[int]) -> Tensor:
    layers = [INNER_LAYER, GatedLayer(ones(mix), ones(mix[1:]), ones(skip))]
    return gated_stack(ones([2, 9, 4]), ones(conditioner), layers, (1, 2))


INNER_LAYER = GatedLayer(ones([11, 8]), ones([8]), ones([4, 5]), ones([4, 4]), ones([4]))
LAST_LAYER = INNER_LAYER._replace(residual=None, residual_bias=None)


def network(conditioner: list[int], **replaced: Tensor) -> Tensor:
    ends = WaveNetEnds(ones([4]), ones([4]), ones([5, 5]), ones([5]), ones([5, 2]), ones([2]))
    return wavenet(ones([2, 9]), ones(conditioner), ends._replace(**replaced), [INNER_LAYER, LAST_LAYER], (1, 2))


def of_layers(layers: list[GatedLayer], dilations: tuple[int, ...]) -> Tensor:
    return gated_stack(ones([2, 9, 4]), ones([2, 9, 3]), layers, dilations)


def drawn(**replaced: object) -> None:
    """Sample one sound with a WaveNet of one layer, 4 channels and 2 taps, some arguments replaced."""
    network = SamplingWeights((2,), 1.0, *(np.zeros(shape, np.float32) for shape in NETWORK.values()))
    arguments: dict[str, object] = {
        "network": network,
        "rows": [[np.zeros((2 + 5, 4), np.float32)]],
        "conditioning_NSLC": np.zeros((1, 5, 1, 8), np.float32),
        "last_N": np.zeros(1, np.float32),
        "noise_NS": np.zeros((1, 5), np.float32),
        "samples_NS": np.zeros((1, 5), np.float32),
    }
    if "mix" in replaced:
        replaced["network"] = network._replace(mix=replaced.pop("mix"))  # type: ignore[arg-type]
    draw(**{**arguments, **replaced})  # type: ignore[arg-type]


NETWORK: dict[str, tuple[int, ...]] = {
    "first": (2, 4),
    "mix": (1, 8, 8),
    "skip_residual": (1, 4, 8),
    "residual_bias": (1, 4),
    "inner": (4, 4),
    "inner_bias": (4,),
    "out": (4, 2),
    "out_bias": (2,),
}


def stepped(gradient: list[int], moments: list[int]) -> None:
    weight = ones([T, D])
    weight.stop_gradient = False
    weight.grad = ones(gradient)
    adamw(AdamStep(0.1, 0.0, 0.9, 0.98, 1e-8, 0.9, 0.98), weight, weight.grad, ones(moments), ones([T, D]))


def zeros(*shape: int, dtype: str = "float32") -> np.ndarray:
    return np.zeros(shape, dtype)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: attention(X, X, X, LAYOUT, 4), "heads: 4: expected a number that divides the width, 6"),
        (lambda: attention(X, ones([T, 4]), X, LAYOUT, 2), r"k_SD has the shape \(8, 4\): expected \(S, D = 6\)"),
        (lambda: attention(X, X, X[:5], LAYOUT, 2), r"v_SD has the shape \(5, 6\): expected \(S = 8, D = 6\)"),
        (lambda: attention(X, X, X, Layout.of_lengths([3, 50]), 2), "layout has 53 tokens: expected 8"),
        (lambda: attention(X, X, X, LAYOUT, 2, keys=Layout.of_lengths([9])), "keys has 9 tokens: expected 8"),
        (lambda: attention(X, X, X, LAYOUT, 2, keys=Layout.of_lengths([8])), "keys has 1 sequences: expected 2"),
        (
            lambda: attention(X, X, X, LAYOUT, 2, mask=Mask.causal(Layout.of_lengths([3]))),
            "mask has 3 queries: expected 8",
        ),
        (lambda: linear(X, ones([3, 4]), ones([4])), r"weight_DE has the shape \(3, 4\): expected \(D = 6, E\)"),
        (lambda: linear(X, ones([6, 4]), ones([1])), r"bias_E has the shape \(1,\): expected \(E = 4\)"),
        (
            lambda: linear(ones([2, 4, 6]), ones([6, 4]), ones([4])),
            r"x_TD has the shape \(2, 4, 6\): expected \(T, D\)",
        ),
        (lambda: add_norm(X, X, ones([3]), ones([D]), 1e-5), r"gain_D has the shape \(3,\)"),
        (lambda: add_norm(X[:3], X, ones([D]), ones([D]), 1e-5), r"residual_TD has the shape \(3, 6\)"),
        (lambda: transformer_layer(X, LAYOUT, weights(outer=ones([D, D])), SETTINGS), "outer_FD has the shape"),
        (lambda: transformer_layer(X, LAYOUT, weights(offset2=ones([1])), SETTINGS), "offset2_D has the shape"),
        (lambda: transformer_layer(X[:7], LAYOUT, weights(), SETTINGS), "layout has 8 tokens"),
        (
            lambda: transformer_layer(X, LAYOUT, weights(), SETTINGS, Mask.causal(Layout.of_lengths([3]))),
            "mask has 3 queries",
        ),
        (lambda: stacked(ones([T, 4])), r"q_DD has the shape \(6, 6\): expected \(D = 4, D = 4\)"),
        (lambda: stacked(X, inner_bias=ones([D])), "inner_bias_F has the shape"),
        (lambda: stacked(X, Layout.of_lengths([9])), "layout has 9 tokens"),
        (lambda: stacked(X, heads=5), "heads: 5"),
        (lambda: vocabulary_cross_entropy(X, ones([9, 5]), ones([9]), np.zeros(T, int)), "table_VD has the shape"),
        (lambda: vocabulary_cross_entropy(X, ones([9, D]), ones([8]), np.zeros(T, int)), "bias_V has the shape"),
        (
            lambda: embed([np.zeros(3, int)] * 2, [X, ones([4, 5])], ones([D]), ones([D]), 1e-5),
            "table_VD has the shape",
        ),
        (lambda: embed([np.zeros(3, int)], [X], ones([D]), ones([5]), 1e-5), "offset_D has the shape"),
        (lambda: gated_recurrent(ones([T, 7]), LAYOUT, ones([2, 6]), ones([6])), "weight_HG has the shape"),
        (lambda: gated_recurrent(X, LAYOUT, ones([3, 6]), ones([6])), "three times as many columns as rows"),
        (lambda: gated_recurrent(X, Layout.of_lengths([4]), ones([2, 6]), ones([6])), "layout has 4 tokens"),
        (lambda: gated_recurrent(X, LAYOUT, ones([2, 6]), ones([6]), ones([1, 2])), "initial_NH has 1 sequences"),
        (lambda: convolved([11, 8], [4, 6], [2, 9, 3]), r"layers\[1\].skip_CK has the shape \(4, 6\)"),
        (lambda: convolved([10, 8], [4, 5], [2, 9, 3]), r"layers\[1\].mix_IG has the shape \(10, 8\)"),
        (lambda: convolved([11, 8], [4, 5], [2, 9, 2]), r"expected \(taps \* 4 \+ 2, 8\)"),
        (lambda: convolved([11, 8], [4, 5], [2, 8, 3]), "conditioner_NAH has 8 rows"),
        (lambda: network([2, 8, 3]), "conditioner_NAH has 8 rows"),
        (lambda: network([2, 9, 3], first=ones([3])), r"ends.first_bias_C has the shape \(4,\)"),
        (lambda: network([2, 9, 3], inner=ones([5, 4])), r"ends.inner_KK has the shape \(5, 4\)"),
        (lambda: network([2, 9, 3], out=ones([5, 3])), r"ends.out_bias_O has the shape \(2,\)"),
        (lambda: of_layers([INNER_LAYER, INNER_LAYER], (1, 2)), r"layers\[1\]: all layers but the last, and only they"),
        (lambda: of_layers([LAST_LAYER, LAST_LAYER], (1, 2)), r"layers\[0\]: all layers but the last"),
        (lambda: of_layers([INNER_LAYER, LAST_LAYER], (1, 0)), "expected a number of at least 1 for each of 2 layers"),
        (lambda: of_layers([INNER_LAYER, LAST_LAYER], (1,)), "expected a number of at least 1 for each of 2 layers"),
        (lambda: of_layers([], ()), "expected a number of at least 1 for each of 0 layers"),
        (lambda: drawn(mix=zeros(1, 8, 7)), r"network.mix has the shape \(1, 8, 7\): expected \(1, 8, 8\)"),
        (lambda: drawn(rows=[[zeros(6, 4)]]), r"rows\[0\]\[0\] has the shape \(6, 4\): expected \(7, 4\)"),
        (lambda: drawn(rows=[[zeros(7, 4)] * 2]), r"rows\[0\] of 2 layers: expected 1"),
        (lambda: drawn(rows=[[zeros(7, 4)]] * 2), "rows of 2 sounds: expected 1"),
        (
            lambda: drawn(rows=[[zeros(7, 4, dtype="float64")]]),
            r"rows\[0\]\[0\]: expected a contiguous array of float32",
        ),
        (lambda: drawn(rows=[[zeros(7, 8)[:, ::2]]]), r"rows\[0\]\[0\]: expected a contiguous array"),
        (lambda: drawn(samples_NS=zeros(1, 10)[:, ::2]), "samples: expected a contiguous array"),
        (lambda: drawn(conditioning_NSLC=zeros(1, 4, 1, 8)), "conditioning has the shape"),
        (lambda: drawn(last_N=zeros(2)), "last has the shape"),
        (lambda: drawn(noise_NS=zeros(1, 4)), "noise has the shape"),
        (lambda: stepped([T, D], [T]), r"moment1 has the shape \(8,\): expected \(8, 6\), the weight's"),
        (lambda: stepped([T], [T, D]), r"gradient has the shape \(8,\): expected \(8, 6\), the weight's"),
        (lambda: linear(X, ones([D, 4]), ones([4]), "tanh"), "activation: 'tanh': expected one of none, gelu, relu"),
        (
            lambda: transformer_layer(X, LAYOUT, weights(), LayerSettings(2, "tanh", 1e-5)),
            "activation: 'tanh': expected one of",
        ),
        (
            lambda: transformer_layer(X, LAYOUT, weights(), SETTINGS, Mask.causal(LAYOUT), np.array([9])),
            "token 9: expected a number from 0 to 7",
        ),
        (lambda: attention(X, X, X, LAYOUT, 2, 1.0), "dropout: 1.0: expected a probability from 0 to below 1"),
        (lambda: add_norm(X, X, ones([D]), ones([D]), 1e-5, -0.1), "dropout: -0.1: expected a probability"),
        (
            lambda: embed([np.zeros((T, 1), int)], [X], ones([D]), ones([D]), 1e-5),
            r"id: expected whole numbers of the shape \(N,\), found int64 \(8, 1\)",
        ),
        (lambda: embed([np.zeros(T)], [X], ones([D]), ones([D]), 1e-5), r"found float64 \(8,\)"),
        (lambda: vocabulary_cross_entropy(X, ones([9, D]), ones([9]), np.zeros(3, int)), r"labels of the shape \(3,\)"),
        (lambda: vocabulary_logits(X, ones([9, 5]), ones([9])), "table_VD has the shape"),
        (lambda: TransformerStack()(X, LAYOUT, [], SETTINGS), "layers: expected at least one layer"),
    ],
)
def test_shapes_that_do_not_fit_are_refused(call: Callable[[], Tensor], message: str) -> None:
    with pytest.raises(UserError, match=message):
        call()


def test_no_rows_have_no_states() -> None:
    assert gated_recurrent(ones([0, 6]), Layout.of_lengths([]), ones([2, 6]), ones([6])).shape == [0, 2]


def test_views_with_strides_are_left_to_paddle() -> None:
    """Paddle makes them only where its flag is set, and the C++ would read other elements."""
    (values,) = normal((D, T))
    paddle.set_flags({"FLAGS_use_stride_kernel": True})
    try:
        view = paddle.to_tensor(values).T
        assert not view.is_contiguous()
        found = linear(view, ones([D, 4]), paddle.zeros([4]))
    finally:
        paddle.set_flags({"FLAGS_use_stride_kernel": False})
    np.testing.assert_allclose(found.numpy(), values.T @ np.ones((D, 4)), rtol=1e-5, atol=1e-5)


def test_sizes_returns_the_size_of_each_axis() -> None:
    assert sizes(x_TD=X, weight_DE=ones([D, 4])) == {"T": T, "D": D, "E": 4}


@needs_kernels
@pytest.mark.parametrize(
    "call",
    [
        lambda other: linear(X, other([D, 4]), ones([4])),
        lambda other: attention(X, other([T, D]), X, LAYOUT, 2),
        lambda other: transformer_layer(X, LAYOUT, weights(inner=other([D, F])), SETTINGS),
        lambda other: stacked(X, inner=other([D, F])),
        lambda other: stacked(X, gain1=other([D])),
        lambda other: vocabulary_cross_entropy(X, other([9, D]), ones([9]), np.zeros(T, int)),
        lambda other: gated_recurrent(X, LAYOUT, other([2, 6]), ones([6])),
    ],
)
@pytest.mark.parametrize("dtype", ["float64", "bfloat16"])
def test_weights_of_another_type_are_not_read_as_float32(call: Callable[..., Tensor], dtype: str) -> None:
    """They are refused by Paddle's own operators, which take one type at a time."""
    with pytest.raises((ValueError, RuntimeError)):
        call(lambda shape: ones(shape, dtype))


def test_mixed_types_that_paddle_supports_are_left_to_it() -> None:
    found = add_norm(X, X * paddle.arange(D).astype("float32"), ones([D], "float64"), ones([D], "float64"), 1e-5)
    assert found.dtype == paddle.float64
    np.testing.assert_allclose(found.sum(-1).numpy(), D, rtol=1e-5)
