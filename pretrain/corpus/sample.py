"""A bounded sample of the input, for what must be fitted before the corpus is built."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial

import numpy as np

from ernie.data import seeded_rng
from ernie.data.raw import Dropped, RawDocument, ReadOptions
from ernie.data.read import Input, check_unchanged, read_input
from ernie.text.segment.base import Segmenter, Words
from ernie.text.sentences import LANGUAGES, detect_script
from ernie.text.tokenizer import Tokenizer
from pretrain.corpus.chunk import Sentences, cut_sentences
from pretrain.corpus.engine import Broadcast, Engine

_LEAST_SHARE = 50_000  # bytes read at least from an input that is opened
_BATCH = 1 << 20  # total size of the documents passed to a segmenter at a time
_LANGUAGE_SAMPLE, _LANGUAGE_SHARE = 400_000, 4_000  # bytes in all, and at least of each input


def sample(
    inputs: Sequence[Input],
    options: ReadOptions,
    size: int,
    on_dropped: Callable[[Dropped], None] = lambda dropped: None,
) -> Iterator[RawDocument]:
    """Yield about `size` bytes of text: the first documents of every input, about as much from each.

    The last document of an input is cut.  With many inputs, only some are read, chosen without looking at them.  Small
    inputs come first, so that larger ones make up for what they lack.  `on_dropped` is called with what cannot be used.
    """
    for _, document in _sampled(inputs, options, size, _LEAST_SHARE, on_dropped):
        yield document


def sample_language(inputs: Sequence[Input], options: ReadOptions) -> str:
    """Return the language of most of the text: that of a piece of each input, or of many, weighted by their sizes."""
    texts: dict[int, str] = defaultdict(str)
    for i, document in _sampled(inputs, options, _LANGUAGE_SAMPLE, _LANGUAGE_SHARE):
        texts[i] += f"{document.text}\n"
    weights = dict.fromkeys(LANGUAGES, 0)
    for i, text in texts.items():
        size = inputs[i].size
        weights[detect_script(text)] += len(text.encode()) if size is None else size
    return max(weights, key=weights.__getitem__)  # the first of equal ones


def _sampled(
    inputs: Sequence[Input],
    options: ReadOptions,
    size: int,
    least_share: int,
    on_dropped: Callable[[Dropped], None] = lambda dropped: None,
) -> Iterator[tuple[int, RawDocument]]:
    """As `sample`, with the index of each document's input; `least_share` bytes are read of an input, or all of it."""
    shuffled = seeded_rng.permute(np.arange(len(inputs)), len(inputs), seeded_rng.key("sample"))
    shuffled = np.array([i for i in shuffled.tolist() if inputs[i].size != 0], np.int64)
    sizes = {i: inputs[i].size for i in shuffled.tolist()}
    least = [least_share if own is None else min(own, least_share) for own in sizes.values()]
    chosen = shuffled[: int(np.searchsorted(np.cumsum(least), size)) + 1]
    remaining = size
    # Inputs of unknown size come last.
    for rank, i in enumerate(sorted(chosen.tolist(), key=lambda i: (sizes[i] is None, sizes[i] or 0, i))):
        share = remaining // (len(chosen) - rank)
        for document in read_input(inputs[i], options):
            if share <= 0:
                break
            if isinstance(document, Dropped):
                on_dropped(document)
            else:
                document, length = cut_to(share, document)
                share, remaining = share - length, remaining - length
                yield i, document
        check_unchanged(inputs[i])


def cut_to(size: int, document: RawDocument) -> tuple[RawDocument, int]:
    """Return a document, cut to about `size` bytes if it is longer, and how many bytes were taken."""
    title, encoded = len(document.title.encode()), document.text.encode()
    if title + len(encoded) <= size:
        return document, title + len(encoded)
    text = encoded[: max(0, size - title)].decode(errors="ignore")
    half = len(text) // 2
    ends = (text.rfind("\n", half), text.rfind(" ", half))  # of a line or, in a long one, of a word
    text = text[: next((end for end in ends if end > 0), None)]
    lines = text.count("\n") + 1
    spans = None if document.spans is None else document.spans[document.spans[:, 1] <= len(text)]
    headings = frozenset(line for line in document.headings if line < lines)
    return document._replace(text=text, headings=headings, spans=spans), size


def fit(
    segmenters: Sequence[Segmenter],
    documents: Iterable[RawDocument],
    language: str,
    tokenizer: Broadcast[Tokenizer],
    engine: Engine,
) -> list[Segmenter]:
    """Return the segmenters.  Those that need fitting are fitted on `documents`, which are of this language."""
    if not any(segmenter.needs_fit for segmenter in segmenters):
        return list(segmenters)
    batches = list(engine.map(partial(_cut, tokenizer, language), _batches(documents)))
    return [
        segmenter.for_language(language).fit(batches) if segmenter.needs_fit else segmenter for segmenter in segmenters
    ]


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


def _cut(tokenizer: Broadcast[Tokenizer], language: str, documents: list[RawDocument]) -> tuple[Words, np.ndarray]:
    """Return the words of documents, and where each sentence starts."""
    sentences = Sentences([cut_sentences(document, language) for document in documents], tokenizer.value)
    return Words.of(sentences.words), sentences.starts
