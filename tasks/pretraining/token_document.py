"""Token-document relation: does a token recur in its document?  ERNIE 2.0 (Sun et al., 2019), section 3.2.1."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from ernie.data.document import Document, Sample
from ernie.text.tokenizer import Tokenizer
from tasks.base import TokenTask, pretrain_task, single
from tasks.passages import token_spans


@pretrain_task("token_document")
@dataclass(frozen=True, kw_only=True)
class TokenDocument(TokenTask):
    """Two-way classification of each token: does it also occur in another segment of the same document?

    A document that fits into one sample is split into two segments at a sentence end; a document of a single sentence
    has no other segment and gives no sample.
    """

    classes: ClassVar[int] = 2
    metrics: ClassVar[tuple[str, ...]] = ("macro_f1", "f1", "accuracy")

    def samples(self, items: Sequence[Document], tokenizer: Tokenizer, rng: np.random.Generator) -> Iterator[Sample]:
        document = items[0]
        segments = token_spans(document, self.length - 2)
        if len(segments) == 1 and len(document) > 1:
            middle = int(document.ends[len(document) // 2 - 1])
            segments = [(0, middle), (middle, len(document.ids))]
        if len(segments) < 2:
            return
        _, token_of, in_document = np.unique(document.ids, return_inverse=True, return_counts=True)
        for start, stop in segments:
            in_segment = np.bincount(token_of[start:stop], minlength=len(in_document))
            elsewhere = (in_document > in_segment)[token_of[start:stop]]
            yield single(tokenizer, document.tokens.cut(start, stop), label=elsewhere.astype(np.int64))
