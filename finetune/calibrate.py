"""Calibration of a finished model: a temperature and thresholds, chosen on dev or on out-of-fold answers.

Legend: P decisions, C classes.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np

from ernie.data.labeled.row import Row
from ernie.errors import Remark, UserError
from ernie.metrics import LOWER_IS_BETTER
from finetune.config import OUT_OF_FOLD
from finetune.prepare import Prepared
from inference.task_model import TaskModel
from tasks.downstream.base import Example, FinetuneTask, softmax
from tasks.downstream.calibration import Calibrated, calibration_error, decisions_of, judged, log_loss
from tasks.downstream.classify import Classify
from tasks.downstream.multilabel import MultiLabel
from tasks.downstream.resampling import ClassScore, class_score
from tasks.downstream.scoring import score_answers

_COLDEST, _HOTTEST = 0.05, 20.0
_CANDIDATES = 200  # thresholds that are tried
_USUAL = 0.5
_ROUNDS = 5  # in which the thresholds of classes are fitted in turn


@dataclass(frozen=True)
class Logits:
    """The logits of labeled rows, as a kind's `answer` takes them."""

    rows: Sequence[Row]
    examples: Sequence[Example]
    logits: Sequence[list[np.ndarray]]


@dataclass(frozen=True)
class Calibration:
    """What was fitted on a split, dev or out-of-fold answers, and the scores of all splits before and after.

    They include `ece`, the expected calibration error, and `log_loss`.
    """

    fitted: Mapping[str, Any]
    split: str
    rows: int
    before: Mapping[str, Mapping[str, float]]
    after: Mapping[str, Mapping[str, float]]

    def as_dict(self) -> dict[str, Any]:
        """Return its part of scores.json."""
        return {**self.fitted, "split": self.split, "rows": self.rows, "before": self.before, "after": self.after}

    def score_rows(self) -> list[list[str]]:
        """Return the scores before and after as rows of a table, its header first."""
        names = [*next(iter(self.before.values()))]
        rows = [["", *names]]
        for split in self.before:
            for when, scores in (("before", self.before[split]), ("after", self.after[split])):
                rows.append([f"{split}, {when}", *(f"{scores[name]:.4f}" for name in names)])
        return rows

    @property
    def note(self) -> str:
        """What was fitted, in sentences."""
        shown = []
        for name, value in self.fitted.items():
            if isinstance(value, Mapping):
                shown.append(f"{name}: " + ", ".join(f"{label} {each:g}" for label, each in [*value.items()][:20]))
            else:
                shown.append(f"{name}: {value:g}")
        on, held_out = f"the {self.rows:,} rows of dev", ""
        if self.split != "dev":
            on = f"{self.rows:,} answers to rows of train by models that did not see them"
            held_out = " out_of_fold.jsonl has these answers as they were before."
        return (
            f"Fitted on {on}: {'; '.join(shown)}. Scores on {self.split} are slightly too good by it; those on other "
            f"splits are not.{held_out} The expected calibration error is that of 15 intervals."
        )


def check_calibration(what: Sequence[str], task: FinetuneTask) -> None:
    """Raise UserError if what is to be fitted has no effect on a task that knows its labels."""
    if "threshold" in what and isinstance(task, Calibrated) and not _decided_by(task):
        raise UserError(
            f"calibrate: threshold changes none of the metrics {', '.join(task.scored_by)}; task.metrics can name "
            f"{' or '.join(task.threshold_metrics)}"
        )


def _decided_by(task: Calibrated) -> str | None:
    """Return the first metric in use that a threshold changes."""
    return next((name for name in task.scored_by if name in task.threshold_metrics), None)


