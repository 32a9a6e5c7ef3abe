"""The sum of embeddings, normalized, against its definition in float64."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import paddle
import paddle.nn.functional as F
import pytest
from hypothesis import given
from hypothesis import strategies as st
from paddle import Tensor
from support.kernels.judging import (
    Results,
    assert_close,
    assert_only_frozen_lack_gradients,
    needs_kernels,
    normal,
    quick,
    run,
)
from support.kernels.philox import STANDALONE, seeded_mask

from ernie.errors import UserError
from ernie.kernels.embedding import embed
from ernie.model.config import EncoderConfig
from ernie.model.embeddings import TextEmbedding

tables = st.lists(st.integers(1, 40), min_size=1, max_size=4)
tokens, widths = st.integers(1, 150), st.one_of(st.integers(9, 20), st.integers(9, 200))


def random_inputs(T: int, D: int, rows: Sequence[int]) -> tuple[list[np.ndarray], list[np.ndarray], np.ndarray]:
    """Ids, then tables, gain and offset, and an upstream gradient."""
    *values, gain, offset, upstream = normal(*[(r, D) for r in rows], (D,), (D,), (T, D), seed=(T, D, *rows))
    rng = np.random.default_rng(T)
    return [rng.integers(0, r, T) for r in rows], [*values, 1 + gain / 2, offset], upstream


def run_embedding(
    ids: list[np.ndarray], values: list[np.ndarray], upstream: np.ndarray, dtype: str = "float32"
) -> Results:
    return run(lambda *given: embed(ids, given[:-2], *given[-2:], 1e-5), values, upstream, dtype)


@quick
@given(tokens, widths, tables)
def test_embed_equals_its_definition_forward_and_backward(T: int, D: int, rows: list[int]) -> None:
    inputs = random_inputs(T, D, rows)
    assert_close(run_embedding(*inputs), run_embedding(*inputs, "float64"), 5e-5)


@needs_kernels
@quick
@given(tokens, widths, tables, st.sampled_from([0.1, 0.5]), st.integers(0, 99))
def test_the_dropout_mask_is_that_of_the_generator(T: int, D: int, rows: list[int], dropout: float, seed: int) -> None:
    ids, values, upstream = random_inputs(T, D, rows)
    numbers = [paddle.to_tensor(number) for number in ids]
    mask = seeded_mask(seed)(dropout, site=STANDALONE, rows=T, columns=D)

    def defined(*given: Tensor) -> Tensor:
        total = sum(F.embedding(number, table) for number, table in zip(numbers, given[:-2], strict=True))
        return F.layer_norm(total, [D], *given[-2:], 1e-5) * mask

    found = run(lambda *given: embed(ids, given[:-2], *given[-2:], 1e-5, dropout), values, upstream)
    assert_close(found, run(defined, values, upstream, "float64"), 5e-5)


def test_only_tokens_that_occur_get_a_gradient() -> None:
    ids, values, upstream = random_inputs(50, 16, [9])
    ids[0][:] = 4
    _, gradient, *_ = run_embedding(ids, values, upstream)
    assert gradient is not None
    assert np.flatnonzero(gradient.any(1)).tolist() == [4]


@pytest.mark.parametrize("frozen", [(0,), (1,), (2, 3), (0, 1)])
def test_frozen_inputs_get_no_gradient_and_others_are_unchanged(frozen: tuple[int, ...]) -> None:
    ids, values, upstream = random_inputs(9, 12, [5, 3])

    def kernel(*given: Tensor) -> Tensor:
        return embed(ids, given[:2], *given[2:], 1e-5)

    with_frozen, without = run(kernel, values, upstream, frozen=frozen), run(kernel, values, upstream)
    assert_only_frozen_lack_gradients(with_frozen, without, frozen)


def test_ids_can_be_int32() -> None:
    ids, values, upstream = random_inputs(9, 12, [50])
    assert np.array_equal(
        *(run_embedding([ids[0].astype(kind)], values, upstream)[0] for kind in ("int32", "int64"))  # type: ignore[arg-type]
    )


@needs_kernels
@pytest.mark.parametrize("bad_id", [-1, 5, 2**40])
def test_an_id_out_of_range_is_named(bad_id: int) -> None:
    ids, values, upstream = random_inputs(9, 12, [5])
    ids[0][3] = bad_id
    with pytest.raises(UserError, match=f"id {bad_id}: expected a number from 0 to 4"):
        run_embedding(ids, values, upstream)


def test_the_error_of_a_models_embedding_names_the_wrong_input() -> None:
    embedding = TextEmbedding(EncoderConfig.preset("tiny"))
    valid = np.zeros(1, np.int64)
    for place, name in enumerate(("input_ids:", "token_type_ids:", "position", "task_type_ids:")):
        given = [valid, valid, valid, valid]
        given[place] = np.array([10**6])
        with pytest.raises(UserError, match=f"{name} 1000000: expected a number from 0 to "):
            embedding(*given)
