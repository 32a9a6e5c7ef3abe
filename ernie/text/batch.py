"""Texts to a padded batch, under the names that other libraries use.

Legend: N texts, L the longest in tokens, n tokens of one.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ernie.errors import UserError, about, check_count, check_several
from ernie.text.frame import frame, kept
from ernie.text.whole import whole

if TYPE_CHECKING:
    from ernie.text.tokenizer import Tokenizer

_NO_CHARACTERS = np.zeros((1, 2), np.int64)  # what a special token stands for


def make_batch(
    tokenizer: Tokenizer,
    texts: Iterable[str],
    text_pairs: Iterable[str] | None,
    max_len: int | None,
    padding: bool,
    offsets: bool,
) -> dict[str, Any]:
    """See `Tokenizer.__call__`."""
    if max_len is not None:
        check_count("max_len", max_len, 3)
    if not isinstance(padding, bool):  # other libraries have words for it
        raise UserError(f"padding: expected True, to the longest of the batch, or False, found {padding!r:.60}")
    firsts = _checked(texts, "text")
    seconds = [None] * len(firsts) if text_pairs is None else _checked(text_pairs, "text pair")
    if len(firsts) != len(seconds):
        raise UserError(f"expected as many text_pairs as texts, found {len(seconds)} and {len(firsts)}")
    rows = [_row(tokenizer, first, second, max_len) for first, second in zip(firsts, seconds, strict=True)]
    names = list(rows[0]) if offsets else list(rows[0])[:-1]
    columns = {name: [row[name] for row in rows] for name in names}
    if not padding:
        return dict(columns)
    return {name: _pad(column, tokenizer.pad_id if name == "input_ids" else 0) for name, column in columns.items()}


def _checked(texts: Iterable[str], name: str) -> list[Any]:
    check_several(texts, f"{name}s")
    found = [texts] if isinstance(texts, str) else list(texts)
    if not found:
        raise UserError(f"there is no {name} in the batch")
    for index, text in enumerate(found):
        if not isinstance(text, str):
            raise UserError(f"{name} {index}: expected a text, found {text!r:.60}")
        with about(f"{name} {index}"):
            whole(text)
    return found


def _row(tokenizer: Tokenizer, first: str, second: str | None, max_len: int | None) -> dict[str, np.ndarray]:
    """The arrays (n,) of one text or pair; the last one is (n, 2)."""
    one, two = tokenizer.encode(first), None if second is None else tokenizer.encode(second)
    keep_one, keep_two = kept(len(one.ids), None if two is None else len(two.ids), max_len)
    ids, segments = frame(tokenizer, one.ids[:keep_one], None if two is None else two.ids[:keep_two])
    spans = [_NO_CHARACTERS, one.offsets[:keep_one], _NO_CHARACTERS]
    if two is not None:
        spans += [two.offsets[:keep_two], _NO_CHARACTERS]
    return {
        "input_ids": ids,
        "token_type_ids": segments,
        "attention_mask": np.ones_like(ids),
        "offset_mapping": np.concatenate(spans),
    }


def _pad(rows: Sequence[np.ndarray], fill: int) -> np.ndarray:
    """Rows of several lengths in one array, (N, L) or (N, L, 2)."""
    padded = np.full((len(rows), max(map(len, rows)), *rows[0].shape[1:]), fill, np.int64)
    for row, values in zip(padded, rows, strict=True):
        row[: len(values)] = values
    return padded
