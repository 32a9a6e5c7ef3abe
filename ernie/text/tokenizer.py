"""The interface of all tokenizers, whichever algorithm is underneath.

A tokenizer first splits a text into *units*: pieces of text that tokenize independently of each other (a word, a
punctuation mark, one Chinese character).  `encode(text)` equals the concatenated pieces of its units.  The corpus
builder relies on that: a small set of units makes up most of any corpus, so it tokenizes each distinct unit once.
"""

from __future__ import annotations

import hashlib
import json
import re
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import chain
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from ernie.atomic import make_folder
from ernie.errors import UserError, about, check_count, check_iterable
from ernie.text.frame import frame, truncated_lengths
from ernie.text.surrogates import is_encodable, require_encodable

_LONG = 100_000  # characters; longer texts are encoded in parts of about this size
_FAR = 20_000  # characters after which no further break is waited for, where only the first tokens are needed
_SHORT = 3000  # characters of a text that is read unit by unit, since no thread runs meanwhile
_LONGEST_UNIT = 100  # characters of a unit that is kept
_KEPT_UNITS = 1 << 15
_NO_CHARACTERS = np.zeros((1, 2), np.int64)  # the offsets of a special token
SETTINGS_FILE = "tokenizer_config.json"  # this name and the key `do_lower_case` match published checkpoints


@dataclass(frozen=True)
class Encoding:
    """Token ids (n,) of a text and the character span [start, end) of each: offsets (n, 2)."""

    ids: np.ndarray
    offsets: np.ndarray


