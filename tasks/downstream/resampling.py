"""Scores of rows that are drawn again, or whose answers are swapped: intervals, and whether two models differ.

Legend: N rows, U units, R draws, K sums, S seeds.  A unit is what is drawn as a whole: a row or, in ranking, the texts
of a query.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ernie.data import seeded_rng
from ernie.data.labeled.row import Row
from tasks.downstream import metrics
from tasks.downstream.answer_metrics import cmrc_exact, cmrc_f1, squad_exact, squad_f1
from tasks.downstream.base import Answer, FinetuneTask, Metric
from tasks.downstream.hooks import MetricSettings
from tasks.downstream.rank import Rank

DRAWS = 1000
_SHUFFLES = 10_000  # of metrics that are functions of sums over rows; of others DRAWS
_AT_ONCE = 1 << 22  # numbers of a block of draws

# Metrics that are the mean of each row's own.
_MEANS: tuple[Metric, ...] = (
    *(metrics.accuracy, metrics.ranked_accuracy, metrics.exact_sets, metrics.mean_squared_error, metrics.mcd),
    *(squad_exact, squad_f1, cmrc_exact, cmrc_f1),
)
_BY_QUERY: tuple[Metric, ...] = (metrics.mean_reciprocal_rank, metrics.mean_average_precision)
ClassScore = Callable[[np.ndarray], np.ndarray]  # (R, K) sums over units -> (R,)


def _class_f1(sums_RK: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return F1 of each class (R, C), and whether it is a target or an answer anywhere (R, C)."""
    right_RC, given_RC, target_RC = np.split(sums_RK.astype(np.float64), 3, axis=1)
    below_RC = (given_RC + target_RC) / 2
    return np.divide(right_RC, below_RC, out=np.zeros_like(right_RC), where=below_RC > 0), below_RC > 0


def _macro_f1(sums_RK: np.ndarray) -> np.ndarray:
    f1_RC, occurs_RC = _class_f1(sums_RK)
    return np.asarray(f1_RC.sum(1) / np.maximum(occurs_RC.sum(1), 1))


def _set_macro_f1(sums_RK: np.ndarray) -> np.ndarray:
    return np.asarray(_class_f1(sums_RK)[0].mean(1))


def _matthews(sums_RK: np.ndarray) -> np.ndarray:
    """Return Matthews' correlation coefficient of several classes (Gorodkin, 2004)."""
    right_RC, given_RC, target_RC = np.split(sums_RK.astype(np.float64), 3, axis=1)
    count_R = target_RC.sum(1)
    above_R = right_RC.sum(1) * count_R - (given_RC * target_RC).sum(1)
    below_R = np.sqrt((count_R**2 - (given_RC**2).sum(1)) * (count_R**2 - (target_RC**2).sum(1)))
    return np.divide(above_R, below_R, out=np.zeros_like(above_R), where=below_R > 0)


def _accuracy(sums_RK: np.ndarray) -> np.ndarray:
    right_RC, _, target_RC = np.split(sums_RK.astype(np.float64), 3, axis=1)
    return np.asarray(right_RC.sum(1) / target_RC.sum(1))


_BY_CLASS: dict[Metric, ClassScore] = {
    metrics.macro_f1: _macro_f1,
    metrics.set_macro_f1: _set_macro_f1,
    metrics.matthews: _matthews,
}


def class_score(metric: Metric) -> ClassScore:
    """Return a metric of one class a row as a function of sums (R, 3 * classes): right, answered and target ones."""
    return _accuracy if metric is metrics.accuracy else _BY_CLASS[metric]


