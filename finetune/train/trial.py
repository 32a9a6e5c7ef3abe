"""A trial, one fine-tuning with one setting and one seed, and the comparison of a run's trials."""

from __future__ import annotations

import json
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from ernie.atomic import put_text
from ernie.errors import UserError
from ernie.formatting import plural
from ernie.json_file import check_kind, read_json
from ernie.metrics import LOWER_IS_BETTER
from finetune.calibrate import Calibration
from finetune.config import HELD_OUT, OUT_OF_FOLD
from tasks.downstream.base import FinetuneTask
from tasks.downstream.resampling import DRAWS

SCORES_FILE = "scores.json"
_STATISTICS = ("mean", "deviation")
_KINDS = {
    **{"point": str, "seed": int, "scores": {str: {str: float}}, "best_step": int, "steps": int},
    **{"seconds": float, "tokens": int, "curve": [{"step": int, "loss": float}], "fold?": int},
}


@dataclass(frozen=True)
class Trial:
    """The result of one fine-tuning: the scores of every labeled split at its best checkpoint, and its evaluations.

    `point` names the combination of the grid ("" without a grid).  `seconds` is the time spent on its steps.  `tokens`
    counts those of one epoch.  `curve` has a record for each evaluation.  `fold` is the number of the part of train
    that was held out, from 1 on.
    """

    point: str
    seed: int
    scores: dict[str, dict[str, float]]
    best_step: int
    steps: int
    seconds: float
    tokens: int
    curve: list[dict[str, Any]]
    fold: int | None = None

    @property
    def name(self) -> str:
        """The name of its folder."""
        return trial_name(self.point, self.seed, self.fold)

    @property
    def judged_on(self) -> str:
        """The split whose scores decide: dev, or for want of it the rows that were held out."""
        return HELD_OUT if self.fold is not None and "dev" not in self.scores else "dev"

    def headline(self, metric: str) -> float:
        """Return the deciding score."""
        return self.scores[self.judged_on][metric]

    def as_dict(self) -> dict[str, Any]:
        """Return its fields, without `fold` if there are no folds."""
        return {name: value for name, value in asdict(self).items() if value is not None}

    def write(self, path: Path) -> None:
        """Write it as JSON, atomically."""
        put_text(path, json.dumps(self.as_dict(), indent=2) + "\n")

    @classmethod
    def read(cls, path: Path, metric: str) -> Trial:
        """Read a trial that `write` wrote into its folder; `metric` is the deciding one.

        Raises UserError when the file is damaged.
        """
        remedy = "Remove it, and its trial is run again."
        data = read_json(path, _KINDS, remedy)
        trial = cls(**{field.name: data[field.name] for field in fields(cls) if field.name in data})
        check_kind(data, {"scores": {trial.judged_on: {metric: float}}, "curve": [{metric: float}]}, path, remedy)
        if trial.name != path.parent.name:
            raise UserError(f"{path}: is that of another trial, {trial.name}. {remedy}")
        if trial.best_step not in {record["step"] for record in trial.curve}:
            raise UserError(f"{path}: best_step: was not evaluated. {remedy}")
        return trial


@dataclass(frozen=True)
class Spread:
    """The values of a score over several seeds and folds."""

    values: tuple[float, ...]

    @property
    def median(self) -> float:
        return statistics.median(self.values)

    def __str__(self) -> str:
        if len(self.values) == 1:
            return f"{self.median:.4f}"
        return f"{self.median:.4f} ({min(self.values):.4f} to {max(self.values):.4f})"

    def as_dict(self) -> dict[str, Any]:
        """Return median, mean, sample standard deviation (0 for one value), lowest, highest, and every value."""
        deviation = statistics.stdev(self.values) if len(self.values) > 1 else 0.0
        return {
            "median": self.median,
            "mean": statistics.mean(self.values),
            "deviation": deviation,
            "lowest": min(self.values),
            "highest": max(self.values),
            "values": list(self.values),
        }


