"""`gopher_quality` and `gopher_repetition`: the rules of MassiveText (Rae et al., 2021, "Gopher", section A.1.1).

Legend: m words of a document.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from ernie.config import check_least
from ernie.data.raw import RawDocument
from ernie.errors import UserError
from pretrain.corpus.clean.base import Filter, Rejected, check_shares, filters
from pretrain.corpus.language import has_spaces

_STOP_WORDS = ("the", "be", "to", "of", "and", "that", "have", "with")
_BULLET = re.compile(r"\s*[-*\u2022\u2023\u25aa\u25cf\u25e6\u00b7]")
_EDGES = re.compile(r"^\W+|\W+$")
_LETTER = re.compile(r"[^\W\d_]")


@filters.register("gopher_quality")
@dataclass(frozen=True)
class GopherQuality(Filter):
    """Drops documents whose words and lines do not look like prose.

    A document has between `min_words` and `max_words` words, of `min_word_length` to `max_word_length` characters on
    average.  `max_symbols` is the ratio of number signs, or of ellipses, to words.  `max_bullets` and `max_ellipses`
    are shares of the lines: those that begin with a bullet, those that end in an ellipsis.  `min_alphabetic` is the
    share of words with a letter.  At least `min_stop_words` of the `stop_words` occur: for text in another language
    than English, give its own.  Documents in Chinese, Japanese and Thai, which have no spaces, are kept.
    """

    min_words: int = 50
    max_words: int = 100_000
    min_word_length: float = 3.0
    max_word_length: float = 10.0
    max_symbols: float = 0.1
    max_bullets: float = 0.9
    max_ellipses: float = 0.3
    min_alphabetic: float = 0.8
    min_stop_words: int = 2
    stop_words: list[str] = field(default_factory=lambda: list(_STOP_WORDS))

    def __post_init__(self) -> None:
        super().__post_init__()
        check_least(self, min_words=0, min_word_length=0, max_symbols=0, min_stop_words=0)
        check_least(self, max_words=self.min_words, max_word_length=self.min_word_length)
        check_shares(self, "max_bullets", "max_ellipses", "min_alphabetic")
        if self.min_stop_words > len(self.stop_words):
            raise UserError(f"min_stop_words: expected at most the {len(self.stop_words)} words of stop_words")

    def apply(self, document: RawDocument) -> RawDocument | Rejected:
        """Return the document, or the first rule that it breaks."""
        if not has_spaces(document.text):
            return document
        return next(self._broken(document.text), document)

    def _broken(self, text: str) -> Iterator[Rejected]:
        words, lines = text.split(), text.split("\n")
        bare = [_EDGES.sub("", word) for word in words]
        letters = [word for word in bare if word]
        if len(letters) < self.min_words:
            yield Rejected("too few words", f"{len(letters):,} words")
        if len(letters) > self.max_words:
            yield Rejected("too many words", f"{len(letters):,} words")
        length = sum(map(len, letters)) / max(1, len(letters))
        if not self.min_word_length <= length <= self.max_word_length:
            yield Rejected("length of words", f"words of {length:.1f} characters on average")
        for name, count in (("number signs", text.count("#")), ("ellipses", text.count("...") + text.count("\u2026"))):
            if count > self.max_symbols * len(words):
                yield Rejected("symbols", f"{count:,} {name} for {len(words):,} words")
        bullets = sum(_BULLET.match(line) is not None for line in lines)
        if bullets > self.max_bullets * len(lines):
            yield Rejected("bullets", f"{bullets:,} of {len(lines):,} lines begin with a bullet")
        cut = sum(line.rstrip().endswith(("...", "\u2026")) for line in lines)
        if cut > self.max_ellipses * len(lines):
            yield Rejected("lines cut off", f"{cut:,} of {len(lines):,} lines end in an ellipsis")
        alphabetic = sum(_LETTER.search(word) is not None for word in words)
        if alphabetic < self.min_alphabetic * len(words):
            yield Rejected("words without letters", f"{alphabetic:,} of {len(words):,} words have a letter")
        found = len({word.lower() for word in letters} & set(self.stop_words))
        if found < self.min_stop_words:
            yield Rejected("too few stop words", f"{found} of the stop words")


@filters.register("gopher_repetition")
@dataclass(frozen=True)
class GopherRepetition(Filter):
    """Drops documents that repeat themselves.

    `max_lines` is the share of lines that repeat an earlier one, `max_line_characters` that of the characters in them.
    `max_top` are shares of the characters in the most frequent n-gram of 2, 3 and 4 words.  `max_repeated` are shares
    of the characters in n-grams of 5 to 10 words that repeat an earlier one.  The thresholds are those of table A1.
    A line is a paragraph here.  In Chinese, Japanese and Thai, which have no spaces, only lines are looked at.
    """

    max_lines: float = 0.30
    max_line_characters: float = 0.20
    max_top: list[float] = field(default_factory=lambda: [0.20, 0.18, 0.16])
    max_repeated: list[float] = field(default_factory=lambda: [0.15, 0.14, 0.13, 0.12, 0.11, 0.10])

    def __post_init__(self) -> None:
        super().__post_init__()
        check_shares(self, "max_lines", "max_line_characters")
        for name, size in (("max_top", 3), ("max_repeated", 6)):
            shares = getattr(self, name)
            if len(shares) != size or not all(0 <= share <= 1 for share in shares):
                raise UserError(f"{name}: expected {size} shares from 0 to 1, found {shares}")

    def apply(self, document: RawDocument) -> RawDocument | Rejected:
        """Return the document, or the first rule that it breaks."""
        return next(self._broken(document.text), document)

    def _broken(self, text: str) -> Iterator[Rejected]:
        repeated, characters, lines = repeated_lines(text)
        if repeated > self.max_lines * lines:
            yield Rejected("repeated lines", f"{repeated:,} of {lines:,} lines repeat an earlier one")
        if characters > self.max_line_characters * len(text):
            yield Rejected("repeated lines", f"{characters / len(text):.0%} of the characters are in repeated lines")
        if not has_spaces(text):
            return
        words = text.split()
        limits = [*self.max_top, *self.max_repeated]
        for n, (top, again) in enumerate(_shares(words, 1 + len(limits)), 2):
            share = top if n < 5 else again
            if share > limits[n - 2]:
                what = "the most frequent one" if n < 5 else "repeated ones"
                yield Rejected(f"repeated {n}-grams", f"{share:.0%} of the characters are in {what} of {n} words")


def repeated_lines(text: str) -> tuple[int, int, int]:
    """Return how many lines repeat an earlier one, how many characters these have, and how many lines there are.

    Blank lines do not count.
    """
    counts = Counter(line for line in map(str.strip, text.split("\n")) if line)
    repeated = sum(count - 1 for count in counts.values())
    return repeated, sum((count - 1) * len(line) for line, count in counts.items()), counts.total()


def _shares(words: list[str], largest: int) -> Iterator[tuple[float, float]]:
    """Yield for n from 2 to `largest` the shares of the words' characters in n-grams.

    The first share is that of the most frequent n-gram, 0 if none occurs twice.  The second is that of all that repeat
    an earlier one; a word in several of them counts once.
    """
    numbers = {word: number for number, word in enumerate(dict.fromkeys(words))}
    ids = np.fromiter(map(numbers.__getitem__, words), np.int64, len(words))
    lengths = np.fromiter(map(len, words), np.int64, len(words))
    total, ends = max(1, int(lengths.sum())), np.concatenate(([0], np.cumsum(lengths)))
    grams = ids
    for n in range(2, largest + 1):
        grams = grams[: len(words) - n + 1]
        if not len(grams):
            return
        # An n-gram is the number of its first n - 1 words and its last word.
        pairs = grams * len(numbers) + ids[n - 1 :]
        _, first, grams, counts = np.unique(pairs, return_index=True, return_inverse=True, return_counts=True)
        sizes = ends[first + n] - ends[first]
        top = int(np.max(counts * sizes, where=counts > 1, initial=0))
        again = np.flatnonzero(first[grams] != np.arange(len(grams)))
        steps = np.bincount(again, minlength=len(words) + 1) - np.bincount(again + n, minlength=len(words) + 1)
        yield top / total, int(lengths[np.cumsum(steps[:-1]) > 0].sum()) / total
