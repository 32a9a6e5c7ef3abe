"""A fine-tuning run: every seed and every grid point, and the folder that it writes.

RUN/config.yaml     the resolved configuration
RUN/trials/NAME/    scores.json, metrics.jsonl and the answers to dev and test of each fine-tuning, with the logits of
                    dev, and a checkpoint until it is done; of a cross-validation also what it held out
RUN/scores.json     medians, spreads and every score
RUN/model/          encoder, tokenizer, head and task of the best trial; self-contained.  Of an ensemble: a folder of
                    this kind for each of its models
RUN/dev.jsonl       of an ensemble or a calibrated model: its answers to dev; test.jsonl: to test
RUN/README.md       the model card
RUN/report.html     the same as figures
RUN/out_of_fold.jsonl  of a cross-validation: the answer to each row of train by the model that did not see it
RUN/tradeoff.json   of a student: what it and its teacher cost and give, in each precision
RUN/latency.json    of a translator: its quality at several distances from the source
"""

from __future__ import annotations

import json
import shutil
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import product
from pathlib import Path

import paddle

from ernie.atomic import check_room, disk_guard, inner_folder, put_text
from ernie.config import differences, to_dict
from ernie.data.labeled.row import Row
from ernie.errors import Remark, UserError, about
from ernie.formatting import duration
from ernie.kernels.precision import precision
from ernie.model.config import EncoderConfig
from ernie.model.ernie import ErnieModel
from ernie.model.inference import tokenizer_of
from ernie.model.published import hub
from ernie.parallel.collectives import any_rank, on_rank0
from ernie.parallel.layout import ParallelConfig, Sizes
from ernie.parallel.mesh import Mesh
from ernie.train.checkpoint import await_visible
from ernie.train.interrupt import Interrupt
from ernie.train.log import Log
from ernie.train.run_folder import CHECKPOINTS, CONFIG, MODEL
from ernie.train.trackers import TrackedRun, check_trackers, tracked_by
from ernie.train.trainer import StepReport
from finetune.calibrate import Logits, calibrate, check_calibration
from finetune.config import HELD_OUT, OUT_OF_FOLD, FinetuneConfig, GridConfig, TrainConfig, load
from finetune.folds import CrossValidation
from finetune.logits_file import read_logits, write_logits
from finetune.prepare import Prepared, check_segments, describe, prepare_all, training_rows
from finetune.report.card import write_card
from finetune.report.latency import measure_latency, write_latency
from finetune.report.split_answers import (
    answers_file,
    logits_file,
    read_out_of_fold,
    read_split_answers,
    write_out_of_fold,
    write_split_answers,
)
from finetune.report.tradeoff import Tradeoff, measure_tradeoff
from finetune.search_space import SearchRecord
from finetune.train.early_stopping import best_of, unlearned
from finetune.train.loop import finetune
from finetune.train.run_contents import (
    claim_folder,
    encoder_fingerprint,
    has_kept,
    inputs_of,
    keep_decoding,
    keep_ensemble,
    keep_model,
    kept_trials,
    read_inputs,
    take_model,
    trial_model,
)
from finetune.train.side_by_side import train_side_by_side
from finetune.train.steps import planned_steps
from finetune.train.teacher import Teacher, load_teacher
from finetune.train.trial import SCORES_FILE, Kept, Result, Trial, best_point, best_trial, check_alike, trial_name
from finetune.train.trial_checkpoint import Evaluation, TrialCheckpoints
from finetune.train.warm_start import kept_head, load_encoder, remark_on_head, starting_task
from inference.task_model import TaskModel, common_logits, outcome_of
from tasks.downstream.base import Answer, FinetuneTask, LogitsTask
from tasks.downstream.calibration import Calibrated
from tasks.downstream.hooks import ComparesAnswers, PartialTraining
from tasks.downstream.resampling import quick_intervals
from tasks.downstream.saved import TRIALS_FOLDER
from tasks.downstream.scoring import score_answers, signatures
from tasks.downstream.translate import Translate

Watch = Callable[[Evaluation], None]
_JUDGED = ("dev", HELD_OUT)  # splits whose logits are written
_ANSWERED = (*_JUDGED, "test")  # splits to which answers are written


