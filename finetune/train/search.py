"""A search over settings by Optuna: each trial is a run, and the best one becomes that of the search's folder.

RUN/tune.yaml          the resolved configuration, with what is searched
RUN/study.jsonl        Optuna's journal of all trials
RUN/searched/N/        the run of trial N, without its model unless it is the best so far
RUN/best.yaml          the best settings
RUN/search.jsonl       every trial with its settings, its score and its time

The rest of the folder is that of a run with the best settings (see finetune/train/run.py).
"""

from __future__ import annotations

import json
import math
import shutil
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend
from optuna.trial import FrozenTrial, TrialState

from ernie.atomic import put, put_text
from ernie.config import dump, to_dict
from ernie.data import seeded_rng
from ernie.errors import TrainingFailed, UserError
from ernie.formatting import duration, plural
from ernie.kernels.precision import precision
from ernie.metrics import LOWER_IS_BETTER
from ernie.parallel.launch import LOGS_FOLDER
from ernie.train.run_folder import (
    CHECKPOINTS,
    CONFIG,
    LOCK,
    MODEL,
    ORIGIN,
    another_configuration,
    changed_keys,
    locked_folder,
)
from ernie.train.trackers import TRACKERS
from ernie.yaml_tree import dump_plain
from finetune.config import HELD_OUT, FinetuneConfig, build_tuned, load, nested
from finetune.search_space import Choices, Parameter, SearchRecord, SearchTrial, TuneConfig, phrase, written
from finetune.train.run import run
from finetune.train.run_contents import read_inputs
from finetune.train.trial import Result
from finetune.train.trial_checkpoint import Evaluation
from tasks.downstream.saved import TRIALS_FOLDER

TUNE_FILE, BEST_FILE, RECORD_FILE = "tune.yaml", "best.yaml", "search.jsonl"
_STUDY, _RUNS = "study.jsonl", "searched"
_WAYS_OUT = "Choose another --output, or delete the folder to start over."
# Keys that may change between two sessions of a search.
_FREE = (
    *("output", "save_minutes", "tune.trials", "tune.hours", "published", "submission", "local", "plugins"),
    *TRACKERS,
)
_OUTCOMES = {TrialState.COMPLETE: "done", TrialState.PRUNED: "pruned", TrialState.FAIL: "failed"}
_ENOUGH = 4  # finished trials that tell how much each key matters


def tune(
    config: FinetuneConfig, folder: Path, say: Callable[[str], None], quiet: bool = False
) -> tuple[Result, SearchRecord]:
    """Search the settings that a configuration names, and make the folder that of a run with the best ones.

    Trials that the folder already has are not run again; one that was stopped goes on.  Raises UserError for the folder
    of something else, and TrainingFailed if no trial was finished.
    """
    assert config.tune is not None
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    with locked_folder(folder, (_RUNS,)):
        _claim(config, folder)
        search = _Search(config, config.tune, folder, say, quiet)
        while (trial := search.next()) is not None:
            search.train(trial)
        record = search.record()
        best = build_tuned(config, record.best.settings)
        _publish(folder, record)
    with precision(best.train.precision, best.train.amp_level):
        return run(replace(best, output=folder), folder, lambda _: None, quiet=True, search=record), record


def _claim(config: FinetuneConfig, folder: Path) -> None:
    """Write the configuration of a search to its folder.  Raises UserError for a folder of something else."""
    file = folder / TUNE_FILE
    if file.is_file() and not any(folder.glob(f"{_RUNS}/*/{TRIALS_FOLDER}/*")):  # nothing was trained
        (folder / _STUDY).unlink(missing_ok=True)
    elif file.is_file():
        if changed := changed_keys(load(file, saved=True), config, _FREE):
            raise UserError(another_configuration(folder, changed) + _WAYS_OUT)
    elif {path.name for path in folder.iterdir()} - {LOCK, LOGS_FOLDER}:
        raise UserError(f"{folder}: is not empty and holds no search; choose another --output")
    put_text(file, dump(config))


