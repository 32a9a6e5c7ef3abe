"""Statistics of a corpus: those of its report, and the lengths and sources of its documents, which are counted anew."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import PurePosixPath
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import numpy as np

from ernie.data.shards import Corpus
from pretrain.corpus.clean.base import filter_name
from pretrain.corpus.hosts import OTHERS
from pretrain.corpus.report import FRACTIONS, MAX_EXAMPLES

_REPEATED = "earlier text"  # the end of the reason why a filter drops what other documents have
_ADDRESSES = ("http", "https", "s3", "gs", "hdfs")
QUANTILES = {"shortest": 0.0, "10 % up to": 0.1, "median": 0.5, "90 % up to": 0.9, "longest": 1.0}


class Lengths:
    """How many documents have each length: exact, in memory that depends on the longest one only."""

    def __init__(self) -> None:
        self.counts = np.zeros(1, np.int64)  # by length, from 0

    def add(self, lengths: np.ndarray) -> None:
        """Count more lengths (d,)."""
        counts = np.bincount(lengths, minlength=len(self.counts))
        counts[: len(self.counts)] += self.counts
        self.counts = counts

    def quantile(self, share: float) -> int:
        """Return the least length that `share` of the documents, and at least one, do not exceed."""
        sums = np.cumsum(self.counts)
        return int(np.searchsorted(sums, max(1, np.ceil(share * sums[-1]))))

    @property
    def mean(self) -> float:
        """The mean length."""
        return float(self.counts @ np.arange(len(self.counts)) / max(1, self.counts.sum()))

    def histogram(self, bins: int) -> tuple[np.ndarray, np.ndarray]:
        """Return edges (b + 1,), each a fixed multiple of the one before, and counts (b,), for up to `bins` bins."""
        low, high = max(1, self.quantile(0)), max(1, self.quantile(1))
        edges = np.unique(np.round(np.geomspace(low, high + 1, bins + 1)).astype(np.int64))
        sums = np.concatenate(([0], np.cumsum(self.counts)))
        counts = np.diff(sums[np.minimum(edges, len(self.counts))])
        counts[0] += sums[min(low, len(self.counts))]  # those of length 0
        return edges, counts


class Part(NamedTuple):
    """A part of a corpus, such as the documents of a source: its name, its documents and their tokens."""

    name: str
    documents: int
    tokens: int


@dataclass(frozen=True)
class Statistics:
    """Statistics of a corpus.  `parts` are its sources, or the hosts and folders that many sources lie in."""

    tokens: Lengths
    sentences: Lengths
    parts: list[Part]
    by_folder: bool
    report: Mapping[str, Any]

    @property
    def documents(self) -> int:
        """The number of documents that are kept."""
        return int(self.tokens.counts.sum())

    @property
    def languages(self) -> dict[str, int]:
        """The number of documents in each language, the most frequent first."""
        return dict(Counter(self.report.get("languages", {})).most_common())

    def hosts(self, most: int) -> dict[str, int]:
        """Return the number of documents from each of the `most` most frequent hosts, and from all others."""
        hosts = Counter(self.report.get("hosts", {}))
        rest = hosts.pop(OTHERS, 0)
        shown = dict(hosts.most_common(most))
        rest += hosts.total() - sum(shown.values())
        return shown | ({OTHERS: rest} if rest else {})

    @property
    def dropped(self) -> dict[str, int]:
        """The number of documents dropped for each reason, the most frequent first."""
        return dict(Counter(self.report.get("dropped", {})).most_common())

    @property
    def dropped_examples(self) -> list[str]:
        """The first damaged files, and examples of documents that were dropped or changed, each with file and line."""
        cleaned = [
            f"{filter_name(each['kind'], each.get('languages', ()))}: {text}"
            for each in self.report.get("clean", [])
            for text in each["examples"]
        ]
        return [*self.report.get("damaged", [])[:MAX_EXAMPLES], *self.report.get("examples", []), *cleaned]

    @property
    def repeated(self) -> dict[str, int]:
        """The number of documents with the text of an earlier one: those kept, and those dropped for it."""
        kept = {"kept": self.report["repeated"]} if "repeated" in self.report else {}
        return kept | {why: number for why, number in self.dropped.items() if why.endswith(_REPEATED)}

    @property
    def shares(self) -> dict[str, float]:
        """The shares of tokens that are unknown, in phrases, in entities and so on."""
        counted = self.report.get("tokens", {})
        total = max(1, sum(sizes.get("tokens", 0) for sizes in self.report.get("splits", {}).values()))
        return {name: counted[name] / total for name in ("unknown", *FRACTIONS) if name in counted}


def statistics(corpus: Corpus, most: int) -> Statistics:
    """Return the statistics of a corpus, with at most `most` parts of it named."""
    sources = corpus.train.sources
    sizes = np.zeros((len(sources), 2), np.int64)
    tokens, sentences = Lengths(), Lengths()
    for rows in chain(corpus.train.rows(), corpus.held_out.rows()):
        tokens.add(rows[:, 0])
        sentences.add(rows[:, 1])
        sizes[:, 0] += np.bincount(rows[:, 2], minlength=len(sources))
        np.add.at(sizes[:, 1], rows[:, 2], rows[:, 0])
    return Statistics(tokens, sentences, *_parts(sources, sizes, most), corpus.report)


def _parts(sources: Sequence[str], sizes: np.ndarray, most: int) -> tuple[list[Part], bool]:
    """Return the largest parts; the last one sums up the others."""
    by_folder = len(sources) > most
    sums: dict[str, np.ndarray] = {}
    for source, size in zip(sources, sizes, strict=True):
        name = _folder(source) if by_folder else source
        sums[name] = sums.get(name, np.zeros(2, np.int64)) + size
    ranked = sorted(sums, key=lambda name: (-sums[name][1], name))
    shown = ranked if len(ranked) <= most else ranked[: most - 1]
    parts = [Part(name, *sums[name].tolist()) for name in shown]
    if rest := ranked[len(shown) :]:
        parts.append(Part(f"{len(rest):,} others", *np.sum([sums[name] for name in rest], axis=0).tolist()))
    return parts, by_folder


def _folder(source: str) -> str:
    """Return the host of an address, or the folder of a file."""
    address = urlsplit(source)
    if address.scheme in _ADDRESSES:
        return f"{address.scheme}://{address.hostname or ''}"
    return str(PurePosixPath(source).parent)
