"""Next sentence: does the second passage follow the first?  BERT (Devlin et al., 2019, arXiv 1810.04805), section 3.1.

Not one of ERNIE 2.0's seven tasks: the sentence-level task that most other models use, here as a baseline.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from ernie.data.document import Document, Sample
from ernie.text.tokenizer import Tokenizer
from tasks.base import SequenceTask, pair, pretrain_task
from tasks.passages import common_length, sentence_groups

FOLLOWS, OTHER_DOCUMENT = range(2)


@pretrain_task("next_sentence")
@dataclass(frozen=True, kw_only=True)
class NextSentence(SequenceTask):
    """Two-way classification of a passage pair: the second follows the first, or comes from another document.

    Both candidates for the second passage are made in the same way, each from the text of its document.  They are cut
    to one length, a little below the shorter one's.  So neither length nor the end of a sentence gives the label away.
    The length of the first passage tells how long the passage that follows it was, and gives nothing away either.
    """

    classes: ClassVar[int] = 2
    window: ClassVar[int] = 2

    def samples(self, items: Sequence[Document], tokenizer: Tokenizer, rng: np.random.Generator) -> Iterator[Sample]:
        here, there = items
        others = self._groups(there)
        if not others:
            return
        for first, last in self._groups(here):
            cut = int(rng.integers(first + 1, last))
            other_first, other_last = others[int(rng.integers(len(others)))]
            other_cut = int(rng.integers(other_first + 1, other_last))
            candidates = {FOLLOWS: here.run(cut, last).ids, OTHER_DOCUMENT: there.run(other_cut, other_last).ids}
            label = int(rng.integers(self.classes))
            second = candidates[label][: common_length(min(map(len, candidates.values())), rng)]
            yield pair(tokenizer, here.run(first, cut).ids, second, self.length, label=label)

    def _groups(self, document: Document) -> list[tuple[int, int]]:
        """Return the groups of sentences [first, last) that can be divided."""
        return [(first, last) for first, last in sentence_groups(document, self.length - 3) if last - first > 1]
