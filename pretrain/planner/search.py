"""Search for a fast layout: exhaustively where there are few, by a learned policy where there are many.

The policy is a local search.  It starts with a few random layouts and continues from the fastest ones known, one move
at a time.  A move takes a factor from one degree to another, changes the stage of sharding, switches recomputation, or
changes the size of micro-batches.  It learns which moves pay.  Each kind of move has a preference, which rises with the
speed that such moves gained, and falls with what they lost.  Moves are sampled by the softmax of their preferences
(gradient bandits: Sutton and Barto, Reinforcement Learning, 2nd edition, section 2.8; that a policy can learn where to
place a model: Mirhoseini et al., 2017, arXiv 1706.04972).  When no move has found a faster layout for a while, it
restarts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np

from pretrain.planner.cost import Cost
from pretrain.planner.layouts import Candidate, Decision, Space

Price = Callable[[Candidate], Cost | None]  # None where a process would run out of memory
_FIRST = 24  # random layouts before the first move of a start
_ANY = 0.25  # the fraction of random layouts after them
_BEST = 3  # fastest layouts that moves start from
_STUCK = 32  # layouts without improvement after which the search restarts
_RANK = 0.5  # preference lost with each rank below the fastest layout
_RATE = 0.5  # learning rate of preferences
_STEEP = 10.0  # slope of the reward, which saturates at a tenth faster or slower
_TRIES = 3000  # attempts to sample a layout that has no price yet


def exhaustive_search(candidates: Iterable[Candidate], price: Price) -> list[Cost]:
    """The costs of all layouts that fit into memory, fastest first."""
    costs = [cost for candidate in candidates if (cost := price(candidate)) is not None]
    return sorted(costs, key=lambda cost: cost.seconds)


def random_search(space: Space, price: Price, budget: int, seed: int = 0) -> list[Cost]:
    """The costs of `budget` random layouts, fastest first: the baseline of the learned search."""
    search = _Search(space, price, budget, seed)
    while search.draw():
        pass
    return search.costs()


def learned_search(space: Space, price: Price, budget: int, seed: int = 0) -> list[Cost]:
    """The costs of the layouts that the policy tried, fastest first; it computes at most `budget` prices."""
    search = _Search(space, price, budget, seed)
    while search.step():
        pass
    return search.costs()


class _Search:
    """The layouts priced so far, each once, and the learned preferences; an invalid decision uses no budget."""

    def __init__(self, space: Space, price: Price, budget: int, seed: int):
        self._space, self._price, self._budget = space, price, budget
        self._rng = np.random.default_rng(seed)
        self._prices: dict[Candidate, Cost | None] = {}
        self._known: list[tuple[float, Decision]] = []  # layouts of this start that fit, fastest first
        self._preferences: dict[str, float] = {}
        self._started = self._improved = 0  # layouts priced before this start, and up to its last improvement

    @property
    def priced(self) -> int:
        return len(self._prices)

    def costs(self) -> list[Cost]:
        return sorted((cost for cost in self._prices.values() if cost is not None), key=lambda cost: cost.seconds)

    def draw(self) -> bool:
        """Price a random layout; False when the budget or the layouts are used up."""
        if self.priced >= self._budget:
            return False
        for _ in range(_TRIES):
            decision = self._space.draw(lambda below: int(self._rng.integers(below)))
            if (candidate := self._new(decision)) is not None:
                self._evaluate(decision, candidate)
                return True
        return False

    def step(self) -> bool:
        """Price one more layout, most often one reached by a move; False as for `draw`."""
        if self.priced - self._improved > _STUCK:
            self._known, self._started, self._improved = [], self.priced, self.priced
        starting = self.priced - self._started < _FIRST
        moves = [] if starting or self._rng.random() < _ANY else list(self._moves())
        if not moves or self.priced >= self._budget:
            return self.draw()
        preferences = np.array([self._preferences.get(kind, 0.0) - _RANK * rank for rank, kind, _, _ in moves])
        weights = np.exp(preferences - preferences.max())
        rank, kind, decision, candidate = moves[self._rng.choice(len(moves), p=weights / weights.sum())]
        before = self._known[rank][0]
        seconds = self._evaluate(decision, candidate)
        reward = -1.0 if seconds is None else float(np.clip(_STEEP * np.log(before / seconds), -1.0, 1.0))
        self._preferences[kind] = self._preferences.get(kind, 0.0) + _RATE * reward
        return True

    def _moves(self) -> Iterable[tuple[int, str, Decision, Candidate]]:
        for rank, (_, decision) in enumerate(self._known[:_BEST]):
            for kind, moved in self._space.moves(decision):
                if (candidate := self._new(moved)) is not None:
                    yield rank, kind, moved, candidate

    def _new(self, decision: Decision) -> Candidate | None:
        """The candidate of a decision; None when it is not a valid layout or already has a price."""
        candidate = self._space.candidate(decision)
        return None if candidate in self._prices else candidate

    def _evaluate(self, decision: Decision, candidate: Candidate) -> float | None:
        cost = self._prices[candidate] = self._price(candidate)
        if cost is None:
            return None
        self._known = sorted([*self._known, (cost.seconds, decision)])[:_BEST]
        if self._known[0][1] == decision:
            self._improved = self.priced
        return cost.seconds
