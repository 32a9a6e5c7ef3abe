"""A bounded sample of the input, for what must be fitted before the corpus is built."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial

import numpy as np

from ernie.data import order
from ernie.data.raw import Dropped, RawDocument, ReadOptions
from ernie.data.read import Input, read_input
from ernie.text.segment.base import Segmenter, Words
from ernie.text.sentences import detect_language
from ernie.text.tokenizer import Tokenizer
from pretrain.corpus.chunk import Sentences, cut_sentences
from pretrain.corpus.workers import Shared, Workers

_LEAST_SHARE = 50_000  # bytes read at least from an input that is opened
_BATCH = 1 << 20  # total size of the documents passed to a segmenter at a time
_LANGUAGE_SAMPLE = 200_000  # bytes


def sample(
    inputs: Sequence[Input],
    options: ReadOptions,
    size: int,
    on_dropped: Callable[[Dropped], None] = lambda dropped: None,
) -> Iterator[RawDocument]:
    """Yield about `size` bytes of text: the first documents of every input, about as much from each.

    With many inputs, only some are read, chosen without looking at them.  Small inputs come first, so that larger ones
    make up for what they lack.  `on_dropped` is called with what cannot be used.
    """
    shuffled = order.permute(np.arange(len(inputs)), len(inputs), order.key("sample"))
    # An input of unknown size counts as the least that is read from one that is opened.
    least = np.array([min(inputs[i].size or _LEAST_SHARE, _LEAST_SHARE) for i in shuffled.tolist()], np.int64)
    chosen = shuffled[: int(np.searchsorted(np.cumsum(least), size)) + 1]
    remaining = size
    for rank, i in enumerate(sorted(chosen.tolist(), key=lambda i: (inputs[i].size, i))):
        share = remaining // (len(chosen) - rank)
        for document in read_input(inputs[i], options):
            if share <= 0:
                break
            if isinstance(document, Dropped):
                on_dropped(document)
            else:
                length = len(document.text.encode()) + len(document.title.encode())
                share, remaining = share - length, remaining - length
                yield document


def sample_language(inputs: Sequence[Input], options: ReadOptions) -> str:
    """Return the language of most of the text."""
    texts = (document.text for document in sample(inputs, options, _LANGUAGE_SAMPLE))
    return detect_language("\n".join(filter(None, texts)))


def fit(
    segmenters: Sequence[Segmenter],
    documents: Iterable[RawDocument],
    language: str,
    tokenizer: Shared[Tokenizer],
    workers: Workers,
) -> list[Segmenter]:
    """Return the segmenters, fitted on `documents` if they need it."""
    if not any(segmenter.needs_fit for segmenter in segmenters):
        return list(segmenters)
    batches = list(workers.map(partial(_cut, tokenizer, language), _batches(documents)))
    return [segmenter.fit(batches) if segmenter.needs_fit else segmenter for segmenter in segmenters]


def _batches(documents: Iterable[RawDocument]) -> Iterator[list[RawDocument]]:
    batch: list[RawDocument] = []
    size = 0
    for document in documents:
        batch.append(document)
        size += document.size
        if size > _BATCH:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def _cut(tokenizer: Shared[Tokenizer], language: str, documents: list[RawDocument]) -> tuple[Words, np.ndarray]:
    """Return the words of documents, and where each sentence starts."""
    sentences = Sentences([cut_sentences(document, language) for document in documents], tokenizer.value)
    return Words.of(sentences.words), sentences.starts
