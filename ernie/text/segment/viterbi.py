"""The best way to cut many runs of symbols into words, in all of them at once, a step a symbol.

Legend: m symbols of a text, k those of them in runs, r runs; a run of n symbols has n + 1 nodes, one between any two
symbols and one at either end.
"""

from __future__ import annotations

import numpy as np

_LONGEST_RUN = 256  # symbols; longer runs are cut there, since every symbol of the longest run costs a step


def best_cut(inside: np.ndarray, starts: np.ndarray, worth: np.ndarray) -> np.ndarray:
    """The lengths (m,) of the words at their first symbols, 0 at the others, so that the sum of worth is largest.

    Runs are the stretches where `inside` (m,) holds, cut at `starts`; what lies outside is a word of length 1.
    `worth` (longest, m) is that of the word of each length, 1 and up, beginning at each symbol; -inf for no word.
    The worth of length 1 must be finite.
    """
    places = np.flatnonzero(inside)
    firsts, sizes = _runs(inside, starts)
    run = np.repeat(np.arange(len(firsts)), sizes)
    first = (np.cumsum(sizes) - sizes)[run]
    step = np.arange(len(places)) - first
    node = np.arange(len(places)) + run
    words = [_by_step(step, np.flatnonzero(np.isfinite(each[places]) & (step + n <= sizes[run])))
             for n, each in enumerate(worth, 1)]  # fmt: skip
    value = np.full(len(places) + len(firsts), -np.inf)
    value[node[step == 0]] = 0.0
    arrived = np.zeros(len(value), dtype=np.int64)  # the length of the best word that ends at each node
    for now in range(int(sizes.max(initial=0))):
        for n, (symbols, bounds) in enumerate(words, 1):
            these = symbols[bounds[now] : bounds[now + 1]]
            if not len(these):
                continue
            gain = value[node[these]] + worth[n - 1, places[these]]
            ends = node[these] + n
            better = gain > value[ends]
            value[ends[better]] = gain[better]
            arrived[ends[better]] = n
    return _trace(inside, firsts, sizes, arrived)


def _by_step(step: np.ndarray, symbols: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Symbols in the order of their steps, and where each step's begin among them."""
    order = np.argsort(step[symbols].astype(np.int16), kind="stable")
    counts = np.bincount(step[symbols], minlength=_LONGEST_RUN)
    return symbols[order], np.concatenate(([0], np.cumsum(counts)))


def _trace(inside: np.ndarray, firsts: np.ndarray, sizes: np.ndarray, arrived: np.ndarray) -> np.ndarray:
    """The lengths (m,) of the words along the best path, followed from the runs' ends back."""
    lengths = np.where(inside, 0, 1)
    nodes = np.cumsum(sizes) - sizes + np.arange(len(sizes))
    left = sizes
    while len(left):
        n = arrived[nodes + left]
        left = left - n
        lengths[firsts + left] = n
        going = left > 0
        firsts, nodes, left = firsts[going], nodes[going], left[going]
    return lengths


def _runs(inside: np.ndarray, starts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Where the runs begin (r,) and their sizes (r,), in the order of the text; none is longer than _LONGEST_RUN."""
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
