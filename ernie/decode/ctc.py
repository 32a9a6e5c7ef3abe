"""CTC decoding, greedy or by beam search: each vector predicts one token, or a blank.

Legend: T vectors, E of them that emit a token, V vocabulary.
"""

from __future__ import annotations

import heapq
import math
from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from typing import NamedTuple

import numpy as np

from ernie.decode.fusion import Scorer, State

LINE_END = -1  # stands among tokens for a pause that ends a line
Ranked = list[tuple[tuple[int, ...], float]]  # tokens of alternatives, and their scores
_BLOCK = 64  # vectors of a whole sound that hypotheses are extended by before what they share is set aside


class Spike(NamedTuple):
    """A token, the vector at which it is first predicted, and its probability there.

    It begins at the frame `begin`, and the sound of the token before it ends at the frame `quiet`; -1 if not computed
    (see `ernie.decode.edges`).
    """

    token: int
    vector: int
    probability: float
    begin: int = -1
    quiet: int = -1


def greedy(scores_TV: np.ndarray, blank: int, last: int | None = None, first: int = 0) -> list[Spike]:
    """Return the most likely token of each vector (Graves et al., 2006, section 3.2), without repeats and blanks.

    In a stream, `last` is the prediction at the preceding vector, and `first` the number of preceding vectors.
    """
    best = scores_TV.argmax(1)
    before = np.concatenate([[blank if last is None else last], best[:-1]])
    emitted = np.flatnonzero((best != blank) & (best != before))
    scores_EV = scores_TV[emitted]
    sums_E = np.exp(scores_EV - scores_EV.max(1, keepdims=True)).sum(1)
    return [Spike(int(best[t]), first + int(t), float(1 / sum_)) for t, sum_ in zip(emitted, sums_E, strict=True)]


def log_probabilities(scores_TV: np.ndarray) -> np.ndarray:
    """Return the log-probabilities of the tokens at each vector, (T, V), in double precision."""
    return scores_TV - np.logaddexp.reduce(scores_TV.astype(np.float64), 1)[:, None]


class Hypothesis(NamedTuple):
    """A hypothesis of the beam: its tokens, and the vectors at which they were first predicted.

    `log_blank` and `log_nonblank` are the log-probabilities of all alignments that end in a blank, and in the last
    token; `lm_score` is the weighted score of the language model plus the reward for each token.  `probabilities` are
    the acoustic ones of the tokens, at their vectors; `states` those of the beam's scorers.
    """

    tokens: tuple[int, ...] = ()
    vectors: tuple[int, ...] = ()
    log_blank: float = 0.0
    log_nonblank: float = -np.inf
    lm_score: float = 0.0
    probabilities: tuple[float, ...] = ()
    states: tuple[State, ...] = ()

    @property
    def spikes(self) -> list[Spike]:
        """Its tokens."""
        probabilities = self.probabilities or (1.0,) * len(self.tokens)
        return [Spike(*each) for each in zip(self.tokens, self.vectors, probabilities, strict=True)]

    def without(self, count: int) -> Hypothesis:
        """Return it without its first tokens."""
        return self._replace(
            tokens=self.tokens[count:], vectors=self.vectors[count:], probabilities=self.probabilities[count:]
        )

    @property
    def acoustic_score(self) -> float:
        """The log-probability of all its alignments."""
        if self.log_blank == -np.inf:  # that of all that have just got a token
            return self.log_nonblank
        return float(np.logaddexp(self.log_blank, self.log_nonblank))

    @property
    def score(self) -> float:
        """The score by which hypotheses are ranked."""
        return self.acoustic_score + self.lm_score