def run(
    config: FinetuneConfig,
    folder: Path,
    say: Callable[[str], None],
    quiet: bool = False,
    mesh: Mesh | None = None,
    watch: Watch | None = None,
    search: SearchRecord | None = None,
    jobs: int = 1,
) -> Result:
    """Fine-tune for every seed and grid point, and write the run's folder (only the first process of `mesh` does).

    A run of a search gives each evaluation of its first trial to `watch`, which may end it by an exception; such a run
    has no card and no report.  The report shows the `search` that found the settings.  Trials that the folder already
    has are not run again.  With `jobs` above 1 so many are trained at once, in processes of their own.  Raises
    UserError for unusable data and for the folder of another run.
    """
    mesh = mesh or Mesh()
    config.check_kept()
    check_trackers(config)
    runner, encoder = _prepare(config, folder, say, quiet, mesh)
    if (teacher := runner.teacher) is not None:
        say(teacher.described)
        scores = on_rank0(mesh, "scoring the teacher", lambda: teacher.score(runner.splits["dev"].rows))
        say(f"teacher on dev: {', '.join(f'{name} {score:.4f}' for name, score in scores.items()) or 'has no head'}")
    inputs = inputs_of(encoder, runner.splits, config, teacher)
    metric = runner.task.scored_by[0]
    with ExitStack() as stack:
        claimed = claim_folder(config, inputs, folder)
        runner = replace(runner, identity=on_rank0(mesh, "opening the run", lambda: stack.enter_context(claimed)))
        trained = runner.train_side_by_side(jobs) if jobs > 1 else []
        trials: list[Trial] = []
        for point, settings in config.trials():
            for seed, fold in _repeats(config):
                name = trial_name(point, seed, fold)
                if runner.scores_file(name).is_file():
                    trials.append(runner.read_trial(name))
                    check_alike(trials, runner.scores_file(name))
                    if name not in trained:
                        say(f"{name}: was done before, {runner.headline(trials[-1])}")
                    continue
                runner.check_room()
                with about(name):
                    model, trial = runner.train(settings, point, seed, fold, None if trials else watch)
                say(runner.told(trial))
                trials.append(trial)
                is_best = best_trial(trials, metric) is trial
                kept = model if is_best or config.keep == "ensemble" else None
                on_rank0(mesh, "saving", partial(runner.save_trial, kept, trial))
                del model
            if config.keep == "ensemble":
                on_rank0(mesh, "saving", partial(_drop_models, folder, trials, best_point(trials, metric)))
        result = runner.with_signatures(runner.with_models(Result.of(runner.task, trials), say))
        result = on_rank0(mesh, "scoring", lambda: runner.with_kept_scores(runner.with_out_of_fold(result)))
        if watch is None:
            on_rank0(mesh, "reporting", lambda: runner.write_results(runner.with_intervals(result), search))
            on_rank0(mesh, "tidying up", lambda: runner.teacher_answers.unlink(missing_ok=True))
    return result


def prepare_worker(folder: Path, identity: str) -> Callable[[str], None]:
    """Return what trains a trial of a run for the process that has the run's folder, given the trial's name.

    Each trial keeps its model, of which that process removes all that cannot become the run's.  Raises UserError if the
    encoder or the rows are not those that the run began with.
    """
    config = load(folder / CONFIG)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", Remark)  # that process has made them
        runner, encoder = _prepare(config, folder, lambda _: None, True, Mesh())
    runner = replace(runner, identity=identity)
    if changed := differences(read_inputs(folder), inputs_of(encoder, runner.splits, config, runner.teacher)):
        raise UserError(
            f"{next(iter(changed))}: is not what it was when the run began, a moment ago; --jobs reads everything once "
            "for each job, which a pipe does not allow"
        )
    planned = _planned(config)

    def train(name: str) -> None:
        runner.check_room()
        with about(name), precision(config.train.precision, config.train.amp_level):
            model, trial = runner.train(*planned[name])
            runner.save_trial(model, trial, trial_model(folder, name))

    return train


