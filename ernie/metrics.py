"""Classification metrics on NumPy arrays, with confidence intervals.

Legend: P targets.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from ernie.errors import UserError, nearest

Metric = Callable[[np.ndarray, np.ndarray, np.ndarray], float]
LOWER_IS_BETTER = frozenset(  # others: higher is better
    {"perplexity", "mean_squared_error", "wer", "cer", "substitutions", "deletions", "insertions", "mcd"}
)
_RESAMPLES = 200
_LARGEST_LOSS = 700.0  # whose exponential is finite


@dataclass(frozen=True)
class Score:
    """A metric on `count` targets with its 95 % interval (bootstrap over their items).

    `majority` is the score of the best constant answer: the most frequent label, or class 1 for f1 if it scores better.
    Of a perplexity it is that of always predicting the frequencies of the labels.

    `draws` are the bootstrap values in order.  The same items always give the same resamples, so that two scores can be
    compared draw by draw.
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
        """Whether lower values are better."""
        return self.name in LOWER_IS_BETTER

    @property
    def normalized_score(self) -> float:
        """The value on a scale where higher is better and 1 is perfect: the inverse if lower is better.

        Of a perplexity this is the geometric mean of the predicted probabilities of the targets.
        """
        return 1 / self.value if self.lower_is_better else self.value

    def as_dict(self, *, draws: bool = False) -> dict[str, Any]:
        """Return the score as plain data, with the `draws` only on request."""
        data = asdict(self)
        return data if draws else {key: value for key, value in data.items() if key != "draws"}

    def improvement_over(self, other: Score) -> tuple[float, float]:
        """Return the 95 % interval of the improvement over another score on the same items, paired by draw."""
        higher = np.asarray(self.draws) - np.asarray(other.draws)
        low, high = np.quantile(-higher if self.lower_is_better else higher, (0.025, 0.975))
        return float(low), float(high)

    def is_worse_than(self, other: Score) -> bool:
        """Whether this score is worse than another one on the same items in all but 2.5 % of the draws.

        False if the counts differ: the draws are paired only for the same items.
        """
        return self.count == other.count and self.improvement_over(other)[1] < 0


def score(
    name: str, predicted: np.ndarray, labels: np.ndarray, losses: np.ndarray, items: np.ndarray | None = None
) -> Score:
    """Compute the metric `name` of predictions (P,) against labels (P,); `losses` (P,) are the cross entropies.

    `items` (P,) are the ids of the items, such as documents, that the targets belong to.  Targets of the same item are
    correlated, so the bootstrap resamples items with all their targets; without `items`, or with only one, it resamples
    targets.  Raises UserError for an unknown metric, and when there are no targets.
    """
    if name not in METRICS:
        raise UserError(f"there is no metric '{name}'.{nearest(name, METRICS)}")
    if not len(labels):
        raise UserError(f"{name}: there are no targets to score")
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
    """Return the fraction of correct predictions."""
    return float((predicted == labels).mean())


def f1(predicted: np.ndarray, labels: np.ndarray, losses: np.ndarray) -> float:
    """Return the F1 of class 1 in binary classification."""
    return _class_f1(predicted, labels, 1)


def macro_f1(predicted: np.ndarray, labels: np.ndarray, losses: np.ndarray) -> float:
    """Return the mean F1 over the classes that occur as labels or are predicted, as scikit-learn does."""
    return float(np.mean([_class_f1(predicted, labels, c) for c in np.union1d(labels, predicted)]))


def perplexity(predicted: np.ndarray, labels: np.ndarray, losses: np.ndarray) -> float:
    """Return the exponential of the mean cross entropy, at most e^700: a larger one would be infinite."""
    return float(np.exp(min(np.mean(losses, dtype=np.float64), _LARGEST_LOSS)))


METRICS: dict[str, Metric] = {"accuracy": accuracy, "f1": f1, "macro_f1": macro_f1, "perplexity": perplexity}


def _draws(items: np.ndarray | None, targets: int) -> Iterator[np.ndarray]:
    """Yield the target indices of each bootstrap draw; all draws at once could take more memory than the model."""
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
    true_positives = int(((predicted == c) & (labels == c)).sum())
    total = int((predicted == c).sum()) + int((labels == c).sum())
    return 2 * true_positives / total if total else 0.0


def _majority(name: str, labels: np.ndarray) -> float:
    values, counts = np.unique(labels, return_counts=True)
    if name == "perplexity":
        # The best that a model without input can do: predict the label frequencies.
        shares = counts / counts.sum()
        return float(np.exp(-(shares * np.log(shares)).sum()))
    guess = np.full(len(labels), values[counts.argmax()])
    best = METRICS[name](guess, labels, np.zeros(len(labels)))
    return max(best, f1(np.ones_like(labels), labels, labels)) if name == "f1" else best