@dataclass(frozen=True)
class Judged:
    """A metric of answers: its name, how it is computed, the targets (N,), and the unit of each row, from 0 on.

    `classes` is the number of the task's labels, 0 if it has none.
    """

    name: str
    metric: Metric
    targets: Sequence[Any]
    unit_N: np.ndarray
    classes: int = 0

    @classmethod
    def of(cls, task: FinetuneTask, name: str, targets: Sequence[Any]) -> Judged:
        """Return a metric of a task."""
        metric = task.metric(name) if isinstance(task, MetricSettings) else task.known_metrics[name]
        units = np.arange(len(targets))
        if isinstance(task, Rank):
            units = np.unique([query for query, _ in targets], return_inverse=True)[1]
        return cls(name, metric, targets, units, len(getattr(task, "labels", ())))

    @property
    def units(self) -> int:
        """How many units there are."""
        return int(self.unit_N.max()) + 1

    def score(self, predictions: Sequence[Any]) -> float:
        """Return the score of predictions (N,)."""
        return float(self.metric(self.targets, predictions))

    def sums(self, predictions: Sequence[Any]) -> tuple[np.ndarray, ClassScore] | None:
        """Return the numbers (U, K) of each unit of which the score is a function of the sums, and that function.

        None for a metric that is no such function, or of which that is not known.
        """
        found = self._row_sums(predictions)
        if found is None:
            return None
        rows_NK, score = found
        units_UK = np.zeros((self.units, rows_NK.shape[1]))
        np.add.at(units_UK, self.unit_N, rows_NK)
        return units_UK, score

    def _row_sums(self, predictions: Sequence[Any]) -> tuple[np.ndarray, ClassScore] | None:
        pairs = list(zip(self.targets, predictions, strict=True))
        if self.metric in _MEANS:
            return np.array([[self.metric([target], [given]), 1.0] for target, given in pairs]), _ratio
        if self.metric is metrics.ranked_f1:
            pairs = [(grade, int(score >= 0.5)) for (_, grade), score in pairs]
        if self.metric in (metrics.f1, metrics.ranked_f1):
            counts = [[float(t == p == 1), (int(t == 1) + int(p == 1)) / 2] for t, p in pairs]
            return np.array(counts), _ratio
        if self.metric is metrics.set_micro_f1:
            return np.array([[float((t & p).sum()), float(t.sum() + p.sum()) / 2] for t, p in pairs]), _ratio
        if self.metric is metrics.tag_accuracy:
            return np.array([[float(sum(map(operator.eq, t, p))), float(len(t))] for t, p in pairs]), _ratio
        if self.metric is metrics.pearson:
            return _products(np.array(pairs, np.float64)), _pearson
        if self.metric in (metrics.entity_f1, metrics.entity_precision, metrics.entity_recall):
            return _entity_sums(self.metric, pairs), _ratio
        if self.metric in _BY_CLASS and self.classes:
            return self._class_sums(predictions), _BY_CLASS[self.metric]
        if self.metric in _BY_QUERY:
            return self._query_sums(predictions), _ratio
        return None

    def _class_sums(self, predictions: Sequence[Any]) -> np.ndarray:
        """Return for each row and class whether it is right, answered, and the target: (N, 3 * classes)."""
        target_NC, given_NC = (_hot(each, self.classes) for each in (self.targets, predictions))
        return np.concatenate([target_NC * given_NC, given_NC, target_NC], 1)

    def _query_sums(self, predictions: Sequence[Any]) -> np.ndarray:
        """Return for the first row of each query its value and 1, and zeros elsewhere, or if nothing is relevant."""
        rows_N2 = np.zeros((len(self.targets), 2))
        order = np.argsort(self.unit_N, kind="stable")
        for rows in np.split(order, np.flatnonzero(np.diff(self.unit_N[order])) + 1):
            targets = [self.targets[row] for row in rows]
            if any(relevant for _, relevant in targets):
                rows_N2[rows[0]] = self.metric(targets, [predictions[row] for row in rows]), 1
        return rows_N2

    def drawn(self, each: Sequence[Sequence[Any]], seed: int = 0) -> np.ndarray:
        """Return the scores (S, R) of several predictions of the same rows, with the units drawn again, with return.

        The same units give the same draws (Efron and Tibshirani, 1993, "An Introduction to the Bootstrap", chapter 6).
        """
        sums = [self.sums(predictions) for predictions in each]
        found = []
        for counts_RU in _draws(self.units, seed):
            rows = None
            block = []
            for predictions, own in zip(each, sums, strict=True):
                if own is not None:
                    block.append(own[1](counts_RU @ own[0]))
                    continue
                if rows is None:
                    rows = [np.repeat(np.arange(len(self.unit_N)), counts_U[self.unit_N]) for counts_U in counts_RU]
                block.append(np.array([self._of_rows(predictions, chosen) for chosen in rows]))
            found.append(np.stack(block))
        return np.concatenate(found, axis=1)

    def _of_rows(self, predictions: Sequence[Any], rows: np.ndarray) -> float:
        return float(self.metric([self.targets[row] for row in rows], [predictions[row] for row in rows]))

    def swapped(self, one: Sequence[Sequence[Any]], other: Sequence[Sequence[Any]], seed: int = 0) -> float:
        """Return how often answers that are swapped at random differ in score by at least as much as they do: p.

        For each unit the answers of both, of all seeds, are swapped or not (approximate randomization: Noreen, 1989,
        "Computer-Intensive Methods for Testing Hypotheses"; for such models Dror et al., 2018, "The Hitchhiker's Guide
        to Testing Statistical Significance in Natural Language Processing").
        """
        pairs = list(zip(one, other, strict=True))
        sums = [(self.sums(first), self.sums(second)) for first, second in pairs]
        is_fast = all(first is not None and second is not None for first, second in sums)
        shuffles, more = _SHUFFLES if is_fast else DRAWS, 0
        least = abs(np.mean([self.score(first) - self.score(second) for first, second in pairs])) - 1e-12
        rng = seeded_rng.generator(seed, "swapped")
        for count in _blocks(shuffles, self.units):
            swap_RU = rng.integers(0, 2, (count, self.units))
            differences = [np.zeros(count)]
            for (first, second), own in zip(pairs, sums, strict=True):
                differences.append(self._swapped(first, second, own, swap_RU))
            more += int((np.abs(sum(differences)) / len(pairs) >= least).sum())
        return (more + 1) / (shuffles + 1)

    def _swapped(
        self, first: Sequence[Any], second: Sequence[Any], sums: tuple[Any, Any], swap_RU: np.ndarray
    ) -> np.ndarray:
        """Return the differences of score (R,) with the answers of some units swapped."""
        if sums[0] is not None and sums[1] is not None:
            (one_UK, score), (other_UK, _) = sums
            moved_RK = swap_RU @ (other_UK - one_UK)
            return np.asarray(score(one_UK.sum(0) + moved_RK) - score(other_UK.sum(0) - moved_RK))
        found = []
        for swap_N in swap_RU[:, self.unit_N].astype(bool):
            mixed = [(b, a) if swap else (a, b) for a, b, swap in zip(first, second, swap_N, strict=True)]
            found.append(self.score([a for a, _ in mixed]) - self.score([b for _, b in mixed]))
        return np.array(found)


