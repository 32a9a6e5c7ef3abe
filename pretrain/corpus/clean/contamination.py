"""`decontamination`: documents that hold parts of test sets are dropped."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from ernie.config import check_least
from ernie.data.labeled.read import read_rows
from ernie.data.labeled.row import Fault, RowOptions
from ernie.data.raw import RawDocument
from ernie.errors import UserError
from ernie.text.scripts import words_in
from pretrain.corpus.clean.base import Filter, Rejected, filters

_NOT_WORDS = re.compile(r"[\W_]+")
Grams = dict[int, dict[str, str]]  # by the number of words: n-grams, each with the file that it is from


@filters.register("decontamination")
@dataclass(frozen=True)
class Decontamination(Filter):
    """Drops documents with `words` consecutive words of a row of one of the `files`, such as test sets.

    Files are those that fine-tuning reads (.tsv, .csv, .jsonl, .json, .parquet, .txt, .conll).  Every text of a row
    counts.  One with fewer words is looked for as a whole, if it has at least `min_words`.  Case and punctuation do not
    count; in scripts without spaces, each letter is a word.  Source: GPT-3 (Brown et al., 2020, appendix C), which uses
    13 words and 8.
    """

    files: list[str]
    words: int = 13
    min_words: int = 8

    def __post_init__(self) -> None:
        super().__post_init__()
        check_least(self, words=1, min_words=1)
        if not self.files:
            raise UserError("files: expected at least one file with rows of a test set")
        if self.min_words > self.words:
            raise UserError(f"min_words: expected at most words, which is {self.words}, found {self.min_words}")

    def prepare(self) -> None:
        """Read the files."""
        assert self._grams

    def apply(self, document: RawDocument) -> RawDocument | Rejected:
        """Return the document, or the first words of it that are in a test set."""
        words = _words(f"{document.title}\n{document.text}")
        for size, grams in self._grams.items():
            for i in range(len(words) - size + 1):
                if file := grams.get(gram := " ".join(words[i : i + size])):
                    return Rejected("test set", f"'{gram}' is in {file}")
        return document

    @cached_property
    def _grams(self) -> Grams:
        found: Grams = {}
        for file in self.files:
            for text in _texts(file):
                words = _words(text)
                size = min(self.words, len(words))
                if size >= self.min_words:
                    grams = found.setdefault(size, {})
                    for i in range(len(words) - size + 1):
                        grams.setdefault(" ".join(words[i : i + size]), file)
        if not found:
            raise UserError(
                f"files: {', '.join(self.files)}: no text has the {self.min_words} words of min_words, so that nothing "
                "would be found"
            )
        return dict(sorted(found.items()))


def _words(text: str) -> list[str]:
    return words_in(_NOT_WORDS.sub(" ", text.lower()))


def _texts(file: str) -> Iterator[str]:
    """Yield the texts of all rows of a file; names of columns, which may be a row where no line names them, are one."""
    header: list[str] = []
    for row in read_rows(file, RowOptions()):
        if isinstance(row, Fault) or row is None:
            continue
        if list(row) != header:
            header = list(row)
            yield from header
        yield from _strings(row.values())


def _strings(values: Iterable[object]) -> Iterator[str]:
    """Yield all texts in some values and inside them."""
    for value in values:
        if isinstance(value, str):
            yield value
        elif isinstance(value, Mapping):
            yield from _strings(value.values())
        elif isinstance(value, Sequence):
            yield from _strings(value)
