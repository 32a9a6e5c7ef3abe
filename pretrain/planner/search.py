"""Finding a good layout: all of them where they are few, a learned policy where they are many.

The policy moves.  It begins with a few layouts drawn by chance, and goes on from the fastest ones known, each time by
one move: a factor from one degree to another, another stage of sharding, recomputation or not, larger or smaller
micro-batches.  Which moves pay it learns as it goes: a kind of move has a preference, which rises with what such
moves gained and falls with what they lost, and moves are drawn by their preferences (gradient bandits: Sutton and
Barto, Reinforcement Learning, 2nd edition, section 2.8; that a policy may learn where to put a model: Mirhoseini et
al., 2017, arXiv 1706.04972).  Where no move has led to a faster layout for a while, it begins anew elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np

from pretrain.planner.cost import Cost
from pretrain.planner.layouts import Candidate, Decision, Space

Price = Callable[[Candidate], Cost | None]  # None where there is not memory enough
_FIRST = 24  # layouts drawn by chance before the first move
_ANY = 0.25  # the share of those after them
_BEST = 3  # layouts from which a move may go
_STUCK = 32  # layouts after which a start that led to no faster one is given up for another
_RANK = 0.5  # what a place further behind costs in preference
_RATE, _STEEP = 0.5, 10.0  # how fast preferences are learnt; a tenth faster or slower is as good or bad as can be
_TRIES = 3000  # draws for one layout that is new


def exhaustive(candidates: Iterable[Candidate], price: Price) -> list[Cost]:
    """The costs of all layouts that fit, the fastest first."""
    found = [priced for candidate in candidates if (priced := price(candidate)) is not None]
    return sorted(found, key=lambda one: one.seconds)


def drawn(space: Space, price: Price, budget: int, seed: int = 0) -> list[Cost]:
    """The costs of so many layouts drawn by chance, the fastest first: what a search has to beat."""
    walk = _Walk(space, price, budget, seed)
    while walk.draw():
        pass
    return walk.found()


def learned(space: Space, price: Price, budget: int, seed: int = 0) -> list[Cost]:
    """The costs of the layouts that the policy tried, the fastest first; it asks for at most `budget` prices."""
    walk = _Walk(space, price, budget, seed)
    while walk.go_on():
        pass
    return walk.found()


class _Walk:
    """The layouts asked for so far, each once, and what was learnt; what is no layout costs nothing to find out."""

    def __init__(self, space: Space, price: Price, budget: int, seed: int):
        self._space, self._price, self._budget = space, price, budget
        self._rng = np.random.default_rng(seed)
        self._prices: dict[Candidate, Cost | None] = {}
        self._known: list[tuple[float, Decision]] = []  # that fit, the fastest first
        self._preferences: dict[str, float] = {}
        self._began = self._improved = 0  # the layouts asked for when this start began, and when it last gained

    @property
    def asked(self) -> int:
        return len(self._prices)

    def found(self) -> list[Cost]:
        return sorted((one for one in self._prices.values() if one is not None), key=lambda one: one.seconds)

    def draw(self) -> bool:
        """Ask for a layout that is drawn by chance; False when the budget or the layouts are used up."""
        if self.asked >= self._budget:
            return False
        for _ in range(_TRIES):
            decision = self._space.draw(lambda below: int(self._rng.integers(below)))
            if (candidate := self._new(decision)) is not None:
                self._ask(decision, candidate)
                return True
        return False

    def go_on(self) -> bool:
        """Ask for one more layout, most often by a move."""
        if self.asked - self._improved > _STUCK:
            self._known, self._began, self._improved = [], self.asked, self.asked
        begins = self.asked - self._began < _FIRST
        moves = [] if begins or self._rng.random() < _ANY else list(self._moves())
        if not moves or self.asked >= self._budget:
            return self.draw()
        preferences = np.array([self._preferences.get(kind, 0.0) - _RANK * rank for rank, kind, _, _ in moves])
        shares = np.exp(preferences - preferences.max())
        rank, kind, decision, candidate = moves[self._rng.choice(len(moves), p=shares / shares.sum())]
        before = self._known[rank][0]
        seconds = self._ask(decision, candidate)
        gained = -1.0 if seconds is None else float(np.clip(_STEEP * np.log(before / seconds), -1.0, 1.0))
        self._preferences[kind] = self._preferences.get(kind, 0.0) + _RATE * gained
        return True

    def _moves(self) -> Iterable[tuple[int, str, Decision, Candidate]]:
        for rank, (_, decision) in enumerate(self._known[:_BEST]):
            for kind, moved in self._space.moves(decision):
                if (candidate := self._new(moved)) is not None:
                    yield rank, kind, moved, candidate

    def _new(self, decision: Decision) -> Candidate | None:
        """What a decision leads to, where that is a layout and was not asked for."""
        candidate = self._space.candidate(decision)
        return None if candidate in self._prices else candidate

    def _ask(self, decision: Decision, candidate: Candidate) -> float | None:
        cost = self._prices[candidate] = self._price(candidate)
        if cost is None:
            return None
        self._known = sorted([*self._known, (cost.seconds, decision)])[:_BEST]
        if self._known[0][1] == decision:
            self._improved = self.asked
        return cost.seconds
