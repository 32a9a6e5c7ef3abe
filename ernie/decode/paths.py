"""Paths of a segment decoder: hypotheses for the segments of a sound so far, ranked, merged and pruned.

Baidu's decoder for SMLTA merges paths that end alike, on the premise that what follows depends on the last segment
only, and keeps a fixed number of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from ernie.decode.ctc import Beam, Spike, shared_length
from ernie.decode.fusion import State


class AcousticPath(NamedTuple):
    """A hypothesis: its tokens that are not committed yet, and what later tokens and its rank depend on.

    `context` holds the last committed tokens.  `recent` are the last symbols that were generated, the ends of segments
    included, `symbols` is the number of all of them.  `log_probability` is the decoder's, `lm_score` the weighted score
    of the language model plus the reward for each token.  `states` are those of the beam's scorers.
    """

    tokens: tuple[Spike, ...] = ()
    context: tuple[int, ...] = ()
    recent: tuple[int, ...] = ()
    symbols: int = 0
    log_probability: float = 0.0
    lm_score: float = 0.0
    states: tuple[State, ...] = ()

    @property
    def score(self) -> float:
        """The score by which paths are ranked."""
        return self.log_probability + self.lm_score

    @property
    def text(self) -> tuple[int, ...]:
        """Its known tokens: the last committed ones, and those after them."""
        return (*self.context, *(spike.token for spike in self.tokens))

    def with_symbol(self, symbol: int, log_probability: float, kept: int) -> AcousticPath:
        """Return the path with another symbol; the last `kept` symbols are remembered."""
        recent = (*self.recent, symbol)[-kept:]
        return self._replace(
            recent=recent, symbols=self.symbols + 1, log_probability=self.log_probability + log_probability
        )


class Branch(NamedTuple):
    """A path while a segment is decoded: the path of the last segment that it continues, and its row in a cache."""

    path: AcousticPath
    parent: int
    row: int
    ended: bool = False


def extensions(
    branch: Branch, scores_V: np.ndarray, end: int, at: int, beam: Beam, kept: int, last: bool
) -> list[Branch]:
    """Return a branch with each of the likeliest next tokens at the vector `at`, unless it is the `last`, and ended."""
    path = branch.path
    found = [branch._replace(path=path.with_symbol(end, float(scores_V[end]), kept), ended=True)]
    tokens = [] if last else np.argsort(-scores_V, kind="stable")[: beam.width + 1].tolist()
    for token in tokens:
        log_probability = float(scores_V[token])
        if token == end or log_probability == -np.inf:
            continue
        longer = path.with_symbol(token, log_probability, kept)
        spike = Spike(token, at, float(np.exp(log_probability)))
        bonus, states = beam.bonus(path.text, token, path.states)
        longer = longer._replace(tokens=(*path.tokens, spike), lm_score=path.lm_score + bonus, states=states)
        found.append(branch._replace(path=longer))
    return found


def best(branches: Sequence[Branch], width: int) -> list[Branch]:
    """Return the best branches, the best one first."""
    return sorted(branches, key=lambda each: (-each.path.score, each.path.text, each.row))[:width]


def merged(branches: Sequence[Branch], beam: Beam, at: int) -> list[Branch]:
    """Return the branches at the end of a segment, the best one first, without those that others stand for.

    One branch of each text is kept: the likeliest, with the probability of all of them.  One branch of each ending is
    kept, too: the best of those with the same last symbols, on which later scores depend most.  A branch is dropped if
    it lacks a token that the best one has had for more than `beam.patience` vectors.
    """
    by_text: dict[tuple[int, ...], Branch] = {}
    for each in best(branches, len(branches)):
        first = by_text.setdefault(each.path.text, each)
        if first is not each:
            both = float(np.logaddexp(first.path.log_probability, each.path.log_probability))
            by_text[each.path.text] = first._replace(path=first.path._replace(log_probability=both))
    by_end: dict[tuple[Any, ...], Branch] = {}
    for each in best(list(by_text.values()), len(by_text)):
        by_end.setdefault((each.path.recent, each.path.text[-beam.history :], each.path.states), each)
    ranked = list(by_end.values())
    likeliest = ranked[0].path.tokens
    settled = sum(spike.vector < at - beam.patience for spike in likeliest)
    start = [spike.token for spike in likeliest[:settled]]
    return [each for each in ranked if [spike.token for spike in each.path.tokens[:settled]] == start]


def shared_tokens(paths: Sequence[AcousticPath]) -> int:
    """Return how many of the tokens that are not committed all paths share: those can no longer change."""
    return shared_length([[spike.token for spike in path.tokens] for path in paths])


def committed(
    paths: Sequence[AcousticPath], count: int, history: int, least: int
) -> tuple[tuple[AcousticPath, ...], list[Spike]]:
    """Commit the first `count` tokens, which all paths share; return the paths after them, and those of the best.

    The tokens have vectors of at least `least`, the vector of the last committed token: another path may have had that
    token later.
    """
    new = [spike._replace(vector=max(least, spike.vector)) for spike in paths[0].tokens[:count]]
    after = tuple(
        path._replace(tokens=path.tokens[count:], context=path.text[: len(path.context) + count][-history:])
        for path in paths
    )
    return after, new