class Tokenizer(ABC):
    """Converts text to token ids and back.  `encode` adds no special tokens; their ids are attributes."""

    kind: ClassVar[str]
    lowercase: bool
    pad_id: int
    unk_id: int
    cls_id: int
    sep_id: int
    mask_id: int

    @property
    @abstractmethod
    def tokens(self) -> list[str]:
        """The vocabulary, in id order."""

    @abstractmethod
    def split(self, text: str) -> list[str]:
        """Split `text` into units.  Units of a subword model may carry its word marker; see `surface`."""

    @abstractmethod
    def pieces(self, unit: str) -> list[int]:
        """Return the token ids of one unit; empty for a unit that the normalizer removes."""

    def settled_pieces(self, unit: str) -> list[int]:
        """Return the first token ids of a unit that is still growing: those that no continuation can change.

        They are final even if the unit becomes longer, which is what a stream needs; the default knows of none.
        """
        return []

    def encode(self, text: str, most: int | None = None) -> Encoding:
        """Return the token ids of `text` with character offsets, which stay correct around unknown tokens.

        `most` says that the tokens after so many are not needed: those of a long text are left out then, and of a long
        stretch without a break, such as a word of a million letters, all but the beginning.  Raises UserError for
        anything but a string, and for a string with a lone surrogate.
        """
        if not isinstance(text, str) or len(text) <= _LONG or (self.breaks is None and most is None):
            return self.encode_whole(text)
        # The libraries underneath take some hundred bytes for each character of what they encode at once.
        parts, start, count = [], 0, 0
        while start < len(text) and (most is None or count < most):
            found = self.breaks.search(text, start + _LONG) if self.breaks else None
            stop = found.start() if found else len(text)
            end = stop if most is None else min(stop, start + _LONG + _FAR)
            part = self.encode_whole(text[start:end])
            parts.append(Encoding(part.ids, part.offsets + start))
            start, count = stop, count + len(part.ids)
        return Encoding(np.concatenate([part.ids for part in parts]), np.concatenate([part.offsets for part in parts]))

    def ids(self, text: str, most: int | None = None) -> np.ndarray:
        """Return the token ids (n,) alone that `encode` finds, which takes less time for a short text."""
        if isinstance(text, str) and len(text) <= _SHORT and is_encodable(text):
            units = self.split(text)
            if max(map(len, units), default=0) <= _LONGEST_UNIT:
                return np.array([*chain.from_iterable(map(self._kept_pieces, units))], np.int64)
        return self.encode(text, most).ids

    @cached_property
    def _kept_pieces(self) -> Callable[[str], Sequence[int]]:
        """What `pieces` returns, kept for the units that were met lately."""
        tokenizer = weakref.ref(self)  # only a garbage collection would free a cache that refers to its owner

        def found(unit: str) -> Sequence[int]:
            owner = tokenizer()
            assert owner is not None
            return tuple(owner.pieces(unit))

        return lru_cache(_KEPT_UNITS)(found)

    @abstractmethod
    def encode_whole(self, text: str) -> Encoding:
        """Implement `encode` for a text, or for a part of a long one that begins or ends at one of the `breaks`."""

    @property
    def breaks(self) -> re.Pattern[str] | None:
        """Where a text can be cut into parts that are encoded as within the text; None if that is nowhere certain."""
        return None

    @abstractmethod
    def readable(self, ids: list[int]) -> str:
        """Implement `decode` for ids already checked to be in the vocabulary."""

    def decode(self, ids: Sequence[int]) -> str:
        """Return readable text for the token ids (n,) of one text; meant for people, not an exact inverse of `encode`.

        Raises UserError for a batch and for ids outside the vocabulary.
        """
        try:
            array = np.asarray(ids)
        except ValueError:  # a ragged list of lists
            array = np.empty((0, 0))
        if array.ndim != 1 or not (np.issubdtype(array.dtype, np.integer) or array.size == 0):
            raise UserError(f"decode: expected whole numbers, the token ids of one text, found {ids!r:.40}")
        outside = array[(array < 0) | (array >= self.vocab_size)]
        if len(outside):
            size = f"the vocabulary has {self.vocab_size:,} tokens, numbered from 0"
            raise UserError(f"decode: {outside[0]} is no token id: {size}")
        return self.readable(array.tolist())

    @abstractmethod
    def write_files(self, folder: Path) -> None:
        """Write the tokenizer's own files into an existing folder."""

    def __call__(
        self,
        texts: Iterable[str],
        text_pairs: Iterable[str] | None = None,
        *,
        max_len: int | None = None,
        padding: bool = True,
        offsets: bool = False,
    ) -> dict[str, Any]:
        """Build a batch for `ErnieModel`: int64 arrays (N, L) `input_ids`, `token_type_ids` and `attention_mask`.

        Adds special tokens around each text or pair of texts; a single string is a batch of one.  `max_len` truncates
        at the end, in a pair the longer text first.  `offsets` adds `offset_mapping` (N, L, 2): the character span
        [start, end) of each token in its text.  Without `padding` each entry is a list of arrays instead.  Raises
        UserError for an empty batch, for anything but strings, and if there are not as many `text_pairs` as `texts`.
        """
        return _make_batch(self, texts, text_pairs, max_len, padding, offsets)

    def save_pretrained(self, folder: str | Path) -> None:
        """Alias of `save`, under the name that other libraries use."""
        self.save(folder)

    def save(self, folder: str | Path) -> None:
        """Write the files from which `load_tokenizer(folder)` restores this tokenizer.

        Creates the folder if needed.  Raises UserError if a file of that name exists.
        """
        folder = make_folder(folder)
        self.write_files(folder)
        settings = {"kind": self.kind, "do_lower_case": self.lowercase, **self.settings}
        (folder / SETTINGS_FILE).write_text(json.dumps(settings, indent=2) + "\n", encoding="utf-8")

    def surface(self, units: Sequence[str]) -> list[str]:
        """Return the units as plain text, without the model's word markers."""
        return units if isinstance(units, list) else list(units)

    def words(self, text: str, units: Sequence[str]) -> list[str]:
        """Return the `units` as they appear in `text`, with their original case: the input of segmenters."""
        return self.surface(units)

    @property
    def settings(self) -> dict[str, Any]:
        """What tokenizer_config.json says besides the kind and the lower-casing: settings other than the usual ones."""
        return {}

    @property
    def vocab_size(self) -> int:
        return len(self.tokens)

    @property
    def special_ids(self) -> frozenset[int]:
        return frozenset((self.pad_id, self.unk_id, self.cls_id, self.sep_id, self.mask_id))

    @property
    def byte_ids(self) -> frozenset[int]:
        """The tokens that stand for one byte of a character which the vocabulary lacks."""
        return frozenset()

    @cached_property
    def ordinary_ids(self) -> np.ndarray:
        """All ids except the special ones, in ascending order."""
        return np.setdiff1d(np.arange(self.vocab_size), np.fromiter(self.special_ids, np.int64))

    @cached_property
    def fingerprint(self) -> str:
        """A hash of the kind, the settings and the vocabulary: equal if every id means the same token."""
        own = [json.dumps(self.settings, sort_keys=True)] if self.settings else []
        content = "\n".join((self.kind, str(self.lowercase), *self.tokens, *own))
        return hashlib.blake2b(content.encode(), digest_size=16).hexdigest()


def _make_batch(
    tokenizer: Tokenizer,
    texts: Iterable[str],
    text_pairs: Iterable[str] | None,
    max_len: int | None,
    padding: bool,
    offsets: bool,
) -> dict[str, Any]:
    """See `Tokenizer.__call__`; N texts, L tokens of the longest, n tokens of one."""
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
