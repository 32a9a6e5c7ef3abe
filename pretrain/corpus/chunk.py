"""Encoding a chunk of raw documents as arrays: the whole work of a worker process.

Legend: d documents of the chunk, s sentences, m units (words, punctuation), n tokens.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, NamedTuple

import numpy as np

from ernie.data.document import Flag, Mark
from ernie.data.parts import Item
from ernie.data.raw import Dropped, RawDocument
from ernie.data.shard_writer import Documents
from ernie.text.coverage import count_stripped
from ernie.text.segment.base import Kind, Segmenter, TextSegmenter, Words, combine, in_order, no_spans
from ernie.text.sentences import lacking, split_sentences
from ernie.text.tokenizer import Tokenizer
from pretrain.corpus.clean.pipeline import NO_VERDICTS, Pipeline, Verdicts
from pretrain.corpus.hosts import add_hosts, host_of
from pretrain.corpus.language import (
    document_language,
    identified_language,
    paragraph_language,
    segmented_as,
    split_as,
)
from pretrain.corpus.report import Counts
from pretrain.corpus.texts import TextsConfig, dropped_row, kept_row
from pretrain.corpus.units import Tokenized, UnitTable

HASHES = 2**64
NO_TEXTS = TextsConfig()
_NOT_BODY = int(Mark.TITLE | Mark.HEADING)
_TITLE, _HEADING, _FIRST = (int(Mark.BEGINS_PARAGRAPH | mark) for mark in (Mark.TITLE, Mark.HEADING, 0))
_FLAGS = {  # the flags of a span's first token and of its others
    Kind.WORD: (0, Flag.CONTINUES_WORD),
    Kind.PHRASE: (Flag.BEGINS_PHRASE, Flag.CONTINUES_PHRASE),
    Kind.ENTITY: (Flag.BEGINS_ENTITY, Flag.CONTINUES_ENTITY),
}


@dataclass(frozen=True)
class Rules:
    """Which documents are kept, and of which language they are: all of `language`, or each as detected.

    With `identify` languages of the same script are told apart, too.
    """

    language: str
    min_sentences: int
    min_tokens: int
    detect: bool = False
    identify: bool = False

    def language_of(self, document: RawDocument) -> str:
        """Return the language of a document."""
        if self.identify:
            return identified_language(document.text, self.language)
        return document_language(document.text, self.language) if self.detect else self.language


class Chunk(NamedTuple):
    """An encoded chunk: the documents of each split, the text hash of each (d,), and the counts for the report.

    `texts` are parts of the files of kept and dropped texts, by their names.
    """

    train: Documents
    held_out: Documents
    hashes: np.ndarray
    counts: Counts
    texts: Mapping[str, bytes]


class Encoder:
    """Turns chunks of raw documents into arrays; the result does not depend on earlier chunks.

    `segmenters` are those for the documents of each language.
    """

    def __init__(
        self, tokenizer: Tokenizer, segmenters: Mapping[str, Sequence[Segmenter]], rules: Rules, pipeline: Pipeline
    ):
        self._tokenizer = tokenizer
        self._pipeline = pipeline
        self._segmenters = dict(segmenters)
        self._rules = rules
        self._table = UnitTable(tokenizer)

    def __call__(
        self,
        chunk: Sequence[Item],
        hold_out_below: int,
        verdicts: Verdicts = NO_VERDICTS,
        texts: TextsConfig = NO_TEXTS,
    ) -> Chunk:
        """Encode documents, each given with the number of the input it comes from.

        Documents whose text has a hash below `hold_out_below` are held out: equal texts fall into the same split.
        `verdicts` has what earlier readings found of the documents of the chunk.  `texts` says which texts are wanted
        beside the arrays.
        """
        counts = Counts(clean=self._pipeline.tallies())
        items = [
            item if isinstance(item, Dropped) else self._pipeline(item, counts.clean, verdicts.of(at))
            for at, (_, item) in enumerate(chunk)
        ]
        spoken = ["" if isinstance(item, Dropped) else self._rules.language_of(item) for item in items]
        items = [_if_split(item, language) for item, language in zip(items, spoken, strict=True)]
        readable = [
            (source, item, language)
            for (source, _), item, language in zip(chunk, items, spoken, strict=True)
            if not isinstance(item, Dropped)
        ]
        documents, languages = [document for _, document, _ in readable], [language for *_, language in readable]
        sources = [(source, document.place.line) for source, document, _ in readable]
        arrays = self._encode(documents, languages, sources, counts)
        reasons = self._filter(documents, arrays, counts)
        remaining, rows = iter(reasons), {name: list[dict[str, Any]]() for name in texts.files}
        # In input order, so that the examples do not depend on where chunks end.
        for (_, given), item, language in zip(chunk, items, spoken, strict=True):
            if dropped := item if isinstance(item, Dropped) else next(remaining):
                counts.drop(dropped)
                if texts.dropped:
                    rows["dropped"].append(dropped_row(given, dropped))
            elif texts.kept and isinstance(item, RawDocument):
                rows["kept"].append(kept_row(item, language))
        keep = np.array([reason is None for reason in reasons], bool)
        hashes = np.array([text_hash(document) for document in documents], np.uint64)
        held_out = hashes < hold_out_below
        train, kept_out = arrays.take(keep & ~held_out), arrays.take(keep & held_out)
        counts.keep("train", train, self._tokenizer.unk_id)
        counts.keep("held_out", kept_out, self._tokenizer.unk_id)
        counts.unwrapped += sum(item.unwrapped > 0 for item, kept in zip(documents, keep.tolist(), strict=True) if kept)
        pages = (document.url for document, kept in zip(documents, keep.tolist(), strict=True) if kept and document.url)
        add_hosts(counts.hosts, Counter(host.removeprefix("www.") for host in map(host_of, pages) if host))
        counts.languages.update(language for language, kept in zip(languages, keep.tolist(), strict=True) if kept)
        text = "".join(document.text for document, kept in zip(documents, keep.tolist(), strict=True) if kept)
        counts.characters, counts.stripped = len(text), count_stripped(self._tokenizer, text)
        counts.bytes += sum(len(item.text.encode()) for _, item in chunk if not isinstance(item, Dropped))
        packed = {name: texts.packed(name, own) for name, own in rows.items()}
        return Chunk(train, kept_out, hashes[keep], counts, packed)

    def _encode(
        self,
        documents: Sequence[RawDocument],
        languages: Sequence[str],
        sources: Sequence[tuple[int, int]],
        counts: Counts,
    ) -> Documents:
        each = self._rules.detect
        cut = [
            cut_sentences(document, split_as(language), each)
            for document, language in zip(documents, languages, strict=True)
        ]
        sentences = Sentences(cut, self._tokenizer)
        tokens = self._table.tokenize(sentences.units, sentences.words)
        starts = tokens.starts[sentences.unit_starts]
        if sentences.units and any(self._segmenters.values()):
            self._mark_spans(documents, self._spans(languages, sentences, tokens.words, counts), sentences, tokens)
        for i, document in enumerate(documents):
            document = self._marked(document, languages[i])
            if document.spans is not None:
                first, last = sentences.firsts[i : i + 2]
                flags = tokens.flags[starts[first] : starts[last]]
                annotate(document, cut[i], np.diff(starts[first : last + 1]), flags, self._tokenizer)
        return _documents(tokens, starts, sentences, np.asarray(sources, np.int64).reshape(-1, 2))

    def _marked(self, document: RawDocument, language: str) -> RawDocument:
        """Return a document with the spans of the segmenters that mark texts, unless it is annotated."""
        segmenters = [each for each in self._segmenters[segmented_as(language)] if isinstance(each, TextSegmenter)]
        if document.spans is not None or not segmenters:
            return document
        return document._replace(spans=in_order(np.concatenate([each.mark(document.text) for each in segmenters])))

    def _spans(
        self, languages: Sequence[str], sentences: Sentences, words: Sequence[str], counts: Counts
    ) -> np.ndarray:
        """Return the spans (k, 3) that the segmenters of each document's language find in it."""
        languages = list(map(segmented_as, languages))
        present = sorted(set(languages))
        if len(present) == 1:
            return combine(self._segmenters[present[0]], words, sentences.starts, counts.marked)
        words, sizes = Words.of(words), np.diff(sentences.unit_starts)
        of_document = np.array([present.index(language) for language in languages])
        of_sentence = np.repeat(of_document, np.diff(sentences.firsts))
        parts = [no_spans()]
        for number, language in enumerate(present):
            own = (of_sentence == number) & (sizes > 0)
            units = np.flatnonzero(np.repeat(own, sizes))
            if not len(units):
                continue
            starts = np.cumsum(sizes[own]) - sizes[own]
            chosen = Words(words.distinct, words.numbers[units])
            spans = combine(self._segmenters[language], chosen, starts, counts.marked)
            parts.append(np.column_stack((units[spans[:, 0]], units[spans[:, 1] - 1] + 1, spans[:, 2])))
        return in_order(np.concatenate(parts))

    def _mark_spans(
        self, documents: Sequence[RawDocument], spans: np.ndarray, sentences: Sentences, tokens: Tokenized
    ) -> None:
        """Set the flags of spans, except (outside titles) for kinds that the document annotates."""
        annotated = np.zeros((len(documents), len(Kind)), dtype=bool)
        for i, document in enumerate(documents):
            annotated[i, list(document.annotated)] = True
        sentence_of = np.searchsorted(sentences.unit_starts, spans[:, 0], side="right") - 1
        document_of = np.searchsorted(sentences.firsts, sentence_of, side="right") - 1
        in_title = sentences.marks[sentence_of] == _TITLE
        spans = spans[in_title | ~annotated[document_of, spans[:, 2]]]
        mark(tokens.flags, tokens.starts[spans[:, 0]], tokens.starts[spans[:, 1]], spans[:, 2])

    def _filter(self, documents: Sequence[RawDocument], arrays: Documents, counts: Counts) -> list[Dropped | None]:
        """Return why each document is dropped, or None; count those that are kept with only one sentence."""
        body = np.concatenate(([0], np.cumsum((arrays.marks & _NOT_BODY) == 0)))
        sentences = np.diff(body[arrays.docs[:, 1]], prepend=0)
        tokens = np.diff(arrays.docs[:, 0], prepend=0)
        reasons: list[Dropped | None] = [None] * len(documents)
        keep = np.ones(len(documents), dtype=bool)
        for reason, bad in (
            ("empty", sentences == 0),
            ("too few sentences", sentences < self._rules.min_sentences),
            ("too few tokens", tokens < self._rules.min_tokens),
        ):
            for i in np.flatnonzero(keep & bad).tolist():
                reasons[i] = Dropped(documents[i].place, reason, f"{sentences[i]} sentences, {tokens[i]} tokens")
            keep &= ~bad
        counts.one_sentence += int((keep & (sentences == 1)).sum())
        return reasons


