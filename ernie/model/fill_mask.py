"""Words for masks.  Legend: T packed tokens, D width, P masks, V vocabulary."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import paddle.nn.functional as F

from ernie.data.batch import pack
from ernie.data.document import Sample
from ernie.errors import UserError, about, check_count
from ernie.kernels.precision import to_numpy
from ernie.model.inference import evaluating, tokenizer_of
from ernie.text.frame import frame
from ernie.text.subword import SPACE
from ernie.text.tokenizer import Tokenizer
from ernie.text.whole import whole

if TYPE_CHECKING:
    from ernie.model.ernie import ErnieModel


class Filled(NamedTuple):
    """A word for a mask: the vocabulary's entry, its probability, and the text with it in the mask's place."""

    token: str
    probability: float
    text: str


def fill_mask(model: ErnieModel, text: str, top: int) -> list[list[Filled]]:
    """See `ErnieModel.fill_mask`."""
    tokenizer, head = tokenizer_of(model), model.masked_head
    if head is None:
        raise UserError(
            "this model has no head that predicts masked tokens. A run of 'ernie pretrain' with knowledge masking "
            "has one, and so have published checkpoints that were saved with theirs."
        )
    if not isinstance(text, str):
        raise UserError(f"expected a text, found {text!r:.60}")
    check_count("top", top, 1)
    with about("the text"):
        whole(text)
    parts = _parts(tokenizer, text)
    sample = _sample(tokenizer, parts, model.config.max_positions)
    with evaluating(model):
        hidden_TD = model.encode_packed(pack([sample]), head.task_id)
        logits_PV = head(hidden_TD, np.flatnonzero(sample.ids == tokenizer.mask_id))
        chances_PV = to_numpy(F.softmax(logits_PV))
    return [_best(tokenizer, parts, 2 * i + 1, chances_V, top) for i, chances_V in enumerate(chances_PV)]


def _parts(tokenizer: Tokenizer, text: str) -> list[str]:
    """The text cut at its masks, which are the parts 1, 3, 5, ..."""
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


def _best(tokenizer: Tokenizer, parts: Sequence[str], place: int, chances_V: np.ndarray, top: int) -> list[Filled]:
    """The likeliest ordinary tokens for the mask that is part number `place`."""
    before, after = "".join(parts[:place]), "".join(parts[place + 1 :])
    ordinary = tokenizer.ordinary_ids
    best = ordinary[np.argsort(-chances_V[ordinary], kind="stable")[:top]]
    found = [(tokenizer.tokens[i], float(chances_V[i])) for i in best]
    return [Filled(token, chance, _filled(before, token, after)) for token, chance in found]


def _filled(before: str, token: str, after: str) -> str:
    if token.startswith("##"):  # WordPiece's mark of a piece that goes on with the word before it
        return before.rstrip() + token[2:] + after
    return before + token.lstrip(SPACE) + after
