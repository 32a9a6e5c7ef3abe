"""Results do not depend on company: an input has the same bits alone, in any batch, order and split, in each precision.

Runs over the operations of every registered kind, and over those of an encoder.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.kernels.judging import needs_bf16, needs_kernels
from support.served import predictor
from support.toys import TOYS, tiny_encoder

import tasks.downstream
from ernie.model.heads import MaskedTokenHead
from ernie.model.inference import for_inference
from ernie.model.initialization import initialize
from ernie.model.sentence import POOLINGS, SentenceConfig, SentenceLayer
from ernie.outcome import Outcome
from inference.encoder import LoadedEncoder, TextEncoder
from inference.operation import Operation, Prepared
from tasks.downstream.base import finetune_tasks

assert tasks.downstream
pytestmark = needs_kernels  # without them, Paddle chooses how to sum by the number of rows
KINDS = [name for name in finetune_tasks if finetune_tasks[name].face == "predict" and name in TOYS]
PRECISIONS = ["fp32", pytest.param("bf16", marks=needs_bf16), "int8"]
TEXTS = ["a", "blue", "it was a very blue film", "the red " * 9, "", "great film . poor film ?", "q0 q1 who new"]
MASKED = ["a [MASK] film", "[MASK]", "it was [MASK] and [MASK]", "the very red " * 5 + "[MASK]", "[MASK] a"]


@pytest.fixture(autouse=True, scope="module")
def unrounded() -> Iterator[None]:
    """Numbers of answers as they are: rounding would hide the last bits."""
    with pytest.MonkeyPatch.context() as patch:
        for name, module in sys.modules.items():
            if name.startswith("tasks.downstream.") and hasattr(module, "rounded"):
                patch.setattr(module, "rounded", float)
        yield


def bits(outcome: Outcome[Any]) -> Any:
    """An outcome in a form of which equality is that of all bits."""
    value = outcome.get()
    return value.tobytes() if isinstance(value, np.ndarray) else repr(value)


def check_company(operation: Operation, inputs: Sequence[Prepared], data: st.DataObject) -> None:
    """Compute a random selection in random splits, and compare with each alone."""
    chosen = data.draw(st.lists(st.integers(0, len(inputs) - 1), min_size=1, max_size=24))
    size = data.draw(st.integers(1, len(chosen)))
    alone = {i: bits(operation.compute([inputs[i]])[0]) for i in set(chosen)}
    for start in range(0, len(chosen), size):
        part = chosen[start : start + size]
        for i, outcome in zip(part, operation.compute([inputs[i] for i in part]), strict=True):
            assert bits(outcome) == alone[i], f"input {i} in the company of {part}"


def encoder(config: SentenceConfig | None = None) -> LoadedEncoder:
    """An encoder that fills masks and makes vectors."""
    ernie = tiny_encoder()
    ernie.masked_head = MaskedTokenHead(ernie)
    initialize(ernie.masked_head, 0.1)
    ernie.sentence_config = config
    for_inference(ernie)
    return LoadedEncoder(ernie, "fp32")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("precision", PRECISIONS)
def test_an_answer_to_a_row_has_the_same_bits_in_any_company(kind: str, precision: Any) -> None:
    face = predictor(kind)
    face.model.precision = precision
    operation = face.operations["predict"]
    rows = [
        {column: cell for column, cell in row.items() if column != TOYS[kind].answer_column}
        for row in TOYS[kind].rows(12)
    ]
    more = [{name: True} for name in ("all_labels", "raw_scores") if name in operation.settings]
    inputs = [operation.prepare(row, **chosen) for row in rows for chosen in ({}, *more)]

    @settings(max_examples=8)
    @given(st.data())
    def check(data: st.DataObject) -> None:
        check_company(operation, inputs, data)

    try:
        check()
    finally:
        face.model.precision = "fp32"


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("pooling", [*POOLINGS, ["cls", "max", "mean"]], ids=str)
def test_a_vector_has_the_same_bits_in_any_company(pooling: Any, precision: Any) -> None:
    operation = TextEncoder(replace(encoder(), precision=precision)).operations["encode"]
    inputs = [
        operation.prepare(text, pooling=pooling, normalize=normalize) for text in TEXTS for normalize in (False, True)
    ]
    inputs += [operation.prepare(["a blue", "film"], pooling=pooling), operation.prepare([7, 8, 9], pooling=pooling)]

    @settings(max_examples=8)
    @given(st.data())
    def check(data: st.DataObject) -> None:
        check_company(operation, inputs, data)

    check()


@pytest.mark.parametrize("precision", PRECISIONS)
def test_vectors_of_tokens_have_the_same_bits_in_any_company(precision: Any) -> None:
    operation = TextEncoder(replace(encoder(), precision=precision)).operations["encode_tokens"]
    inputs = [operation.prepare(text, max_len=max_len) for text in TEXTS for max_len in (None, 5)]
    inputs += [operation.prepare(["a blue", "film"]), operation.prepare([7, 8, 9], prompt="the")]

    @settings(max_examples=8)
    @given(st.data())
    def check(data: st.DataObject) -> None:
        check_company(operation, inputs, data)

    check()


def test_layers_on_vectors_keep_them_independent_of_company() -> None:
    rng = np.random.default_rng(0)
    dense = {"linear.weight": rng.normal(0, 0.3, (48, 32)), "linear.bias": rng.normal(0, 0.3, 48)}
    norm = {"norm.weight": rng.normal(1, 0.1, 48), "norm.bias": rng.normal(0, 0.3, 48)}
    layers = [
        SentenceLayer("Dense", {}, {name: values.astype(np.float32) for name, values in dense.items()}),
        SentenceLayer("LayerNorm", {}, {name: values.astype(np.float32) for name, values in norm.items()}),
        SentenceLayer("Normalize"),
    ]
    operation = TextEncoder(encoder(config=SentenceConfig(layers=tuple(layers)))).operations["encode"]
    inputs = [operation.prepare(text) for text in TEXTS]

    @settings(max_examples=20)
    @given(st.data())
    def check(data: st.DataObject) -> None:
        check_company(operation, inputs, data)

    check()


@pytest.mark.parametrize("precision", PRECISIONS)
def test_a_filled_mask_has_the_same_bits_in_any_company(precision: Any) -> None:
    operation = TextEncoder(replace(encoder(), precision=precision)).operations["fill_mask"]
    inputs = [operation.prepare(text, top=top) for text in MASKED for top in (1, 4)]

    @settings(max_examples=20)
    @given(st.data())
    def check(data: st.DataObject) -> None:
        check_company(operation, inputs, data)

    check()
