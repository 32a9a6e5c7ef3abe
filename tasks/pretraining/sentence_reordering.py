"""Sentence reordering: into which order were these segments shuffled?  ERNIE 2.0 (Sun et al., 2019), section 3.2.2."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import permutations
from typing import ClassVar

import numpy as np

from ernie.data.document import Document, Sample
from ernie.errors import UserError
from ernie.text.tokenizer import Tokenizer
from tasks.base import SequenceTask, pretrain_task, single
from tasks.passages import sentence_groups


@pretrain_task("sentence_reordering")
@dataclass(frozen=True, kw_only=True)
class SentenceReordering(SequenceTask):
    """Classification of a shuffled passage by how it was split into 1 to `segments` parts and permuted.

    There are k = 1! + 2! + ... + segments! classes (3, 9, 33 for 2, 3, 4), sampled uniformly.  Passages of fewer
    sentences than `segments` are left out, so that the number of sentences does not give the class away.  Parts are
    joined without a separator: parts that stay adjacent look like one, so that there are only 2, 5 or 16 different
    orders, and accuracy cannot reach 1.
    """

    segments: int = 3

    metrics: ClassVar[tuple[str, ...]] = ("accuracy", "macro_f1")

    def __post_init__(self) -> None:
        if not 2 <= self.segments <= 5:
            raise UserError(f"segments: expected 2 to 5, found {self.segments}")

    def class_count(self) -> int:
        return len(arrangements(self.segments))

    def samples(self, items: Sequence[Document], tokenizer: Tokenizer, rng: np.random.Generator) -> Iterator[Sample]:
        document = items[0].body()
        for first, last in sentence_groups(document, self.length - 2):
            if last - first < self.segments:
                continue
            label = int(rng.integers(self.class_count()))
            arrangement = arrangements(self.segments)[label]
            cuts = np.sort(rng.permutation(np.arange(first + 1, last))[: len(arrangement) - 1])
            bounds = [first, *cuts.tolist(), last]
            parts = [document.run(bounds[i], bounds[i + 1]).ids for i in arrangement]
            yield single(tokenizer, np.concatenate(parts), label=label)


@cache
def arrangements(segments: int) -> list[tuple[int, ...]]:
    """Return every order of 1, then 2, ..., then `segments` parts; the index in this list is the class."""
    return [order for n in range(1, segments + 1) for order in permutations(range(n))]
