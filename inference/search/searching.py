"""A loaded index: the passages that answer a query, by their vectors, by their words, or by both.

Legend: N passages, Q queries, D width, K found.
"""

from __future__ import annotations

import mmap
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, get_args
from zipfile import BadZipFile

import numpy as np

from ernie.errors import Remark, UserError, about, check_count, nearest
from ernie.kernels.precision import InferencePrecisionChoice
from ernie.outcome import Outcome
from ernie.text.blank import is_blank
from ernie.text.surrogates import require_encodable
from ernie.text.tokenizer import Tokenizer
from inference.encoder import Encode, LoadedEncoder, TextEncoder
from inference.face import Face, Facts, face
from inference.operation import Operation, Prepared
from inference.search.bm25 import Bm25
from inference.search.index import (
    AGAIN,
    INDEX,
    VECTORS,
    IndexInfo,
    as_passage,
    fingerprint,
    passages_file,
    read_numbers,
    shortened,
)
from inference.search.nearest import Nearest, best, exact
from inference.search.passages import Passage
from inference.task_model import TaskModel
from tasks.downstream.base import Answer
from tasks.downstream.rank import Rank
from tasks.downstream.saved import find_model, read_task

By = Literal["hybrid", "dense", "bm25"]
BYS: tuple[str, ...] = get_args(By)
_DEPTH = 100  # passages of each ranking that are put together, at least
_CONSTANT = 60  # of reciprocal rank fusion
_RERANKED = 30  # passages that a model ranks, at least
_MOST = 1000  # passages in an answer
_WORD = 4  # characters of a word, about, where there is no tokenizer


@dataclass(frozen=True)
class Hit:
    """A passage that was found, and its scores.

    `score` is that by which it was ranked.  `scores` has those of each ranking that found it: `dense`, `bm25`, their
    fusion `hybrid`, and the relevance `rerank`.
    """

    passage: Passage
    score: float
    scores: Mapping[str, float]

    def as_dict(self, rank: int) -> dict[str, Any]:
        """Return the hit as plain data."""
        passage = self.passage
        more: dict[str, Any] = {"title": passage.title} if passage.title else {}
        if passage.cells:
            more["cells"] = dict(passage.cells)
        return {
            "rank": rank,
            "score": self.score,
            "id": passage.id,
            **more,
            "text": passage.text,
            "file": passage.file,
            "line": passage.line,
            "scores": dict(self.scores),
        }


@dataclass(frozen=True)
class Wish:
    """What a search is to return: how many passages, ranked by what, and each document at most once if asked."""

    top: int = 10
    by: By | None = None
    documents: bool = False

    def __post_init__(self) -> None:
        check_count("top", self.top, 1)
        if self.top > _MOST:
            raise UserError(f"top: expected at most {_MOST:,}, found {self.top:,}")
        if self.by is not None and self.by not in BYS:
            raise UserError(f"by: expected one of {', '.join(BYS)}, found {self.by!r:.40}.{nearest(str(self.by), BYS)}")
        if not isinstance(self.documents, bool):
            raise UserError(f"documents: expected true or false, found {self.documents!r:.40}")


