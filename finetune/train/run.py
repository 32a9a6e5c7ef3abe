"""A fine-tuning run: every seed and every grid point, and the folder that it writes.

RUN/config.yaml     the resolved configuration
RUN/trials/NAME/    scores.json, metrics.jsonl and dev.jsonl of each fine-tuning, and a checkpoint until it is done;
                    of a cross-validation also held_out.jsonl
RUN/scores.json     medians, spreads and every score
RUN/model/          encoder, tokenizer, head and task of the best trial; self-contained.  Of an ensemble: a folder of
                    this kind for each of its models
RUN/dev.jsonl       of an ensemble or a calibrated model: its answers to dev
RUN/README.md       the model card
RUN/report.html     the same as figures
RUN/out_of_fold.jsonl  of a cross-validation: the answer to each row of train by the model that did not see it
RUN/tradeoff.json   of a student: what it and its teacher cost and give, in each precision
RUN/latency.json    of a translator: its quality at several distances from the source
"""

from __future__ import annotations

import json
import shutil
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import product
from pathlib import Path

from ernie.atomic import check_room, disk_guard, inner_folder, put_text
from ernie.errors import Remark, about
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
from ernie.train.run_folder import CHECKPOINTS, MODEL
from ernie.train.trainer import StepReport
from finetune.calibrate import calibrate, check_calibration
from finetune.config import HELD_OUT, FinetuneConfig, TrainConfig
from finetune.folds import CrossValidation
from finetune.prepare import Prepared, check_segments, describe, prepare_all, training_rows
from finetune.report.card import write_card
from finetune.report.latency import measure_latency, write_latency
from finetune.report.split_answers import answers_file, gather_out_of_fold, write_out_of_fold, write_split_answers
from finetune.report.tradeoff import Tradeoff, measure_tradeoff
from finetune.search_space import SearchRecord
from finetune.train.early_stopping import best_of, unlearned
from finetune.train.loop import finetune
from finetune.train.run_contents import (
    claim_folder,
    encoder_fingerprint,
    inputs_of,
    keep_decoding,
    keep_ensemble,
    keep_model,
    kept_model,
    kept_trials,
    take_model,
    trial_model,
)
from finetune.train.steps import planned_steps
from finetune.train.teacher import Teacher, load_teacher
from finetune.train.trial import SCORES_FILE, Kept, Result, Trial, best_point, best_trial, check_alike, trial_name
from finetune.train.trial_checkpoint import Evaluation, TrialCheckpoints
from finetune.train.warm_start import kept_head, load_encoder, remark_on_head, starting_task
from inference.task_model import TaskModel
from tasks.downstream.base import FinetuneTask, LogitsTask
from tasks.downstream.hooks import PartialTraining
from tasks.downstream.saved import TRIALS_FOLDER
from tasks.downstream.scoring import score_answers, signatures
from tasks.downstream.translate import Translate

Watch = Callable[[Evaluation], None]


def run(
    config: FinetuneConfig,
    folder: Path,
    say: Callable[[str], None],
    quiet: bool = False,
    mesh: Mesh | None = None,
    watch: Watch | None = None,
    search: SearchRecord | None = None,
) -> Result:
    """Fine-tune for every seed and grid point, and write the run's folder (only the first process of `mesh` does).

    A run of a search gives each evaluation of its first trial to `watch`, which may end it by an exception; such a run
    has no card and no report.  The report shows the `search` that found the settings.  Trials that the folder already
    has are not run again.  Raises UserError for unusable data and for the folder of another run.
    """
    mesh = mesh or Mesh()
    config.check_kept()
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
    if teacher is not None:
        say(teacher.described)
        scores = on_rank0(mesh, "scoring the teacher", lambda: teacher.score(splits["dev"].rows))
        say(f"teacher on dev: {', '.join(f'{name} {score:.4f}' for name, score in scores.items()) or 'has no head'}")
    inputs = inputs_of(encoder_fingerprint(ernie), splits, config, teacher)
    with ExitStack() as stack:
        claimed = claim_folder(config, inputs, folder)
        identity = on_rank0(mesh, "opening the run", lambda: stack.enter_context(claimed))
        size = sum(4 * weight.size for weight in ernie.parameters())
        del ernie  # each trial loads its own: do not hold two in memory
        runner = _Runner(config, task, splits, folds, teacher, folder, identity, say, quiet, mesh)
        trials: list[Trial] = []
        for point, settings in config.trials():
            for seed, fold in product(range(config.seed, config.seed + config.seeds), config.fold_numbers):
                done = folder / TRIALS_FOLDER / trial_name(point, seed, fold) / SCORES_FILE
                if done.is_file():
                    trials.append(Trial.read(done, task.scored_by[0]))
                    check_alike(trials, done)
                    say(f"{trials[-1].name}: was done before, {runner.headline(trials[-1])}")
                    continue
                on_rank0(mesh, "opening the trial", partial(check_room, folder, size, size, "the model"))
                with about(trial_name(point, seed, fold)):
                    model, trial = runner.train(settings, point, seed, fold, None if trials else watch)
                say(f"{trial.name}: {runner.headline(trial)} on {trial.judged_on}, best at step {trial.best_step}")
                trials.append(trial)
                is_best = best_trial(trials, task.scored_by[0]) is trial
                kept = model if is_best or config.keep == "ensemble" else None
                on_rank0(mesh, "saving", partial(runner.save_trial, kept, trial))
                del model
            if config.keep == "ensemble":
                on_rank0(mesh, "saving", partial(_drop_models, folder, trials, best_point(trials, task.scored_by[0])))
        result = runner.with_signatures(runner.with_models(Result.of(task, trials), say))
        result = on_rank0(mesh, "scoring", lambda: runner.with_kept_scores(runner.with_out_of_fold(result)))
        if watch is None:
            on_rank0(mesh, "reporting", lambda: _write_results(folder, config, result, splits, search))
            on_rank0(mesh, "tidying up", lambda: runner.teacher_answers.unlink(missing_ok=True))
    return result


