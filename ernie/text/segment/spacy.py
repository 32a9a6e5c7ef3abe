"""`spacy`: names and noun phrases from a model of the package spaCy (`pip install spacy`)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from ernie.errors import UserError
from ernie.text.segment.base import Kind, Segmenter, in_order, segmenters


@segmenters.register("spacy")
@dataclass(frozen=True)
class Spacy(Segmenter):
    """Entities, and noun phrases of several words, from the spaCy model `model`, a name or a folder."""

    model: str = "en_core_web_sm"

    def __post_init__(self) -> None:
        _load(self.model)

    def spans(self, words: Sequence[str], starts: np.ndarray) -> np.ndarray:
        pipeline = _load(self.model)
        stops = np.append(starts, len(words))[1:].tolist()
        sentences = (words[first:stop] for first, stop in zip(starts.tolist(), stops, strict=True))
        spans: list[tuple[int, int, Kind]] = []
        for first, document in zip(starts.tolist(), pipeline.pipe(_documents(pipeline, sentences)), strict=True):
            spans += ((first + entity.start, first + entity.end, Kind.ENTITY) for entity in document.ents)
            if document.has_annotation("DEP"):
                chunks = (chunk for chunk in document.noun_chunks if len(chunk) > 1)
                spans += ((first + chunk.start, first + chunk.end, Kind.PHRASE) for chunk in chunks)
        return in_order(np.array(spans, np.int64).reshape(-1, 3))


@lru_cache(maxsize=2)
def _load(model: str) -> Any:
    try:
        import spacy
    except ImportError:
        raise UserError("the segmenter 'spacy' needs the package spaCy: pip install spacy") from None
    try:
        return spacy.load(model)
    except OSError:
        raise UserError(
            f"spaCy's model '{model}' is not installed: python -m spacy download {model}, or give the folder of a model"
        ) from None


def _documents(pipeline: Any, sentences: Iterator[Sequence[str]]) -> Iterator[Any]:
    """Yield spaCy documents of the sentences, pre-tokenized into the given words."""
    from spacy.tokens import Doc

    for words in sentences:
        yield Doc(pipeline.vocab, words=[word or " " for word in words])
