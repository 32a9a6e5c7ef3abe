"""A custom pretraining task, outside the library: which words have changed places?

Put this file anywhere on the Python path and name it in the run's YAML:

    plugins: [shuffled_words]
    schedule:
      stages:
        - {knowledge_masking: 1000}
        - {knowledge_masking: 500, shuffled_words: 1000}

`ernie tasks shuffled_words --plugin shuffled_words` shows it as YAML sees it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from ernie.data.document import Document, Sample
from ernie.text.tokenizer import Tokenizer
from tasks.base import TokenTask, pretrain_task, single
from tasks.passages import token_spans


@pretrain_task("shuffled_words")
@dataclass(frozen=True, kw_only=True)
class ShuffledWords(TokenTask):
    """Two-way classification of each token: is it still in its original place?

    `fraction` of the tokens of each sample are shuffled among themselves.
    """

    fraction: float = 0.15

    classes: ClassVar[int] = 2
    metrics: ClassVar[tuple[str, ...]] = ("macro_f1", "accuracy")

    def samples(self, items: Sequence[Document], tokenizer: Tokenizer, rng: np.random.Generator) -> Iterator[Sample]:
        for start, stop in token_spans(items[0], self.length - 2):
            ids = items[0].ids[start:stop].astype(np.int64)
            moved = np.flatnonzero(rng.random(len(ids)) < self.fraction)
            shuffled = ids.copy()
            shuffled[moved] = ids[rng.permutation(moved)]
            yield single(tokenizer, shuffled, label=(shuffled != ids).astype(np.int64))
