"""The passages whose vectors have the largest products with a query's: exactly, or by an approximate index of FAISS.

Legend: N passages, Q queries, D width, K found.
"""

from __future__ import annotations

import logging
import math
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

import numpy as np

from ernie.errors import UserError

Kind = Literal["exact", "hnsw", "ivf"]
_FILE = "vectors.faiss"
_LARGE = 200_000  # vectors, from which on the choice is an approximate index
_LINKS = 32  # of a vector in HNSW
_TRAINING = 64  # vectors for each list of IVF, from which its centers are found
_ASKED, _NEIGHBORS = 200, 10  # of the measured recall
_ENOUGH = 0.95
_BLOCK = 1 << 16  # vectors that are handed to FAISS at once


@dataclass(frozen=True, eq=False)
class Nearest:
    """An approximate index of FAISS.

    `hnsw` is a graph of neighbors (Malkov and Yashunin, 2018, arXiv 1603.09320).  `ivf` are lists of vectors by the
    nearest of some centers (Sivic and Zisserman, 2003, "Video Google").  `effort` is how many candidates the one
    keeps, or how many lists the other reads.
    """

    kind: Kind
    index: Any
    effort: int

    @classmethod
    def of(cls, kind: Kind, vectors_ND: np.ndarray) -> tuple[Nearest, float]:
        """Index vectors; return the index, with the effort that it takes, and its measured recall.

        The effort is doubled until the recall is 0.95.  That is the share of the ten nearest other passages that are
        found for 200 of the passages, drawn at random.
        """
        faiss = _faiss()
        N, D = vectors_ND.shape
        lists = max(1, min(N // _TRAINING, int(4 * math.sqrt(N))))
        name = f"HNSW{_LINKS},Flat" if kind == "hnsw" else f"IVF{lists},Flat"
        index = faiss.index_factory(D, name, faiss.METRIC_INNER_PRODUCT)
        rng = np.random.default_rng(0)
        if kind == "ivf":
            index.cp.min_points_per_centroid = 1  # few vectors need no warning: their recall is measured
            index.train(vectors_ND[np.sort(rng.choice(N, min(N, _TRAINING * lists), replace=False))])
        for first in range(0, N, _BLOCK):
            index.add(np.ascontiguousarray(vectors_ND[first : first + _BLOCK]))
        asked = np.sort(rng.choice(N, min(N, _ASKED), replace=False))
        expected = [_others(exact(vectors_ND, vectors_ND[row], _NEIGHBORS + 1)[0], row) for row in asked]
        effort, most = (16, N) if kind == "hnsw" else (1, lists)
        while True:
            found = cls(kind, index, effort)
            rows = [_others(found.search(vectors_ND[row], _NEIGHBORS + 1)[0], row) for row in asked]
            hits = sum(len({*own} & {*all_}) for own, all_ in zip(rows, expected, strict=True))
            recall = hits / max(1, sum(map(len, expected)))
            if recall >= _ENOUGH or effort >= most:
                return found, recall
            effort = min(2 * effort, most)

    def search(self, query_D: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the passages (K,) found nearest, the nearest first, and their products with the query."""
        faiss = _faiss()
        if self.kind == "hnsw":
            wanted = faiss.SearchParametersHNSW(efSearch=max(self.effort, count))
        else:
            wanted = faiss.SearchParametersIVF(nprobe=self.effort)
        products_1K, rows_1K = self.index.search(np.ascontiguousarray(query_D[None]), count, params=wanted)
        kept = rows_1K[0] >= 0  # FAISS fills up with -1
        return rows_1K[0][kept], products_1K[0][kept]

    def write(self, folder: Path) -> None:
        """Write the index into the folder of an index."""
        _faiss().write_index(self.index, str(folder / _FILE))

    @classmethod
    def read(cls, folder: Path, kind: Kind, effort: int) -> Nearest:
        """Read what `write` has written.  Raises UserError for a file that is damaged."""
        try:
            return cls(kind, _faiss().read_index(str(folder / _FILE)), effort)
        except RuntimeError as error:
            raise UserError(f"{folder / _FILE}: cannot be read ({str(error)[:200]}); make the index again") from None


def exact(vectors_ND: np.ndarray, query_D: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the passages (K,) with the largest products, the largest first, and these products."""
    return best(vectors_ND @ query_D, count)


def best(scores_N: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the numbers of the largest scores, the largest first, and these scores; the first of equal ones first."""
    if count < len(scores_N):
        least = np.partition(scores_N, -count)[-count]
        rows = np.concatenate([np.flatnonzero(scores_N > least), np.flatnonzero(scores_N == least)])[:count]
    else:
        rows = np.arange(len(scores_N))
    rows = rows[np.lexsort((rows, -scores_N[rows]))]
    return rows, scores_N[rows]


def chosen_kind(passages: int, asked: Kind | Literal["auto"]) -> tuple[Kind, str]:
    """Return the kind of index for so many passages, and a note if FAISS is missing.

    Raises UserError for an approximate index without FAISS.
    """
    if asked in ("hnsw", "ivf"):
        _faiss()
    if asked != "auto":
        return asked, ""
    if passages < _LARGE:
        return "exact", ""
    if find_spec("faiss") is None:
        return "exact", "a search reads every vector; pip install 'ernie-continual[search]' lets it read fewer"
    return "hnsw", ""


def _others(rows: np.ndarray, row: int) -> list[int]:
    return [int(own) for own in rows if own != row][:_NEIGHBORS]


def _faiss() -> Any:
    logging.getLogger("faiss").setLevel(logging.WARNING)  # it reports which instructions it uses
    try:
        import faiss
    except ImportError:
        raise UserError(
            "an approximate index needs FAISS: pip install 'ernie-continual[search]', or --vectors exact"
        ) from None
    return faiss
