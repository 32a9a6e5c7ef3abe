"""Special tokens around one text or two: the form in which BERT and ERNIE read them.

Legend: n tokens of the result.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from ernie.text.tokenizer import Tokenizer


def frame(tokenizer: Tokenizer, first: np.ndarray, second: np.ndarray | None = None) -> tuple[np.ndarray, np.ndarray]:
    """[CLS] first [SEP], or [CLS] first [SEP] second [SEP]: ids (n,) and segments (n,)."""
    cls, sep = [tokenizer.cls_id], [tokenizer.sep_id]
    ids = np.concatenate((cls, first, sep) if second is None else (cls, first, sep, second, sep)).astype(np.int64)
    segments = np.zeros(len(ids), np.int64)
    segments[len(first) + 2 :] = 1
    return ids, segments


def kept(first: int, second: int | None, max_len: int | None) -> tuple[int, int]:
    """How many tokens of each text stay if the frame may have `max_len`, or any number for None.

    Texts are cut at their ends, of two the longer one first.  `second` is None for one text alone.
    """
    if max_len is None:
        return first, second or 0
    if second is None:
        return min(first, max_len - 2), 0
    room = max_len - 3
    if first + second <= room:
        return first, second
    keep_first = max(room - second, min(first, room // 2))
    return keep_first, room - keep_first
