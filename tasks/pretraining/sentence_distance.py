"""Sentence distance: adjacent, in one document, or in two?  ERNIE 2.0 (Sun et al., 2019), section 3.2.2."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from ernie.data.document import Document, Sample
from ernie.text.tokenizer import Tokenizer
from tasks.base import SequenceTask, pair, pretrain_task

ADJACENT, SAME_DOCUMENT, TWO_DOCUMENTS = range(3)


@pretrain_task("sentence_distance")
@dataclass(frozen=True, kw_only=True)
class SentenceDistance(SequenceTask):
    """Three-way classification of a sentence pair: adjacent, apart in one document, or from two documents.

    Needs documents of at least four sentences, so that every sentence has one that is not adjacent to it.
    """

    classes: ClassVar[int] = 3
    window: ClassVar[int] = 2
    metrics: ClassVar[tuple[str, ...]] = ("accuracy", "macro_f1")

    def samples(self, items: Sequence[Document], tokenizer: Tokenizer, rng: np.random.Generator) -> Iterator[Sample]:
        here, there = (document.body() for document in items)
        if len(here) < 4 or len(there) == 0:
            return
        for i in range(0, len(here) - 1, 2):
            label = int(rng.integers(self.classes))
            if label == ADJACENT:
                other = here.sentence(i + 1)
            elif label == SAME_DOCUMENT:
                before = max(0, i - 1)  # number of sentences before the adjacent ones
                index = int(rng.integers(before + len(here) - i - 2))
                other = here.sentence(index if index < before else index - before + i + 2)
            else:
                other = there.sentence(int(rng.integers(len(there))))
            yield pair(tokenizer, here.sentence(i).ids, other.ids, self.length, label=label)
