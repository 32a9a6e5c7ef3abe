"""The sum of embeddings, normalized, against its definition in 64 bits."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import paddle
import paddle.nn.functional as F
import pytest
from hypothesis import given
from hypothesis import strategies as st
from judging import Found, assert_close, assert_only_the_frozen_are_left_out, needs_kernels, normal, quick, run
from paddle import Tensor
from philox import ALONE, seeded

from ernie.errors import UserError
from ernie.kernels.embedding import embed
from ernie.model.config import EncoderConfig
from ernie.model.embeddings import TextEmbedding

tables = st.lists(st.integers(1, 40), min_size=1, max_size=4)
tokens, widths = st.integers(1, 150), st.one_of(st.integers(9, 20), st.integers(9, 200))


def drawn(T: int, D: int, rows: Sequence[int]) -> tuple[list[np.ndarray], list[np.ndarray], np.ndarray]:
    """Ids, then tables, gain and offset, and an upstream gradient."""
    *values, gain, offset, upstream = normal(*[(r, D) for r in rows], (D,), (D,), (T, D), seed=(T, D, *rows))
    rng = np.random.default_rng(T)
    return [rng.integers(0, r, T) for r in rows], [*values, 1 + gain / 2, offset], upstream


def embedded(ids: list[np.ndarray], values: list[np.ndarray], upstream: np.ndarray, dtype: str = "float32") -> Found:
    return run(lambda *given: embed(ids, given[:-2], *given[-2:], 1e-5), values, upstream, dtype)


@quick
@given(tokens, widths, tables)
def test_embed_equals_its_definition_forward_and_backward(T: int, D: int, rows: list[int]) -> None:
    of = drawn(T, D, rows)
    assert_close(embedded(*of), embedded(*of, "float64"), 5e-5)


@needs_kernels
@quick
@given(tokens, widths, tables, st.sampled_from([0.1, 0.5]), st.integers(0, 99))
def test_with_dropout_the_mask_is_the_generators(T: int, D: int, rows: list[int], dropout: float, seed: int) -> None:
    ids, values, upstream = drawn(T, D, rows)
    numbers = [paddle.to_tensor(number) for number in ids]
    mask = seeded(seed)(dropout, site=ALONE, rows=T, columns=D)

    def defined(*given: Tensor) -> Tensor:
        total = sum(F.embedding(number, table) for number, table in zip(numbers, given[:-2], strict=True))
        return F.layer_norm(total, [D], *given[-2:], 1e-5) * mask

    found = run(lambda *given: embed(ids, given[:-2], *given[-2:], 1e-5, dropout), values, upstream)
    assert_close(found, run(defined, values, upstream, "float64"), 5e-5)


def test_every_occurrence_of_a_token_adds_to_its_gradient_and_others_get_none() -> None:
    ids, values, upstream = drawn(50, 16, [9])
    ids[0][:] = 4
    _, gradient, *_ = embedded(ids, values, upstream)
    assert gradient is not None
    assert np.flatnonzero(gradient.any(1)).tolist() == [4]


@pytest.mark.parametrize("frozen", [(0,), (1,), (2, 3), (0, 1)])
def test_what_is_frozen_gets_no_gradient_and_the_rest_the_same(frozen: tuple[int, ...]) -> None:
    ids, values, upstream = drawn(9, 12, [5, 3])

    def kernel(*given: Tensor) -> Tensor:
        return embed(ids, given[:2], *given[2:], 1e-5)

    some, every = run(kernel, values, upstream, frozen=frozen), run(kernel, values, upstream)
    assert_only_the_frozen_are_left_out(some, every, frozen)


def test_ids_may_be_of_32_bits() -> None:
    ids, values, upstream = drawn(9, 12, [50])
    assert np.array_equal(
        *(embedded([ids[0].astype(kind)], values, upstream)[0] for kind in ("int32", "int64"))  # type: ignore[arg-type]
    )


@needs_kernels
@pytest.mark.parametrize("odd", [-1, 5, 2**40])
def test_an_id_that_the_table_has_no_row_for_is_named(odd: int) -> None:
    ids, values, upstream = drawn(9, 12, [5])
    ids[0][3] = odd
    with pytest.raises(UserError, match=f"id {odd}: expected a number from 0 to 4"):
        embedded(ids, values, upstream)


def test_a_models_embedding_says_which_of_its_ids_is_wrong() -> None:
    embedding = TextEmbedding(EncoderConfig.preset("tiny"))
    one = np.zeros(1, np.int64)
    for place, name in enumerate(("input_ids:", "token_type_ids:", "position", "task_type_ids:")):
        given = [one, one, one, one]
        given[place] = np.array([10**6])
        with pytest.raises(UserError, match=f"{name} 1000000: expected a number from 0 to "):
            embedding(*given)