def calibrate(
    model: TaskModel, what: Sequence[str], splits: Mapping[str, Prepared], out_of_fold: Logits | None = None
) -> Calibration:
    """Fit what a configuration asks for, and let a model answer by it from now on.

    It is fitted on dev or, if there is none, on the logits of a cross-validation.
    """
    task = model.task
    assert isinstance(task, Calibrated)
    found = {name: Logits(split.rows, split.examples, model.logits(split.examples)) for name, split in splits.items()}
    chosen = "dev"
    if "dev" not in found:
        assert out_of_fold is not None
        chosen, found = OUT_OF_FOLD, {OUT_OF_FOLD: out_of_fold, **found}
    before = {name: _scores(task, own) for name, own in found.items()}
    rows = found[chosen].rows
    logits_PC, targets_P = _decisions(task, found[chosen])
    fitted: dict[str, Any] = {}
    if "temperature" in what:
        fitted["temperature"] = fit_temperature(logits_PC, targets_P)
        if fitted["temperature"] in (_COLDEST, _HOTTEST):
            warnings.warn(
                f"calibrate: the best temperature is at the limit of {fitted['temperature']:g}, as it is where there "
                "are few rows, or no mistakes; more rows tell more",
                Remark,
                2,
            )
    probabilities_PC = softmax(logits_PC / fitted.get("temperature", task.temperature))
    if "threshold" in what:
        fitted["threshold"] = fit_threshold(task, probabilities_PC, [task.target(row) for row in rows])
    model.change_decoding(**fitted)
    changed = cast(Calibrated, model.task)
    after = {name: _scores(changed, own) for name, own in found.items()}
    return Calibration(fitted, chosen, len(rows), before, after)


def _decisions(task: Calibrated, own: Logits) -> tuple[np.ndarray, np.ndarray]:
    return decisions_of(task, own.rows, own.examples, own.logits)


def judged_decisions(task: Calibrated, own: Logits) -> tuple[np.ndarray, np.ndarray]:
    """Return what the decisions about rows are judged by: the probability of each, and whether it came true, (P,)."""
    logits_PC, targets_P = _decisions(task, own)
    return judged(task, logits_PC / task.temperature, targets_P)


def _scores(task: Calibrated, own: Logits) -> dict[str, float]:
    found = [answer for answer in task.answers_from(own.examples, own.logits) if not isinstance(answer, UserError)]
    error, loss = calibration_error(*judged_decisions(task, own)), log_loss(*_decisions(task, own), task.temperature)
    return {**score_answers(task, own.rows, found), "ece": error, "log_loss": loss}


def fit_temperature(logits_PC: np.ndarray, targets_P: np.ndarray) -> float:
    """Return the temperature with the smallest log loss (Guo et al., 2017, section 4.2), between 0.05 and 20."""
    from scipy.optimize import minimize_scalar

    def loss(logarithm: float) -> float:
        return log_loss(logits_PC, targets_P, float(np.exp(logarithm)))

    limits = np.log([_COLDEST, _HOTTEST])
    best = float(minimize_scalar(loss, bounds=limits, method="bounded", options={"xatol": 1e-5}).x)
    best = min((best, *limits.tolist()), key=loss)
    return round(float(np.exp(best)), 4)


def fit_threshold(task: Calibrated, probabilities_PC: np.ndarray, targets: Sequence[Any]) -> float | dict[str, float]:
    """Return the threshold with the best score, of the first metric in use that it changes.

    It is one for each label where one of more than two labels is chosen, or where labels count alike as in macro F1
    (Fan and Lin, 2007, "A Study on Threshold Selection for Multi-label Classification").  Of equally good ones it is
    that nearest to 0.5.
    """
    name = _decided_by(task)
    assert name is not None
    metric, sign = type(task).known_metrics[name], -1 if name in LOWER_IS_BETTER else 1
    if isinstance(task, Classify) and len(task.labels) > 2:
        thresholds_C = _fit_classes(probabilities_PC, np.array(targets), class_score(metric))
        return dict(zip(task.labels, thresholds_C.tolist(), strict=True))
    probabilities = probabilities_PC[:, -1]
    if isinstance(task, MultiLabel):
        probabilities, targets_NC = probabilities.reshape(-1, len(task.labels)), np.stack(targets)
        if name == "macro_f1":
            return {
                label: _best(probabilities[:, n], _f1_of(probabilities[:, n], targets_NC[:, n]))
                for n, label in enumerate(task.labels)
            }

    def scores(thresholds_R: np.ndarray) -> np.ndarray:
        answers = ((probabilities >= threshold).astype(np.int64) for threshold in thresholds_R)
        return np.array([sign * metric(targets, list(each)) for each in answers])

    return _best(probabilities, scores)


