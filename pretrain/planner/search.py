"""Finding a good layout: all of them where they are few, a learned policy where they are many.

The policy draws a layout decision by decision: the degrees of data, tensor and pipeline parallelism, what they leave
being sharding; the stage of sharding, the pieces of a stage, sequence parallelism and recomputation.  It learns from
the layouts it has drawn: after every few its preferences move towards the decisions of the fastest so far (policy
gradient with a queue of the best: Abolafia et al., 2018, arXiv 1801.03526; that a policy may learn where to put a
model: Mirhoseini et al., 2017, arXiv 1706.04972).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import numpy as np

from ernie.parallel.layout import ParallelConfig
from pretrain.planner.cost import Cost, Work
from pretrain.planner.layouts import MOST_PIECES, layout

Price = Callable[[ParallelConfig], Cost | None]  # None where there is not memory enough
BATCH = 8  # layouts tried before the policy learns from them
_BEST = 6  # layouts in the queue
_RATE, _ENTROPY, _ANY = 0.5, 0.02, 0.45  # the last: the share of decisions that are drawn at random
_TRIES = 2000  # draws for one layout that is new


def exhaustive(candidates: Iterable[ParallelConfig], price: Price) -> list[Cost]:
    """The costs of all layouts that fit, the fastest first."""
    found = [priced for candidate in candidates if (priced := price(candidate)) is not None]
    return sorted(found, key=lambda one: one.seconds)


class Decisions:
    """The decisions that make a layout, each with so many choices."""

    def __init__(self, devices: int, work: Work):
        self._devices, self._work = devices, work
        self._divisors = [number for number in range(1, devices + 1) if devices % number == 0]
        self.choices = [len(self._divisors)] * 3 + [3, MOST_PIECES, 2, 2]

    def layout(self, chosen: Sequence[int]) -> ParallelConfig | None:
        """The layout of these choices, None when it is none."""
        data, tensor, pipeline = (self._divisors[number] for number in chosen[:3])
        if self._devices % (data * tensor * pipeline):
            return None
        degrees = data, tensor, pipeline, self._devices // (data * tensor * pipeline)
        stage, pieces, sequence, recompute = chosen[3:]
        # What has no meaning here is left out, so that such choices are no other layouts.
        return layout(
            degrees,
            stage + 1 if degrees[3] > 1 else 1,
            pieces + 1 if pipeline > 2 else 1,
            bool(sequence) and tensor > 1,
            bool(recompute),
            self._work,
        )


def learned(decisions: Decisions, price: Price, budget: int, seed: int = 0) -> list[Cost]:
    """The costs of the layouts that a policy tried, the fastest first; it asks for at most `budget` prices."""
    rng = np.random.default_rng(seed)
    preferences = [np.zeros(count) for count in decisions.choices]
    book = _Book(decisions, price, budget)

    def draw() -> tuple[int, ...]:
        return tuple(
            int(rng.integers(len(p)) if rng.random() < _ANY else rng.choice(len(p), p=_softmax(p))) for p in preferences
        )

    more = True
    while more:
        for _ in range(BATCH):
            more = more and book.ask_new(draw)
        best = book.best(_BEST)
        for number, preference in enumerate(preferences):
            shares = _softmax(preference)
            logarithms = np.log(shares + 1e-12)
            for rank, chosen in enumerate(best):
                weight = 2 * (len(best) - rank) / (len(best) * (len(best) + 1))  # the first counts most
                preference += _RATE * weight * (np.eye(len(shares))[chosen[number]] - shares)
            preference -= _ENTROPY * shares * (logarithms - (shares * logarithms).sum())
    return book.found()


class _Book:
    """Prices that were asked, each once; what is no layout costs nothing to find out."""

    def __init__(self, decisions: Decisions, price: Price, budget: int):
        self._decisions, self._price, self._budget = decisions, price, budget
        self._prices: dict[ParallelConfig, Cost | None] = {}
        self._decided: dict[tuple[int, ...], float] = {}

    def ask_new(self, draw: Callable[[], tuple[int, ...]]) -> bool:
        """Draw until a layout is new, and ask for its price; False when the budget or the layouts are used up."""
        if len(self._prices) >= self._budget:
            return False
        for _ in range(_TRIES):
            chosen = draw()
            candidate = self._decisions.layout(chosen)
            if candidate is not None and candidate not in self._prices:
                found = self._prices[candidate] = self._price(candidate)
                if found is not None:
                    self._decided[chosen] = found.seconds
                return True
        return False

    def best(self, count: int) -> list[tuple[int, ...]]:
        """The decisions that led to the fastest layouts."""
        return sorted(self._decided, key=self._decided.__getitem__)[:count]

    def found(self) -> list[Cost]:
        return sorted((one for one in self._prices.values() if one is not None), key=lambda one: one.seconds)


def _softmax(preferences: np.ndarray) -> np.ndarray:
    powers = np.exp(preferences - preferences.max())
    return np.asarray(powers / powers.sum())
