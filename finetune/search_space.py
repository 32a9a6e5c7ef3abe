"""The settings that `ernie tune` searches: ranges and lists of values for keys of the configuration."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from ernie.config import check_least
from ernie.errors import UserError, about, nearest
from ernie.metrics import LOWER_IS_BETTER
from ernie.train.trackers import TRACKERS

# What all trials of a search share.
_SHARED = (
    *("data", "local", "seed", "seeds", "folds", "fold_by", "keep", "calibrate", "grid", "tune", "output"),
    *("save_minutes", "parallel", "workers", "plugins", "submission", "published", *TRACKERS),
)
_RANGE_KEYS = ("low", "high", "log", "step")


@dataclass(frozen=True)
class Range:
    """Numbers from `low` to `high`, both included: whole ones, multiples of `step` above `low`, or any.

    With `log` each order of magnitude is as likely as any other.
    """

    low: float
    high: float
    log: bool = False
    step: float | None = None
    whole: bool = False

    def probes(self) -> list[Any]:
        """Return values to try the configuration with before the search."""
        return [self.low, self.high]

    def holds(self, value: Any) -> bool:
        """Return whether the range has a value."""
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if not is_number or not self.low <= value <= self.high:
            return False
        return self.step is None or math.isclose((value - self.low) / self.step % 1, 0, abs_tol=1e-9)


@dataclass(frozen=True)
class Choices:
    """A few values of any kind, by how they are written."""

    values: Mapping[str, Any]

    def probes(self) -> list[Any]:
        """Return values to try the configuration with before the search."""
        return [*self.values.values()]

    def holds(self, value: Any) -> bool:
        """Return whether a value is one of the choices."""
        return written(value) in self.values


Parameter = Range | Choices


@dataclass(frozen=True)
class TuneConfig:
    """A search over settings, for `ernie tune`.

    `search` has keys of the configuration, such as those under `task` and `train`, each with a list of values or with a
    range, {low: 1e-5, high: 1e-4, log: true}.  The search ends after so many `trials`, or `hours` of computing if that
    is sooner (0: no limit).  A trial is one setting, under all seeds and folds; its score is their mean.  The sampler
    is a tree-structured Parzen estimator (Bergstra et al., 2011, "Algorithms for Hyper-Parameter Optimization").

    `prune` ends trials that do badly on dev as they train: `median` those below the median of the trials before, at the
    same evaluation, `halving` all but the best quarter at rising numbers of evaluations (Li et al., 2020, "A System for
    Massively Parallel Hyperparameter Tuning", arXiv 1810.05934), `none` none.
    """

    search: dict[str, Any] = field(default_factory=dict)
    trials: int = 20
    hours: float = 0.0
    prune: Literal["median", "halving", "none"] = "median"

    def __post_init__(self) -> None:
        check_least(self, trials=1, hours=0)
        if not self.search:
            raise UserError("search: expected keys of the configuration, such as train.lr.peak, with values to try")
        self.parameters()
        for key in self.search:
            if any(other.startswith(f"{key}.") for other in self.search):
                raise UserError(f"search: {key} is searched as a whole, and a key in it, too; leave one of them out")

    def parameters(self) -> dict[str, Parameter]:
        """Return what is searched, by key.  Raises UserError for what is neither values nor a range."""
        return {key: _parameter(key, given) for key, given in self.search.items()}


def _parameter(key: str, given: Any) -> Parameter:
    with about(f"search: {key}"):
        if (block := key.partition(".")[0]) in _SHARED:
            raise UserError(
                f"{block} is the same for all trials; search other keys, such as those under train and task"
            )
        if isinstance(given, Mapping):
            return _range(given)
        if not isinstance(given, list | tuple):
            raise UserError(
                f"expected a list of values, or a range such as {{low: 1, high: 5}}, found {written(given)}"
            )
        values = {written(value): value for value in given}
        if len(values) < 2 or len(values) < len(given):
            raise UserError(f"expected at least two values, all of them different, found {written([*given])}")
        return Choices(values)


def _range(given: Mapping[str, Any]) -> Range:
    for name in given:
        if name not in _RANGE_KEYS:
            raise UserError(f"a range has no key '{name}'.{nearest(str(name), _RANGE_KEYS)}")
    for name in ("low", "high"):
        if name not in given:
            raise UserError(f"{name}: this key is required")
    numbers = {name: given[name] for name in ("low", "high", "step") if given.get(name) is not None}
    for name, number in numbers.items():
        if isinstance(number, bool) or not isinstance(number, int | float) or not math.isfinite(number):
            raise UserError(f"{name}: expected a number, found {written(number)}")
    low, high, step, log = given["low"], given["high"], numbers.get("step"), given.get("log", False)
    if not isinstance(log, bool):
        raise UserError(f"log: expected true or false, found {written(log)}")
    if low >= high:
        raise UserError(f"low: expected less than high, found {low:g} and {high:g}")
    if log and low <= 0:
        raise UserError(f"low: a range with log is above 0, found {low:g}")
    if step is not None and (log or not 0 < step <= high - low):
        raise UserError(f"step: expected a part of the range, without log, found {step:g}")
    return Range(low, high, log, step, all(isinstance(number, int) for number in numbers.values()))


def written(value: Any) -> str:
    """Return a value as it is shown, and as the values of a list are told apart."""
    if isinstance(value, str):
        return value
    return f"{value:.4g}" if isinstance(value, float) else json.dumps(value, default=str)


def phrase(settings: Mapping[str, Any]) -> str:
    """Return settings as a phrase."""
    return ", ".join(f"{key} {written(value)}" for key, value in settings.items())


@dataclass(frozen=True)
class SearchTrial:
    """One setting that was tried: its number from 1 on, its values by key, and what came of it.

    `outcome` is "done", "pruned" or "failed"; only the first has a `score`.
    """

    number: int
    settings: Mapping[str, Any]
    outcome: str
    score: float | None
    seconds: float


@dataclass(frozen=True)
class SearchRecord:
    """All trials of a search, the `best` one, and how much of the score's variance each key explains.

    `metric` is the deciding one and `judged_on` the split that it is of.  `importances` is empty where there are too
    few trials to tell.
    """

    metric: str
    judged_on: str
    trials: tuple[SearchTrial, ...]
    best: SearchTrial
    importances: Mapping[str, float]

    def ranked(self) -> Iterator[SearchTrial]:
        """Yield the trials: the best first, those without a score last, each in the order of their numbers."""
        sign = 1 if self.metric in LOWER_IS_BETTER else -1
        scored = [trial for trial in self.trials if trial.score is not None]
        yield from sorted(scored, key=lambda trial: sign * (trial.score or 0.0))
        yield from (trial for trial in self.trials if trial.score is None)
