"""Capitalization: did this word begin with a capital?  ERNIE 2.0 (Sun et al., 2019), section 3.2.1."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from ernie.data.document import IGNORE, Document, Flag, Sample
from ernie.errors import UserError
from ernie.text.tokenizer import Tokenizer
from tasks.base import TokenTask, pretrain_task, single
from tasks.passages import token_spans


@pretrain_task("capitalization")
@dataclass(frozen=True, kw_only=True)
class Capitalization(TokenTask):
    """Two-way classification of each word's first token: capital or not.

    The labels come from the text before lower-casing; words without letters of two cases (numbers, punctuation,
    Chinese) have none.  Needs a tokenizer that lower-cases: otherwise the input would give the answer away.
    """

    classes: ClassVar[int] = 2
    metrics: ClassVar[tuple[str, ...]] = ("f1", "accuracy")

    def check(self, tokenizer: Tokenizer) -> None:
        if not tokenizer.lowercase:
            raise UserError(
                "capitalization can only be learned with a tokenizer that lower-cases: this one shows the capitals to "
                "the model. Take the task out of the schedule, or train a tokenizer without --cased."
            )

    def samples(self, items: Sequence[Document], tokenizer: Tokenizer, rng: np.random.Generator) -> Iterator[Sample]:
        document = items[0]
        labeled = ((document.flags & Flag.CASED) != 0) & ((document.flags & Flag.CONTINUES_WORD) == 0)
        capital = (document.flags & Flag.CAPITALIZED) != 0
        labels = np.where(labeled, capital, IGNORE)
        for start, stop in token_spans(document, self.length - 2):
            if labeled[start:stop].any():
                yield single(tokenizer, document.tokens.cut(start, stop), label=labels[start:stop])