def _if_split(item: RawDocument | Dropped, language: str) -> RawDocument | Dropped:
    """Return an item, dropped if it is a document in a language of which sentences cannot be split."""
    if isinstance(item, Dropped) or not (sentence := lacking(split_as(language))):
        return item
    return Dropped(item.place, "no rules for its language", sentence)


def text_hash(document: RawDocument) -> int:
    """Return a number below HASHES that depends only on the document's text."""
    return int.from_bytes(hashlib.blake2b(document.text.encode(), digest_size=8).digest(), "little")


class Sentences:
    """The sentences of a chunk, cut into units.

    `firsts` (d + 1,) is each document's first sentence, and `marks` (s,) those of the sentences.  `unit_starts` (s +
    1,) is each sentence's first unit in `units` (m).  `words` (m) are the units as written in the text.
    """

    def __init__(self, cut: Sequence[Cut], tokenizer: Tokenizer):
        self.firsts = np.cumsum([0, *(len(document.texts) for document in cut)])
        self.marks = np.fromiter(chain.from_iterable(document.marks for document in cut), np.uint8)
        self.units: list[str] = []
        self.words: list[str] = []
        lengths = [0]
        for document in cut:
            for text in document.texts:
                units = tokenizer.split(text)
                self.units += units
                self.words += tokenizer.words(text, units)
                lengths.append(len(units))
        self.unit_starts = np.cumsum(lengths)

    @property
    def starts(self) -> np.ndarray:
        """The first unit of each sentence that has any."""
        return self.unit_starts[:-1][np.diff(self.unit_starts) > 0]