def _fit_classes(probabilities_NC: np.ndarray, targets_N: np.ndarray, score: ClassScore) -> np.ndarray:
    """Return a threshold for each of several classes (C,), of which one is answered.

    Each is fitted in turn, given the others, until none changes.  That does not find the best score of all.
    """
    thresholds_C = np.full(probabilities_NC.shape[1], _USUAL)
    for _ in range(_ROUNDS):
        before_C = thresholds_C.copy()
        for chosen in range(len(thresholds_C)):
            scaled_NC = probabilities_NC / thresholds_C
            scaled_NC[:, chosen] = -1
            # Below its limit a threshold gives a row this class; otherwise the row has the best of the others.
            limits_N = probabilities_NC[:, chosen] / np.maximum(scaled_NC.max(1), 1e-12)
            rows = _Rows(limits_N, scaled_NC.argmax(1), targets_N, chosen, len(thresholds_C), score)
            thresholds_C[chosen] = _best(limits_N, rows.scores, before_C[chosen])
        if (thresholds_C == before_C).all():
            break
    return thresholds_C


@dataclass(frozen=True)
class _Rows:
    """The score of rows as it depends on the threshold of one class, `chosen` of so many `classes`.

    A row is answered by it where the threshold is below its limit, and otherwise by its other class.
    """

    limits_N: np.ndarray
    others_N: np.ndarray
    targets_N: np.ndarray
    chosen: int
    classes: int
    score: ClassScore

    def scores(self, thresholds_R: np.ndarray) -> np.ndarray:
        """Return the score at each threshold (R,)."""
        order_R = np.argsort(thresholds_R, kind="stable")
        below_N = np.searchsorted(thresholds_R[order_R], self.limits_N)  # how many thresholds are below a row's limit
        shape = len(thresholds_R) + 1, self.classes

        def kept_of(mask_N: np.ndarray) -> np.ndarray:
            """Return how many rows of a kind each class keeps at each threshold, in order."""
            counts = np.zeros(shape)
            np.add.at(counts, (below_N[mask_N], self.others_N[mask_N]), 1)
            return counts.cumsum(0)[:-1]

        everywhere_N = np.ones(len(self.limits_N), bool)
        given_RC, right_RC = kept_of(everywhere_N), kept_of(self.others_N == self.targets_N)
        given_RC[:, self.chosen] = len(self.limits_N) - given_RC.sum(1)
        hits_N = self.targets_N == self.chosen
        right_RC[:, self.chosen] = hits_N.sum() - kept_of(hits_N).sum(1)
        targets_RC = np.broadcast_to(np.bincount(self.targets_N, minlength=self.classes), given_RC.shape)
        found = np.empty(len(thresholds_R))
        found[order_R] = self.score(np.concatenate([right_RC, given_RC, targets_RC], 1))
        return found


def _f1_of(probabilities_N: np.ndarray, targets_N: np.ndarray) -> Callable[[np.ndarray], np.ndarray]:
    def f1(threshold: float) -> float:
        chosen = probabilities_N >= threshold
        total = int(chosen.sum() + targets_N.sum())
        return 2 * float((chosen & (targets_N == 1)).sum()) / total if total else 0.0

    return np.vectorize(f1, otypes=[float])


def _best(probabilities: np.ndarray, scores: Callable[[np.ndarray], np.ndarray], *more: float) -> float:
    """Return the best of some thresholds: 0.5, those halfway between neighbouring probabilities, at most 200, and
    `more`."""
    found = np.unique(probabilities)
    between = (found[1:] + found[:-1]) / 2
    if len(between) > _CANDIDATES:
        between = between[np.linspace(0, len(between) - 1, _CANDIDATES).astype(int)]
    candidates = [_USUAL, *more, *(each for each in between.round(6).tolist() if 0 < each < 1)]
    of_each = zip(scores(np.array(candidates)).tolist(), candidates, strict=True)
    return max(of_each, key=lambda each: (each[0], -abs(each[1] - _USUAL)))[1]


def with_decoding_of(task: FinetuneTask, other: FinetuneTask) -> FinetuneTask:
    """Return a task with the temperature and the threshold of another."""
    if not isinstance(task, Calibrated) or not isinstance(other, Calibrated):
        return task
    names = [name for name in ("temperature", "threshold") if name in task.decoding_fields]
    return replace(task, **{name: getattr(other, name) for name in names})
