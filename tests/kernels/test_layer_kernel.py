"""A whole Transformer layer against its definition in 64 bits: in both precisions, with masks, dropout and few outputs.

Legend: T packed tokens, D width, F inner width.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property, partial

import numpy as np
import paddle
import pytest
from definitions import LayerMasks, kept_weights, sees, transformed
from hypothesis import given
from hypothesis import strategies as st
from judging import (
    Found,
    assert_close,
    assert_near,
    assert_only_the_frozen_are_left_out,
    needs_bf16,
    needs_kernels,
    normal,
    quick,
    run,
)
from paddle import Tensor
from philox import AFTER_ATTENTION, AFTER_FEED_FORWARD, ATTENTION, seeded

from ernie.data.batch import Layout
from ernie.kernels.layer import LayerSettings, LayerWeights, transformer_layer
from ernie.kernels.mask import Mask
from ernie.kernels.precision import precision

SHAPES = {
    **dict.fromkeys(("q", "k", "v", "out"), "DD"),
    **{"inner": "DF", "outer": "FD", "inner_bias": "F"},
    **dict.fromkeys(("q_bias", "k_bias", "v_bias", "out_bias", "outer_bias"), "D"),
    **dict.fromkeys(("gain1", "offset1", "gain2", "offset2"), "D"),
}


@dataclass(frozen=True)
class Case:
    """A layer, a batch, and what is asked of the one for the other."""

    layout: Layout
    settings: LayerSettings
    size: int  # of a head
    inner: int
    mask: Mask | None = None
    rows: np.ndarray | None = None

    @cached_property
    def values(self) -> list[np.ndarray]:
        """x and the weights, about as large as those of a trained layer."""
        sizes = {"D": self.settings.heads * self.size, "F": self.inner}
        shapes = [tuple(sizes[letter] for letter in SHAPES[name]) for name in LayerWeights._fields]
        x, *weights = normal((self.layout.tokens, sizes["D"]), *shapes, seed=(self.layout.tokens, *sizes.values()))
        scaled = {
            name: 1 + 0.1 * value if "gain" in name else value / np.sqrt(len(value)) if value.ndim > 1 else 0.1 * value
            for name, value in zip(LayerWeights._fields, weights, strict=True)
        }
        return [x, *scaled.values()]

    @cached_property
    def upstream(self) -> np.ndarray:
        return normal(self.values[0].shape, seed=1)[0]

    def found(self, frozen: tuple[int, ...] = ()) -> Found:
        def kernel(x: Tensor, *weights: Tensor) -> Tensor:
            return transformer_layer(x, self.layout, LayerWeights(*weights), self.settings, self.mask, self.rows)

        return run(kernel, self.values, self.upstream, frozen=frozen)

    def wanted(self, masks: LayerMasks | None = None) -> Found:
        seen = sees(self.layout, mask=self.mask)
        wanted_T1 = np.ones((self.layout.tokens, 1))
        if self.rows is not None:
            wanted_T1 = np.isin(np.arange(self.layout.tokens), self.rows)[:, None].astype(float)

        def definition(x: Tensor, *weights: Tensor) -> Tensor:
            return transformed(x, LayerWeights(*weights), seen, self.settings, masks) * paddle.to_tensor(wanted_T1)

        return run(definition, self.values, self.upstream, "float64")


@st.composite
def cases(draw: st.DrawFn) -> Case:
    lengths = draw(st.one_of(*(st.lists(st.integers(1, up), min_size=1, max_size=n) for up, n in ((30, 5), (150, 2)))))
    layout = Layout.of_lengths(lengths)
    heads = draw(st.integers(1, 5))
    settings = LayerSettings(heads, draw(st.sampled_from(["gelu", "relu"])), 1e-5)
    size = draw(st.integers(-(-12 // heads), 40))
    mask = draw(st.sampled_from([None, Mask.causal(layout), Mask.window(layout, 3, 5), Mask.wait(layout, 0)]))
    rows = draw(st.one_of(st.none(), st.lists(st.integers(0, layout.tokens - 1), min_size=1, unique=True).map(sorted)))
    return Case(layout, settings, size, draw(st.integers(1, 130)), mask, None if rows is None else np.array(rows))


@quick
@given(cases())
def test_the_layer_equals_its_definition_forward_and_backward(case: Case) -> None:
    assert_close(case.found(), case.wanted(), 5e-5)


def judge_in_bfloat16(case: Case, masks: LayerMasks | None = None, **tolerances: float) -> None:
    with precision("bf16"):
        found = case.found()
    wanted = case.wanted(masks)
    # Those to queries and keys may be zero: errors of small gradients count against a tenth of that to x.
    assert_near(found, wanted, **tolerances, least=0.1 * float(np.linalg.norm(wanted[1])))  # type: ignore[arg-type]


def is_of_some_size(case: Case) -> bool:
    """So that no gradient is a small difference of few large numbers."""
    return min(case.inner, case.layout.tokens if case.rows is None else len(case.rows)) >= 8


@needs_bf16
@quick
@given(cases().filter(is_of_some_size))
def test_in_bfloat16_the_layer_is_near_its_definition(case: Case) -> None:
    smooth = replace(case.settings, activation="gelu")  # no slope that jumps at a rounding
    judge_in_bfloat16(replace(case, settings=smooth), forward=0.02, backward=0.05)


@needs_bf16
@pytest.mark.parametrize("rows", [None, np.arange(0, 140, 3)])
@pytest.mark.parametrize("mask", [None, Mask.causal, lambda layout: Mask.window(layout, 9, 4)])
@pytest.mark.parametrize(("heads", "size"), [(4, 32), (3, 33), (8, 15), (1, 64)])
def test_in_bfloat16_a_layer_of_some_size_is_right_to_a_percent(
    heads: int, size: int, mask: Callable[[Layout], Mask] | None, rows: np.ndarray | None
) -> None:
    layout = Layout.of_lengths([70, 1, 33, 36])
    settings = LayerSettings(heads, "gelu", 1e-5)
    judge_in_bfloat16(Case(layout, settings, size, 201, mask and mask(layout), rows), forward=0.01, backward=0.02)


def test_keys_need_no_bias() -> None:
    """A softmax does not change when all scores of a query do: so the gradient is zero, not noise."""
    case = Case(Layout.of_lengths([40, 3]), LayerSettings(2, "gelu", 1e-5), 8, 20)
    gradient = dict(zip(LayerWeights._fields, case.found()[2:], strict=True))
    assert np.abs(gradient["k_bias"]).max() < 1e-5 * np.abs(gradient["q_bias"]).max()  # type: ignore[arg-type]


def masks_of(case: Case, number: int) -> LayerMasks:
    """The masks of the layer that is computed next.  Where few outputs are asked for, rows are counted among them."""
    drawn, settings = seeded(number), case.settings
    T, D = case.values[0].shape
    rows = np.arange(T) if case.rows is None else case.rows
    after = [np.ones((T, D)) for _ in range(2)]
    for mask, site in zip(after, (AFTER_ATTENTION, AFTER_FEED_FORWARD), strict=True):
        mask[rows] = drawn(settings.dropout, site=site, rows=len(rows), columns=D)
    of_weights = np.ones((settings.heads, T, T))
    drawn_for_weights = partial(drawn, settings.attention_dropout, site=ATTENTION)
    asked = kept_weights(case.layout, settings.heads, drawn_for_weights)
    of_weights[:, rows] = asked[:, : len(rows)]
    return LayerMasks(of_weights, *after)


@needs_kernels
@quick
@given(cases(), st.sampled_from([0.0, 0.1, 0.4]), st.sampled_from([0.0, 0.1, 0.4]), st.integers(0, 99))
def test_with_dropout_the_masks_are_the_generators(case: Case, dropout: float, attention: float, seed: int) -> None:
    case = replace(case, settings=replace(case.settings, dropout=dropout, attention_dropout=attention))
    masks = masks_of(case, seed)
    assert_close(case.found(), case.wanted(masks), 5e-5)


@needs_bf16
def test_with_dropout_in_bfloat16_the_masks_are_those_of_float32() -> None:
    case = Case(Layout.of_lengths([70, 1, 33]), LayerSettings(3, "gelu", 1e-5, 0.1, 0.1), 21, 50)
    judge_in_bfloat16(case, masks_of(case, 3))


@pytest.mark.parametrize("name", ["fp32", pytest.param("bf16", marks=needs_bf16)])
@pytest.mark.parametrize("frozen", [(0,), (1, 2), (0, 5, 6, 12), tuple(range(1, 17))])
def test_what_is_frozen_gets_no_gradient_and_the_rest_the_same(frozen: tuple[int, ...], name: str) -> None:
    case = Case(Layout.of_lengths([5, 40]), LayerSettings(2, "gelu", 1e-5), 8, 20)
    with precision(name):  # type: ignore[arg-type]
        assert_only_the_frozen_are_left_out(case.found(frozen), case.found(), frozen)


@needs_bf16
def test_what_the_layer_returns_is_32_bits_wide_also_in_bfloat16() -> None:
    case = Case(Layout.of_lengths([5, 4]), LayerSettings(2, "gelu", 1e-5), 8, 20)
    with precision("bf16"):
        assert {x.dtype for x in case.found() if x is not None} == {np.dtype("float32")}


@needs_kernels
@pytest.mark.parametrize("tokens", [1, 31, 32, 33, 63, 64, 65, 97])
def test_nothing_is_left_over_from_a_larger_batch(tokens: int) -> None:
    """Products run over whole multiples of rows, in memory that is used again and again."""
    small = Case(Layout.of_lengths([tokens]), LayerSettings(2, "gelu", 1e-5), 8, 20)
    before = small.found()
    large = Case(Layout.of_lengths([300]), LayerSettings(2, "gelu", 1e-5), 8, 20)
    large.values[0][:] = np.nan
    large.found()
    assert all(np.array_equal(one, other) for one, other in zip(before, small.found(), strict=True))  # type: ignore[arg-type]


@quick
@given(cases().filter(lambda case: case.layout.sequences > 1), st.data())
def test_a_sequence_never_feels_another(case: Case, data: st.DataObject) -> None:
    changed = data.draw(st.integers(0, case.layout.sequences - 1))
    theirs = np.repeat(np.arange(case.layout.sequences) == changed, case.layout.lengths)
    other = replace(case)
    other.values[0][theirs] *= -3
    before, after = case.found()[0], other.found()[0]
    assert np.array_equal(before[~theirs], after[~theirs])  # type: ignore[index]
