"""The arguments that the GPU implementations pass to Paddle's operators, tested without a GPU."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np
import paddle
import pytest
from hypothesis import given
from hypothesis import strategies as st
from paddle import Tensor
from support.fake_gpu import fake_gpu
from support.kernels.definitions import visible
from support.kernels.judging import quick

from ernie.data.batch import Layout
from ernie.kernels import attention, gpu, linear, norm
from ernie.kernels.choose import choose
from ernie.kernels.gpu.attention import is_causal, seen_by
from ernie.kernels.mask import Mask
from ernie.kernels.precision import precision

layouts = st.lists(st.integers(1, 12), min_size=1, max_size=5).map(Layout.of_lengths)
places = st.integers(0, 14)


@st.composite
def masks(draw: st.DrawFn) -> tuple[Layout, Mask]:
    layout = draw(layouts)
    kind = draw(st.sampled_from(["causal", "window", "chunk", "prefix"]))
    if kind == "causal":
        return layout, Mask.causal(layout)
    if kind == "window":
        return layout, Mask.window(layout, draw(places), draw(places))
    if kind == "chunk":
        return layout, Mask.chunk(layout, 1 + draw(places), draw(places))
    return layout, Mask.prefix(layout, np.array([draw(places) for _ in layout.lengths]))


def random_qkv(layout: Layout, keys: Layout) -> list[Tensor]:
    rng = np.random.default_rng(layout.tokens)
    shapes = [(sequences.tokens, 16) for sequences in (layout, keys, keys)]
    return [paddle.to_tensor(rng.standard_normal(shape).astype(np.float32)) for shape in shapes]


@quick
@given(masks())
def test_an_inverted_mask_shows_the_same_keys(given_mask: tuple[Layout, Mask]) -> None:
    layout, mask = given_mask
    found = seen_by(mask, layout, layout)
    assert found is not None
    first_S, last_S = found
    row_T1 = np.arange(layout.tokens)[:, None]
    np.testing.assert_array_equal((row_T1 >= first_S) & (row_T1 < last_S), visible(layout, mask=mask))


@quick
@given(masks())
def test_a_mask_is_recognized_as_causal_by_its_intervals(given_mask: tuple[Layout, Mask]) -> None:
    layout, mask = given_mask
    if is_causal(mask, layout, layout):
        np.testing.assert_array_equal(visible(layout, mask=mask), visible(layout, mask=Mask.causal(layout)))
    assert is_causal(Mask.causal(layout), layout, layout)


def test_masks_that_cannot_be_inverted_are_left_to_the_reference() -> None:
    layout, keys = Layout.of_lengths([4, 2]), Layout.of_lengths([6, 1])
    # The second query sees less than the first.
    shrinking = np.zeros(6, np.int32), np.array([4, 3, 4, 4, 1, 2], np.int32)
    for mask in (Mask.until(layout.positions), Mask(*shrinking)):
        assert seen_by(mask, layout, layout) is None
    assert seen_by(Mask.until(layout.positions + 2), layout, keys) is None
    assert not is_causal(Mask.causal(layout), layout, keys)


@quick
@given(st.one_of(masks(), st.tuples(layouts, st.none())))
def test_paddles_operators_get_arguments_that_compute_the_reference(given_mask: tuple[Layout, Mask | None]) -> None:
    """The operators have no CPU implementation: they are replaced by what they are documented to compute."""
    layout, mask = given_mask
    q, k, v = random_qkv(layout, layout)
    with fake_gpu(), precision("bf16"):
        found = gpu.attention.attention(q, k, v, layout, 2, 0.0, layout, mask)
    wanted = attention.reference(q, k, v, layout, 2, 0.0, layout, mask)
    np.testing.assert_allclose(found.numpy(), wanted.numpy(), atol=1e-5)


@pytest.mark.parametrize(
    ("implementation", "reference"),
    [
        (gpu.attention.attention, attention.reference),
        (gpu.linear.linear, linear.reference),
        (gpu.norm.add_norm, norm.reference),
    ],
)
def test_an_implementation_has_the_parameters_of_its_reference(
    implementation: Callable[..., Any], reference: Callable[..., Any]
) -> None:
    assert list(inspect.signature(implementation).parameters) == list(inspect.signature(reference).parameters)


def test_without_a_gpu_its_implementations_are_not_chosen() -> None:
    def on_gpu(x: Tensor) -> Tensor:
        raise AssertionError("a GPU's body for a tensor on a CPU")

    for dtype in ("float32", "float64", "int64"):
        x = paddle.zeros([2], dtype).cpu()
        choose((x,), lambda x: x, lambda x: x, on_gpu)(x)
