"""IR relevance: how well does this passage answer the query?  ERNIE 2.0 (Sun et al., 2019), section 3.2.3.

The paper trains on a search engine's click log.  Without one, a title or heading serves as the query: a proxy, and
labeled as such in the reports.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np

from ernie.data.document import Document, Mark, Sample
from ernie.data.indexed_table import Table, are_held_out, hash_of
from ernie.errors import UserError
from ernie.text.tokenizer import Tokenizer
from tasks.base import SequenceTask, pair, pretrain_task
from tasks.passages import common_length

STRONG, WEAK, RANDOM = range(3)
_NUMBER = re.compile("-?[0-9]+")


class Pairs:
    """A set of (query, passage) pairs, by their names in a file, stored as eight-byte hashes."""

    def __init__(self, pairs: Iterable[tuple[str, str]]):
        self._hashes = np.unique(np.fromiter(map(self._hash, pairs), np.uint64))

    def __contains__(self, pair: tuple[str, str]) -> bool:
        index = int(np.searchsorted(self._hashes, self._hash(pair)))
        return index < len(self._hashes) and bool(self._hashes[index] == self._hash(pair))

    @staticmethod
    def _hash(pair: tuple[str, str]) -> np.uint64:
        return np.uint64(hash_of("\x1f".join(pair), 8))


class Judged(NamedTuple):
    """A query and a passage that was shown for it, graded STRONG or WEAK, the names of both in the file, and all pairs
    that were judged."""

    query: str
    passage: str
    grade: int
    names: tuple[str, str]
    judged: Pairs


@pretrain_task("ir_relevance")
@dataclass(frozen=True, kw_only=True)
class IRRelevance(SequenceTask):
    """Three-way classification of a query and a passage: strongly relevant, weakly relevant, random.

    From documents: the query is a heading (after the document's title); its own section is strong, another passage of
    the same document weak, a passage of another document random.  In a document without headings the title is the
    query, the first third of the text is strong, and the rest is weak.  Without a title the first sentence is the
    query, unless `first_sentence` is false.

    From `clicks`, a .tsv or .jsonl file with the columns query, passage, clicked (1 or 0): clicked is strong, shown
    only is weak.  `judgements` is a TREC qrels file (query 0 passage relevance), and `queries` and `passages` are its
    texts (.tsv or .jsonl with the columns id, text).  A relevance of at least `strong_from` is strong, any other above
    zero is weak.  A passage of another row is random, unless the file judges it for this query too, with any relevance.

    With documents, all three candidate passages are cut to one length, at most the shortest one's, so that neither
    length nor the end of a sentence gives the label away.
    """

    first_sentence: bool = True
    clicks: Path | None = None
    judgements: Path | None = None
    queries: Path | None = None
    passages: Path | None = None
    strong_from: int = 2

    classes: ClassVar[int] = 3
    window: ClassVar[int] = 2
    metrics: ClassVar[tuple[str, ...]] = ("accuracy", "macro_f1")

    def __post_init__(self) -> None:
        if self.clicks and self.judgements:
            raise UserError("clicks and judgements: give one of them, not both")
        if self.judgements and not (self.queries and self.passages):
            raise UserError("judgements: needs the files queries and passages too")
        for name in ("queries", "passages"):
            if getattr(self, name) and not self.judgements:
                raise UserError(f"{name}: belongs to judgements, a file that says which passages answer which query")

    def items(self, documents: Sequence[Any], *, held_out: bool) -> Sequence[Any]:
        if self.clicks:
            return Clicks(self.clicks, held_out)
        if self.judgements and self.queries and self.passages:
            return Judgements(self.judgements, self.queries, self.passages, self.strong_from, held_out)
        return documents

    def samples(self, items: Sequence[Any], tokenizer: Tokenizer, rng: np.random.Generator) -> Iterator[Sample]:
        if isinstance(items[0], Judged):
            yield self._from_judged(items[0], items[1], tokenizer, rng)
        else:
            yield from self._from_documents(items[0], items[1].body(), tokenizer, rng)

    def _from_judged(self, here: Judged, there: Judged, tokenizer: Tokenizer, rng: np.random.Generator) -> Sample:
        """Return the judged pair or, one time in three, the query with the passage of another row."""
        known = (here.names[0], there.names[1]) in here.judged or here.passage == there.passage
        random = rng.integers(3) == RANDOM and not known
        passage, grade = (there.passage, RANDOM) if random else (here.passage, here.grade)
        query_ids, passage_ids = tokenizer.encode(here.query).ids, tokenizer.encode(passage).ids
        return pair(tokenizer, query_ids, passage_ids, self.length, label=grade)

    def _from_documents(
        self, here: Document, there: Document, tokenizer: Tokenizer, rng: np.random.Generator
    ) -> Iterator[Sample]:
        if len(there) == 0:
            return
        for query, own, others in self._queries(here):
            label = int(rng.integers(self.classes))
            query_ids = query[: (self.length - 3) // 2]
            max_tokens = self.length - 3 - len(query_ids)
            origins = {STRONG: (here, own), WEAK: (here, others), RANDOM: (there, range(len(there)))}
            passages = {grade: _passage(*origin, max_tokens, rng) for grade, origin in origins.items()}
            size = common_length(min(map(len, passages.values())), rng)
            yield pair(tokenizer, query_ids, passages[label][:size], self.length, label=label)

    def _queries(self, document: Document) -> Iterator[tuple[np.ndarray, Sequence[int] | np.ndarray, np.ndarray]]:
        """Yield each query of a document, the sentences that answer it, and those of its other sections."""
        heading = (document.marks & Mark.HEADING) != 0
        is_title = (document.marks & Mark.TITLE) != 0
        text = np.flatnonzero(~(heading | is_title))
        title = np.flatnonzero(is_title)
        title_ids = document.sentence(int(title[0])).ids if len(title) else np.empty(0, document.ids.dtype)
        found = False
        for begin, end in pairwise([*np.flatnonzero(heading).tolist(), len(document)]):
            others = text[(text < begin) | (text >= end)]
            if end - begin > 1 and len(others):
                found = True
                yield np.concatenate((title_ids, document.sentence(begin).ids)), range(begin + 1, end), others
        if found:
            return
        if len(title) == 0 and self.first_sentence and len(text):
            title_ids, text = document.sentence(int(text[0])).ids, text[1:]
        third = max(1, len(text) // 3)
        if len(title_ids) and len(text) >= 2:
            yield title_ids, range(int(text[0]), int(text[third - 1]) + 1), text[third:]


def _passage(
    document: Document, sentences: Sequence[int] | np.ndarray, max_tokens: int, rng: np.random.Generator
) -> np.ndarray:
    """Return consecutive sentences from a random one on, at most `max_tokens` tokens."""
    first = int(rng.integers(len(sentences)))
    last = first + 1
    begin = int(sentences[first])
    while (
        last < len(sentences)
        and int(sentences[last]) == begin + last - first
        and len(document.run(begin, int(sentences[last]) + 1).ids) <= max_tokens
    ):
        last += 1
    return document.run(begin, begin + last - first).ids[: max(1, max_tokens)]


def _held_out(queries: set[str]) -> set[str]:
    names = sorted(queries)
    held = are_held_out(np.array([hash_of(name) for name in names], np.uint32))
    return {name for name, out in zip(names, held.tolist(), strict=True) if out}


class Clicks(Sequence[Judged]):
    """The rows of a click log; about one query in ten is held out with all its rows, by a hash of its text."""

    def __init__(self, path: Path, held_out: bool):
        table = Table(path, ("query", "passage", "clicked"), by=("query",))
        self._judged = Pairs(self._checked(table))
        self._rows = table.rows(held_out)

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, i: int) -> Judged:  # type: ignore[override]
        row = self._rows[i]
        names = row["query"], row["passage"]
        return Judged(*names, STRONG if row["clicked"] == "1" else WEAK, names, self._judged)

    def _checked(self, table: Table) -> Iterator[tuple[str, str]]:
        for i, row in enumerate(table):
            if row["clicked"] not in ("0", "1"):
                raise UserError(f"{table.place(i)}: clicked: expected 0 or 1, found '{row['clicked']}'")
            yield row["query"], row["passage"]


class Judgements(Sequence[Judged]):
    """The positive judgements of a TREC qrels file; about one query in ten is held out, by a hash of its name."""

    def __init__(self, judgements: Path, queries: Path, passages: Path, strong_from: int, held_out: bool):
        self._paths = (queries, passages)
        self._pairs: list[tuple[str, str, int]] = []
        judged: list[tuple[str, str]] = []
        positive: list[tuple[int, str, str]] = []
        try:
            lines = judgements.read_text(encoding="utf-8-sig").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise UserError(f"{judgements}: cannot be read: {error}") from None
        held = _held_out({line.split()[0] for line in lines if line.strip()})
        for number, line in enumerate(lines, 1):
            cells = line.split()
            if not cells:
                continue
            if len(cells) != 4 or not _NUMBER.fullmatch(cells[3]):
                raise UserError(f"{judgements}:{number}: expected 'query 0 passage relevance', found '{line}'")
            judged.append((cells[0], cells[2]))
            relevance = int(cells[3])
            if relevance > 0:
                positive.append((number, cells[0], cells[2]))
            if relevance > 0 and (cells[0] in held) == held_out:
                self._pairs.append((cells[0], cells[2], STRONG if relevance >= strong_from else WEAK))
        self._judged = Pairs(judged)
        _check_ids(judgements, positive, queries, passages)

    def __len__(self) -> int:
        return len(self._pairs)

    def __getitem__(self, i: int) -> Judged:  # type: ignore[override]
        query, passage, grade = self._pairs[i]
        queries, passages = self._texts
        return Judged(queries[query], passages[passage], grade, (query, passage), self._judged)

    @cached_property
    def _texts(self) -> tuple[dict[str, str], dict[str, str]]:
        """The texts of the queries and of the passages with a positive judgement, by id."""
        wanted = ({query for query, _, _ in self._pairs}, {passage for _, passage, _ in self._pairs})
        queries, passages = (
            {row["id"]: row["text"] for row in Table(path, ("id", "text")) if row["id"] in ids}
            for path, ids in zip(self._paths, wanted, strict=True)
        )
        return queries, passages


def _check_ids(judgements: Path, lines: Sequence[tuple[int, str, str]], queries: Path, passages: Path) -> None:
    """Raise UserError for a line that names a query or a passage that its file lacks, or has twice.

    All are checked at once: training would end when a missing one is first wanted, perhaps after hours.
    """
    for place, path in ((1, queries), (2, passages)):
        table, wanted = Table(path, ("id", "text")), {line[place] for line in lines}
        found: dict[str, int] = {}
        for i, row in enumerate(table):
            if row["id"] in wanted and found.setdefault(row["id"], i) != i:
                first = table.place(found[row["id"]]).line
                raise UserError(f"{table.place(i)}: the id '{row['id']}' is that of line {first}, too; give each once")
        for line in lines:
            if line[place] not in found:
                raise UserError(f"{judgements}:{line[0]}: {path} has no row with the id '{line[place]}'")