class Cut(NamedTuple):
    """The sentences of one document, and their marks."""

    texts: list[str]
    marks: list[int]


def cut_sentences(document: RawDocument, language: str, detect: bool = False) -> Cut:
    """Return the sentences of a document with their marks; the title and headings are one sentence each.

    With `detect`, a paragraph that is all in the other language is split by that one's rules.
    """
    texts, marks = ([document.title], [_TITLE]) if document.title else ([], [])
    for number, paragraph in enumerate(document.text.split("\n")):
        if number in document.headings:
            texts.append(paragraph)
            marks.append(_HEADING)
        elif found := split_sentences(paragraph, paragraph_language(paragraph, language) if detect else language):
            texts += found
            marks += [_FIRST, *[0] * (len(found) - 1)]
    return Cut(texts, marks)


def annotate(document: RawDocument, cut: Cut, lengths: np.ndarray, flags: np.ndarray, tokenizer: Tokenizer) -> None:
    """Set the `flags` of a document's tokens from its annotation; `lengths` are the token counts of its sentences.

    A token belongs to a span if its first character does.
    """
    assert document.spans is not None
    characters = np.full(len(flags), -1, dtype=np.int64)  # a title's tokens are not in the text
    at, token = 0, 0
    for text, kind, length in zip(cut.texts, cut.marks, lengths, strict=True):
        if kind != _TITLE:
            at = document.text.index(text, at)
            characters[token : token + length] = at + tokenizer.encode(text).offsets[:, 0]
            at += len(text)
        token += length
    first, stop = np.searchsorted(characters, document.spans[:, 0]), np.searchsorted(characters, document.spans[:, 1])
    mark(flags, first, stop, document.spans[:, 2])


