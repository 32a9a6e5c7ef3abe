"""Reading tokens off the scores of CTC: each vector tells one token, or that nothing new is said.

Legend: T vectors, V vocabulary.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np


class Spike(NamedTuple):
    """A token, the vector at which it is first told, and how probable it is there."""

    token: int
    vector: int
    probability: float


def greedy(scores_TV: np.ndarray, blank: int, last: int | None = None, first: int = 0) -> list[Spike]:
    """The likeliest token of each vector (Graves et al., 2006, section 3.2): repeated ones count once, blanks not.

    Of sound that comes in pieces, `last` is what the vector before these told, and `first` their number.
    """
    best = scores_TV.argmax(1)
    before = np.concatenate([[blank if last is None else last], best[:-1]])
    found = np.flatnonzero((best != blank) & (best != before))
    highest = scores_TV.max(1, keepdims=True)
    sums = np.exp(scores_TV - highest).sum(1)
    return [Spike(int(best[t]), first + int(t), float(1 / sums[t])) for t in found]


def log_probabilities(scores_TV: np.ndarray) -> np.ndarray:
    """The logarithms of the tokens' probabilities at each vector, (T, V), in double precision."""
    return scores_TV - np.logaddexp.reduce(scores_TV.astype(np.float64), 1)[:, None]


class Reading(NamedTuple):
    """One way to read what was told: its tokens, with the vectors at which they were first told.

    `blank` and `told` are the logarithms of the probability of all alignments that end in a blank, and in the last
    token; `extra` is what the language model and the reward for each token add.
    """

    tokens: tuple[int, ...] = ()
    vectors: tuple[int, ...] = ()
    blank: float = 0.0
    told: float = -np.inf
    extra: float = 0.0

    @property
    def heard(self) -> float:
        """The logarithm of the probability of all its alignments."""
        return float(np.logaddexp(self.blank, self.told))

    @property
    def score(self) -> float:
        """What paths are compared by."""
        return self.heard + self.extra


@dataclass(frozen=True)
class Beam:
    """Follows the `width` best readings, those that agree in all tokens merged into one.

    Hannun et al., 2014 (arXiv 1408.2873).  `language` gives the logarithm of the probability of a token after others,
    of which it looks at no more than `looks_back`; `alpha` of it counts, and `beta` is added for each token.  `ends`
    gives the same for the end behind tokens, which counts once a sound is over (`best`).  Of each vector those tokens
    are looked at that have `share` of the probability together, `most` at most (Amodei et al., 2016, arXiv 1512.02595,
    section 7).  A token that the best reading was told more than `patience` vectors ago is settled: readings without it
    are dropped, which else may be followed for as long as a sound lasts.
    """

    blank: int
    width: int = 16
    language: Callable[[tuple[int, ...], int], float] | None = None
    alpha: float = 0.5
    beta: float = 0.0
    share: float = 0.999
    most: int = 40
    looks_back: int = 1
    ends: Callable[[tuple[int, ...]], float] | None = None
    patience: int = 100

    def go_on(self, paths: Sequence[Reading], scores_TV: np.ndarray, first: int = 0) -> tuple[Reading, ...]:
        """The readings after more vectors, of which `first` came before; the best is the first one."""
        for t, log_V in enumerate(log_probabilities(scores_TV), first):
            paths = self._step(paths, log_V, t)
        return tuple(paths)

    def best(self, paths: Sequence[Reading]) -> Reading:
        """The best reading of a sound that is over: a language model also says what a sentence ends with."""
        if self.ends is None:
            return paths[0]
        return max(paths, key=lambda path: path.score + self.alpha * self.ends(path.tokens))  # type: ignore[misc]

    def _step(self, paths: Sequence[Reading], log_V: np.ndarray, vector: int) -> list[Reading]:
        looked_at = self._likely(log_V)
        found: dict[tuple[int, ...], Reading] = {}
        for path in paths:
            # Nothing new: a blank, or the last token once more.
            told = path.told + float(log_V[path.tokens[-1]]) if path.tokens else -np.inf
            _merge(found, path._replace(blank=path.heard + float(log_V[self.blank]), told=told))
        for path in paths:
            for token in looked_at:
                # The last token anew needs a blank before it.
                before = path.blank if path.tokens[-1:] == (token,) else path.heard
                tokens = (*path.tokens, token)
                told = before + float(log_V[token])
                if told == -np.inf:
                    continue
                extra = found[tokens].extra if tokens in found else path.extra + self._extra(path.tokens, token)
                _merge(found, Reading(tokens, (*path.vectors, vector), -np.inf, told, extra))
        paths = sorted(found.values(), key=lambda path: (-path.score, path.tokens))[: self.width]
        settled = bisect_left(paths[0].vectors, vector - self.patience)
        return [path for path in paths if path.tokens[:settled] == paths[0].tokens[:settled]]

    def _likely(self, log_V: np.ndarray) -> list[int]:
        order = np.argsort(-log_V, kind="stable")[: self.most]
        count = int(np.searchsorted(np.cumsum(np.exp(log_V[order])), self.share)) + 1
        return [int(token) for token in order[:count] if token != self.blank]

    def _extra(self, tokens: tuple[int, ...], token: int) -> float:
        return self.beta + (self.alpha * self.language(tokens, token) if self.language is not None else 0.0)

    def without_past(self, paths: Sequence[Reading], sure: int) -> tuple[tuple[Reading, ...], int]:
        """The readings without those of their first `sure` tokens that nothing depends on, and how many these are."""
        past = max(0, sure - max(1, self.looks_back))
        cut = (path._replace(tokens=path.tokens[past:], vectors=path.vectors[past:]) for path in paths)
        return tuple(cut), past


def sure(paths: Sequence[Reading]) -> int:
    """How many tokens all readings begin with: those will not be taken back."""
    shortest = min(len(path.tokens) for path in paths)
    columns = zip(*(path.tokens[:shortest] for path in paths), strict=True)
    return next((n for n, column in enumerate(columns) if len(set(column)) > 1), shortest)


def _merge(found: dict[tuple[int, ...], Reading], path: Reading) -> None:
    other = found.get(path.tokens)
    if other is not None:
        blank, told = float(np.logaddexp(other.blank, path.blank)), float(np.logaddexp(other.told, path.told))
        path = (other if other.heard >= path.heard else path)._replace(blank=blank, told=told)
    found[path.tokens] = path