class _Search:
    """The trials of a search, in Optuna's journal.

    The sampler of a trial is seeded by the run's seed and the trial's number, so that a search that was stopped goes on
    as it would have.
    """

    def __init__(
        self, config: FinetuneConfig, settings: TuneConfig, folder: Path, say: Callable[[str], None], quiet: bool
    ):
        self._config, self._settings, self._folder, self._say, self._quiet = config, settings, folder, say, quiet
        self._metric = config.task.scored_by[0]
        self._parameters = settings.parameters()
        base = to_dict(config)
        self._distributions = {key: _distribution(each, _at(base, key)) for key, each in self._parameters.items()}
        self._study = optuna.create_study(
            storage=JournalStorage(JournalFileBackend(str(folder / _STUDY))),
            study_name="tune",
            direction="minimize" if self._metric in LOWER_IS_BETTER else "maximize",
            pruner=_PRUNERS[settings.prune](),
            load_if_exists=True,
        )
        self._told = False  # whether a run has said what it reads

    def next(self) -> optuna.Trial | None:
        """Return the next trial, one that was stopped first; None if the search has ended."""
        trials = self._study.get_trials(deepcopy=False)
        for frozen in trials:
            if frozen.state is TrialState.RUNNING and frozen.params.keys() == self._distributions.keys():
                return optuna.Trial(self._study, frozen._trial_id)
            if frozen.state is TrialState.RUNNING:  # stopped before all of its settings were chosen
                self._study.tell(frozen.number, state=TrialState.FAIL)
        done = self._finished()
        spent = sum(map(_seconds, done))
        if len(done) >= self._settings.trials or (self._settings.hours and spent >= 3600 * self._settings.hours):
            return None
        if not trials and (own := self._own_settings()):
            self._study.enqueue_trial(own)
        seed = seeded_rng.key(self._config.seed, "tune", len(trials)) % 2**32
        self._study.sampler = optuna.samplers.TPESampler(seed=seed)
        return self._study.ask(self._distributions)

    def _finished(self) -> list[FrozenTrial]:
        """Return the trials that have ended; those without settings were never begun."""
        return [t for t in self._study.get_trials(deepcopy=False) if t.state in _OUTCOMES and t.params]

    def _own_settings(self) -> dict[str, Any]:
        """Return the configuration's own values of what is searched; empty if one of them is not searched."""
        values = {key: _at(to_dict(self._config), key) for key in self._parameters}
        if not all(self._parameters[key].holds(value) for key, value in values.items()):
            return {}
        self._say("trial 1 has the settings of the configuration")
        return {
            key: written(value) if isinstance(self._parameters[key], Choices) else value
            for key, value in values.items()
        }

    def train(self, trial: optuna.Trial) -> None:
        """Run a trial, and record what came of it."""
        place, settings = self._folder / _RUNS / str(trial.number + 1), self._settings_of(trial.params)
        number = trial.number + 1
        self._say(f"trial {number} of {self._settings.trials}: {phrase(settings)}")
        before, began = _seconds(self._study.get_trials(deepcopy=False)[trial.number]), time.monotonic()
        outcome: tuple[float | None, TrialState] = None, TrialState.FAIL
        try:
            score = self._known(trial)
            if score is not None:
                self._say(f"trial {number}: its settings were tried before, and have the same score")
            else:
                score = self._score(trial, replace(build_tuned(self._config, settings), output=place), place)
            if math.isfinite(score):
                outcome = score, TrialState.COMPLETE
            else:
                self._say(f"note: trial {number}: {self._metric} is {score}, by which it cannot be compared")
        except optuna.TrialPruned:
            outcome = None, TrialState.PRUNED
        except UserError as error:
            if not self._finished() and not isinstance(error, TrainingFailed):
                raise
            self._say(f"note: trial {number}: {error}")
        finally:
            trial.set_user_attr("seconds", before + time.monotonic() - began)
        self._check_rows(place)
        self._study.tell(trial, *outcome)
        _tidy(self._folder, self._best_number())
        self._tell_progress(number)

    def _known(self, trial: optuna.Trial) -> float | None:
        """Return the score of a finished trial with the same settings, if there is one."""
        return next((_score(each) for each in self._finished() if each.params == trial.params), None)

    def _score(self, trial: optuna.Trial, config: FinetuneConfig, place: Path) -> float:
        """Return the mean of a trial's deciding scores over seeds and folds.  Raises TrialPruned if it does badly."""
        say = (lambda _: None) if self._told else self._say
        self._told = True
        with precision(config.train.precision, config.train.amp_level):
            result = run(config, place, say, self._quiet, watch=partial(self._watch, trial, config))
        return statistics.mean(each.headline(self._metric) for each in result.trials)

    def _check_rows(self, place: Path) -> None:
        """Raise UserError if a trial had other rows than those before it."""
        if not (place / ORIGIN).is_file():
            return
        rows = {name: digest for name, digest in read_inputs(place).items() if name.startswith("data.")}
        if self._study.user_attrs.get("rows", rows) != rows:
            shutil.rmtree(place)
            raise UserError(f"{self._folder}: holds a search on other rows: those of data have changed. {_WAYS_OUT}")
        self._study.set_user_attr("rows", rows)

    def _watch(self, trial: optuna.Trial, config: FinetuneConfig, evaluation: Evaluation) -> None:
        """Report an evaluation.  Raises TrialPruned if the trial does badly."""
        step = max(1, round(evaluation.epoch * max(1, config.train.evaluations)))
        known = self._study.get_trials(deepcopy=False)[trial.number].intermediate_values
        if step not in known and math.isfinite(evaluation.headline):
            trial.report(evaluation.headline, step)
        is_whole = step >= config.train.epochs * config.train.evaluations and config.seeds * config.folds == 1
        if not is_whole and trial.should_prune():
            raise optuna.TrialPruned

    def _settings_of(self, params: Mapping[str, Any]) -> dict[str, Any]:
        """Return the settings that Optuna's values stand for."""
        given = {key: params[key] for key in self._parameters}
        return {key: _value(self._parameters[key], value) for key, value in given.items()}

    def _best_number(self) -> int | None:
        """Return the number of the best trial, from 1 on; of equal ones the first."""
        scored = [(score, each.number + 1) for each in self._finished() if (score := _score(each)) is not None]
        sign = 1 if self._metric in LOWER_IS_BETTER else -1
        return min(scored, key=lambda found: (sign * found[0], found[1]))[1] if scored else None

    def _tell_progress(self, number: int) -> None:
        trials = {trial.number: trial for trial in self._records()}
        this, best = trials[number], trials.get(self._best_number() or 0)
        done, spent = len(trials), sum(trial.seconds for trial in trials.values())
        left = max(0, self._settings.trials - done)
        rest = left * spent / done
        if self._settings.hours:
            rest = min(rest, max(0.0, 3600 * self._settings.hours - spent))
        score = f"{self._metric} {this.score:.4f}" if this.score is not None else this.outcome
        so_far = f"; the best is {best.score:.4f}, of trial {best.number}" if best and best.score is not None else ""
        ahead = f"; {plural(left, 'trial')} left, about {duration(rest)}" if left and rest else ""
        self._say(f"trial {number}: {score}{so_far}{ahead}")

    def _records(self) -> list[SearchTrial]:
        return [
            SearchTrial(
                trial.number + 1,
                self._settings_of(trial.params),
                _OUTCOMES[trial.state],
                _score(trial),
                _seconds(trial),
            )
            for trial in self._finished()
        ]

    def record(self) -> SearchRecord:
        """Return all trials.  Raises TrainingFailed if none was finished."""
        trials, best = self._records(), self._best_number()
        if best is None:
            raise TrainingFailed(f"none of {plural(len(trials), 'trial')} was finished; their notes say why")
        judged_on = "dev" if "dev" in self._config.data.splits() else HELD_OUT
        chosen = next(trial for trial in trials if trial.number == best)
        return SearchRecord(self._metric, judged_on, tuple(trials), chosen, self._importances())

    def _importances(self) -> dict[str, float]:
        """Return the share of the score's variance that each key explains (fANOVA: Hutter et al., 2014)."""
        scores = [score for each in self._finished() if (score := _score(each)) is not None]
        if len(scores) < _ENOUGH or len({*scores}) < 2:
            return {}
        evaluator = optuna.importance.FanovaImportanceEvaluator(seed=self._config.seed)
        return dict(optuna.importance.get_param_importances(self._study, evaluator=evaluator))