def mark(flags: np.ndarray, firsts: np.ndarray, stops: np.ndarray, kinds: np.ndarray) -> None:
    """Set the flags (n,) of the tokens of spans [first, stop); spans without a token are skipped."""
    for kind, (begins, continues) in _FLAGS.items():
        chosen = (kinds == kind) & (firsts < stops)
        steps = np.zeros(len(flags) + 1, dtype=np.int32)
        np.add.at(steps, firsts[chosen], 1)
        np.add.at(steps, stops[chosen], -1)
        flags[np.cumsum(steps[:-1]) > 0] |= np.uint8(continues)
        flags[firsts[chosen]] = flags[firsts[chosen]] & ~np.uint8(continues) | np.uint8(begins)


def _documents(tokens: Tokenized, starts: np.ndarray, sentences: Sentences, sources: np.ndarray) -> Documents:
    """Return the arrays of the documents; sentences without a token are left out."""
    keep = np.diff(starts) > 0
    sizes = np.diff(sentences.firsts)
    token_ends = starts[sentences.firsts[1:]]
    base = np.repeat(starts[sentences.firsts[:-1]], sizes)
    sentence_ends = np.concatenate(([0], np.cumsum(keep)))[sentences.firsts[1:]]
    docs = np.column_stack((token_ends, sentence_ends, sources))
    return Documents(tokens.ids, tokens.flags, (starts[1:] - base)[keep].astype(np.int32), sentences.marks[keep], docs)