@dataclass(frozen=True)
class Kept:
    """The scores on each split of a model that is more than the best trial's: an ensemble of those of the trials
    `members`, or one that was calibrated."""

    scores: Mapping[str, Mapping[str, float]]
    members: tuple[str, ...] = ()
    calibration: Calibration | None = None

    @property
    def name(self) -> str:
        """What it is."""
        ensemble = [f"ensemble of {len(self.members)}"] if self.members else []
        return ", ".join([*ensemble, *(["calibrated"] if self.calibration else [])])

    @property
    def explained(self) -> str:
        """What it is, in a sentence."""
        what = "the models of all trials, which answer together" if self.members else "the best trial's model"
        changed = f", with what was fitted on {self.calibration.split}" if self.calibration else ""
        begin = f"Lines with '{self.name}' are what the run keeps:" if self.scores else "The run keeps"
        return f"{begin} {what}{changed}."

    def as_dict(self) -> dict[str, Any]:
        """Return its part of scores.json."""
        found = {"members": list(self.members), "scores": self.scores}
        return found | ({"calibration": self.calibration.as_dict()} if self.calibration else {})


@dataclass(frozen=True)
class Result:
    """The result of a run: all its trials, the best grid point, and the best trial at that point.

    `signatures` says, by split and metric, how metrics with settings of their own were computed.  `out_of_fold` has the
    scores of each seed on all rows of train, each answered by the model that did not see it; none without folds.
    `kept` is what the run keeps if that is not the best trial's model alone.  `intervals` has, by split and metric, the
    score of what is kept and its 95 % interval, of metrics that are quickly drawn anew.
    """

    task: FinetuneTask
    trials: list[Trial]
    point: str
    best: Trial
    signatures: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    out_of_fold: Mapping[int, Mapping[str, float]] = field(default_factory=dict)
    kept: Kept | None = None
    intervals: Mapping[str, Mapping[str, tuple[float, float, float]]] = field(default_factory=dict)

    @classmethod
    def of(cls, task: FinetuneTask, trials: list[Trial]) -> Result:
        """Build the result from the trials, at least one."""
        metric = task.scored_by[0]
        return cls(task, trials, best_point(trials, metric), best_trial(trials, metric))

    @property
    def metric(self) -> str:
        """The deciding metric."""
        return self.task.scored_by[0]

    @property
    def seeds(self) -> int:
        """The number of seeds that its scores cover."""
        return len({trial.seed for trial in self.chosen})

    @property
    def folds(self) -> int:
        """The number of folds, 1 without a cross-validation."""
        return len({trial.fold for trial in self.chosen})

    @property
    def chosen(self) -> list[Trial]:
        """The trials at the best grid point."""
        return [trial for trial in self.trials if trial.point == self.point]

    def spreads(self) -> dict[str, dict[str, Spread]]:
        """Return {split: {metric: spread over the seeds and folds}} of the best grid point."""
        found = spreads(self.trials, self.point)
        if self.out_of_fold:
            each = list(self.out_of_fold.values())
            found[OUT_OF_FOLD] = {name: Spread(tuple(scores[name] for scores in each)) for name in each[0]}
        return found

    def score_rows(self) -> list[list[str]]:
        """Return the scores of every split as rows of a table, its header first."""
        found = self.spreads()
        rows = [[split, *map(str, metrics.values())] for split, metrics in found.items()]
        for split, metrics in (self.kept.scores if self.kept else {}).items():
            rows.append([f"{split}, {self.kept and self.kept.name}", *(f"{score:.4f}" for score in metrics.values())])
        return [["split", *found[self.best.judged_on]], *rows]

    def interval_rows(self) -> list[list[str]]:
        """Return the scores with their 95 % intervals as rows of a table, its header first; none if there are none."""
        rows = [
            [split, name, *(f"{number:.4f}" for number in numbers)]
            for split, metrics in self.intervals.items()
            for name, numbers in metrics.items()
        ]
        return [["split", "", "score", "low", "high"], *rows] if rows else []

    @property
    def intervals_explained(self) -> str:
        """What the figures of `interval_rows` are, in sentences."""
        return (
            f"95 % intervals by {DRAWS:,} draws of the rows with return (bootstrap), of what the run keeps; those of "
            f"{OUT_OF_FOLD} are of the best seed. They tell of the choice of rows, not of the seed. ernie compare "
            "compares runs row by row, which tells more than intervals that overlap or do not."
        ).replace(f"; those of {OUT_OF_FOLD} are of the best seed" if OUT_OF_FOLD not in self.intervals else "", "", 1)

    def fold_rows(self) -> list[list[str]]:
        """Return the scores of each fold on the rows that it holds out as rows of a table, with mean and deviation."""
        over = spreads(self.trials, self.point)[HELD_OUT]
        rows = [
            [f"fold {trial.fold}" + (f", seed {trial.seed}" if self.seeds > 1 else "")]
            + [f"{trial.scores[HELD_OUT][name]:.4f}" for name in over]
            for trial in self.chosen
        ]
        statistic = {name: [f"{spread.as_dict()[name]:.4f}" for spread in over.values()] for name in _STATISTICS}
        return [["", *over], *rows, *([name, *values] for name, values in statistic.items())]

    def explained(self) -> str:
        """Return a sentence that explains the figures of `score_rows`."""
        over = [plural(number, what) for number, what in ((self.folds, "fold"), (self.seeds, "seed")) if number > 1]
        seeds = f"Medians over {' and '.join(over)}, lowest to highest in brackets" if over else "Of one seed"
        judged_on = self.best.judged_on
        explained = [f"{seeds}; on {judged_on} they are those of the checkpoint that did best there by {self.metric}."]
        if self.folds > 1:
            explained.append(
                f"{HELD_OUT} are the rows of train that the model of a fold did not see; {OUT_OF_FOLD} are these rows "
                "of all folds together."
            )
        if self.kept is not None:
            explained.append(self.kept.explained)
        return " ".join([*explained, *(f"Signature of {name}." for name in self._signed())])

    def _signed(self) -> list[str]:
        """Return each metric with a signature, and the split's name where splits differ."""
        found: dict[str, list[str]] = {}
        for split, signatures in self.signatures.items():
            for metric, text in signatures.items():
                found.setdefault(f"{metric}{{}}: {text}", []).append(split)
        everywhere = len(self.signatures)
        return [
            signed.replace("{}", "" if len(splits) == everywhere else f" ({', '.join(splits)})", 1)
            for signed, splits in found.items()
        ]

    def as_dict(self) -> dict[str, Any]:
        """Return the contents of scores.json."""
        found = self.spreads()
        best = {"seed": self.best.seed, **({"fold": self.best.fold} if self.folds > 1 else {})}
        return {
            "metric": self.metric,
            "point": self.point,
            "scores": {split: {name: s.as_dict() for name, s in metrics.items()} for split, metrics in found.items()},
            **({"signatures": self.signatures} if any(self.signatures.values()) else {}),
            **({"kept": self.kept.as_dict()} if self.kept else {}),
            **({"intervals": _as_dicts(self.intervals)} if self.intervals else {}),
            "best": {**best, "step": self.best.best_step, "scores": self.best.scores},
            "trials": [trial.as_dict() for trial in self.trials],
        }


