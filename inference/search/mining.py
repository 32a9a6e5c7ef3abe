"""Hard negatives: passages of an index that are near a text and do not belong to it.

Those that score nearly as high as the text's own passage are probably right answers, too, and are dropped: Moreira et
al., 2024, "NV-Retriever: Improving text embedding models with effective hard-negative mining" (arXiv 2407.15831),
section 3.1, TopK-PercPos.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ernie.data.labeled.row import Row
from ernie.errors import UserError, about, check_count
from ernie.formatting import plural
from inference.search.index import encode
from inference.search.searching import By, Hit, SearchIndex, Wish, checked_query

NEGATIVES, SCORES = "negatives", "teacher_scores"


@dataclass(frozen=True)
class Mining:
    """Which passages become negatives.

    They are `count` of those that the index finds at the ranks from `first` to `last`, whose own score is less than
    `most` of that of the row's passage; `most` 0 keeps them all.  Columns `text` and `text_pair` hold the rows' pairs.
    """

    text: str = "text"
    text_pair: str = "text_pair"
    count: int = 5
    first: int = 1
    last: int = 50
    most: float = 0.95
    by: By | None = None

    def __post_init__(self) -> None:
        check_count("count", self.count, 1)
        check_count("from", self.first, 1)
        if self.last < self.first:
            raise UserError(f"to: expected at least the rank {self.first}, from which on, found {self.last}")
        if not 0 <= self.most <= 1:
            raise UserError(f"most: expected a part from 0 (no limit) to 1, found {self.most:g}")


@dataclass
class Counts:
    """What became of candidates: `own` belong to the text by some row, `likely` score too high to be wrong.

    `without` counts the rows that found no negative, and `left_out` says whether they were not written.
    """

    rows: int = 0
    negatives: int = 0
    own: int = 0
    likely: int = 0
    without: int = 0
    left_out: bool = False


def mined(index: SearchIndex, rows: Sequence[Row], mining: Mining, counts: Counts) -> Iterator[dict[str, Any]]:
    """Yield the rows with negatives, and with the scores of a model that ranks, if the index has one.

    These are logits of the row's own passage and of each negative, as `teacher_scores` of the kind `embed` takes them.
    Rows without negatives are kept unless there are such scores.  Raises UserError for rows without the columns, and
    for a limit that has no score to compare.
    """
    reranker, encoder = index.model.reranker, index.model.encoder
    if mining.most and reranker is None and encoder is None:
        raise UserError("most: needs scores of a model: give --rerank, or --most 0 to keep all passages")
    pairs = [_pair(row, mining) for row in rows]
    belonging: dict[str, set[str]] = {}
    for text, own in pairs:
        belonging.setdefault(text, set()).add(_plain(own))
    for row, (text, own), hits in zip(rows, pairs, _found(index, pairs, mining), strict=True):
        counts.rows += 1
        candidates = [hit for hit in hits if not _belongs(hit, belonging[text])]
        counts.own += len(hits) - len(candidates)
        scores = _scores(index, text, [own, *(hit.passage.searched for hit in candidates)])
        limit = np.inf if scores is None or not mining.most else mining.most * scores.compared[0]
        chosen = list[int]()
        for number in range(len(candidates)):
            if scores is not None and scores.compared[number + 1] >= limit:
                counts.likely += 1
            elif len(chosen) < mining.count:
                chosen.append(number)
        counts.negatives += len(chosen)
        counts.without += not chosen
        found: dict[str, Any] = {**row, NEGATIVES: [candidates[number].passage.searched for number in chosen]}
        if reranker is not None and scores is not None:
            if not chosen:
                counts.left_out = True
                continue
            found[SCORES] = [scores.written[0], *(scores.written[number + 1] for number in chosen)]
        yield found


@dataclass(frozen=True)
class _Scores:
    """The scores of a text's own passage and of candidates: those that are compared, and those that are written."""

    compared: Sequence[float]
    written: Sequence[float]


def _found(index: SearchIndex, pairs: Sequence[tuple[str, str]], mining: Mining) -> Iterator[list[Hit]]:
    plain = SearchIndex(index.model.without_reranker)
    for first in range(0, len(pairs), 256):
        texts = [text for text, _ in pairs[first : first + 256]]
        for hits in plain.search(texts, Wish(mining.last).top, mining.by):
            yield hits[mining.first - 1 :]


def _scores(index: SearchIndex, text: str, passages: Sequence[str]) -> _Scores | None:
    """Return scores of passages for a text, by the model that ranks or by cosines; None without either."""
    reranker, encoder, info = index.model.reranker, index.model.encoder, index.model.info
    if reranker is not None:
        answers = index.model.answers(text, passages)
        return _Scores([answer["score"] for answer in answers], [answer["raw_score"] for answer in answers])
    if encoder is None:
        return None
    (query,) = encode(encoder, [text], info.query_prompt, info.normalized)
    products = encode(encoder, passages, info.passage_prompt, info.normalized) @ query
    return _Scores(products.tolist(), [])


def _pair(row: Row, mining: Mining) -> tuple[str, str]:
    with about(str(row.place)):
        return checked_query(row.text(mining.text)), row.text(mining.text_pair)


def _belongs(hit: Hit, own: set[str]) -> bool:
    """Whether a passage is one of the texts that belong to a query, or a part of one, or has one in it."""
    text, searched = _plain(hit.passage.text), _plain(hit.passage.searched)
    return any(text in other or searched in other or other in searched for other in own)


def _plain(text: str) -> str:
    return " ".join(text.split()).casefold()


def summary(counts: Counts, mining: Mining) -> str:
    """Return what was found and dropped, in words."""
    mean = counts.negatives / max(1, counts.rows)
    likely = f", and {counts.likely:,} that score at least {mining.most:g} of its own" if mining.most else ""
    left = " and are left out, as there is no score to learn" if counts.left_out else ""
    return (
        f"{plural(counts.rows, 'row')}, {mean:.2f} negatives each; dropped: {counts.own:,} that belong to the text"
        f"{likely}; {plural(counts.without, 'row')} had no negative{left}"
    )
