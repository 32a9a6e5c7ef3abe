"""Fused stacks of layers for inference equal the separate layers for any precision, sizes and rows."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from copy import deepcopy
from ctypes import c_uint64
from itertools import pairwise

import numpy as np
import paddle
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from paddle import Tensor

from ernie.data.batch import Layout
from ernie.errors import Remark, UserError
from ernie.kernels.choose import runs_in_cpp
from ernie.kernels.cpu.call import byref, loaded, product
from ernie.kernels.cpu.library import library
from ernie.kernels.mask import Mask
from ernie.kernels.precision import batch_invariant, precision
from ernie.kernels.stack import reference
from ernie.kernels.types import Adapted, LayerSettings, LayerUpdates, LowRank
from ernie.model.cache import KeyValueCache
from ernie.model.config import EncoderConfig
from ernie.model.encoder import Encoder

pytestmark = pytest.mark.skipif(not runs_in_cpp(paddle.zeros([1])), reason="there are no kernels for this machine")
layouts = st.lists(st.integers(1, 70), min_size=1, max_size=5)


def make(width: int = 48, heads: int = 4, inner: int = 100, layers: int = 3, activation: str = "gelu") -> Encoder:
    paddle.seed(7)
    shape = EncoderConfig(50, width, layers, heads, inner, activation=activation)  # type: ignore[arg-type]
    encoder = Encoder(shape)
    encoder.eval()
    for parameter in encoder.parameters():
        parameter.set_value(parameter + 0.05 * paddle.randn(parameter.shape))
    return encoder


def inputs(layout: Layout, width: int = 48) -> paddle.Tensor:
    rng = np.random.default_rng(layout.lengths.tolist())
    return paddle.to_tensor(rng.standard_normal((layout.tokens, width)).astype(np.float32))


def for_inference(encoder: Encoder, x: paddle.Tensor, layout: Layout, rows: np.ndarray | None = None) -> np.ndarray:
    with paddle.no_grad():
        return encoder(x, layout, needed=rows).numpy()


def fingerprint(matrix: Tensor) -> int:
    found = c_uint64()
    loaded().call("fingerprint", matrix.data_ptr(), *matrix.shape, byref(found))
    return found.value


def relative_error(found: np.ndarray, wanted: np.ndarray) -> float:
    return float(np.linalg.norm(found - wanted) / np.linalg.norm(wanted))


@settings(max_examples=25, deadline=None)
@given(layouts, st.sampled_from([(48, 4, 100), (30, 3, 50), (21, 7, 33), (64, 1, 128)]), st.data())
def test_the_stack_equals_the_layers_one_after_the_other(
    lengths: list[int], sizes: tuple[int, int, int], data: st.DataObject
) -> None:
    width, heads, inner = sizes
    activation = data.draw(st.sampled_from(["gelu", "relu"]))
    encoder = make(width, heads, inner, layers=2, activation=activation)
    layout = Layout.of_lengths(lengths)
    x = inputs(layout, width)
    chosen = data.draw(st.lists(st.integers(0, layout.tokens - 1), unique=True, min_size=1, max_size=9))
    for rows in (None, np.sort(chosen)):
        wanted = encoder(x, layout, needed=rows).numpy()  # with gradients: layer by layer
        np.testing.assert_allclose(for_inference(encoder, x, layout, rows), wanted, rtol=1e-5, atol=2e-5)


@pytest.mark.parametrize(("name", "bound"), [("bf16", 0.02), ("int8", 0.06)])
def test_lower_precisions_stay_near_fp32(name: str, bound: float) -> None:
    if name == "bf16" and not getattr(library(), "has_bf16", False):
        pytest.skip("this machine computes in fp32")
    encoder, layout = make(), Layout.of_lengths([5, 40, 1, 17])
    x = inputs(layout)
    wanted = for_inference(encoder, x, layout)
    with precision(name):  # type: ignore[arg-type]
        found = for_inference(encoder, x, layout)
        assert 0 < relative_error(found, wanted) < bound
        rows = np.array([3, 9, 30])
        np.testing.assert_allclose(for_inference(encoder, x, layout, rows)[rows], found[rows], atol=1e-2)


@pytest.mark.parametrize("name", ["fp32", "int8"])
def test_a_sequence_has_the_same_vectors_alone_and_among_others(name: str) -> None:
    encoder, layout = make(), Layout.of_lengths([5, 40, 1, 17])
    x = inputs(layout)
    with precision(name):  # type: ignore[arg-type]
        together = for_inference(encoder, x, layout)
        for first, last in zip(layout.offsets, layout.offsets[1:], strict=False):
            alone = for_inference(encoder, x[first:last], Layout.of_lengths([last - first]))
            np.testing.assert_allclose(alone, together[first:last], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", ["fp32", "bf16", "int8"])
@settings(max_examples=10, deadline=None)
@given(lengths=st.lists(st.integers(1, 150), min_size=2, max_size=8), width=st.sampled_from([48, 30]))
def test_within_batch_invariant_a_sequence_has_the_same_bits_in_any_company(
    name: str, lengths: list[int], width: int
) -> None:
    if name == "bf16" and not library().has_bf16:  # type: ignore[union-attr]
        pytest.skip("this processor has no bfloat16")
    encoder, layout = make(width, 3), Layout.of_lengths(lengths)
    x = inputs(layout, width)
    with precision(name), batch_invariant():
        together = np.split(for_inference(encoder, x, layout), layout.offsets[1:-1])
        for own, vectors in zip(np.split(x.numpy(), layout.offsets[1:-1]), together, strict=True):
            alone = for_inference(encoder, paddle.to_tensor(own), Layout.of_lengths([len(own)]))
            np.testing.assert_array_equal(alone, vectors)


@pytest.mark.parametrize("name", ["q", "k", "v", "attention_out", "inner", "outer", "attention_norm", "output_norm"])
@pytest.mark.parametrize("part", ["weight", "bias"])
def test_changed_weights_take_effect(name: str, part: str) -> None:
    encoder, layout = make(), Layout.of_lengths([6, 11])
    x = inputs(layout)
    before = for_inference(encoder, x, layout)
    parameter = getattr(getattr(encoder.layers[1], name), part)
    parameter.set_value(parameter + 0.5 * paddle.randn(parameter.shape))
    after = for_inference(encoder, x, layout)
    np.testing.assert_allclose(after, encoder(x, layout).numpy(), rtol=1e-5, atol=2e-5)
    if (name, part) != ("k", "bias"):  # adds the same to all scores of a query
        assert relative_error(after, before) > 1e-3


def test_a_copy_uses_its_own_weights() -> None:
    encoder, layout = make(), Layout.of_lengths([6, 11])
    x = inputs(layout)
    before = for_inference(encoder, x, layout)
    copy = deepcopy(encoder)
    copy.layers[0].outer.weight.set_value(copy.layers[0].outer.weight * 0.5)
    assert relative_error(for_inference(copy, x, layout), before) > 1e-3
    np.testing.assert_allclose(for_inference(encoder, x, layout), before, rtol=1e-6)


@pytest.mark.parametrize("name", ["fp32", "bf16", "int8"])
def test_eight_threads_at_once_get_the_bits_of_one(name: str) -> None:
    if name == "bf16" and not getattr(library(), "has_bf16", False):
        pytest.skip("this machine has no instructions for bf16")
    encoder = make(width=64, inner=256)
    batches = [Layout.of_lengths(lengths) for lengths in ([3, 30], [64], [1, 2, 3], [40, 41])]
    found: dict[tuple[int, int, int], np.ndarray] = {}

    def infer(thread: int) -> None:
        with precision(name):  # type: ignore[arg-type]
            for turn in range(5):
                for number, layout in enumerate(batches):
                    found[thread, turn, number] = for_inference(encoder, inputs(layout, 64), layout)

    infer(0)
    wanted = [found[0, 0, number] for number in range(len(batches))]
    threads = [threading.Thread(target=infer, args=(thread,)) for thread in range(1, 9)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 9 * 5 * len(batches)
    for (_, _, number), values in found.items():
        assert np.array_equal(values, wanted[number])


@pytest.mark.parametrize("name", ["fp32", "bf16"])
def test_setting_a_part_of_a_weight_takes_effect(name: str) -> None:
    if name == "bf16" and not getattr(library(), "has_bf16", False):
        pytest.skip("this machine computes in fp32")
    encoder, layout = make(width=64, inner=256), Layout.of_lengths([9])
    x, weight = inputs(layout, 64), encoder.layers[1].inner.weight
    with precision(name):  # type: ignore[arg-type]
        before = for_inference(encoder, x, layout)
        values = weight.numpy()
        values[:8] = 0  # far from the few elements that are sampled
        encoder.set_state_dict({**encoder.state_dict(), "layers.1.inner.weight": paddle.to_tensor(values)})
        found = for_inference(encoder, x, layout)
        assert relative_error(found, before) > 1e-3
        np.testing.assert_allclose(found, for_inference(deepcopy(encoder), x, layout), rtol=1e-5, atol=1e-5)


def train_one_row(optimizer: type[paddle.optimizer.Optimizer]) -> Callable[[Tensor], object]:
    def train(weight: Tensor) -> None:
        with paddle.enable_grad():
            weight[0].square().sum().backward()
        optimizer(learning_rate=1.0, parameters=[weight]).step()

    return train


def without_row(weight: Tensor) -> np.ndarray:
    return np.concatenate([np.zeros_like(weight.numpy()[:1]), weight.numpy()[1:]])


@pytest.mark.parametrize(
    "change",
    [
        lambda weight: weight.copy_(paddle.to_tensor(without_row(weight)), True),
        lambda weight: weight.get_tensor().set(without_row(weight), paddle.CPUPlace()),
        lambda weight: np.from_dlpack(weight.detach())[0].fill(0),
        lambda weight: np.from_dlpack(weight.detach())[:, 0].fill(0),
        lambda weight: np.negative(*[np.from_dlpack(weight.detach())] * 2),
        train_one_row(paddle.optimizer.SGD),
        train_one_row(paddle.optimizer.Adam),
    ],
    ids=["copy_", "get_tensor().set", "a row", "a column", "all signs", "SGD", "Adam"],
)
def test_changes_that_paddle_does_not_count_take_effect(change: Callable[[Tensor], object]) -> None:
    encoder, layout = make(width=64, inner=256), Layout.of_lengths([9])
    x, weight = inputs(layout, 64), encoder.layers[1].inner.weight
    before = for_inference(encoder, x, layout)
    with paddle.no_grad():
        change(weight)
    found = for_inference(encoder, x, layout)
    assert relative_error(found, before) > 1e-3
    np.testing.assert_allclose(found, for_inference(deepcopy(encoder), x, layout), rtol=1e-5, atol=1e-5)


def test_paddle_counts_changes_by_copy() -> None:
    weight = paddle.create_parameter([4, 3], "float32")
    version = weight.inplace_version
    weight.copy_(paddle.ones([4, 3]), True)
    assert weight.inplace_version == version + 1
    assert weight.numpy().min() == 1


@settings(max_examples=50)
@given(st.integers(1, 16), st.integers(1, 60), st.data())  # of more rows, only some are sampled
def test_any_change_of_a_row_or_a_column_changes_the_fingerprint(rows: int, columns: int, data: st.DataObject) -> None:
    values = np.random.default_rng((rows, columns)).standard_normal((rows, columns)).astype(np.float32)
    before = fingerprint(paddle.to_tensor(values))
    row, sign = data.draw(st.integers(0, rows - 1)), data.draw(st.booleans())
    changed = values.copy()
    changed[row] = -changed[row] if sign else np.nextafter(changed[row], np.float32(9))
    assert fingerprint(paddle.to_tensor(changed)) != before
    assert fingerprint(paddle.to_tensor(-values)) != before
    if 16 * rows >= columns:
        changed = values.copy()
        changed[:, data.draw(st.integers(0, columns - 1))] += 1
        assert fingerprint(paddle.to_tensor(changed)) != before


@pytest.mark.parametrize("rows", [[-1], [9], [3, 3], [4, 2]])
@pytest.mark.parametrize("training", [False, True])
def test_missing_or_unsorted_tokens_are_refused(rows: list[int], training: bool) -> None:
    encoder, layout = make(), Layout.of_lengths([9])
    with pytest.raises(UserError, match="token"):
        if training:
            encoder(inputs(layout), layout, needed=np.array(rows))
        else:
            for_inference(encoder, inputs(layout), layout, np.array(rows))


@pytest.mark.parametrize("training", [False, True])
def test_needed_tokens_can_be_given_as_a_list(training: bool) -> None:
    encoder, layout, rows = make(), Layout.of_lengths([9]), [1, 4]
    x = inputs(layout)
    found = encoder(x, layout, needed=rows).numpy() if training else for_inference(encoder, x, layout, rows)  # type: ignore[arg-type]
    np.testing.assert_array_equal(np.flatnonzero(found.any(1)), rows)


def test_layers_that_int8_is_not_implemented_for_say_so() -> None:
    encoder, layout = make(), Layout.of_lengths([6, 11])
    x, cache = inputs(layout), KeyValueCache.empty(layout.sequences)
    calls: list[tuple[str, Callable[[], object]]] = [
        ("with an attention mask", lambda: encoder(x, layout, mask=Mask.causal(layout))),
        ("for the outputs of each layer", lambda: encoder(x, layout, states=[])),
        ("token by token", lambda: encoder.forward_cached(x, layout, cache)),
    ]
    with precision("int8"):
        with pytest.warns(Remark, match=r"int8 is not implemented outside inference under paddle\.no_grad\(\)"):
            encoder(x, layout)
        with paddle.no_grad():
            for where, call in calls:
                with pytest.warns(Remark, match=f"int8 is not implemented {where}: these layers compute in a higher"):
                    call()


@pytest.mark.parametrize("name", ["fp32", "int8"])
@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_a_non_finite_weight_makes_the_output_nan(name: str, value: float) -> None:
    encoder, layout = make(), Layout.of_lengths([6, 11])
    weight = encoder.layers[0].inner.weight
    weight.set_value(np.where(np.arange(weight.size).reshape(weight.shape) == 303, np.float32(value), weight.numpy()))
    with precision(name):  # type: ignore[arg-type]
        assert np.isnan(for_inference(encoder, inputs(layout), layout)).all()


@pytest.mark.parametrize("name", ["fp32", "int8"])
@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_a_non_finite_input_affects_only_its_own_sequence(name: str, value: float) -> None:
    encoder, layout = make(), Layout.of_lengths([6, 11])
    values = inputs(layout).numpy()
    values[2, 5] = value
    with precision(name):  # type: ignore[arg-type]
        found = np.isnan(for_inference(encoder, paddle.to_tensor(values), layout))
    assert found[:6].all() and not found[6:].any()


def test_without_needed_tokens_gradients_are_zero() -> None:
    encoder, layout = make(), Layout.of_lengths([9])
    encoder.train()
    for _ in range(3):  # so that reused memory would be noticed
        product(paddle.ones([700, 100]), paddle.ones([100, 700]))
    encoder(inputs(layout), layout, needed=np.array([], np.int64)).sum().backward()
    last = encoder.layers[-1]
    for part in (last.q, last.attention_out, last.inner, last.outer):
        assert float(part.weight.grad.abs().max()) == 0


def low_rank(encoder: Encoder, rank: int, seed: int, names: Sequence[str]) -> LayerUpdates:
    rng = np.random.default_rng(seed)
    updates = []
    for layer in encoder.layers:
        sizes = {name: getattr(layer.weights(), name).shape for name in names}
        updates.append(
            {
                name: LowRank(*(0.1 * rng.standard_normal(size).astype(np.float32) for size in ((D, rank), (rank, E))))
                for name, (D, E) in sizes.items()
            }
        )
    return LayerUpdates(updates)


def merged(encoder: Encoder, updates: LayerUpdates) -> Encoder:
    found = deepcopy(encoder)
    for layer, by_name in zip(found.layers, updates, strict=True):
        for name, update in by_name.items():
            weight = getattr(layer.weights(), name)
            weight.set_value(weight + paddle.to_tensor(update.a @ update.b))
    return found


MATRICES = ("q", "k", "v", "out", "inner", "outer")


@settings(max_examples=25, deadline=None)
@given(
    st.lists(st.integers(1, 40), min_size=3, max_size=6),
    st.sets(st.sampled_from(MATRICES), min_size=1),
    st.sampled_from([1, 3, 8, 20]),
    st.booleans(),
)
def test_tokens_with_updates_are_computed_as_if_these_were_in_the_weights(
    lengths: list[int], names: set[str], rank: int, in_plain_paddle: bool
) -> None:
    encoder, layout = make(layers=2), Layout.of_lengths(lengths)
    one, two = (low_rank(encoder, rank, seed, sorted(names)) for seed in (1, 2))
    x, ends = inputs(layout), layout.offsets
    adapted = [Adapted(int(ends[1]), int(ends[2]), one), Adapted(int(ends[2]), int(ends[3]), two)]
    nets = [encoder, merged(encoder, one), merged(encoder, two), *[encoder] * len(lengths[3:])]
    parts = [(x[int(start) : int(stop)], Layout.of_lengths([int(stop - start)])) for start, stop in pairwise(ends)]
    wanted = np.concatenate([for_inference(net, *part) for net, part in zip(nets, parts, strict=True)])
    rows = layout.starts
    with paddle.no_grad():
        if in_plain_paddle:
            weights = [layer.weights() for layer in encoder.layers]
            found = [
                reference(x, layout, weights, LayerSettings(4, "gelu", 1e-12), each, adapted).numpy()
                for each in (None, rows)
            ]
        else:
            found = [encoder(x, layout, needed=each, adapted=adapted).numpy() for each in (None, rows)]
    np.testing.assert_allclose(found[0], wanted, rtol=1e-4, atol=2e-5)
    np.testing.assert_allclose(found[1][rows], wanted[rows], rtol=1e-4, atol=2e-5)
    assert not np.delete(found[1], rows, axis=0).any()


@pytest.mark.parametrize("name", ["fp32", "bf16", "int8"])
def test_updates_change_no_bit_of_other_tokens(name: str) -> None:
    if name == "bf16" and not getattr(library(), "has_bf16", False):
        pytest.skip("this processor has no products in bf16")
    encoder, layout = make(layers=2), Layout.of_lengths([5, 33, 40, 7, 3])
    x, ends = inputs(layout), layout.offsets
    updates = low_rank(encoder, 4, 1, MATRICES)
    parts = [Adapted(int(ends[n]), int(ends[n + 1]), updates) for n in (1, 3)]
    alone = x[int(ends[3]) : int(ends[4])], Layout.of_lengths([7])
    with paddle.no_grad(), precision(name), batch_invariant():  # type: ignore[arg-type]
        plain, found = encoder(x, layout).numpy(), encoder(x, layout, adapted=parts).numpy()
        one = encoder(*alone, adapted=[Adapted(0, 7, updates)]).numpy()
    changed = [part for n, part in enumerate(np.split(np.arange(len(plain)), ends[1:-1])) if n in (1, 3)]
    others = np.delete(np.arange(len(plain)), np.concatenate(changed))
    assert (plain[others] == found[others]).all()
    assert (found[changed[1]] == one).all()
    assert all(not np.allclose(plain[rows], found[rows], atol=1e-2) for rows in changed)


def test_updates_that_do_not_fit_are_refused() -> None:
    encoder, layout = make(layers=2), Layout.of_lengths([5, 3])
    x, updates = inputs(layout), low_rank(encoder, 4, 1, ["q"])
    with paddle.no_grad():
        with pytest.raises(UserError, match="expected ascending tokens of 8, found 0 to 5 after 5"):
            encoder(x, layout, adapted=[Adapted(0, 5, updates), Adapted(0, 5, updates)])
        with pytest.raises(UserError, match="expected updates of 2 layers, found 1"):
            encoder(x, layout, adapted=[Adapted(0, 5, LayerUpdates(updates[:1]))])
        with pytest.raises(UserError, match=r"expected factors of k, \(48, 48\), found \(48, 4\) and \(4, 100\)"):
            wrong = LayerUpdates([{"k": low_rank(encoder, 4, 1, ["inner"])[0]["inner"]}] * 2)
            encoder(x, layout, adapted=[Adapted(0, 5, wrong)])
    with pytest.raises(UserError, match="only plain encoder layers take updates"):
        encoder(x, layout, adapted=[Adapted(0, 5, updates)])
