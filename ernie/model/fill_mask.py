"""Masked token prediction for texts.  Legend: T packed tokens, D width, P masks, V vocabulary."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import paddle.nn.functional as F

from ernie.data.batch import pack
from ernie.data.document import Sample
from ernie.errors import NotFinite, UserError, about, check_count
from ernie.kernels.precision import to_numpy
from ernie.model.base_encoder import BaseEncoder
from ernie.model.inference import NOT_FINITE, evaluating, tokenizer_of
from ernie.outcome import Outcome
from ernie.text.frame import frame
from ernie.text.subword import SPACE
from ernie.text.surrogates import require_encodable
from ernie.text.tokenizer import Tokenizer


class Filled(NamedTuple):
    """A prediction for a mask: the vocabulary entry, its probability, and the text with the mask replaced by it."""

    token: str
    probability: float
    text: str


def fill_mask(model: BaseEncoder, text: str, top: int) -> list[list[Filled]]:
    """See `ErnieModel.fill_mask`."""
    (outcome,) = fill_masks(model, [text], top)
    return outcome.get()


def fill_masks(model: BaseEncoder, texts: Sequence[str], top: int = 5) -> list[Outcome[list[list[Filled]]]]:
    """Return the outcome of each text, computed as one batch: what `ErnieModel.fill_mask` returns, or its error."""
    tokenizer, head = tokenizer_of(model), model.masked_head
    if head is None:
        raise UserError(
            "this model has no head that predicts masked tokens. A run of 'ernie pretrain' with knowledge masking "
            "has one, and so have published checkpoints that were saved with theirs."
        )
    check_count("top", top, 1)
    outcomes: list[Outcome[list[list[Filled]]]] = [Outcome()] * len(texts)
    prepared: dict[int, tuple[list[str], Sample]] = {}
    for row, text in enumerate(texts):
        try:
            prepared[row] = _prepared(tokenizer, text, model.config.max_positions)
        except UserError as error:
            error.row = row
            outcomes[row] = Outcome(error=error)
    if not prepared:
        return outcomes
    batch = pack([sample for _, sample in prepared.values()])
    with evaluating(model):
        hidden_TD = model.encode_packed(batch, head.task_id)
        logits_PV = head(hidden_TD, np.flatnonzero(batch.ids == tokenizer.mask_id))
        probabilities_PV = to_numpy(F.softmax(logits_PV))
    first = 0
    for row, (parts, _) in prepared.items():
        own_PV = probabilities_PV[first : first + len(parts) // 2]
        first += len(own_PV)
        outcomes[row] = _outcome(tokenizer, parts, own_PV, top, row)
    return outcomes


def _outcome(
    tokenizer: Tokenizer, parts: Sequence[str], probabilities_PV: np.ndarray, top: int, row: int
) -> Outcome[list[list[Filled]]]:
    if not np.isfinite(probabilities_PV).all():
        return Outcome(error=NotFinite(NOT_FINITE, row=row))
    return Outcome([_candidates(tokenizer, parts, 2 * i + 1, row_V, top) for i, row_V in enumerate(probabilities_PV)])


def _prepared(tokenizer: Tokenizer, text: str, positions: int) -> tuple[list[str], Sample]:
    """Return the parts of a text (see `_parts`) and its sample.  Raises UserError for a text without a mask."""
    if not isinstance(text, str):
        raise UserError(f"expected a text, found {text!r:.60}")
    with about("the text"):
        require_encodable(text)
    parts = _parts(tokenizer, text)
    return parts, _sample(tokenizer, parts, positions)


def _parts(tokenizer: Tokenizer, text: str) -> list[str]:
    """Split the text at its masks, which are the parts 1, 3, 5, ..."""
    mask = tokenizer.tokens[tokenizer.mask_id]
    parts = re.split(f"({re.escape(mask)}|{re.escape('[MASK]')})", text)
    if len(parts) == 1:
        raise UserError(f"the text has no {mask} to fill: {text!r:.60}")
    return parts


def _sample(tokenizer: Tokenizer, parts: Sequence[str], positions: int) -> Sample:
    pieces = [[tokenizer.mask_id] if i % 2 else tokenizer.encode(part).ids for i, part in enumerate(parts)]
    sample = Sample(*frame(tokenizer, np.concatenate(pieces)))
    if len(sample) > positions:
        raise UserError(f"the text has {len(sample)} tokens, this model has {positions} positions; shorten it")
    return sample


def _candidates(
    tokenizer: Tokenizer, parts: Sequence[str], mask_index: int, probabilities_V: np.ndarray, top: int
) -> list[Filled]:
    """Return the most probable tokens for the mask at index `mask_index` of the parts, special tokens excluded."""
    before, after = "".join(parts[:mask_index]), "".join(parts[mask_index + 1 :])
    ordinary = tokenizer.ordinary_ids
    best = ordinary[np.argsort(-probabilities_V[ordinary], kind="stable")[:top]]
    candidates = [(tokenizer.tokens[i], float(probabilities_V[i])) for i in best]
    return [Filled(token, probability, _fill(before, token, after)) for token, probability in candidates]


def _fill(before: str, token: str, after: str) -> str:
    if token.startswith("##"):  # WordPiece's mark of a piece that continues a word
        return before.rstrip() + token[2:] + after
    return before + token.lstrip(SPACE) + after
