"""Text embeddings: one vector for each text.  Legend: T packed tokens, N sequences, D width."""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from typing import TYPE_CHECKING, Literal, get_args

import numpy as np
import paddle
from paddle import Tensor

from ernie.data.batch import Layout, pack, plan_by_length
from ernie.data.document import Sample
from ernie.errors import Remark, UserError, about, check_count, check_iterable
from ernie.kernels.precision import to_numpy
from ernie.model.inference import evaluating, tokenizer_of
from ernie.text.frame import frame, truncated_lengths
from ernie.text.surrogates import require_encodable
from ernie.text.tokenizer import Tokenizer

if TYPE_CHECKING:
    from ernie.model.ernie import ErnieModel

Pooling = Literal["mean", "cls", "pooler"]
Text = str | tuple[str, str]


def encode(
    model: ErnieModel, texts: Iterable[Text], pooling: Pooling, max_len: int | None, batch_tokens: int, normalize: bool
) -> np.ndarray:
    """See `ErnieModel.encode`."""
    if pooling not in get_args(Pooling):
        raise UserError(f"pooling: expected one of {', '.join(get_args(Pooling))}, found '{pooling}'")
    check_count("batch_tokens", batch_tokens, 1)
    samples = _samples(tokenizer_of(model), texts, _max_length(model.config.max_positions, max_len))
    vectors_ND = np.empty((len(samples), model.config.hidden_size), np.float32)
    with evaluating(model):
        for indices in plan_by_length([len(sample) for sample in samples], batch_tokens):
            batch = pack([samples[i] for i in indices])
            pooled = _pool(model, model.encode_packed(batch), batch.layout, pooling)
            vectors_ND[indices] = to_numpy(pooled)
    if normalize:
        vectors_ND /= np.maximum(np.linalg.norm(vectors_ND, axis=1, keepdims=True), 1e-12)
    return vectors_ND


def _pool(model: ErnieModel, hidden_TD: Tensor, layout: Layout, pooling: Pooling) -> Tensor:
    if pooling == "pooler":
        return model.pooler(hidden_TD, layout)
    if pooling == "cls":
        return paddle.gather(hidden_TD, paddle.to_tensor(layout.starts))
    sequence_T = np.repeat(np.arange(layout.sequences), layout.lengths)
    return paddle.geometric.segment_mean(hidden_TD, paddle.to_tensor(sequence_T))


def _max_length(positions: int, max_len: int | None) -> int:
    if max_len is None:
        return positions
    check_count("max_len", max_len, 3)
    if max_len > positions:
        raise UserError(f"max_len: expected at most the model's {positions} positions, found {max_len}")
    return max_len


def _samples(tokenizer: Tokenizer, texts: Iterable[Text], max_len: int) -> list[Sample]:
    check_iterable(texts, "texts")
    samples, cut = [], 0
    for index, text in enumerate([texts] if isinstance(texts, str) else texts):
        first, second = _token_ids(tokenizer, text, index)
        first_length, second_length = truncated_lengths(len(first), None if second is None else len(second), max_len)
        cut += first_length < len(first) or (second is not None and second_length < len(second))
        second = None if second is None else second[:second_length]
        samples.append(Sample(*frame(tokenizer, first[:first_length], second)))
    if cut:
        message = f"encode: {cut} of {len(samples)} texts have more than {max_len} tokens; their ends were cut off"
        warnings.warn(message, Remark, stacklevel=4)  # points at the caller of ErnieModel.encode
    return samples


def _token_ids(tokenizer: Tokenizer, text: Text, index: int) -> tuple[np.ndarray, np.ndarray | None]:
    with about(f"text {index}"):
        if isinstance(text, str):
            return tokenizer.encode(require_encodable(text)).ids, None
        if isinstance(text, (tuple, list)) and len(text) == 2 and all(isinstance(side, str) for side in text):
            return tokenizer.encode(require_encodable(text[0])).ids, tokenizer.encode(require_encodable(text[1])).ids
    raise UserError(f"text {index}: expected a text or a pair of texts, found {text!r:.60}")
