"""Scores of search on judged queries, in folders of the form that BEIR uses.

Thakur et al., 2021, "BEIR: A Heterogenous Benchmark for Zero-shot Evaluation of Information Retrieval Models" (arXiv
2104.08663).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ernie.data.labeled.read import read_split
from ernie.data.labeled.row import Row, RowOptions
from ernie.errors import UserError, about, nearest
from inference.encoder import TextEncoder
from inference.search.searching import By, SearchIndex, checked_query
from tasks.downstream.labels import label_in, number_in
from tasks.downstream.metrics import pearson, spearman

CORPUS, _QUERIES, _JUDGMENTS = "corpus.jsonl", "queries.jsonl", "qrels"
_CUT, _RECALL_CUTS = 10, (10, 100)
_COLUMNS = ("query-id", "corpus-id", "score")
_SHOWN = 3


@dataclass(frozen=True)
class Judged:
    """Queries by id, and for each the relevance of documents by id: 0 for none."""

    queries: Mapping[str, str]
    relevance: Mapping[str, Mapping[str, int]]

    @classmethod
    def read(cls, folder: Path, split: str) -> Judged:
        """Read queries.jsonl and qrels/SPLIT.tsv of a folder; queries without a relevant document are left out.

        Raises UserError for a file that is not there or that is faulty, and for judgments of an unknown query.
        """
        file = folder / _JUDGMENTS / f"{split}.tsv"
        if not file.is_file():
            splits = [path.stem for path in (folder / _JUDGMENTS).glob("*.tsv")]
            raise UserError(f"{file}: there is no such file.{nearest(split, splits)}")
        rows = read_split("queries", [str(folder / _QUERIES)], RowOptions()).rows
        queries = dict(map(_query, rows))
        relevance: dict[str, dict[str, int]] = {}
        for row in read_split(split, [str(file)], RowOptions()).rows:
            with about(str(row.place)):
                query, document, score = _judgment(row)
                if query not in queries:
                    raise UserError(f"there is no query '{query:.40}' in {folder / _QUERIES}")
                relevance.setdefault(query, {})[document] = score
        relevance = {query: own for query, own in relevance.items() if any(score > 0 for score in own.values())}
        if not relevance:
            raise UserError(f"{file}: judges no document as relevant")
        return cls({query: queries[query] for query in relevance}, relevance)


def _query(row: Row) -> tuple[str, str]:
    with about(str(row.place)):
        return row.text("_id"), checked_query(row.text("text"))


def _judgment(row: Row) -> tuple[str, str, int]:
    query, document, score = (row.text(column) for column in _COLUMNS)
    try:
        return query, document, int(float(score))
    except ValueError:
        raise UserError(f"column 'score': expected a whole number, found '{score:.40}'") from None


def evaluate(index: SearchIndex, judged: Judged, by: By) -> dict[str, float]:
    """Return the scores of an index, whose documents have the ids of the judgments.

    A query that is a document itself does not find itself, as in BEIR.  Raises UserError if no query finds a document
    that is judged at all: the ids are others.
    """
    top = max(_RECALL_CUTS)
    found = index.search(judged.queries.values(), top + 1, by, documents=True)
    ranked: dict[str, list[str]] = {}
    for (query, text), hits in zip(judged.queries.items(), found, strict=True):
        others = (hit.passage.id for hit in hits if not (hit.passage.id == query and hit.passage.text in text))
        ranked[query] = [*dict.fromkeys(others)][:top]
    if not any(judged.relevance[query].keys() & {*documents} for query, documents in ranked.items()):
        example, own = next(iter(judged.relevance.values())), next(filter(None, ranked.values()), ["none"])
        raise UserError(
            f"no query finds a document that is judged: judgments name '{next(iter(example)):.40}', and the index has "
            f"'{own[0]:.40}'; --id of ernie search index names the column of the ids"
        )
    return scores(judged.relevance, ranked)


def pair_scores(encoder: TextEncoder, rows: Sequence[Row]) -> dict[str, float]:
    """Return the correlations of the cosines of two texts with their scores, as in the STS tasks of MTEB.

    Rows have the columns `text`, `text_pair` and `score`.  Raises UserError for rows without them.
    """
    texts, others, numbers = list[str](), list[str](), list[float]()
    for row in rows:
        with about(str(row.place)):
            texts.append(row.text("text"))
            others.append(row.text("text_pair"))
            label_in(row, "score")
            numbers.append(number_in(row, "score"))
    cosines = (encoder.encode(texts, normalize=True) * encoder.encode(others, normalize=True)).sum(1).tolist()
    return {"rows": len(rows), "spearman": spearman(numbers, cosines), "pearson": pearson(numbers, cosines)}


def cluster_scores(encoder: TextEncoder, rows: Sequence[Row]) -> dict[str, float]:
    """Return how well clusters of vectors agree with labels, as in the clustering tasks of MTEB: by the V-measure.

    Rows have the columns `text` and `label`.  k-means finds as many clusters as there are labels.  Rosenberg and
    Hirschberg, 2007, "V-Measure: A conditional entropy-based external cluster evaluation measure".  Raises UserError
    for rows without the columns, and for a single label.
    """
    from sklearn.cluster import KMeans
    from sklearn.metrics import v_measure_score

    texts, labels = list[str](), list[str]()
    for row in rows:
        with about(str(row.place)):
            texts.append(row.text("text"))
            labels.append(row.text("label"))
    count = len({*labels})
    if count < 2:
        raise UserError(f"every row has the label '{labels[0]:.40}'; clusters need several")
    vectors_ND = encoder.encode(texts, normalize=True)
    found = KMeans(count, n_init=10, random_state=0).fit_predict(vectors_ND)
    return {"rows": len(rows), "clusters": count, "v_measure": float(v_measure_score(labels, found))}


def scores(relevance: Mapping[str, Mapping[str, int]], ranked: Mapping[str, Sequence[str]]) -> dict[str, float]:
    """Return the means over queries of the scores of ranked documents.

    `ndcg_at_10` has the relevance as gain (Jaervelin and Kekaelaeinen, 2002), as trec_eval does.  `mrr_at_10` is 1 by
    the rank of the first relevant document among ten.  `map_at_100` is the mean precision at each relevant document.
    `recall_at_K` is the share of the relevant documents among the first K.
    """
    sums: dict[str, float] = {}
    for query, judged in relevance.items():
        gains = [max(judged.get(document, 0), 0) for document in ranked[query]]
        ideal = sorted((score for score in judged.values() if score > 0), reverse=True)
        hits = [rank for rank, gain in enumerate(gains, 1) if gain]
        own = {
            "ndcg_at_10": _discounted(gains[:_CUT]) / _discounted(ideal[:_CUT]),
            "mrr_at_10": 1 / hits[0] if hits and hits[0] <= _CUT else 0.0,
            "map_at_100": sum(n / rank for n, rank in enumerate(hits, 1) if rank <= 100) / len(ideal),
            **{f"recall_at_{cut}": sum(rank <= cut for rank in hits) / len(ideal) for cut in _RECALL_CUTS},
        }
        for name, value in own.items():
            sums[name] = sums.get(name, 0.0) + value
    return {name: total / len(relevance) for name, total in sums.items()}


def _discounted(gains: Sequence[int]) -> float:
    return sum(gain / math.log2(rank + 1) for rank, gain in enumerate(gains, 1))
