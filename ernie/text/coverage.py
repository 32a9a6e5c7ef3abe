"""How much of some texts a tokenizer loses: unknown tokens, and marks that are parts of letters."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache
from typing import NamedTuple
from unicodedata import category, normalize

import numpy as np

from ernie.text.tokenizer import Tokenizer
from ernie.text.wordpiece import WordPiece

# Scripts whose accents BERT was meant to strip, generic accents, and marks that belong to no letter: Latin, Greek and
# Cyrillic, the marks of symbols, variation selectors.
_ACCENTED = ((0, 0x52F), (0x1AB0, 0x1FFF), (0x20D0, 0x20FF), (0x2C60, 0x2C7F), (0xFE00, 0xFE2F), (0xE0100, 0xE01EF))
# Latin, Greek and Cyrillic letters, Chinese characters and usual marks, which have no mark of their own.
_OTHERS = re.compile("[^\0-\u052f\u2000-\u206f\u3000-\u3029\u4e00-\u9fff\uff01-\uff60]")
MANY_STRIPPED = 0.01  # of the characters: more than a few words of another language have


class Coverage(NamedTuple):
    """Counts of texts: `tokens`, the `unknown` ones of them, `characters`, and those `stripped` of a part.

    `pieces` of the tokens stand for a byte each, of characters that the vocabulary lacks.
    """

    tokens: int
    unknown: int
    characters: int
    stripped: int
    pieces: int = 0

    @property
    def unknown_share(self) -> float:
        """The share of unknown tokens, 0 without any token."""
        return self.unknown / max(1, self.tokens)


def coverage(tokenizer: Tokenizer, texts: Iterable[str]) -> Coverage:
    """Count the unknown tokens, the pieces of bytes, and the stripped letters of texts."""
    counts = [0, 0, 0, 0, 0]
    pieces = np.fromiter(tokenizer.byte_ids, np.int64)
    for text in texts:
        ids = tokenizer.encode(text).ids
        counts[0] += len(ids)
        counts[1] += int((ids == tokenizer.unk_id).sum())
        counts[2] += len(text)
        counts[3] += count_stripped(tokenizer, text)
        counts[4] += int(np.isin(ids, pieces).sum()) if len(pieces) else 0
    return Coverage(*counts)


def count_stripped(tokenizer: Tokenizer, text: str) -> int:
    """Return how many characters of a text lose a mark that is part of a letter."""
    if not (isinstance(tokenizer, WordPiece) and tokenizer.strips_accents and _OTHERS.search(text)):
        return 0
    return sum(text.count(letter) for letter in set(text) if has_own_mark(letter))


@lru_cache(maxsize=1 << 14)
def has_own_mark(letter: str) -> bool:
    """Whether stripping accents takes a part from a letter: kana's dakuten, the vowels of Hindi, the tones of Thai."""
    if any(first <= ord(letter) <= last for first, last in _ACCENTED):
        return False
    return any(category(part) == "Mn" for part in normalize("NFD", letter))
