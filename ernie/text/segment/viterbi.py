"""Viterbi segmentation of many runs of symbols into words, vectorized over the runs, one step per symbol.

Legend: m symbols of a text, k of them in runs, r runs; a run of n symbols has n + 1 nodes, one between any two symbols
and one at either end.
"""

from __future__ import annotations

import numpy as np

_LONGEST_RUN = 256  # symbols; longer runs are split, since every symbol of the longest run costs a step


def best_cut(inside: np.ndarray, starts: np.ndarray, scores: np.ndarray) -> np.ndarray:
    """Find the segmentation with the highest total score: the length of a word at its first symbol, else 0, (m,).

    Runs are the maximal intervals where `inside` (m,) is true, split at `starts`; symbols outside are words of length
    1.  `scores` (longest, m) has the score of the word of each length, from 1 up, that begins at each symbol; -inf for
    no word.  Scores of length 1 must be finite.
    """
    places = np.flatnonzero(inside)
    firsts, sizes = _runs(inside, starts)
    run = np.repeat(np.arange(len(firsts)), sizes)
    first = (np.cumsum(sizes) - sizes)[run]
    step = np.arange(len(places)) - first
    node = np.arange(len(places)) + run
    words = [_by_step(step, np.flatnonzero(np.isfinite(row[places]) & (step + n <= sizes[run])))
             for n, row in enumerate(scores, 1)]  # fmt: skip
    best = np.full(len(places) + len(firsts), -np.inf)
    best[node[step == 0]] = 0.0
    last_length = np.zeros(len(best), dtype=np.int64)  # the length of the best word that ends at each node
    for now in range(int(sizes.max(initial=0))):
        for n, (symbols, bounds) in enumerate(words, 1):
            begins = symbols[bounds[now] : bounds[now + 1]]
            if not len(begins):
                continue
            total = best[node[begins]] + scores[n - 1, places[begins]]
            ends = node[begins] + n
            better = total > best[ends]
            best[ends[better]] = total[better]
            last_length[ends[better]] = n
    return _backtrack(inside, firsts, sizes, last_length)


def _by_step(step: np.ndarray, symbols: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the symbols sorted by step, and the start offset of each step among them."""
    order = np.argsort(step[symbols].astype(np.int16), kind="stable")
    counts = np.bincount(step[symbols], minlength=_LONGEST_RUN)
    return symbols[order], np.concatenate(([0], np.cumsum(counts)))


def _backtrack(inside: np.ndarray, firsts: np.ndarray, sizes: np.ndarray, last_length: np.ndarray) -> np.ndarray:
    """Return the lengths (m,) of the words on the best paths, traced back from the ends of the runs."""
    lengths = np.where(inside, 0, 1)
    nodes = np.cumsum(sizes) - sizes + np.arange(len(sizes))
    remaining = sizes
    while len(remaining):
        n = last_length[nodes + remaining]
        remaining = remaining - n
        lengths[firsts + remaining] = n
        unfinished = remaining > 0
        firsts, nodes, remaining = firsts[unfinished], nodes[unfinished], remaining[unfinished]
    return lengths


def _runs(inside: np.ndarray, starts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the starts (r,) and sizes (r,) of the runs, in text order; none is longer than _LONGEST_RUN."""
    edge = np.zeros(len(inside) + 1, dtype=bool)
    edge[starts] = True
    padded = np.concatenate(([False], inside, [False]))
    firsts = np.flatnonzero(inside & (~padded[:-2] | edge[:-1]))
    stops = np.flatnonzero(inside & (~padded[2:] | edge[1:])) + 1
    sizes = stops - firsts
    pieces = -(-sizes // _LONGEST_RUN)
    nth = np.arange(pieces.sum()) - np.repeat(np.cumsum(pieces) - pieces, pieces)
    return (
        np.repeat(firsts, pieces) + nth * _LONGEST_RUN,
        np.minimum(np.repeat(sizes, pieces) - nth * _LONGEST_RUN, _LONGEST_RUN),
    )
