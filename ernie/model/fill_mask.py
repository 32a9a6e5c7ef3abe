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
    check_masked_head(model)
    check_count("top", top, 1)
    outcomes: list[Outcome[list[list[Filled]]]] = [Outcome()] * len(texts)
    prepared: dict[int, MaskedText] = {}
    for row, text in enumerate(texts):
        try:
            prepared[row] = masked_text(model, text)
        except UserError as error:
            error.row = row
            outcomes[row] = Outcome(error=error)
    found = fill_masked(model, [*prepared.values()], [top] * len(prepared), [*prepared])
    for row, outcome in zip(prepared, found, strict=True):
        outcomes[row] = outcome
    return outcomes


class MaskedText(NamedTuple):
    """A text with masks: its parts, of which those at odd indices are the masks, and its sample."""

    parts: list[str]
    sample: Sample


def check_masked_head(model: BaseEncoder) -> None:
    """Raise UserError for a model that cannot fill masks."""
    tokenizer_of(model)
    if model.masked_head is None:
        raise UserError(
            "this model has no head that predicts masked tokens. A run of 'ernie pretrain' with knowledge masking "
            "has one, and so have published checkpoints that were saved with theirs."
        )


def masked_text(model: BaseEncoder, text: str) -> MaskedText:
    """Return a text ready for `fill_masked`.  Raises UserError for one without a mask, or that is too long."""
    tokenizer = tokenizer_of(model)
    if not isinstance(text, str):
        raise UserError(f"expected a text, found {text!r:.60}")
    with about("the text"):
        require_encodable(text)
    parts = _parts(tokenizer, text)
    return MaskedText(parts, _sample(tokenizer, parts, model.config.max_positions))


def fill_masked(
    model: BaseEncoder, texts: Sequence[MaskedText], tops: Sequence[int], rows: Sequence[int] | None = None
) -> list[Outcome[list[list[Filled]]]]:
    """Return the outcome of each text, computed as one batch, with so many candidates for each mask."""
    tokenizer, head = tokenizer_of(model), model.masked_head
    assert head is not None
    if not texts:
        return []
    batch = pack([text.sample for text in texts])
    with evaluating(model):
        hidden_TD = model.encode_packed(batch, head.task_id)
        logits_PV = head(hidden_TD, np.flatnonzero(batch.ids == tokenizer.mask_id))
        probabilities_PV = to_numpy(F.softmax(logits_PV))
    outcomes, first = [], 0
    for (parts, _), top, row in zip(texts, tops, range(len(texts)) if rows is None else rows, strict=True):
        own_PV = probabilities_PV[first : first + len(parts) // 2]
        first += len(own_PV)
        outcomes.append(_outcome(tokenizer, parts, own_PV, top, row))
    return outcomes


def _outcome(
    tokenizer: Tokenizer, parts: Sequence[str], probabilities_PV: np.ndarray, top: int, row: int
) -> Outcome[list[list[Filled]]]:
    if not np.isfinite(probabilities_PV).all():
        return Outcome(error=NotFinite(NOT_FINITE, row=row))
    return Outcome([_candidates(tokenizer, parts, 2 * i + 1, row_V, top) for i, row_V in enumerate(probabilities_PV)])


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
