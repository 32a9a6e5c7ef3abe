"""What every tokenizer offers, whichever algorithm is underneath.

A tokenizer cuts a text into *units* first: pieces of text that tokenize independently of each other (a word, a
punctuation mark, one Chinese character).  `encode(text)` equals the pieces of its units, one after the other.  The
corpus builder relies on that: the same few units make up most of any corpus, so it tokenizes each distinct one once.
"""

from __future__ import annotations

import hashlib
import json
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from ernie.beside import make_folder
from ernie.errors import UserError
from ernie.text.batch import make_batch

SETTINGS_FILE = "tokenizer_config.json"  # the name and the key `do_lower_case` are those of published checkpoints


@dataclass(frozen=True)
class Encoding:
    """Token ids (n,) of a text and, for each, the characters [start, end) it stands for: offsets (n, 2)."""

    ids: np.ndarray
    offsets: np.ndarray


class Tokenizer(ABC):
    """Text to token ids and back.  Adds no special tokens by itself; their ids are attributes."""

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
        """The vocabulary, in the order of the ids."""

    @abstractmethod
    def split(self, text: str) -> list[str]:
        """The units of `text`.  Units of a sub-word model may carry its own word marker; see `surface`."""

    @abstractmethod
    def pieces(self, unit: str) -> list[int]:
        """The token ids of one unit; empty for a unit that the normalizer removes."""

    @abstractmethod
    def encode(self, text: str) -> Encoding:
        """Token ids of `text` with character offsets, right also around unknown tokens.

        Raises UserError for what is no text, or holds half a surrogate pair.
        """

    @abstractmethod
    def readable(self, ids: list[int]) -> str:
        """See `decode`: of ids that are this vocabulary's."""

    def decode(self, ids: Sequence[int]) -> str:
        """Readable text for the token ids of one text, (n,): for people, not an exact inverse.

        Raises UserError for a batch and for what is no id of the vocabulary.
        """
        try:
            found = np.asarray(ids)
        except ValueError:  # a list of lists, of several lengths
            found = np.empty((0, 0))
        if found.ndim != 1 or not (np.issubdtype(found.dtype, np.integer) or found.size == 0):
            raise UserError(f"decode: expected whole numbers, the token ids of one text, found {ids!r:.40}")
        outside = found[(found < 0) | (found >= self.vocab_size)]
        if len(outside):
            raise UserError(f"decode: there is no token {outside[0]}: there are {self.vocab_size:,}, from 0 on")
        return self.readable(found.tolist())

    @abstractmethod
    def write_files(self, folder: Path) -> None:
        """Write the files of this kind of tokenizer into an existing folder."""

    def __call__(
        self,
        texts: Iterable[str],
        text_pairs: Iterable[str] | None = None,
        *,
        max_len: int | None = None,
        padding: bool = True,
        offsets: bool = False,
    ) -> dict[str, Any]:
        """A batch for `ErnieModel`: int64 arrays (N, L) `input_ids`, `token_type_ids` and `attention_mask`.

        Each text, or pair of texts, gets its special tokens; a single text is a batch of one.  `max_len` cuts longer
        ones at their ends, of a pair the longer text first.  `offsets` adds `offset_mapping` (N, L, 2): the characters
        [start, end) of its text that a token stands for.  Without `padding` each entry is a list of arrays instead.
        Raises UserError for an empty batch, for what is no text, and for pairs that do not match.
        """
        return make_batch(self, texts, text_pairs, max_len, padding, offsets)

    def save_pretrained(self, folder: str | Path) -> None:
        """As `save`, under the name that other libraries use."""
        self.save(folder)

    def save(self, folder: str | Path) -> None:
        """Write the files from which `load_tokenizer(folder)` makes this tokenizer again.

        The folder is made if need be.  Raises UserError where there is a file of that name.
        """
        folder = make_folder(folder)
        self.write_files(folder)
        settings = {"kind": self.kind, "do_lower_case": self.lowercase}
        (folder / SETTINGS_FILE).write_text(json.dumps(settings, indent=2) + "\n", encoding="utf-8")

    def surface(self, units: Sequence[str]) -> list[str]:
        """The units as a reader knows them, without any marker of the model's."""
        return units if isinstance(units, list) else list(units)

    def words(self, text: str, units: Sequence[str]) -> list[str]:
        """The `units` of `text` as they stand in it, capitals and all: what a segmenter sees."""
        return self.surface(units)

    @property
    def vocab_size(self) -> int:
        return len(self.tokens)

    @property
    def special_ids(self) -> frozenset[int]:
        return frozenset((self.pad_id, self.unk_id, self.cls_id, self.sep_id, self.mask_id))

    @cached_property
    def ordinary_ids(self) -> np.ndarray:
        """All ids but the special ones, in order."""
        return np.setdiff1d(np.arange(self.vocab_size), np.fromiter(self.special_ids, np.int64))

    @cached_property
    def fingerprint(self) -> str:
        """A hash of the kind, the case rule and the vocabulary: equal where every id means the same."""
        content = "\n".join((self.kind, str(self.lowercase), *self.tokens))
        return hashlib.blake2b(content.encode(), digest_size=16).hexdigest()
