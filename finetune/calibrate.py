"""Calibration of a finished model: a temperature and thresholds, chosen on the dev split.

Legend: P decisions, C classes.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np

from ernie.errors import Remark, UserError
from ernie.metrics import LOWER_IS_BETTER
from finetune.prepare import Prepared
from inference.task_model import TaskModel
from tasks.downstream.base import FinetuneTask, softmax
from tasks.downstream.calibration import Calibrated, calibration_error, decisions_of, judged, log_loss
from tasks.downstream.classify import Classify
from tasks.downstream.multilabel import MultiLabel
from tasks.downstream.scoring import score_answers

_COLDEST, _HOTTEST = 0.05, 20.0
_CANDIDATES = 200  # thresholds that are tried
_USUAL = 0.5


@dataclass(frozen=True)
class Calibration:
    """What was fitted on the dev split, and the scores of all splits before and after.

    They include `ece`, the expected calibration error, and `log_loss`.
    """

    fitted: Mapping[str, Any]
    rows: int
    before: Mapping[str, Mapping[str, float]]
    after: Mapping[str, Mapping[str, float]]

    def as_dict(self) -> dict[str, Any]:
        """Return its part of scores.json."""
        return {**self.fitted, "split": "dev", "rows": self.rows, "before": self.before, "after": self.after}

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
        return (
            f"Fitted on the {self.rows:,} rows of dev: {'; '.join(shown)}. Scores on dev are slightly too good by it; "
            "those on other splits are not. The expected calibration error is that of 15 intervals."
        )


def check_calibration(what: Sequence[str], task: FinetuneTask) -> None:
    """Raise UserError if what is to be fitted has no effect on a task that knows its labels."""
    if "threshold" in what and isinstance(task, Classify) and len(task.labels) != 2:
        raise UserError(f"calibrate: threshold is for two labels, of which one is chosen; there are {len(task.labels)}")
    if "threshold" in what and isinstance(task, Calibrated) and not _decided_by(task):
        raise UserError(
            f"calibrate: threshold changes none of the metrics {', '.join(task.scored_by)}; task.metrics can name "
            f"{' or '.join(task.threshold_metrics)}"
        )


def _decided_by(task: Calibrated) -> str | None:
    """Return the first metric in use that a threshold changes."""
    return next((name for name in task.scored_by if name in task.threshold_metrics), None)


def calibrate(model: TaskModel, what: Sequence[str], splits: Mapping[str, Prepared]) -> Calibration:
    """Fit what a configuration asks for on dev, and let a model answer by it from now on."""
    task = model.task
    assert isinstance(task, Calibrated)
    logits = {name: model.logits(split.examples) for name, split in splits.items()}
    before = {name: _scores(task, split, logits[name]) for name, split in splits.items()}
    dev = splits["dev"]
    logits_PC, targets_P = decisions_of(task, dev.rows, dev.examples, logits["dev"])
    fitted: dict[str, Any] = {}
    if "temperature" in what:
        fitted["temperature"] = fit_temperature(logits_PC, targets_P)
        if fitted["temperature"] in (_COLDEST, _HOTTEST):
            warnings.warn(
                f"calibrate: the best temperature is at the limit of {fitted['temperature']:g}, as it is where dev has "
                "few rows, or no mistakes; more rows of dev tell more",
                Remark,
                2,
            )
    probabilities_P = softmax(logits_PC / fitted.get("temperature", task.temperature))[:, -1]
    if "threshold" in what:
        fitted["threshold"] = fit_threshold(task, probabilities_P, [task.target(row) for row in dev.rows])
    model.change_decoding(**fitted)
    changed = cast(Calibrated, model.task)
    after = {name: _scores(changed, split, logits[name]) for name, split in splits.items()}
    return Calibration(fitted, len(dev), before, after)


def _scores(task: Calibrated, split: Prepared, logits: Sequence[list[np.ndarray]]) -> dict[str, float]:
    answers = task.answers_from(split.examples, logits)
    logits_PC, targets_P = decisions_of(task, split.rows, split.examples, logits)
    pairs = judged(task, logits_PC / task.temperature, targets_P)
    loss = log_loss(logits_PC, targets_P, task.temperature)
    found = [answer for answer in answers if not isinstance(answer, UserError)]
    return {**score_answers(task, split.rows, found), "ece": calibration_error(*pairs), "log_loss": loss}


def fit_temperature(logits_PC: np.ndarray, targets_P: np.ndarray) -> float:
    """Return the temperature with the smallest log loss (Guo et al., 2017, section 4.2), between 0.05 and 20."""
    from scipy.optimize import minimize_scalar

    def loss(logarithm: float) -> float:
        return log_loss(logits_PC, targets_P, float(np.exp(logarithm)))

    limits = np.log([_COLDEST, _HOTTEST])
    best = float(minimize_scalar(loss, bounds=limits, method="bounded", options={"xatol": 1e-5}).x)
    best = min((best, *limits.tolist()), key=loss)
    return round(float(np.exp(best)), 4)


def fit_threshold(task: Calibrated, probabilities_P: np.ndarray, targets: Sequence[Any]) -> float | dict[str, float]:
    """Return the threshold with the best score, of the first metric in use that it changes.

    It is one for all labels or, if labels count alike as in macro F1, one for each (Fan and Lin, 2007, "A Study on
    Threshold Selection for Multi-label Classification").  Of equally good ones it is that nearest to 0.5.
    """
    name = _decided_by(task)
    assert name is not None
    if isinstance(task, MultiLabel):
        probabilities_NC, targets_NC = probabilities_P.reshape(-1, len(task.labels)), np.stack(targets)
        if name == "macro_f1":
            return {
                label: _best(probabilities_NC[:, n], _f1_of(probabilities_NC[:, n], targets_NC[:, n]))
                for n, label in enumerate(task.labels)
            }
        probabilities_P = probabilities_NC
    metric, sign = type(task).known_metrics[name], -1 if name in LOWER_IS_BETTER else 1

    def score(threshold: float) -> float:
        return sign * metric(targets, list((probabilities_P >= threshold).astype(np.int64)))

    return _best(probabilities_P, score)


def _f1_of(probabilities_N: np.ndarray, targets_N: np.ndarray) -> Callable[[float], float]:
    def f1(threshold: float) -> float:
        chosen = probabilities_N >= threshold
        total = int(chosen.sum() + targets_N.sum())
        return 2 * float((chosen & (targets_N == 1)).sum()) / total if total else 0.0

    return f1


def _best(probabilities: np.ndarray, score: Callable[[float], float]) -> float:
    """Return the best threshold of 0.5 and of those halfway between neighbouring probabilities, at most 200."""
    found = np.unique(probabilities)
    between = (found[1:] + found[:-1]) / 2
    if len(between) > _CANDIDATES:
        between = between[np.linspace(0, len(between) - 1, _CANDIDATES).astype(int)]
    candidates = [_USUAL, *(each for each in between.round(6).tolist() if 0 < each < 1)]
    return max(candidates, key=lambda each: (score(each), -abs(each - _USUAL)))


def with_decoding_of(task: FinetuneTask, other: FinetuneTask) -> FinetuneTask:
    """Return a task with the temperature and the threshold of another."""
    if not isinstance(task, Calibrated) or not isinstance(other, Calibrated):
        return task
    names = [name for name in ("temperature", "threshold") if name in task.decoding_fields]
    return replace(task, **{name: getattr(other, name) for name in names})
