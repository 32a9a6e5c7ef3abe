"""Metrics of classification, on NumPy arrays, with intervals.

Legend: P targets.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from ernie.errors import UserError, nearest

Metric = Callable[[np.ndarray, np.ndarray, np.ndarray], float]
LOWER_IS_BETTER = frozenset({"perplexity", "mean_squared_error", "wer", "cer", "mcd"})  # of others, more is better
_RESAMPLES = 200


@dataclass(frozen=True)
class Score:
    """A metric on `count` targets with its 95 % interval (bootstrap over their items), and what always answering the
    most frequent label scores.

    `draws` are the values of the bootstrap, in the order in which they were drawn: the same draws wherever the items
    are the same, so that two scores may be compared draw by draw.
    """

    name: str
    value: float
    low: float
    high: float
    majority: float
    count: int
    draws: Sequence[float] = ()

    @property
    def lower_is_better(self) -> bool:
        """Whether a smaller value would be a better one."""
        return self.name in LOWER_IS_BETTER

    @property
    def goodness(self) -> float:
        """The value where higher is better and 1 is perfect: of a perplexity the inverse, the mean (geometric)
        probability that the targets were given."""
        return 1 / self.value if self.lower_is_better else self.value

    def as_dict(self, *, draws: bool = False) -> dict[str, Any]:
        """The score as plain data, without the `draws` unless they are asked for."""
        found = asdict(self)
        return found if draws else {key: value for key, value in found.items() if key != "draws"}

    def beyond(self, other: Score) -> tuple[float, float]:
        """How much better it is than another score on the same items: the 95 % interval, draw by draw."""
        higher = np.asarray(self.draws) - np.asarray(other.draws)
        low, high = np.quantile(-higher if self.lower_is_better else higher, (0.025, 0.975))
        return float(low), float(high)

    def is_worse_than(self, other: Score) -> bool:
        """Whether it is worse than another score on the same items in all but 2.5 % of the draws.

        Of other items, as many as they may be, the draws do not belong together: then it is not known.
        """
        return self.count == other.count and self.beyond(other)[1] < 0


def score(
    name: str, predicted: np.ndarray, labels: np.ndarray, losses: np.ndarray, items: np.ndarray | None = None
) -> Score:
    """The metric `name` of predictions (P,) against labels (P,); `losses` (P,) are the targets' cross entropies.

    `items` (P,) says which one each target is of, such as a document.  Targets of one item are alike, so items are
    drawn anew for the interval, with all their targets; without `items`, and where there is but one, targets are.
    """
    if name not in METRICS:
        raise UserError(f"there is no metric '{name}'.{nearest(name, METRICS)}")
    metric = METRICS[name]
    draws = [metric(predicted[draw], labels[draw], losses[draw]) for draw in _draws(items, len(labels))]
    values = sorted(draws)
    low, high = values[int(0.025 * _RESAMPLES)], values[int(0.975 * _RESAMPLES) - 1]
    return Score(
        name=name,
        value=metric(predicted, labels, losses),
        low=float(low),
        high=float(high),
        majority=_majority(name, labels),
        count=len(labels),
        draws=tuple(float(f"{value:.6g}") for value in draws),
    )


def accuracy(predicted: np.ndarray, labels: np.ndarray, losses: np.ndarray) -> float:
    """The share of predictions that are right."""
    return float((predicted == labels).mean())


def f1(predicted: np.ndarray, labels: np.ndarray, losses: np.ndarray) -> float:
    """F1 of class 1 of two."""
    return _class_f1(predicted, labels, 1)


def macro_f1(predicted: np.ndarray, labels: np.ndarray, losses: np.ndarray) -> float:
    """The mean over the classes that occur as labels of each one's F1."""
    return float(np.mean([_class_f1(predicted, labels, c) for c in np.unique(labels)]))


def perplexity(predicted: np.ndarray, labels: np.ndarray, losses: np.ndarray) -> float:
    """The exponential of the mean cross entropy."""
    return float(np.exp(np.mean(losses)))


METRICS: dict[str, Metric] = {"accuracy": accuracy, "f1": f1, "macro_f1": macro_f1, "perplexity": perplexity}


def _draws(items: np.ndarray | None, targets: int) -> Iterator[np.ndarray]:
    """The targets of each draw, one after the other: all draws together could be larger than the model."""
    rng = np.random.default_rng(0)
    if items is None or len(np.unique(items)) < 2:
        items = np.arange(targets)
    order = np.argsort(items, kind="stable")
    _, starts, counts = np.unique(items[order], return_index=True, return_counts=True)
    for _ in range(_RESAMPLES):
        drawn = rng.integers(0, len(counts), len(counts))
        lengths = counts[drawn]
        ends = np.cumsum(lengths)
        yield order[np.arange(ends[-1]) + np.repeat(starts[drawn] - ends + lengths, lengths)]


def _class_f1(predicted: np.ndarray, labels: np.ndarray, c: int) -> float:
    right = int(((predicted == c) & (labels == c)).sum())
    wrong = int((predicted == c).sum()) + int((labels == c).sum())
    return 2 * right / wrong if wrong else 0.0


def _majority(name: str, labels: np.ndarray) -> float:
    values, counts = np.unique(labels, return_counts=True)
    if name == "perplexity":
        # The best that a model without input could do: the labels' own frequencies.
        shares = counts / counts.sum()
        return float(np.exp(-(shares * np.log(shares)).sum()))
    guess = np.full(len(labels), values[counts.argmax()])
    best = METRICS[name](guess, labels, np.zeros(len(labels)))
    return max(best, f1(np.ones_like(labels), labels, labels)) if name == "f1" else best