def _prepare(
    config: FinetuneConfig, folder: Path, say: Callable[[str], None], quiet: bool, mesh: Mesh
) -> tuple[_Runner, str]:
    """Read the encoder, the rows and the teacher of a run; return what trains its trials, without the run's identity.

    Also returns the encoder's fingerprint.
    """
    ernie = load_encoder(config)
    mesh.layout.check(sizes(ernie.config, mesh.layout))
    say(f"model: {config.model}")
    if remark := remark_on_head(config):
        say(f"note: {remark}")
    is_frozen = isinstance(config.task, PartialTraining) and config.task.freezes_encoder
    if config.train.dropout is None and not ernie.config.dropout and not is_frozen:
        say("note: this encoder was pretrained without dropout; with few rows `train.dropout: 0.1` is usually better")
    task, splits = prepare_all(starting_task(config), config.data, tokenizer_of(ernie), say, config.needed)
    check_calibration(config.calibrate, task)
    check_segments(splits["train"], ernie.config.segments, config.model)
    for split in splits.values():
        say(describe(split))
        for remark in split.remarks:
            say(f"note: {remark}")
    folds = CrossValidation.of(config, task, splits["train"], tokenizer_of(ernie))
    if folds is not None:
        say(folds.note(splits))
        for remark in folds.remarks(task, splits, tokenizer_of(ernie)):
            say(f"note: {remark}")
    teacher = load_teacher(config, task, ernie)
    size = sum(4 * weight.size for weight in ernie.parameters())
    # Each trial loads its own encoder: this one is not held beside it.
    return _Runner(config, task, splits, folds, teacher, size, folder, "", say, quiet, mesh), encoder_fingerprint(ernie)


def _repeats(config: FinetuneConfig) -> list[tuple[int, int | None]]:
    """The seed and the fold of each trial at a point of the grid."""
    return list(product(range(config.seed, config.seed + config.seeds), config.fold_numbers))


def _planned(config: FinetuneConfig) -> dict[str, tuple[TrainConfig, str, int, int | None]]:
    """The settings, the point of the grid, the seed and the fold of each trial by its name, in order."""
    return {
        trial_name(point, seed, fold): (settings, point, seed, fold)
        for point, settings in config.trials()
        for seed, fold in _repeats(config)
    }


def _drop_models(folder: Path, trials: Sequence[Trial], point: str) -> None:
    """Remove the models of the trials that are not at the best point of the grid so far."""
    for trial in trials:
        if trial.point != point:
            shutil.rmtree(trial_model(folder, trial.name), ignore_errors=True)


def _student_and_teacher(
    folder: Path, config: FinetuneConfig, task: FinetuneTask, splits: Mapping[str, Prepared]
) -> Tradeoff | None:
    """Measure what a student and its teacher cost and give, and write that; None without a teacher that has a head."""
    teacher = config.teacher
    if teacher is None or not teacher.weight or not isinstance(task, LogitsTask):
        return None
    models = {folder.resolve().name: folder, teacher.model: hub.find(teacher.model)}
    found = measure_tradeoff(models, task, splits["dev"].rows, config.plugins)
    found.write(folder)
    return found


def sizes(shape: EncoderConfig, layout: ParallelConfig) -> Sizes:
    """Return the sizes that a parallel layout has to divide; a run makes as many micro-batches as the layout needs."""
    return Sizes.of(shape, 2 * layout.replicas * layout.pipeline)