def interval(draws_R: np.ndarray) -> tuple[float, float]:
    """Return the 95 % interval of draws, by their percentiles."""
    low, high = np.quantile(draws_R, (0.025, 0.975))
    return float(low), float(high)


def intervals(task: FinetuneTask, rows: Sequence[Row], answers: Sequence[Answer]) -> dict[str, tuple[float, float]]:
    """Return the 95 % interval of each score of the answers to rows."""
    targets, predictions = [task.target(row) for row in rows], [task.prediction(answer) for answer in answers]
    return {name: interval(Judged.of(task, name, targets).drawn([predictions])[0]) for name in task.scored_by}


def quick_intervals(
    task: FinetuneTask, rows: Sequence[Row], answers: Sequence[Answer]
) -> dict[str, tuple[float, float, float]]:
    """Return the score of the answers to rows and its 95 % interval, of each metric that is quickly drawn anew."""
    targets, predictions = [task.target(row) for row in rows], [task.prediction(answer) for answer in answers]
    found = {}
    for name in task.scored_by:
        judged = Judged.of(task, name, targets)
        if judged.sums(predictions) is not None:
            found[name] = (judged.score(predictions), *interval(judged.drawn([predictions])[0]))
    return found


def mcnemar(one_N: np.ndarray, other_N: np.ndarray) -> tuple[int, int, float]:
    """Return in how many rows only one model is right, and only the other, and p of McNemar's exact test (1947)."""
    from scipy.stats import binomtest

    only_one, only_other = int((one_N & ~other_N).sum()), int((other_N & ~one_N).sum())
    discordant = only_one + only_other
    return only_one, only_other, float(binomtest(only_one, discordant).pvalue) if discordant else 1.0