def _drop_models(folder: Path, trials: Sequence[Trial], point: str) -> None:
    """Remove the models of the trials that are not at the best point of the grid so far."""
    for trial in trials:
        if trial.point != point:
            shutil.rmtree(trial_model(folder, trial.name), ignore_errors=True)


def _write_results(
    folder: Path, config: FinetuneConfig, result: Result, splits: dict[str, Prepared], search: SearchRecord | None
) -> None:
    from finetune.report.write import write_report  # imports matplotlib, which only this process needs

    put_text(folder / SCORES_FILE, json.dumps(result.as_dict(), indent=2) + "\n")
    prepared, latency = list(splits.values()), []
    if isinstance(result.task, Translate):
        latency = measure_latency(TaskModel.load(folder), result.task, splits["dev"])
        write_latency(folder, latency)
    tradeoff = _student_and_teacher(folder, config, result.task, splits)
    write_card(folder, config, result, prepared, search)
    write_report(folder, config, result, prepared, latency, search, tradeoff)


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
    folder: Path
    identity: str
    say: Callable[[str], None]
    quiet: bool
    mesh: Mesh

    def headline(self, trial: Trial) -> str:
        metric = self.task.scored_by[0]
        return f"{metric} {trial.headline(metric):.4f}"

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

    def save_trial(self, model: TaskModel | None, trial: Trial) -> None:
        """Write the scores of a trial, and its model if that is given: as the run's, or for the ensemble."""
        trial_folder = self.folder / TRIALS_FOLDER / trial.name
        is_member = self.config.keep == "ensemble"
        place = trial_model(self.folder, trial.name) if is_member else self.folder / MODEL
        with disk_guard(self.folder, f"the model of {trial.name} was not written, what is there is untouched"):
            if model is not None:
                keep_model(model, trial.name, self.folder, place)
            trial.write(trial_folder / SCORES_FILE)
        shutil.rmtree(trial_folder / CHECKPOINTS, ignore_errors=True)

    def _score_splits(
        self, model: TaskModel, splits: Mapping[str, Prepared], trial_folder: Path
    ) -> dict[str, dict[str, float]]:
        answers = {name: model.answers(split.examples) for name, split in splits.items() if _is_scored(split)}
        for name in ("dev", HELD_OUT):
            if name in answers:
                write_split_answers(trial_folder, self.task, splits[name], answers[name])
        return {name: score_answers(self.task, splits[name].rows, predicted) for name, predicted in answers.items()}

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
        log = Log(
            trial_folder if self.mesh.is_first else None, steps, resume_at=done + 1 if done else 0, quiet=self.quiet
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
        kept = on_rank0(self.mesh, "saving", lambda: [kept_model(self.folder, name) is not None for name in names])
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
        model, again = self.train(dict(self.config.trials())[trial.point], trial.point, trial.seed, trial.fold)
        on_rank0(self.mesh, "saving", lambda: self.save_trial(model, again))
        trials = [again if each is trial else each for each in result.trials]
        return Result(self.task, trials, result.point, again if trial is result.best else result.best)

    def with_kept_scores(self, result: Result) -> Result:
        """Return the result with the scores of an ensemble or a calibrated model, whose answers to dev are written.

        The model is calibrated here.  One that was calibrated before and is not to be any more answers as it did.
        """
        keep_decoding(self.folder, self.task)
        if self.config.keep == "best" and not self.config.calibrate:
            answers_file(self.folder, "dev").unlink(missing_ok=True)  # of what was kept before
            return result
        model, calibration = TaskModel.load(self.folder / MODEL), None
        if self.config.calibrate:
            scored = {name: split for name, split in self.splits.items() if _is_scored(split)}
            calibration = calibrate(model, self.config.calibrate, scored)
            keep_decoding(self.folder, model.task)
        scores = self._score_splits(model, self.splits, self.folder)
        names = kept_trials(self.folder) if self.config.keep == "ensemble" else []
        return replace(result, kept=Kept(scores, tuple(names), calibration))

    def with_out_of_fold(self, result: Result) -> Result:
        """Return the result of a cross-validation with the scores of out_of_fold.jsonl, which is written here."""
        if self.folds is None:
            return result
        answers = {}
        for seed, assigned in self.folds.assigned.items():
            trials = {trial.fold: trial.name for trial in result.chosen if trial.seed == seed}
            folders = {fold: self.folder / TRIALS_FOLDER / name for fold, name in trials.items() if fold}
            answers[seed] = gather_out_of_fold(folders, assigned)
        write_out_of_fold(self.folder, answers)
        rows = self.folds.held_out.rows
        return replace(
            result, out_of_fold={seed: score_answers(self.task, rows, each) for seed, each in answers.items()}
        )

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
