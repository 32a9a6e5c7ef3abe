"""A bounded sample of the input, for what must be learnt before the corpus is built."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from ernie.data import order
from ernie.data.raw import Dropped, RawDocument, ReadOptions
from ernie.data.read import Input, read_input
from ernie.text.segment.base import Segmenter
from ernie.text.sentences import detect_language
from ernie.text.tokenizer import Tokenizer
from pretrain.corpus.chunk import Sentences, cut_sentences

_LEAST_SHARE = 50_000  # bytes read of an input that is opened at all
_BATCH = 1 << 20  # characters of text handed to a segmenter at a time
_LANGUAGE_SAMPLE = 200_000  # bytes


def sample(inputs: Sequence[Input], options: ReadOptions, size: int) -> Iterator[RawDocument]:
    """About `size` bytes of text: the first documents of every input, of each about as much.

    When the inputs are many, of some, chosen without looking at them.  Small ones come first, so that what they lack
    is taken from the larger.
    """
    most = max(1, size // _LEAST_SHARE)
    chosen = order.permute(np.arange(min(len(inputs), most)), len(inputs), order.key("sample"))
    left = size
    for rank, i in enumerate(sorted(chosen.tolist(), key=lambda i: (inputs[i].size, i))):
        share = left // (len(chosen) - rank)
        for document in read_input(inputs[i], options):
            if share <= 0:
                break
            if not isinstance(document, Dropped):
                taken = len(document.text.encode())
                share, left = share - taken, left - taken
                yield document


def sample_language(inputs: Sequence[Input], options: ReadOptions) -> str:
    """The language of most of the text."""
    return detect_language("\n".join(document.text for document in sample(inputs, options, _LANGUAGE_SAMPLE)))


def fit(
    segmenters: Sequence[Segmenter], documents: Iterator[RawDocument], language: str, tokenizer: Tokenizer
) -> list[Segmenter]:
    """The segmenters, those that learn having learnt from `documents`."""
    if not any(segmenter.needs_fit for segmenter in segmenters):
        return list(segmenters)
    batches = list(_batches(documents, language, tokenizer))
    return [segmenter.fit(batches) if segmenter.needs_fit else segmenter for segmenter in segmenters]


def _batches(
    documents: Iterator[RawDocument], language: str, tokenizer: Tokenizer
) -> Iterator[tuple[list[str], np.ndarray]]:
    """The words of about _BATCH characters of text at a time, and where each sentence starts among them."""
    known: dict[str, str] = {}  # one string object a distinct word: the sample is held in memory
    waiting: list[list[tuple[str, int]]] = []
    size = 0
    for document in documents:
        waiting.append(list(cut_sentences(document, language)))
        size += len(document.text)
        if size > _BATCH:
            yield _words(waiting, tokenizer, known)
            waiting, size = [], 0
    if waiting:
        yield _words(waiting, tokenizer, known)


def _words(
    cut: list[list[tuple[str, int]]], tokenizer: Tokenizer, known: dict[str, str]
) -> tuple[list[str], np.ndarray]:
    sentences = Sentences(cut, tokenizer)
    words = [known.setdefault(word, word) for word in sentences.words]
    return words, sentences.starts
