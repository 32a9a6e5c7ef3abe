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
from tasks.passages import sentence_groups

FOLLOWS, OTHER_DOCUMENT = range(2)


@pretrain_task("next_sentence")
@dataclass(frozen=True, kw_only=True)
class NextSentence(SequenceTask):
    """Two-way classification of a passage pair: the second follows the first, or comes from another document.

    A passage of another document starts at a sentence and has as many tokens as the one that follows.  Where the other
    document has no such passage, there is no sample of either class, so that length does not give the label away.
    """

    classes: ClassVar[int] = 2
    window: ClassVar[int] = 2

    def samples(self, items: Sequence[Document], tokenizer: Tokenizer, rng: np.random.Generator) -> Iterator[Sample]:
        here, there = items
        if len(there) == 0:
            return
        for first, last in sentence_groups(here, self.length - 3):
            if last - first < 2:
                continue
            cut = int(rng.integers(first + 1, last))
            label = int(rng.integers(self.classes))
            second = here.run(cut, last).ids
            spare = len(there.ids) - len(second)
            if spare < 0:
                continue
            if label == OTHER_DOCUMENT:
                starts = 1 + int(np.searchsorted(there.ends[:-1], spare, side="right"))  # followed by enough tokens
                second = there.run(int(rng.integers(starts)), len(there)).ids[: len(second)]
            yield pair(tokenizer, here.run(first, cut).ids, second, self.length, label=label)
