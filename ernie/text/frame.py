"""Special tokens around one text or a pair: the input format of BERT and ERNIE.

Legend: n tokens of the result.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np


class SpecialTokens(Protocol):
    """The ids of the tokens around texts, as a tokenizer has them."""

    cls_id: int
    sep_id: int


def frame(
    tokenizer: SpecialTokens, first: np.ndarray, second: np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Return [CLS] first [SEP], or [CLS] first [SEP] second [SEP], as ids (n,) and segments (n,)."""
    end = 1 + len(first)
    ids = np.empty(end + 1 if second is None else end + len(second) + 2, np.int64)
    segments = np.zeros(len(ids), np.int64)
    ids[0], ids[1:end], ids[end] = tokenizer.cls_id, first, tokenizer.sep_id
    if second is not None:
        ids[end + 1 : -1], ids[-1] = second, tokenizer.sep_id
        segments[end + 1 :] = 1
    return ids, segments


def truncated_lengths(first: int, second: int | None, max_len: int | None) -> tuple[int, int]:
    """Return how many tokens of each text fit into `max_len` tokens including special ones; None means no limit.

    Texts are truncated at the end, in a pair the longer one first.  `second` is None for a single text.
    """
    if max_len is None:
        return first, second or 0
    if second is None:
        return min(first, max_len - 2), 0
    budget = max_len - 3
    if first + second <= budget:
        return first, second
    keep_first = max(budget - second, min(first, (budget + 1) // 2))
    return keep_first, budget - keep_first