def holm(each: Sequence[float]) -> list[float]:
    """Return the p of several tests, corrected for their number.

    One below a level is then there by chance alone at most as often as the level says, however many there are.  Holm,
    1979, "A Simple Sequentially Rejective Multiple Test Procedure", Scandinavian Journal of Statistics 6(2).
    """
    corrected, largest = [0.0] * len(each), 0.0
    for rank, number in enumerate(sorted(range(len(each)), key=lambda number: each[number])):
        largest = max(largest, min(1.0, (len(each) - rank) * each[number]))
        corrected[number] = largest
    return corrected


def _hot(classes_N: Sequence[Any], count: int) -> np.ndarray:
    """Return rows of 0 and 1 (N, C) of numbers of classes, or of rows that are such already."""
    found = np.asarray(classes_N)
    return np.eye(count)[found] if found.ndim == 1 else found.astype(np.float64)


def _ratio(sums_RK: np.ndarray) -> np.ndarray:
    above_R, below_R = sums_RK.T
    return np.divide(above_R, below_R, out=np.zeros(len(above_R)), where=below_R > 0)


def _products(pairs_N2: np.ndarray) -> np.ndarray:
    """Return 1, target and prediction, their squares and their product, of numbers less the targets' mean: (N, 6)."""
    x_N, y_N = (pairs_N2 - pairs_N2[:, 0].mean()).T  # the same for all models, whose answers may be swapped
    return np.stack([np.ones(len(x_N)), x_N, y_N, x_N**2, y_N**2, x_N * y_N], 1)


def _pearson(sums_RK: np.ndarray) -> np.ndarray:
    count_R, x_R, y_R, xx_R, yy_R, xy_R = sums_RK.T
    spread_R = (xx_R - x_R**2 / count_R) * (yy_R - y_R**2 / count_R)
    is_defined_R = spread_R > 1e-12 * xx_R * yy_R  # with rounding: otherwise one side is constant
    below_R = np.sqrt(np.maximum(spread_R, 0))
    return np.divide(xy_R - x_R * y_R / count_R, below_R, out=np.zeros(len(count_R)), where=is_defined_R)


def _entity_sums(metric: Metric, pairs: Sequence[tuple[Any, Any]]) -> np.ndarray:
    from seqeval.metrics.sequence_labeling import get_entities

    rows = []
    for target, given in pairs:
        right, answered = {*get_entities(list(target))}, {*get_entities(list(given))}
        precision, recall = metric is metrics.entity_precision, metric is metrics.entity_recall
        below = len(answered) if precision else len(right) if recall else (len(right) + len(answered)) / 2
        rows.append([float(len(right & answered)), below])
    return np.array(rows)


def _draws(units: int, seed: int) -> Iterator[np.ndarray]:
    """Yield how often each unit is drawn, (R, U), in blocks of draws."""
    rng = seeded_rng.generator(seed, "drawn")
    for count in _blocks(DRAWS, units):
        drawn_RU = rng.integers(0, units, (count, units))
        yield np.stack([np.bincount(drawn_U, minlength=units) for drawn_U in drawn_RU])


def _blocks(total: int, units: int) -> Iterator[int]:
    """Yield the sizes of blocks of draws that are computed at once."""
    size = max(1, _AT_ONCE // units)
    for first in range(0, total, size):
        yield min(size, total - first)