def _as_dicts(intervals: Mapping[str, Mapping[str, tuple[float, float, float]]]) -> dict[str, Any]:
    keys = ("score", "low", "high")
    return {
        split: {name: dict(zip(keys, numbers, strict=True)) for name, numbers in metrics.items()}
        for split, metrics in intervals.items()
    }


def check_alike(trials: Sequence[Trial], path: Path) -> None:
    """Raise UserError if the last trial, read from `path`, has other scores than those before it."""
    first, last = ({split: metrics.keys() for split, metrics in trials[at].scores.items()} for at in (0, -1))
    if first != last:
        raise UserError(f"{path}: has other scores than {trials[0].name}. Remove it, and its trial is run again.")


def trial_name(point: str, seed: int, fold: int | None = None) -> str:
    """Return the name of a trial's folder."""
    return f"{point},seed={seed}".lstrip(",") + ("" if fold is None else f",fold={fold}")


def best_trial(trials: Sequence[Trial], metric: str) -> Trial:
    """Return the trial with the best deciding score at the best grid point; ties go to the first."""
    point = best_point(trials, metric)
    return max(
        (trial for trial in trials if trial.point == point), key=lambda trial: _sign(metric) * trial.headline(metric)
    )


def best_point(trials: Sequence[Trial], metric: str) -> str:
    """Return the grid point with the best median over its seeds and folds; ties go to the first."""
    points = dict.fromkeys(trial.point for trial in trials)
    return max(points, key=lambda point: _sign(metric) * _median(trials, point, metric))


def spreads(trials: Sequence[Trial], point: str) -> dict[str, dict[str, Spread]]:
    """Return {split: {metric: spread over the seeds and folds}} of one grid point."""
    chosen = [trial for trial in trials if trial.point == point]
    return {
        split: {name: Spread(tuple(trial.scores[split][name] for trial in chosen)) for name in metrics}
        for split, metrics in chosen[0].scores.items()
    }


def _median(trials: Sequence[Trial], point: str, metric: str) -> float:
    return statistics.median(trial.headline(metric) for trial in trials if trial.point == point)


def _sign(metric: str) -> int:
    return -1 if metric in LOWER_IS_BETTER else 1