_PRUNERS: dict[str, Callable[[], optuna.pruners.BasePruner]] = {
    "median": optuna.pruners.MedianPruner,
    "halving": optuna.pruners.SuccessiveHalvingPruner,
    "none": optuna.pruners.NopPruner,
}


def _distribution(parameter: Parameter, own: Any) -> BaseDistribution:
    """Return what Optuna draws a parameter from; `own` is its value in the configuration."""
    if isinstance(parameter, Choices):
        return CategoricalDistribution([*parameter.values])
    if parameter.whole and not isinstance(own, float):
        return IntDistribution(int(parameter.low), int(parameter.high), parameter.log, int(parameter.step or 1))
    return FloatDistribution(parameter.low, parameter.high, parameter.log, parameter.step)


def _value(parameter: Parameter, drawn: Any) -> Any:
    return parameter.values[drawn] if isinstance(parameter, Choices) else drawn


def _at(tree: Any, key: str) -> Any:
    """Return the value at a key of a configuration; None if there is none."""
    for name in key.split("."):
        tree = tree.get(name) if isinstance(tree, Mapping) else None
    return tree


def _score(trial: FrozenTrial) -> float | None:
    """Return the score of a trial that was finished; one that was pruned has the value of its last report."""
    return trial.value if trial.state is TrialState.COMPLETE else None


def _seconds(trial: FrozenTrial) -> float:
    return float(trial.user_attrs.get("seconds", 0.0))


def _tidy(folder: Path, best: int | None) -> None:
    """Remove the models and the checkpoints of all trials but the best one."""
    for place in (folder / _RUNS).glob("*"):
        if place.name != str(best):
            parts = (place.glob(f"{TRIALS_FOLDER}/*/{name}") for name in (MODEL, CHECKPOINTS))
            for left in (place / MODEL, *chain.from_iterable(parts)):
                shutil.rmtree(left, ignore_errors=True)


def _publish(folder: Path, record: SearchRecord) -> None:
    """Make the folder of a search that of the best trial's run, whose results are written from it."""
    place = folder / _RUNS / str(record.best.number)
    if (place / MODEL).is_dir():
        for name in (CONFIG, ORIGIN):
            shutil.copyfile(place / name, folder / name)
        shutil.rmtree(folder / TRIALS_FOLDER, ignore_errors=True)
        shutil.copytree(place / TRIALS_FOLDER, folder / TRIALS_FOLDER)
        put(place / MODEL, folder / MODEL)
    put_text(folder / BEST_FILE, dump_plain(nested(record.best.settings)))
    lines = [
        {"trial": t.number, "outcome": t.outcome, record.metric: t.score, "seconds": round(t.seconds, 1), **t.settings}
        for t in record.trials
    ]
    put_text(folder / RECORD_FILE, "".join(f"{json.dumps(line)}\n" for line in lines))
