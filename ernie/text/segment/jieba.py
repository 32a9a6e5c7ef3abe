"""`jieba`: Chinese words and names from the package jieba (`pip install jieba`)."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate

import numpy as np

from ernie.errors import UserError
from ernie.text.scripts import HAN_CHARACTER
from ernie.text.segment.base import Kind, Segmenter, in_order, segmenters

_NAME_TAGS = frozenset({"nr", "nrfg", "nrt", "ns", "nt", "nz"})

Cut = Callable[[str], Iterator[tuple[str, str]]]  # a sentence -> its words, each with its part of speech or ""


@segmenters.register("jieba")
@dataclass(frozen=True)
class Jieba(Segmenter):
    """Words of several characters; with `entities`, also names of persons, places, organizations and other things.

    `entities` needs jieba's part-of-speech tagger, which is several times slower.
    """

    entities: bool = True

    def __post_init__(self) -> None:
        _load(self.entities)

    def spans(self, words: Sequence[str], starts: np.ndarray) -> np.ndarray:
        cut = _load(self.entities)
        spans: list[tuple[int, int, Kind]] = []
        for first, stop in zip(starts.tolist(), np.append(starts, len(words))[1:].tolist(), strict=True):
            spans += _sentence_spans(cut, words[first:stop], first)
        return in_order(np.array(spans, np.int64).reshape(-1, 3))


@lru_cache(maxsize=2)
def _load(tags: bool) -> Cut:
    try:
        import jieba
        import jieba.posseg
    except ImportError:
        raise UserError("the segmenter 'jieba' needs the package jieba: pip install jieba") from None
    jieba.setLogLevel(logging.WARNING)
    jieba.initialize()
    return jieba.posseg.cut if tags else lambda text: ((word, "") for word in jieba.cut(text))


def _sentence_spans(cut: Cut, words: Sequence[str], first: int) -> Iterator[tuple[int, int, Kind]]:
    """Yield the spans of one sentence, except those that would begin or end inside one of the `words`."""
    word_at = {at: first + i for i, at in enumerate(accumulate(map(len, words), initial=0))}
    at = 0
    for word, tag in cut("".join(words)):
        begin, end = word_at.get(at), word_at.get(at + len(word))
        at += len(word)
        if begin is None or end is None or not HAN_CHARACTER.search(word):
            continue
        if end > begin + 1:
            yield begin, end, Kind.WORD
        if tag in _NAME_TAGS:
            yield begin, end, Kind.ENTITY
