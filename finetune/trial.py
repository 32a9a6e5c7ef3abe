"""One fine-tuning with one setting under one seed, and how those of a run compare."""

from __future__ import annotations

import json
import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ernie.beside import put_text
from ernie.metrics import LOWER_IS_BETTER
from ernie.saved import read_json
from tasks.downstream.base import FinetuneTask

SCORES_FILE = "scores.json"
_TYPES = {
    **{"point": (str,), "seed": (int,), "scores": (dict,), "best_step": (int,), "steps": (int,)},
    **{"seconds": (int, float), "tokens": (int,), "curve": (list,)},
}


@dataclass(frozen=True)
class Trial:
    """What came of one fine-tuning: the scores of every labelled split at its best checkpoint, and the way there.

    `point` says which combination of the grid it is ("" without a grid); `seconds` were spent on its steps; `tokens`
    are those of one epoch; `curve` has a record for each evaluation.
    """

    point: str
    seed: int
    scores: dict[str, dict[str, float]]
    best_step: int
    steps: int
    seconds: float
    tokens: int
    curve: list[dict[str, Any]]

    @property
    def name(self) -> str:
        """The name of its folder."""
        return trial_name(self.point, self.seed)

    def headline(self, metric: str) -> float:
        """The deciding score on the dev split."""
        return self.scores["dev"][metric]

    def write(self, path: Path) -> None:
        """Write it as JSON, whole or not at all."""
        put_text(path, json.dumps(asdict(self), indent=2) + "\n")

    @classmethod
    def read(cls, path: Path) -> Trial:
        """Read one that `write` wrote.  Raises UserError when it is damaged."""
        data = read_json(path, _TYPES, "Remove it, and its trial is run again.")
        return cls(**{name: data[name] for name in _TYPES})


@dataclass(frozen=True)
class Spread:
    """A score over several seeds."""

    values: tuple[float, ...]

    @property
    def median(self) -> float:
        return statistics.median(self.values)

    def __str__(self) -> str:
        if len(self.values) == 1:
            return f"{self.median:.4f}"
        return f"{self.median:.4f} ({min(self.values):.4f} to {max(self.values):.4f})"

    def as_dict(self) -> dict[str, Any]:
        """Median, mean, sample standard deviation (0 for one value), lowest, highest, and every value."""
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
class Result:
    """What a run came to: all its trials, the grid's best point, and the best trial at it."""

    task: FinetuneTask
    trials: list[Trial]
    point: str
    best: Trial

    @classmethod
    def of(cls, task: FinetuneTask, trials: list[Trial]) -> Result:
        """The result of trials, of which there is at least one."""
        metric = task.scored_by[0]
        return cls(task, trials, best_point(trials, metric), best_trial(trials, metric))

    @property
    def metric(self) -> str:
        """The deciding measure."""
        return self.task.scored_by[0]

    @property
    def seeds(self) -> int:
        """How many seeds its scores are of."""
        return sum(trial.point == self.point for trial in self.trials)

    def score_rows(self) -> list[list[str]]:
        """The scores of every split as a table, its head first."""
        found = spreads(self.trials, self.point)
        rows = [[split, *map(str, measures.values())] for split, measures in found.items()]
        return [["split", *found["dev"]], *rows]

    def explained(self) -> str:
        """What the figures of `score_rows` are."""
        seeds = f"Medians over {self.seeds} seeds, lowest to highest in brackets" if self.seeds > 1 else "Of one seed"
        return f"{seeds}; on dev they are those of the checkpoint that did best there by {self.metric}."

    def as_dict(self) -> dict[str, Any]:
        """As it is written to scores.json."""
        found = spreads(self.trials, self.point)
        return {
            "metric": self.metric,
            "point": self.point,
            "scores": {split: {name: s.as_dict() for name, s in measures.items()} for split, measures in found.items()},
            "best": {"seed": self.best.seed, "step": self.best.best_step, "scores": self.best.scores},
            "trials": [asdict(trial) for trial in self.trials],
        }


def trial_name(point: str, seed: int) -> str:
    """The folder of a trial."""
    return f"{point},seed={seed}".lstrip(",")


def best_trial(trials: Sequence[Trial], metric: str) -> Trial:
    """The trial with the best deciding score on the dev split, of equals the first, at the grid's best point."""
    point = best_point(trials, metric)
    return max(
        (trial for trial in trials if trial.point == point), key=lambda trial: _sign(metric) * trial.headline(metric)
    )


def best_point(trials: Sequence[Trial], metric: str) -> str:
    """The grid's point with the best median over its seeds, of equals the first."""
    points = dict.fromkeys(trial.point for trial in trials)
    return max(points, key=lambda point: _sign(metric) * _median(trials, point, metric))


def spreads(trials: Sequence[Trial], point: str) -> dict[str, dict[str, Spread]]:
    """Split -> measure -> its spread over the seeds of one point."""
    chosen = [trial for trial in trials if trial.point == point]
    return {
        split: {name: Spread(tuple(trial.scores[split][name] for trial in chosen)) for name in measures}
        for split, measures in chosen[0].scores.items()
    }


def _median(trials: Sequence[Trial], point: str, metric: str) -> float:
    return statistics.median(trial.headline(metric) for trial in trials if trial.point == point)


def _sign(metric: str) -> int:
    return -1 if metric in LOWER_IS_BETTER else 1