@dataclass(frozen=True)
class _Runner:
    """What all trials of a run share."""

    config: FinetuneConfig
    task: FinetuneTask
    splits: dict[str, Prepared]
    folds: CrossValidation | None
    teacher: Teacher | None
    size: int  # of the encoder's weights, in bytes
    folder: Path
    identity: str
    say: Callable[[str], None]
    quiet: bool
    mesh: Mesh

    def headline(self, trial: Trial) -> str:
        metric = self.task.scored_by[0]
        return f"{metric} {trial.headline(metric):.4f}"

    def told(self, trial: Trial) -> str:
        """A line on a trial that is done."""
        return f"{trial.name}: {self.headline(trial)} on {trial.judged_on}, best at step {trial.best_step}"

    def scores_file(self, name: str) -> Path:
        """The file that a trial ends with."""
        return self.folder / TRIALS_FOLDER / name / SCORES_FILE

    def read_trial(self, name: str) -> Trial:
        """Read a trial that is done."""
        return Trial.read(self.scores_file(name), self.task.scored_by[0])

    def check_room(self) -> None:
        """Raise UserError if the disk has no room for a trial's model."""
        on_rank0(self.mesh, "opening the trial", partial(check_room, self.folder, self.size, self.size, "the model"))

    def train_side_by_side(self, jobs: int) -> list[str]:
        """Train what is missing, so many trials at once; return the names of these trials.

        Of a single one nothing is trained: it is better off with the whole machine.
        """
        names = list(_planned(self.config))
        missing = [name for name in names if not self.scores_file(name).is_file()]
        jobs = min(jobs, len(missing))
        if jobs < 2:
            return []
        if paddle.get_device() != "cpu":
            raise UserError("--jobs: shares out the cores of a processor, and this run is on a GPU; leave it out")
        if self.teacher is not None:
            _ = self.training_rows  # the teacher's answers, which the workers then find
        trials = {name: self.read_trial(name) for name in names if name not in missing}
        for name in missing:
            if step := self._saved_step(name):
                self.say(f"{name}: resumes after step {step:,}")
        self.say(f"training {len(missing)} trials, {jobs} at once")
        began = time.monotonic()

        def done(name: str, left: int) -> None:
            trials[name] = self.read_trial(name)
            turns = -(-(len(missing) - left) // jobs)  # that have been, if all take as long
            still = f"{left} left, about {duration((time.monotonic() - began) / turns * -(-left // jobs))}"
            self.say(f"{self.told(trials[name])} ({still if left else 'the last'})")
            if self.config.keep == "best":
                self._keep_best_of_each_point([trials[name] for name in names if name in trials])

        train_side_by_side(self.folder, self.identity, missing, jobs, done, self.say)
        return missing

    def _saved_step(self, name: str) -> int:
        """The step after which a trial resumes, 0 if it has no checkpoint."""
        place = self.folder / TRIALS_FOLDER / name
        return TrialCheckpoints(place, self.identity, 0, lambda: False, lambda: None).step

    def _keep_best_of_each_point(self, trials: Sequence[Trial]) -> None:
        """Remove the models of trials that another one of the same point is better than."""
        for point in {trial.point for trial in trials}:
            best = best_trial([trial for trial in trials if trial.point == point], self.task.scored_by[0])
            for trial in trials:
                if trial.point == point and trial is not best:
                    shutil.rmtree(trial_model(self.folder, trial.name), ignore_errors=True)

    @property
    def teacher_answers(self) -> Path:
        """The file with the answers of the teacher, until the run is done."""
        return self.folder / TRIALS_FOLDER / f"teacher-{self.identity[:16]}.safetensors"

    @cached_property
    def training_rows(self) -> Prepared:
        """The rows that all trials are trained on, if there are no folds; the teacher has read them."""
        rows = training_rows(self.splits)
        if self.teacher is not None:
            self.teacher.read(rows, self.say, self.mesh, self.teacher_answers)
        return rows

    def train(
        self, settings: TrainConfig, point: str, seed: int, fold: int | None = None, watch: Watch | None = None
    ) -> tuple[TaskModel, Trial]:
        """Run one fine-tuning, without the rows of a fold, and write its folder, except for scores.json."""
        trial_folder = self.folder / TRIALS_FOLDER / trial_name(point, seed, fold)
        splits = {**self.splits, "train": self.training_rows}
        if self.folds is not None and fold is not None:
            splits = self.folds.splits(self.splits, seed, fold)
        model, curve = self._run_training(load_encoder(self.config, seed), splits, settings, seed, trial_folder, watch)
        if self.mesh.is_first and (remark := unlearned(self.task, curve)):
            warnings.warn(remark, Remark, 2)
        scores = on_rank0(self.mesh, "scoring", lambda: self._score_splits(model, splits, trial_folder))
        records = [
            {"step": item.step, "epoch": item.epoch, "loss": item.loss, "seconds": item.seconds, **item.scores}
            for item in curve
        ]
        return model, Trial(
            point=point,
            seed=seed,
            scores=scores,
            best_step=curve[best_of(self.task, curve)].step,
            steps=curve[-1].step,
            seconds=curve[-1].seconds,
            tokens=splits["train"].tokens,
            curve=records,
            fold=fold,
        )

    def save_trial(self, model: TaskModel | None, trial: Trial, place: Path | None = None) -> None:
        """Write the scores of a trial, and its model if that is given, as the run's, for the ensemble or to `place`."""
        trial_folder = self.folder / TRIALS_FOLDER / trial.name
        is_member = self.config.keep == "ensemble"
        place = place or (trial_model(self.folder, trial.name) if is_member else self.folder / MODEL)
        with disk_guard(self.folder, f"the model of {trial.name} was not written, what is there is untouched"):
            if model is not None:
                keep_model(model, trial.name, self.folder, place)
            trial.write(trial_folder / SCORES_FILE)
        shutil.rmtree(trial_folder / CHECKPOINTS, ignore_errors=True)

    def _score_splits(
        self, model: TaskModel, splits: Mapping[str, Prepared], trial_folder: Path
    ) -> dict[str, dict[str, float]]:
        scores = {}
        for name, split in splits.items():
            if not _is_scored(split):
                continue
            if isinstance(model.task, Calibrated) and name in _JUDGED:
                logits = model.logits(split.examples)
                answers = [outcome_of(each).get() for each in model.task.answers_from(split.examples, logits)]
                write_logits(logits_file(trial_folder, name), logits)
            else:
                answers = model.answers(split.examples)
            if name in _ANSWERED:
                write_split_answers(trial_folder, self.task, split, answers)
            scores[name] = score_answers(self.task, split.rows, answers)
        return scores

    def _run_training(
        self,
        ernie: ErnieModel,
        splits: Mapping[str, Prepared],
        settings: TrainConfig,
        seed: int,
        trial_folder: Path,
        watch: Watch | None,
    ) -> tuple[TaskModel, list[Evaluation]]:
        train, dev = splits["train"], splits["dev"] if "dev" in splits else splits[HELD_OUT]
        steps = len(planned_steps(train.examples, settings, seed))

        def log_step(step: int, report: StepReport, pace: float) -> None:
            loss = report.losses.get("task")  # None for rows without targets
            log.record("step", step + 1, loss=loss, gradient_norm=report.gradient_norm, skipped=report.skipped)
            log.progress(step, **{"loss": "none" if loss is None else f"{loss:.4f}", "tokens/s": f"{pace:,.0f}"})

        def stop() -> None:
            if any_rank(self.mesh, is_interrupted()):
                log.say("stopped; the same command resumes from here")
                interrupt.act()

        def evaluated(evaluation: Evaluation) -> None:
            log.record("evaluation", evaluation.step, epoch=evaluation.epoch, loss=evaluation.loss, **evaluation.scores)
            if watch is not None:
                watch(evaluation)

        def is_interrupted() -> bool:
            return interrupt.asked is not None

        checkpoints = TrialCheckpoints(trial_folder, self.identity, self.config.save_minutes, is_interrupted, stop)
        opened = on_rank0(self.mesh, "opening the trial", partial(_open_trial, trial_folder, checkpoints))
        done, is_foreign, checkpoints.found = opened
        if checkpoints.found is not None:
            await_visible(checkpoints.found, self.mesh.rank)
        tracked = TrackedRun(
            f"{self.folder.name}/{trial_folder.name}",
            group=self.folder.name,
            settings=to_dict(replace(self.config, train=settings, seed=seed, seeds=1, grid=GridConfig())),
            trackers=tracked_by(self.config),
        )
        log = Log(
            trial_folder if self.mesh.is_first else None,
            steps,
            resume_at=done + 1 if done else 0,
            quiet=self.quiet,
            tracked=tracked,
        )
        if done:
            log.say(f"{trial_folder.name}: resumes after step {done:,}")
        elif is_foreign:
            log.say(f"{trial_folder.name}: starts over: the saved checkpoint is of another configuration or other rows")
        try:
            patient = self.mesh.layout.processes > 1
            with Interrupt(log.say, "finishing this step and saving", patient=patient) as interrupt:
                outcome = finetune(
                    ernie,
                    self.task,
                    train,
                    dev,
                    settings,
                    seed,
                    log_step,
                    evaluated,
                    self.mesh,
                    checkpoints,
                    kept_head(self.config),
                    self.teacher,
                    self.config.workers,
                )
                stop()
                return outcome
        finally:
            log.close()

    def with_models(self, result: Result, say: Callable[[str], None]) -> Result:
        """Return the result, with the models that are kept in the run's folder: the best trial's, or all in one.

        A model is kept if its trial is the best so far, or at the best point so far.  When the medians of a grid, or
        fewer seeds, make an earlier trial the best again, that trial is trained once more.
        """
        wanted = result.chosen if self.config.keep == "ensemble" else [result.best]
        names = [trial.name for trial in wanted]
        kept = on_rank0(self.mesh, "saving", lambda: [has_kept(self.folder, name) for name in names])
        for trial in (trial for trial, found in zip(wanted, kept, strict=True) if not found):
            result = self._trained_again(result, trial, say)
        on_rank0(self.mesh, "saving", partial(self._keep_models, names))
        return result

    def _keep_models(self, names: Sequence[str]) -> None:
        """Make the models of these trials the run's, and remove those that trials have kept until now."""
        if kept_trials(self.folder) != names:
            with disk_guard(self.folder, "the run's model was not written, those of the trials are untouched"):
                if isinstance(self.task, LogitsTask) and self.config.keep == "ensemble":
                    keep_ensemble(self.task, names, self.folder)
                else:
                    take_model(names[0], self.folder)
        for trial in (self.folder / TRIALS_FOLDER).iterdir():
            shutil.rmtree(trial_model(self.folder, trial.name), ignore_errors=True)

    def _trained_again(self, result: Result, trial: Trial, say: Callable[[str], None]) -> Result:
        why = "is part of the ensemble" if self.config.keep == "ensemble" else "is the best after all"
        say(f"{trial.name}: {why}; training it again, because its model was not kept")
        model, again = self.train(*_planned(self.config)[trial.name])
        on_rank0(self.mesh, "saving", lambda: self.save_trial(model, again))
        trials = [again if each is trial else each for each in result.trials]
        return Result(self.task, trials, result.point, again if trial is result.best else result.best)

    def with_kept_scores(self, result: Result) -> Result:
        """Return the result with the scores of an ensemble or a calibrated model, whose answers are written.

        The model is calibrated here.  One that was calibrated before and is not to be any more answers as it did.
        """
        keep_decoding(self.folder, self.task)
        for name in _ANSWERED:  # of what was kept before
            for file in (answers_file(self.folder, name), logits_file(self.folder, name)):
                file.unlink(missing_ok=True)
        if self.config.keep == "best" and not self.config.calibrate:
            return result
        model, calibration = TaskModel.load(self.folder / MODEL), None
        if self.config.calibrate:
            scored = {name: split for name, split in self.splits.items() if _is_scored(split)}
            held_out = None if "dev" in scored else self._probabilities(result)
            if "dev" not in scored and held_out is None:
                raise UserError(
                    f"calibrate: trials in {self.folder / TRIALS_FOLDER} lack the logits of the rows that they held "
                    "out; remove their folders, and they are run again"
                )
            calibration = calibrate(model, self.config.calibrate, scored, held_out)
            keep_decoding(self.folder, model.task)
        scores = self._score_splits(model, self.splits, self.folder)
        names = kept_trials(self.folder) if self.config.keep == "ensemble" else []
        return replace(result, kept=Kept(scores, tuple(names), calibration))

    def with_out_of_fold(self, result: Result) -> Result:
        """Return the result of a cross-validation with the scores of out_of_fold.jsonl, which is written here."""
        if self.folds is None:
            return result
        answers, scores = {}, {}
        for seed in self.folds.assigned:
            trials = [trial for trial in result.chosen if trial.seed == seed]
            by_fold = {
                trial.fold or 0: [
                    {"fold": trial.fold, **record}
                    for record in read_split_answers(self.folder / TRIALS_FOLDER / trial.name, HELD_OUT)
                ]
                for trial in trials
            }
            answers[seed] = self.folds.gathered(seed, by_fold, self.folder / TRIALS_FOLDER)
            scores[seed] = self.folds.scores(self.task, trials, answers[seed])
        write_out_of_fold(self.folder, answers)
        return replace(result, out_of_fold=scores)

    def _out_of_fold_logits(self, folds: CrossValidation, result: Result) -> Logits | None:
        """Return the logits of all rows of train, of models that did not see them; None of trials without them.

        Those of an ensemble are the means over its seeds; otherwise the rows are repeated for each seed.
        """
        if not isinstance(self.task, LogitsTask):
            return None
        each, rows, examples = [], folds.held_out.rows, folds.held_out.examples
        for seed in folds.assigned:
            trials = [trial for trial in result.chosen if trial.seed == seed]
            files = {
                trial.fold or 0: logits_file(self.folder / TRIALS_FOLDER / trial.name, HELD_OUT) for trial in trials
            }
            if not all(file.is_file() for file in files.values()):
                return None
            by_fold = {fold: read_logits(file, self.task) for fold, file in files.items()}
            each.append(folds.gathered(seed, by_fold, self.folder / TRIALS_FOLDER))
        if self.config.keep == "ensemble":
            return Logits(rows, examples, common_logits(self.task, each))
        return Logits(rows * len(each), examples * len(each), [row for own in each for row in own])

    def with_intervals(self, result: Result) -> Result:
        """Return the result with the intervals of the scores of what is kept, of splits whose answers are written."""
        kept = self.folder if result.kept is not None else self.folder / TRIALS_FOLDER / result.best.name
        found = {}
        for name in ("dev", "test"):
            if answers_file(kept, name).is_file():
                found[name] = self._intervals(self.splits[name].rows, read_split_answers(kept, name))
        if self.folds is not None and not isinstance(self.task, ComparesAnswers):
            found[OUT_OF_FOLD] = self._intervals(
                self.folds.held_out.rows, read_out_of_fold(self.folder, result.best.seed)
            )
        return replace(result, intervals={name: own for name, own in found.items() if own})

    def _intervals(self, rows: Sequence[Row], records: Sequence[Answer]) -> dict[str, tuple[float, float, float]]:
        return quick_intervals(self.task, rows, records)

    def _probabilities(self, result: Result) -> Logits | None:
        """Return the logits by which the probabilities of what is kept are judged; None of a trial without them."""
        if "dev" not in self.splits:
            return None if self.folds is None else self._out_of_fold_logits(self.folds, result)
        kept = self.folder if result.kept is not None else self.folder / TRIALS_FOLDER / result.best.name
        file, dev = logits_file(kept, "dev"), self.splits["dev"]
        if not isinstance(self.task, LogitsTask) or not file.is_file():
            return None
        return Logits(dev.rows, dev.examples, read_logits(file, self.task))

    def write_results(self, result: Result, search: SearchRecord | None) -> None:
        """Write scores.json, the card and the report."""
        from finetune.report.write import write_report  # imports matplotlib, which only this process needs

        put_text(self.folder / SCORES_FILE, json.dumps(result.as_dict(), indent=2) + "\n")
        prepared, latency = list(self.splits.values()), []
        if isinstance(result.task, Translate) and "dev" in self.splits:
            latency = measure_latency(TaskModel.load(self.folder), result.task, self.splits["dev"])
            write_latency(self.folder, latency)
        tradeoff = _student_and_teacher(self.folder, self.config, result.task, self.splits)
        write_card(self.folder, self.config, result, prepared, search)
        found = self._probabilities(result)
        write_report(self.folder, self.config, result, prepared, latency, search, tradeoff, found)

    def with_signatures(self, result: Result) -> Result:
        """Return the result with the signatures of its metrics on every split that is scored."""
        scored = {name: split for name, split in self.splits.items() if _is_scored(split)}
        return replace(result, signatures={name: signatures(self.task, split.rows) for name, split in scored.items()})


def _open_trial(trial_folder: Path, checkpoints: TrialCheckpoints) -> tuple[int, bool, Path | None]:
    """Make the folder of a trial.

    Returns the number of steps done, whether its checkpoint is of another trial, and the checkpoint to resume from.

    The folder is emptied unless the trial resumes from its checkpoint.
    """
    done, is_saved = checkpoints.step, (trial_folder / CHECKPOINTS).is_dir()
    if not done:
        shutil.rmtree(trial_folder, ignore_errors=True)
    inner_folder(trial_folder.parent, trial_folder.name)
    return done, is_saved and not done, checkpoints.found


def _is_scored(split: Prepared) -> bool:
    return split.labeled and split.name != "train"
