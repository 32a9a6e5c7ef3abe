"""`thai`: Thai words, names and compounds, by the package pythainlp and the dictionary and tagger it brings along."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from ernie.text.segment.base import segmenters
from ernie.text.segment.tagged import Part, Tagged, Word

_PARTS = {"PROPN": Part.NAME, "NOUN": Part.NOUN, "PUNCT": Part.MARK, "SYM": Part.MARK}


@segmenters.register("thai")
@dataclass(frozen=True)
class Thai(Tagged):
    """Thai words by a dictionary (newmm); with `entities` also names, with `phrases` also compounds of nouns.

    Names and nouns are those of a tagger trained on the ORCHID corpus, which finds fewer names than people do.  Source:
    PyThaiNLP (Phatthiyaphaibun et al., 2023).
    """

    packages = ("pythainlp",)

    def words(self, text: str) -> Iterator[Word]:
        """Yield the words of a text, in order."""
        split, tag = _load()
        start = 0
        for line in text.split("\n"):
            at = start
            for word, part in tag(split(line, engine="newmm"), corpus="orchid_ud") if line.strip() else ():
                at = text.index(word, at)
                if word.strip():
                    yield Word(at, at + len(word), _PARTS.get(part, Part.OTHER))
                at += len(word)
            start += len(line) + 1


@lru_cache(maxsize=1)
def _load() -> tuple[Any, Any]:
    from pythainlp.tag import pos_tag
    from pythainlp.tokenize import word_tokenize

    return word_tokenize, pos_tag