@dataclass(frozen=True, eq=False)
class LoadedIndex:
    """An index in memory, but for its passages, which are read as they are found.

    With a `reranker`, of the kind `rank`, the best passages are ranked again by their relevance.
    """

    folder: Path
    info: IndexInfo
    words: Bm25
    vectors_ND: np.ndarray | None
    approximate: Nearest | None
    encoder: TextEncoder | None
    reranker: TaskModel | None
    offsets: np.ndarray
    documents: np.ndarray
    content: mmap.mmap

    @classmethod
    def load(
        cls,
        folder: str | Path,
        precision: InferencePrecisionChoice | None = None,
        model: str | Path | None = None,
        rerank: str | Path | None = None,
        trust_plugins: Sequence[str] | bool = (),
    ) -> LoadedIndex:
        """Load an index with the model that made its vectors, found where it was then or in the folder `model`.

        `rerank` is a run of the kind `rank`.  Raises UserError for another model, and for a damaged index.
        """
        folder = Path(folder)
        info = IndexInfo.read(folder)
        encoder = None if info.model is None else _encoder(folder, info, precision, model)
        if info.model is None and model is not None:
            raise UserError(f"{folder}: was made without a model, and finds by words; leave out the model")
        try:
            numbers = read_numbers(folder)
            words = Bm25.read(folder)
            vectors = None if encoder is None else np.load(folder / VECTORS, mmap_mode="r", allow_pickle=False)
            with passages_file(folder).open("rb") as file:
                content = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        except (OSError, ValueError, KeyError, EOFError, BadZipFile) as error:
            raise UserError(f"{folder}: the index is damaged ({type(error).__name__}: {error}). {AGAIN}") from None
        sizes = {len(numbers["offsets"]) - 1, len(numbers["documents"]), words.count}
        is_of_width = vectors is None or vectors.shape == (info.passages, info.width)
        if not is_of_width or sizes != {info.passages} or int(numbers["offsets"][-1]) != len(content):
            raise UserError(f"{folder}: the index is damaged: its files are not of the same passages. {AGAIN}")
        approximate = Nearest.read(folder, info.vectors, info.effort) if info.vectors != "exact" else None
        reranker = None if rerank is None else _reranker(rerank, info, precision, trust_plugins)
        return cls(
            folder, info, words, vectors, approximate, encoder, reranker, numbers["offsets"], numbers["documents"],
            content,
        )  # fmt: skip

    @property
    def precision(self) -> InferencePrecisionChoice:
        """The precision of the encoder's matrix products."""
        return "fp32" if self.encoder is None else self.encoder.precision

    @property
    def tokenizer(self) -> Tokenizer:
        """The encoder's tokenizer.  Raises UserError without one."""
        if self.encoder is None:
            raise UserError(f"{self.folder}: was made without a model, so there is no tokenizer")
        return self.encoder.tokenizer

    @property
    def without_reranker(self) -> LoadedIndex:
        """The same index, whose passages no model ranks again."""
        return replace(self, reranker=None)

    def passage(self, number: int) -> Passage:
        """Return the passage of this number."""
        line = self.content[int(self.offsets[number]) : int(self.offsets[number + 1])]
        try:
            return as_passage(line)
        except (ValueError, TypeError):
            raise UserError(f"{passages_file(self.folder)}: is damaged at passage {number:,}. {AGAIN}") from None

    def by(self, wish: Wish) -> By:
        """Return what a search ranks by.  Raises UserError for vectors of an index that has none."""
        if wish.by in ("dense", "hybrid") and self.encoder is None:
            raise UserError(f"by: {wish.by} needs vectors, and this index was made without a model; it finds by bm25")
        return wish.by or ("bm25" if self.encoder is None else "hybrid")

    def find(self, query: str, vector_D: np.ndarray | None, wish: Wish) -> list[Hit]:
        """Return the passages that answer a query, whose vector is given if there is a model, the best first."""
        by = self.by(wish)
        if vector_D is not None:
            vector_D = shortened(vector_D[None], self.info.width, self.info.normalized)[0]
        depth = min(self.info.passages, max(_DEPTH, wish.top) * (4 if wish.documents else 1))
        rankings: dict[str, tuple[np.ndarray, np.ndarray]] = {}
        if by != "bm25" and vector_D is not None:
            assert self.vectors_ND is not None
            near = self.approximate
            rankings["dense"] = (
                exact(self.vectors_ND, vector_D, depth) if near is None else near.search(vector_D, depth)
            )
        if by != "dense":
            rows, scores = best(self.words.scores(query), depth)
            rankings["bm25"] = rows[scores > 0], scores[scores > 0]
        scores_of: dict[int, dict[str, float]] = {}
        for name, (rows, scores) in rankings.items():
            for row, score in zip(rows.tolist(), scores.tolist(), strict=True):
                scores_of.setdefault(row, {})[name] = score
        if by == "hybrid":
            for row, fused in fusion([rows for rows, _ in rankings.values()]).items():
                scores_of[row]["hybrid"] = fused
        ranked = sorted(scores_of, key=lambda row: (-scores_of[row][by], row))
        if wish.documents:
            first = dict[int, int]()
            for row in ranked:
                first.setdefault(int(self.documents[row]), row)
            ranked = [*first.values()]
        if self.reranker is not None:
            considered = ranked[: max(_RERANKED, wish.top)]
            answers = self.answers(query, [self.passage(row).searched for row in considered])
            for row, answer in zip(considered, answers, strict=True):
                scores_of[row]["rerank"] = answer["score"]
            ranked = sorted(considered, key=lambda row: -scores_of[row]["rerank"])
        last = by if self.reranker is None else "rerank"
        return [Hit(self.passage(row), scores_of[row][last], scores_of[row]) for row in ranked[: wish.top]]

    def answers(self, query: str, passages: Sequence[str]) -> list[Answer]:
        """Return what the model of the kind rank answers to passages for a query, with logits."""
        assert self.reranker is not None
        task = self.reranker.task
        assert isinstance(task, Rank)
        pairs = [{task.text: query, task.text_pair: passage} for passage in passages]
        return [outcome.get() for outcome in self.reranker.outcomes(pairs)]