@dataclass(frozen=True)
class Beam:
    """Prefix beam search over the `width` best hypotheses; those with the same tokens are merged.

    Hannun et al., 2014 (arXiv 1408.2873).  `language_model` returns the log-probability of a token after a prefix, of
    which it reads at most the last `history` tokens; it is weighted by `alpha`, and `beta` is added for each token.
    `end_score` returns the log-probability of the end after a prefix, which counts once the sound is over (see `best`).
    At each vector, hypotheses are extended by the most likely tokens that together have the probability `mass`, at most
    `max_candidates` (Amodei et al., 2016, arXiv 1512.02595, section 7).  A token that the best hypothesis emitted more
    than `patience` vectors ago is settled: hypotheses without it are dropped, as they could otherwise be kept until the
    sound is over.  `scorers` add to the scores of hypotheses, see `ernie.decode.fusion`.
    """

    blank: int
    width: int = 16
    language_model: Callable[[tuple[int, ...], int], float] | None = None
    alpha: float = 0.5
    beta: float = 0.0
    mass: float = 0.999
    max_candidates: int = 40
    history: int = 1
    end_score: Callable[[tuple[int, ...]], float] | None = None
    patience: int = 100
    scorers: tuple[Scorer, ...] = ()

    def extend(self, hypotheses: Sequence[Hypothesis], scores_TV: np.ndarray, first: int = 0) -> tuple[Hypothesis, ...]:
        """Return the hypotheses after more vectors, the best first; `first` is the number of preceding vectors."""
        for t, log_V in enumerate(log_probabilities(scores_TV), first):
            hypotheses = self._step(hypotheses, log_V, t)
        return tuple(hypotheses)

    def decode(self, scores_TV: np.ndarray) -> list[tuple[int, int]]:
        """Return the best tokens of a whole sound, and the vectors at which they were first predicted."""
        return [spike[:2] for spike in self.recognize(scores_TV)[0]]

    def recognize(self, scores_TV: np.ndarray) -> tuple[list[Spike], Ranked]:
        """Return the best tokens of a whole sound, and the tokens of all hypotheses at its end, with their scores.

        Tokens that all hypotheses share are set aside on the way: a step takes as long in an hour as in a minute.
        """
        hypotheses: tuple[Hypothesis, ...] = (Hypothesis(),)
        decoded: list[Spike] = []
        for first in range(0, len(scores_TV), _BLOCK):
            hypotheses = self.extend(hypotheses, scores_TV[first : first + _BLOCK], first)
            likeliest = hypotheses[0]
            hypotheses, dropped = self.trim(hypotheses, stable_length(hypotheses))
            decoded += likeliest.spikes[:dropped]
        ranked, tokens = self.ranked(hypotheses), tuple(spike.token for spike in decoded)
        decoded += ranked[0][0].spikes
        # The hypothesis that was the best when a token was set aside may have had it later than the one that is now.
        latest = accumulate((spike.vector for spike in decoded), max)
        spikes = [spike._replace(vector=at) for spike, at in zip(decoded, latest, strict=True)]
        return spikes, [((*tokens, *each.tokens), score) for each, score in ranked]

    def best(self, hypotheses: Sequence[Hypothesis]) -> Hypothesis:
        """Return the best hypothesis of a sound that is over, ranked with `end_score` if there is one."""
        return self.ranked(hypotheses)[0][0]

    def ranked(self, hypotheses: Sequence[Hypothesis]) -> list[tuple[Hypothesis, float]]:
        """Return the hypotheses of a sound that is over, the best first, with their scores."""
        scored = [(each, each.score + self.end_bonus(each.tokens, each.states)) for each in hypotheses]
        return sorted(scored, key=lambda pair: -pair[1])

    def end_bonus(self, tokens: tuple[int, ...], states: Sequence[State] = ()) -> float:
        """Return what the end of the sound after these tokens adds to the score of a hypothesis."""
        bonus = 0.0 if self.end_score is None else self.alpha * self.end_score(tokens)
        own = states or self._first_states
        return bonus + sum(scorer.end(state) for scorer, state in zip(self.scorers, own, strict=True))

    def _step(self, hypotheses: Sequence[Hypothesis], log_V: np.ndarray, vector: int) -> list[Hypothesis]:
        candidates = [(token, float(log_V[token]), float(np.exp(log_V[token]))) for token in self._candidates(log_V)]
        log_blank = float(log_V[self.blank])
        merged: dict[tuple[int, ...], Hypothesis] = {}
        for each in hypotheses:
            # No new token: a blank, or a repeat of the last token.
            log_nonblank = each.log_nonblank + float(log_V[each.tokens[-1]]) if each.tokens else -np.inf
            _merge(merged, each._replace(log_blank=each.acoustic_score + log_blank, log_nonblank=log_nonblank))
        last_tokens: dict[tuple[int, ...], set[int]] = {}
        for tokens in filter(None, merged):
            last_tokens.setdefault(tokens[:-1], set()).add(tokens[-1])
        # The highest scores so far, of as many hypotheses as are kept.  What cannot reach the lowest is not made.
        highest = heapq.nlargest(self.width, (each.score for each in merged.values()))
        heapq.heapify(highest)
        for each in hypotheses:
            acoustic_score, most_bonus = each.acoustic_score, self._most_bonus(each.states)
            own_last_tokens = last_tokens.get(each.tokens, ())
            for token, log_probability, probability in candidates:
                # The last token a second time needs a blank in between.
                before = each.log_blank if each.tokens[-1:] == (token,) else acoustic_score
                log_nonblank = before + log_probability
                if log_nonblank == -np.inf:
                    continue
                is_new = token not in own_last_tokens
                lowest = highest[0] if len(highest) == self.width else -np.inf
                if is_new and log_nonblank + (each.lm_score + most_bonus(token)) < lowest:
                    continue
                tokens = (*each.tokens, token)
                if is_new:
                    bonus, states = self.bonus(each.tokens, token, each.states)
                    lm_score = each.lm_score + bonus
                    add = heapq.heappush if len(highest) < self.width else heapq.heappushpop
                    add(highest, log_nonblank + lm_score)
                else:
                    lm_score, states = merged[tokens].lm_score, merged[tokens].states
                vectors, probabilities = (*each.vectors, vector), (*each.probabilities, probability)
                _merge(merged, Hypothesis(tokens, vectors, -np.inf, log_nonblank, lm_score, probabilities, states))
        best = sorted(merged.values(), key=lambda each: (-each.score, each.tokens))[: self.width]
        settled = bisect_left(best[0].vectors, vector - self.patience)
        return [each for each in best if each.tokens[:settled] == best[0].tokens[:settled]]

    def _candidates(self, log_V: np.ndarray) -> list[int]:
        order = np.argsort(-log_V, kind="stable")[: self.max_candidates]
        count = int(np.searchsorted(np.cumsum(np.exp(log_V[order])), self.mass)) + 1
        return [int(token) for token in order[:count] if token != self.blank]

    def bonus(
        self, tokens: tuple[int, ...], token: int, states: Sequence[State] = ()
    ) -> tuple[float, tuple[State, ...]]:
        """Return what a token after others adds to the score of a hypothesis, besides its acoustic probability.

        Also returns the scorers' states after it.
        """
        bonus = self.beta
        if self.language_model is not None:
            bonus += self.alpha * min(0.0, self.language_model(tokens, token))  # rounded files may be above
        own = states or self._first_states
        steps = [scorer.extend(state, token) for scorer, state in zip(self.scorers, own, strict=True)]
        return bonus + sum(score for score, _ in steps), tuple(state for _, state in steps)

    def _most_bonus(self, states: Sequence[State]) -> Callable[[int], float]:
        """Return a function of what a token adds to the score at most, see `bonus`."""
        bonus = self.beta if self.language_model is None or self.alpha >= 0 else math.inf
        own = [scorer.most(state) for scorer, state in zip(self.scorers, states or self._first_states, strict=True)]
        return lambda token: bonus + sum([most(token) for most in own])

    @cached_property
    def _first_states(self) -> tuple[State, ...]:
        return tuple(scorer.begin for scorer in self.scorers)

    def trim(self, hypotheses: Sequence[Hypothesis], stable: int) -> tuple[tuple[Hypothesis, ...], int]:
        """Drop those of the first `stable` tokens that no later score depends on, and return how many were dropped."""
        dropped = max(0, stable - max(1, self.history))
        return tuple(each.without(dropped) for each in hypotheses), dropped


def stable_length(hypotheses: Sequence[Hypothesis]) -> int:
    """Return the length of the prefix that all hypotheses share, which can no longer change."""
    return shared_length([each.tokens for each in hypotheses])


def shared_length(texts: Sequence[Sequence[int]]) -> int:
    """Return the length of the prefix that all texts, at least one, share."""
    shortest = min(map(len, texts))
    columns = zip(*(text[:shortest] for text in texts), strict=True)
    return next((n for n, column in enumerate(columns) if len(set(column)) > 1), shortest)


def _merge(merged: dict[tuple[int, ...], Hypothesis], new: Hypothesis) -> None:
    old = merged.get(new.tokens)
    if old is not None:
        log_blank = float(np.logaddexp(old.log_blank, new.log_blank))
        log_nonblank = float(np.logaddexp(old.log_nonblank, new.log_nonblank))
        likelier = old if old.acoustic_score >= new.acoustic_score else new
        new = likelier._replace(log_blank=log_blank, log_nonblank=log_nonblank)
    merged[new.tokens] = new
