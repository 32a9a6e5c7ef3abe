"""A bounded sample of the input, for what must be learnt before the corpus is built."""

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

_LEAST_SHARE = 50_000  # bytes read of an input that is opened at all
_BATCH = 1 << 20  # the size of the documents handed to a segmenter at a time
_LANGUAGE_SAMPLE = 200_000  # bytes


def sample(
    inputs: Sequence[Input],
    options: ReadOptions,
    size: int,
    on_dropped: Callable[[Dropped], None] = lambda dropped: None,
) -> Iterator[RawDocument]:
    """About `size` bytes of text: the first documents of every input, of each about as much.

    When the inputs are many, of some, chosen without looking at them.  Small ones come first, so that what they lack
    is taken from the larger.  `on_dropped` is told what cannot be used.
    """
    drawn = order.permute(np.arange(len(inputs)), len(inputs), order.key("sample"))
    # Of those whose size is not known, as much as is read of an input that is opened at all.
    least = np.array([min(inputs[i].size or _LEAST_SHARE, _LEAST_SHARE) for i in drawn.tolist()], np.int64)
    chosen = drawn[: int(np.searchsorted(np.cumsum(least), size)) + 1]
    left = size
    for rank, i in enumerate(sorted(chosen.tolist(), key=lambda i: (inputs[i].size, i))):
        share = left // (len(chosen) - rank)
        for document in read_input(inputs[i], options):
            if share <= 0:
                break
            if isinstance(document, Dropped):
                on_dropped(document)
            else:
                taken = len(document.text.encode()) + len(document.title.encode())
                share, left = share - taken, left - taken
                yield document


def sample_language(inputs: Sequence[Input], options: ReadOptions) -> str:
    """The language of most of the text."""
    texts = (document.text for document in sample(inputs, options, _LANGUAGE_SAMPLE))
    return detect_language("\n".join(filter(None, texts)))


def fit(
    segmenters: Sequence[Segmenter],
    documents: Iterable[RawDocument],
    language: str,
    tokenizer: Shared[Tokenizer],
    workers: Workers,
) -> list[Segmenter]:
    """The segmenters, those that learn having learnt from `documents`."""
    if not any(segmenter.needs_fit for segmenter in segmenters):
        return list(segmenters)
    batches = list(workers.map(partial(_cut, tokenizer, language), _batches(documents)))
    return [segmenter.fit(batches) if segmenter.needs_fit else segmenter for segmenter in segmenters]


def _batches(documents: Iterable[RawDocument]) -> Iterator[list[RawDocument]]:
    waiting: list[RawDocument] = []
    size = 0
    for document in documents:
        waiting.append(document)
        size += document.size
        if size > _BATCH:
            yield waiting
            waiting, size = [], 0
    if waiting:
        yield waiting


def _cut(tokenizer: Shared[Tokenizer], language: str, documents: list[RawDocument]) -> tuple[Words, np.ndarray]:
    """The words of documents, and where each sentence starts."""
    sentences = Sentences([cut_sentences(document, language) for document in documents], tokenizer.thing)
    return Words.of(sentences.words), sentences.starts
