"""Padded batches of texts, with the key names that other libraries use.

Legend: N texts, L tokens of the longest text, n tokens of one text.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ernie.errors import UserError, about, check_count, check_iterable
from ernie.text.frame import frame, truncated_lengths
from ernie.text.surrogates import require_encodable

if TYPE_CHECKING:
    from ernie.text.tokenizer import Tokenizer

_NO_CHARACTERS = np.zeros((1, 2), np.int64)  # the offsets of a special token


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
    if not isinstance(padding, bool):  # other libraries also take strings, such as "longest"
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
    check_iterable(texts, f"{name}s")
    checked = [texts] if isinstance(texts, str) else list(texts)
    if not checked:
        raise UserError(f"there is no {name} in the batch")
    for index, text in enumerate(checked):
        if not isinstance(text, str):
            raise UserError(f"{name} {index}: expected a text, found {text!r:.60}")
        with about(f"{name} {index}"):
            require_encodable(text)
    return checked


def _row(tokenizer: Tokenizer, text: str, pair: str | None, max_len: int | None) -> dict[str, np.ndarray]:
    """Return the arrays (n,) of one text or pair; `offset_mapping`, the last one, is (n, 2)."""
    first = tokenizer.encode(text, max_len)
    second = None if pair is None else tokenizer.encode(pair, max_len)
    keep_first, keep_second = truncated_lengths(len(first.ids), None if second is None else len(second.ids), max_len)
    ids, segments = frame(tokenizer, first.ids[:keep_first], None if second is None else second.ids[:keep_second])
    spans = [_NO_CHARACTERS, first.offsets[:keep_first], _NO_CHARACTERS]
    if second is not None:
        spans += [second.offsets[:keep_second], _NO_CHARACTERS]
    return {
        "input_ids": ids,
        "token_type_ids": segments,
        "attention_mask": np.ones_like(ids),
        "offset_mapping": np.concatenate(spans),
    }


def _pad(rows: Sequence[np.ndarray], fill: int) -> np.ndarray:
    """Stack rows of different lengths into one padded array, (N, L) or (N, L, 2)."""
    padded = np.full((len(rows), max(map(len, rows)), *rows[0].shape[1:]), fill, np.int64)
    for row, values in zip(padded, rows, strict=True):
        row[: len(values)] = values
    return padded