def fusion(rankings: Sequence[np.ndarray]) -> dict[int, float]:
    """Return the sum over rankings of 1 / (60 + rank) for each passage, the first of a ranking having the rank 1.

    Reciprocal rank fusion: Cormack, Clarke and Buettcher, 2009, "Reciprocal Rank Fusion outperforms Condorcet and
    Individual Rank Learning Methods", section 2.
    """
    scores: dict[int, float] = {}
    for rows in rankings:
        for rank, row in enumerate(rows.tolist(), 1):
            scores[row] = scores.get(row, 0.0) + 1 / (_CONSTANT + rank)
    return scores


def checked_query(given: Any) -> str:
    """Return a query.  Raises UserError for one that is blank or no text."""
    if not isinstance(given, str) or is_blank(given):
        raise UserError(f"expected a query, found {given!r:.60}")
    return require_encodable(given)


def is_index(folder: str | Path) -> bool:
    """Whether a folder holds an index."""
    return (Path(folder) / INDEX).is_file()


def _encoder(
    folder: Path, info: IndexInfo, precision: InferencePrecisionChoice | None, model: str | Path | None
) -> TextEncoder:
    """Return the model that made the vectors of an index.  Raises UserError if it is gone, or is another one."""
    assert info.model is not None
    with about(folder):
        try:
            encoder = load_encoder(model or info.model, precision)
        except UserError as error:
            way = "" if model else " If it has moved, --model says where it is now (`model` in a server's `decoding`)."
            raise UserError(f"the model that made the vectors cannot be loaded: {error}{way}") from None
        if fingerprint(encoder) != info.fingerprint:
            raise UserError(
                f"{model or info.model} is not the model that made the vectors of this index. {AGAIN[:-1]} with "
                "--overwrite, or give that model"
            )
    return encoder


def load_encoder(path: str | Path, precision: InferencePrecisionChoice | None) -> TextEncoder:
    """Load an encoder, or the one of a run of the kind `embed`.  Raises UserError for a run of another kind."""
    if (found := find_model(Path(path))) is not None:
        task, _ = read_task(found)
        if task.face != "encode":
            raise UserError(
                f"{path}: is a model of the kind {task.variant_name}; vectors are made by encoders and embed"
            )
        loaded = TaskModel.load(path, (), precision)
        return TextEncoder(LoadedEncoder(loaded.ernie, loaded.precision or "auto"))
    return TextEncoder(LoadedEncoder.load(path, precision))


