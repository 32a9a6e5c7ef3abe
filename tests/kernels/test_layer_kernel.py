"""A Transformer layer against its definition in float64: in both precisions, with masks, dropout and selected rows.

Legend: T packed tokens, D width, F inner width.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property, partial

import numpy as np
import paddle
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from paddle import Tensor
from support.kernels.definitions import LayerMasks, layer_definition, visible, weight_masks
from support.kernels.judging import (
    Results,
    assert_close,
    assert_near,
    assert_only_frozen_lack_gradients,
    needs_bf16,
    needs_kernels,
    normal,
    quick,
    run,
)
from support.kernels.philox import AFTER_ATTENTION, AFTER_FEED_FORWARD, ATTENTION, seeded_mask

from ernie.data.batch import Layout
from ernie.kernels.layer import reference, transformer_layer
from ernie.kernels.mask import Mask
from ernie.kernels.precision import precision
from ernie.kernels.types import Factors, LayerSettings, LayerWeights

SHAPES = {
    **dict.fromkeys(("q", "k", "v", "out"), "DD"),
    **{"inner": "DF", "outer": "FD", "inner_bias": "F"},
    **dict.fromkeys(("q_bias", "k_bias", "v_bias", "out_bias", "outer_bias"), "D"),
    **dict.fromkeys(("gain1", "offset1", "gain2", "offset2"), "D"),
}


@dataclass(frozen=True)
class Case:
    """A layer, a batch, a mask and the rows of the output to compute."""

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

    def found(self, frozen: tuple[int, ...] = ()) -> Results:
        def kernel(x: Tensor, *weights: Tensor) -> Tensor:
            return transformer_layer(x, self.layout, LayerWeights(*weights), self.settings, self.mask, self.rows)

        return run(kernel, self.values, self.upstream, frozen=frozen)

    def wanted(self, masks: LayerMasks | None = None) -> Results:
        visible_TT = visible(self.layout, mask=self.mask)
        selected_T1 = np.ones((self.layout.tokens, 1))
        if self.rows is not None:
            selected_T1 = np.isin(np.arange(self.layout.tokens), self.rows)[:, None].astype(float)

        def definition(x: Tensor, *weights: Tensor) -> Tensor:
            output_TD = layer_definition(x, LayerWeights(*weights), visible_TT, self.settings, masks)
            return output_TD * paddle.to_tensor(selected_T1)

        return run(definition, self.values, self.upstream, "float64")

    def has_kink(self) -> bool:
        """Whether an input of ReLU is so close to zero that rounding decides on its slope."""
        if self.settings.activation != "relu":
            return False
        low, high = replace(self), replace(self)
        number = 1 + LayerWeights._fields.index("inner_bias")
        low.values[number], high.values[number] = (self.values[number] + shift for shift in (-1e-5, 1e-5))
        for below, above in zip(low.wanted(), high.wanted(), strict=True):
            assert below is not None and above is not None
            if np.abs(above - below).max() > 5e-5 * max(1.0, float(np.abs(below).max())):
                return True
        return False


@st.composite
def cases(draw: st.DrawFn) -> Case:
    lengths = draw(st.one_of(*(st.lists(st.integers(1, up), min_size=1, max_size=n) for up, n in ((30, 5), (150, 2)))))
    layout = Layout.of_lengths(lengths)
    heads = draw(st.integers(1, 5))
    settings = LayerSettings(heads, draw(st.sampled_from(["gelu", "relu"])), 1e-5)
    size = draw(st.integers(-(-12 // heads), 40))
    mask = draw(st.sampled_from([None, Mask.causal(layout), Mask.window(layout, 3, 5), Mask.until(layout.positions)]))
    rows = draw(st.one_of(st.none(), st.lists(st.integers(0, layout.tokens - 1), min_size=1, unique=True).map(sorted)))
    return Case(layout, settings, size, draw(st.integers(1, 130)), mask, None if rows is None else np.array(rows))


@quick
@given(cases())
def test_the_layer_equals_its_definition_forward_and_backward(case: Case) -> None:
    assume(not case.has_kink())
    assert_close(case.found(), case.wanted(), 5e-5)


@dataclass(frozen=True)
class Factored:
    """A layer some of whose matrices are the sum of a fixed one and, times a scale, the product of two factors."""

    case: Case
    ranks: dict[str, int]  # of the factors of a matrix, by its name
    scale: float = 0.7

    @cached_property
    def values(self) -> list[np.ndarray]:
        """x, the weights, and both factors of each matrix that has some."""
        named = dict(zip(LayerWeights._fields, self.case.values[1:], strict=True))
        shapes = [((len(named[name]), rank), (rank, named[name].shape[1])) for name, rank in self.ranks.items()]
        factors = normal(*(shape for pair in shapes for shape in pair), seed=7)
        return [*self.case.values, *(0.5 * factor / np.sqrt(len(factor)) for factor in factors)]

    def results(self, kernel: Callable[..., Tensor], dtype: str) -> Results:
        """The output, and the gradients of x and of the factors, of a kernel (x, weights, factors)."""
        count = 1 + len(LayerWeights._fields)

        def layer(x: Tensor, *rest: Tensor) -> Tensor:
            weights, factors = LayerWeights(*rest[: count - 1]), rest[count - 1 :]
            pairs = dict(zip(self.ranks, zip(factors[::2], factors[1::2], strict=True), strict=True))
            return kernel(x, weights, {name: Factors(a, b, self.scale) for name, (a, b) in pairs.items()})

        frozen = [1 + LayerWeights._fields.index(name) for name in self.ranks]
        found = run(layer, self.values, self.case.upstream, dtype, frozen)
        return [*found[:2], *found[1 + count :]]

    def found(self, kernel: Callable[..., Tensor] = transformer_layer) -> Results:
        def merged(x: Tensor, weights: LayerWeights, factors: dict[str, Factors]) -> Tensor:
            with paddle.no_grad():
                own = {name: getattr(weights, name) + s * paddle.matmul(a, b) for name, (a, b, s) in factors.items()}
            case = self.case
            return kernel(x, case.layout, weights._replace(**own), case.settings, case.mask, case.rows, factors)

        return self.results(merged, "float32")

    def wanted(self) -> Results:
        selected_T1 = np.ones((self.case.layout.tokens, 1))
        if self.case.rows is not None:
            selected_T1 = np.isin(np.arange(self.case.layout.tokens), self.case.rows)[:, None].astype(float)

        def definition(x: Tensor, weights: LayerWeights, factors: dict[str, Factors]) -> Tensor:
            own = {name: getattr(weights, name) + s * paddle.matmul(a, b) for name, (a, b, s) in factors.items()}
            visible_TT = visible(self.case.layout, mask=self.case.mask)
            output_TD = layer_definition(x, weights._replace(**own), visible_TT, self.case.settings)
            return output_TD * paddle.to_tensor(selected_T1)

        return self.results(definition, "float64")


RANKS = st.dictionaries(st.sampled_from(LayerWeights._fields[:6]), st.integers(1, 20), min_size=1)


@pytest.mark.parametrize("kernel", [transformer_layer, reference])
@quick
@given(cases(), RANKS)
def test_factors_get_the_gradients_of_a_matrix_that_follows_from_them(
    kernel: Callable[..., Tensor], case: Case, ranks: dict[str, int]
) -> None:
    smooth = replace(case, settings=replace(case.settings, activation="gelu"))
    factored = Factored(smooth, ranks)
    assert_close(factored.found(kernel), factored.wanted(), 5e-5)


@needs_bf16
@pytest.mark.parametrize("rows", [None, np.arange(0, 140, 3)])
@pytest.mark.parametrize("rank", [1, 8, 33])
def test_factors_get_their_gradients_in_bfloat16_to_one_percent(rank: int, rows: np.ndarray | None) -> None:
    case = Case(Layout.of_lengths([70, 1, 33, 36]), LayerSettings(4, "gelu", 1e-5), 32, 201, None, rows)
    factored = Factored(case, dict.fromkeys(LayerWeights._fields[:6], rank))
    with precision("bf16"):
        found = factored.found()
    wanted = factored.wanted()
    assert_near(found, wanted, forward=0.01, backward=0.02, least=0.1 * float(np.linalg.norm(wanted[1])))  # type: ignore[arg-type]


def check_in_bfloat16(case: Case, masks: LayerMasks | None = None, **tolerances: float) -> None:
    with precision("bf16"):
        found = case.found()
    wanted = case.wanted(masks)
    # The gradients of queries and keys may be zero: errors are relative to at least a tenth of the gradient of x.
    assert_near(found, wanted, **tolerances, least=0.1 * float(np.linalg.norm(wanted[1])))  # type: ignore[arg-type]


def is_large_enough(case: Case) -> bool:
    """Whether no gradient is a small difference of few large numbers."""
    return min(case.inner, case.layout.tokens if case.rows is None else len(case.rows)) >= 8


@needs_bf16
@quick
@given(cases().filter(is_large_enough))
def test_the_layer_in_bfloat16_is_near_its_definition(case: Case) -> None:
    smooth = replace(case.settings, activation="gelu")  # whose slope does not jump when an input is rounded
    check_in_bfloat16(replace(case, settings=smooth), forward=0.02, backward=0.05)


@needs_bf16
@pytest.mark.parametrize("rows", [None, np.arange(0, 140, 3)])
@pytest.mark.parametrize("mask", [None, Mask.causal, lambda layout: Mask.window(layout, 9, 4)])
@pytest.mark.parametrize(("heads", "size"), [(4, 32), (3, 33), (8, 15), (1, 64)])
def test_a_larger_layer_in_bfloat16_is_right_to_one_percent(
    heads: int, size: int, mask: Callable[[Layout], Mask] | None, rows: np.ndarray | None
) -> None:
    layout = Layout.of_lengths([70, 1, 33, 36])
    settings = LayerSettings(heads, "gelu", 1e-5)
    check_in_bfloat16(Case(layout, settings, size, 201, mask and mask(layout), rows), forward=0.01, backward=0.02)


def test_the_gradient_of_the_key_bias_is_zero() -> None:
    """A softmax is invariant to adding a constant to all scores of a query, so the gradient is zero, not noise."""
    case = Case(Layout.of_lengths([40, 3]), LayerSettings(2, "gelu", 1e-5), 8, 20)
    gradient = dict(zip(LayerWeights._fields, case.found()[2:], strict=True))
    assert np.abs(gradient["k_bias"]).max() < 1e-5 * np.abs(gradient["q_bias"]).max()  # type: ignore[arg-type]


def masks_of(case: Case, seed: int) -> LayerMasks:
    """The dropout masks of the next layer.  If only some rows are computed, a mask counts just these rows."""
    mask_with, settings = seeded_mask(seed), case.settings
    T, D = case.values[0].shape
    rows = np.arange(T) if case.rows is None else case.rows
    after = [np.ones((T, D)) for _ in range(2)]
    for mask, site in zip(after, (AFTER_ATTENTION, AFTER_FEED_FORWARD), strict=True):
        mask[rows] = mask_with(settings.dropout, site=site, rows=len(rows), columns=D)
    weights_HTT = np.ones((settings.heads, T, T))
    mask_of = partial(mask_with, settings.attention_dropout, site=ATTENTION)
    selected = weight_masks(case.layout, settings.heads, mask_of)
    weights_HTT[:, rows] = selected[:, : len(rows)]
    return LayerMasks(weights_HTT, *after)


@needs_kernels
@quick
@given(cases(), st.sampled_from([0.0, 0.1, 0.4]), st.sampled_from([0.0, 0.1, 0.4]), st.integers(0, 99))
def test_the_dropout_masks_are_those_of_the_generator(case: Case, dropout: float, attention: float, seed: int) -> None:
    smooth = replace(case.settings, activation="gelu")  # whose slope does not jump when an input is rounded
    case = replace(case, settings=replace(smooth, dropout=dropout, attention_dropout=attention))
    masks = masks_of(case, seed)
    assert_close(case.found(), case.wanted(masks), 5e-5)


@needs_bf16
def test_the_dropout_masks_in_bfloat16_are_those_of_float32() -> None:
    case = Case(Layout.of_lengths([70, 1, 33]), LayerSettings(3, "gelu", 1e-5, 0.1, 0.1), 21, 50)
    check_in_bfloat16(case, masks_of(case, 3))


@pytest.mark.parametrize("name", ["fp32", pytest.param("bf16", marks=needs_bf16)])
@pytest.mark.parametrize("frozen", [(0,), (1, 2), (0, 5, 6, 12), tuple(range(1, 17))])
def test_frozen_inputs_get_no_gradient_and_others_are_unchanged(frozen: tuple[int, ...], name: str) -> None:
    case = Case(Layout.of_lengths([5, 40]), LayerSettings(2, "gelu", 1e-5), 8, 20)
    with precision(name):  # type: ignore[arg-type]
        assert_only_frozen_lack_gradients(case.found(frozen), case.found(), frozen)


@needs_bf16
def test_the_layer_returns_float32_in_bfloat16_precision() -> None:
    case = Case(Layout.of_lengths([5, 4]), LayerSettings(2, "gelu", 1e-5), 8, 20)
    with precision("bf16"):
        assert {x.dtype for x in case.found() if x is not None} == {np.dtype("float32")}


@needs_kernels
@pytest.mark.parametrize("tokens", [1, 31, 32, 33, 63, 64, 65, 97])
def test_a_larger_batch_before_does_not_change_the_results(tokens: int) -> None:
    """Matrix products run over padded numbers of rows, in reused memory."""
    small = Case(Layout.of_lengths([tokens]), LayerSettings(2, "gelu", 1e-5), 8, 20)
    before = small.found()
    large = Case(Layout.of_lengths([300]), LayerSettings(2, "gelu", 1e-5), 8, 20)
    large.values[0][:] = np.nan
    large.found()
    assert all(np.array_equal(old, new) for old, new in zip(before, small.found(), strict=True))  # type: ignore[arg-type]


@quick
@given(cases().filter(lambda case: case.layout.sequences > 1), st.data())
def test_a_sequence_does_not_depend_on_others(case: Case, data: st.DataObject) -> None:
    changed = data.draw(st.integers(0, case.layout.sequences - 1))
    is_changed = np.repeat(np.arange(case.layout.sequences) == changed, case.layout.lengths)
    other = replace(case)
    other.values[0][is_changed] *= -3
    before, after = case.found()[0], other.found()[0]
    assert np.array_equal(before[~is_changed], after[~is_changed])  # type: ignore[index]
