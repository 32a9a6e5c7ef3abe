"""Discourse relation: how does the second sentence relate to the first?  ERNIE 2.0 (Sun et al., 2019), section 3.2.3.

The labels are mined, as in Sileo et al. (2019, arXiv 1903.11850): the explicit connective that opens a sentence is
removed, and the relation that it marks is the label.  Labeled pairs may come from a file instead.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from ernie.data.document import Document, Flag, Mark, Sample, Tokens
from ernie.data.indexed_table import Table
from ernie.errors import UserError
from ernie.text.tokenizer import Tokenizer
from tasks.base import SequenceTask, pair, pretrain_task
from tasks.connectives import CHINESE, ENGLISH, PREPOSITIONS, RELATIONS

_MIN_TOKENS = 3  # of a sentence without its connective
_COLUMNS = ("first", "second", "label")  # of a file of pairs


@pretrain_task("discourse_relation")
@dataclass(frozen=True, kw_only=True)
class DiscourseRelation(SequenceTask):
    """Classification of a sentence pair by its discourse relation.

    Without `pairs`, sentences that open with a connective (tasks/connectives.py; English and Chinese) are paired with
    the sentence before them in the same paragraph.  `pairs` is a .tsv or .jsonl file with the columns first, second
    and label; the relations are then the labels in it.
    """

    pairs: Path | None = None

    metrics: ClassVar[tuple[str, ...]] = ("macro_f1", "accuracy")

    def class_count(self) -> int:
        return len(self.class_names())

    def class_names(self) -> Sequence[str]:
        return _file_labels(self.pairs) if self.pairs else RELATIONS

    def items(self, documents: Sequence[Any], *, held_out: bool) -> Sequence[Any]:
        if self.pairs is None:
            return documents
        # Split by sentences, not by label: a pair with several labels is held out with all of them.
        return Table(self.pairs, _COLUMNS, by=_COLUMNS[:2]).rows(held_out)

    def samples(self, items: Sequence[Any], tokenizer: Tokenizer, rng: np.random.Generator) -> Iterator[Sample]:
        if self.pairs is None:
            yield from self._mine(items[0], tokenizer)
            return
        row = items[0]
        label = _file_labels(self.pairs).index(row["label"])
        first, second = (tokenizer.encode(row[side]).ids for side in ("first", "second"))
        yield pair(tokenizer, first, second, self.length, label=label)

    def _mine(self, document: Document, tokenizer: Tokenizer) -> Iterator[Sample]:
        if len(document) == 0:
            return
        openings = _openings(tokenizer)
        starts = np.concatenate(([0], document.ends[:-1]))
        may_open = np.isin(document.ids[starts], np.fromiter(openings, np.int64, len(openings)))
        no_predecessor = (document.marks & (Mark.BEGINS_PARAGRAPH | Mark.TITLE | Mark.HEADING)) != 0
        for i in np.flatnonzero(may_open & ~no_predecessor):
            if i == 0 or document.marks[i - 1] & (Mark.TITLE | Mark.HEADING):
                continue
            sentence = document.sentence(int(i))
            for opening, relation in openings[int(sentence.ids[0])]:
                if _begins_with(sentence, opening):
                    rest = sentence.ids[len(opening) :]
                    if relation and len(rest) >= _MIN_TOKENS:
                        first = document.sentence(int(i) - 1).ids
                        yield pair(tokenizer, first, rest, self.length, label=RELATIONS.index(relation))
                    break


def _begins_with(sentence: Tokens, opening: tuple[int, ...]) -> bool:
    """Whether a sentence begins with these tokens as whole words: "In fact", not "In factories"."""
    length = len(opening)
    if tuple(sentence.ids[:length].tolist()) != opening:
        return False
    return not (sentence.flags[length : length + 1] & Flag.CONTINUES_WORD).any()


@lru_cache(maxsize=8)
def _openings(tokenizer: Tokenizer) -> dict[int, list[tuple[tuple[int, ...], str]]]:
    """Map a first token to the token sequences of connectives, longest first, each with its relation ("" for none).

    A comma after the connective belongs to it.  In English a comma is required after a single word of up to four
    letters, as in "So, ..." but not "So far ..."; "But" needs none.  It is also required where the list has one.  Such
    words open sentences in other ways, too.  Followed by a preposition, a connective does not count ("In addition to
    ...").
    """
    relations: dict[tuple[int, ...], str] = {}
    for connective, relation in ENGLISH.items():
        text = connective[0].upper() + connective[1:]
        relations[_ids(tokenizer, text.removesuffix(" ,") + ",")] = relation
        if len(connective) > 4 and not connective.endswith(","):
            relations.setdefault(_ids(tokenizer, text), relation)
            for preposition in PREPOSITIONS:
                relations[_ids(tokenizer, f"{text} {preposition}")] = ""
    for connective, relation in CHINESE.items():
        relations[_ids(tokenizer, connective + "，")] = relation
        if len(connective) > 1:
            relations.setdefault(_ids(tokenizer, connective), relation)
    relations[_ids(tokenizer, "But")] = "contrast"
    by_first: dict[int, list[tuple[tuple[int, ...], str]]] = {}
    for opening, relation in sorted(relations.items(), key=lambda item: -len(item[0])):
        if tokenizer.unk_id not in opening:
            by_first.setdefault(opening[0], []).append((opening, relation))
    return by_first


def _ids(tokenizer: Tokenizer, text: str) -> tuple[int, ...]:
    return tuple(tokenizer.encode(text).ids.tolist())


@lru_cache(maxsize=8)
def _file_labels(path: Path) -> list[str]:
    table = Table(path, _COLUMNS)
    labels = set()
    for i, row in enumerate(table):
        if not row["label"].strip():
            raise UserError(f"{table.place(i)}: label: is empty; leave out rows without a relation")
        labels.add(row["label"])
    return sorted(labels)