def _reranker(
    path: str | Path,
    info: IndexInfo,
    precision: InferencePrecisionChoice | None,
    trust_plugins: Sequence[str] | bool,
) -> TaskModel:
    with about("rerank"):
        model = TaskModel.load(path, trust_plugins, precision)
        if not isinstance(model.task, Rank):
            raise UserError(f"{path}: is a model of the kind {model.task.variant_name}, expected one of the kind rank")
    model.change_decoding(raw_scores=True)
    if model.task.max_len <= info.length:
        warnings.warn(
            f"{path}: reads {model.task.max_len} tokens of a query and a passage together, and passages have up to "
            f"{info.length}: it does not read the ends of some",
            Remark,
            stacklevel=3,
        )
    return model


class Find(Operation):
    """The passages that answer a query, as plain data; the settings are those of `Wish`."""

    settings = frozenset({"top", "by", "documents"})

    def __init__(self, index: LoadedIndex):
        self._index = index
        self._encode = None if index.encoder is None else Encode(index.encoder.model)

    @property
    def longest(self) -> int:
        return 512 if self._encode is None else self._encode.longest

    def prepare(self, given: Any, row: int = 0, **settings: Any) -> Prepared:
        with about(f"text {row}"):
            query = checked_query(given)
        wish = Wish(**settings)
        if self._encode is None or self._index.by(wish) == "bm25":
            return Prepared(1 + len(query) // _WORD, (query, None, wish))
        info = self._index.info
        text = self._encode.prepare(query, row, prompt=info.query_prompt, normalize=info.normalized)
        return replace(text, content=(query, text, wish))

    def compute(self, batch: Sequence[Prepared]) -> list[Outcome[list[dict[str, Any]]]]:
        texts = [prepared.content[1] for prepared in batch if prepared.content[1] is not None]
        vectors = iter(self._encode.compute(texts) if self._encode is not None and texts else [])
        return [self._outcome(prepared, vectors) for prepared in batch]

    def _outcome(self, prepared: Prepared, vectors: Any) -> Outcome[list[dict[str, Any]]]:
        query, text, wish = prepared.content
        try:
            vector_D = None if text is None else next(vectors).get()
            hits = self._index.find(query, vector_D, wish)
        except UserError as error:
            return Outcome(error=error, notes=prepared.notes)
        return Outcome([hit.as_dict(rank) for rank, hit in enumerate(hits, 1)], notes=prepared.notes)

    def exercise(self, lengths: Sequence[int]) -> None:
        index = self._index
        vector_D = None
        if self._encode is not None:
            self._encode.exercise(lengths)
            vector_D = np.full(index.info.width, index.info.width**-0.5, np.float32)
        words = index.passage(0).text[:200]
        for _ in lengths:
            index.find(words, vector_D, Wish())


@face("search")
class SearchIndex(Face):
    """Finds the passages of an index that answer queries."""

    def __init__(self, model: LoadedIndex):
        super().__init__(model)

    @cached_property
    def operations(self) -> Mapping[str, Operation]:
        """`search`: the passages that answer a query."""
        return {"search": Find(self.model)}

    @cached_property
    def facts(self) -> Facts:
        """What the model behind the vectors is."""
        return Facts() if self.model.encoder is None else self.model.encoder.facts

    def search(
        self, queries: Iterable[str], top: int = 10, by: By | None = None, documents: bool = False
    ) -> list[list[Hit]]:
        """Return the `top` passages for each query, the best first.

        They are ranked `by` their vectors (`dense`), their words (`bm25`), or both (`hybrid`).  The default is `hybrid`
        where there are vectors.  With `documents` each document comes once, by its best passage.  Raises UserError for
        a query without a word.
        """
        index, wish = self.model, Wish(top, by, documents)
        queries = [queries] if isinstance(queries, str) else list(queries)
        for number, query in enumerate(queries):
            with about(f"text {number}"):
                checked_query(query)
        if index.encoder is None or index.by(wish) == "bm25":
            vectors: Sequence[np.ndarray | None] = [None] * len(queries)
        elif queries:
            info = index.info
            vectors = index.encoder.encode(queries, prompt=info.query_prompt, normalize=info.normalized)
        else:
            vectors = []
        return [index.find(query, vector, wish) for query, vector in zip(queries, vectors, strict=True)]
