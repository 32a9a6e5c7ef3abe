"""A fine-tuning run: every seed and every point of the grid, and the folder that comes of them.

RUN/config.yaml     the resolved configuration
RUN/trials/NAME/    scores.json and metrics.jsonl of each fine-tuning
RUN/scores.json     medians, spreads and every score
RUN/model/          encoder, tokenizer, head and task of the best one: loads by itself
RUN/README.md       the model card
RUN/report.html     the same as pictures
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from ernie.beside import beside, put
from ernie.config import differences, dump, to_dict
from ernie.errors import UserError
from ernie.model.ernie import ErnieModel
from ernie.train.interrupt import Interrupt
from ernie.train.log import Log
from ernie.train.origin import origin
from finetune.answers import write_dev_answers
from finetune.card import write_card
from finetune.config import FinetuneConfig, TrainConfig, load
from finetune.loop import Evaluation, best_of, finetune, planned_steps
from finetune.model import FinetunedModel
from finetune.prepare import NEEDED, Prepared, describe, prepare_all
from finetune.report import write_report
from finetune.trial import SCORES_FILE, Result, Trial, best_trial, trial_name
from tasks.downstream.base import FinetuneTask

CONFIG_FILE, ORIGIN_FILE, MODEL_FOLDER, TRIALS_FOLDER = "config.yaml", "origin.json", "model", "trials"
# Keys that change nothing of a single fine-tuning: with others, finished ones still count.
_FREE = ("output", "seeds", "grid", "plugins", "published", "submission", "local")


def run(config: FinetuneConfig, folder: Path, say: Callable[[str], None], quiet: bool = False) -> Result:
    """Fine-tune under every seed and point of the grid, and write the run's folder.

    Trials that the folder already has are not run again.  Raises UserError for data that cannot be used and for a
    folder of another run.
    """
    if not config.model:
        raise UserError("model: which encoder? Give --model, or the key `model`")
    say(f"model: {config.model}")
    ernie = ErnieModel.from_pretrained(config.model)
    tokenizer = ernie.tokenizer
    if tokenizer is None:
        raise UserError(f"{config.model}: has no tokenizer; put its vocabulary into its folder 'tokenizer'")
    check_lengths(config, ernie)
    task, splits = prepare_all(config.task, config.data, tokenizer)
    for split in splits.values():
        say(describe(split))
        for remark in split.remarks:
            say(f"note: {remark}")
    for name in NEEDED:
        if name not in splits or not splits[name].labelled:
            raise UserError(f"data.{name}: fine-tuning needs a labelled {name} split")
    _claim(config, folder)
    metric = task.scored_by[0]
    trials: list[Trial] = []
    for point, settings in config.trials():
        for seed in range(config.seed, config.seed + config.seeds):
            place = folder / TRIALS_FOLDER / trial_name(point, seed)
            if (place / SCORES_FILE).is_file():
                trials.append(Trial.read(place / SCORES_FILE))
                say(f"{place.name}: was done before, {metric} {trials[-1].headline(metric):.4f}")
                continue
            if trials or point:  # the first one trains the model that was loaded
                ernie = ErnieModel.from_pretrained(config.model)
            model, trial = _trial(ernie, task, splits, settings, (point, seed), place, quiet)
            say(f"{place.name}: {metric} {trial.headline(metric):.4f} on dev, best at step {trial.best_step}")
            trials.append(trial)
            if best_trial(trials, metric) is trial:
                _save(model, folder)
            trial.write(place / SCORES_FILE)
            ernie = None  # type: ignore[assignment]  # two models at a time would be one too many
    result = Result.of(task, trials)
    (folder / SCORES_FILE).write_text(json.dumps(result.as_dict(), indent=2) + "\n", encoding="utf-8")
    write_card(folder, config, result.as_dict(), list(splits.values()))
    write_report(folder, config, result, list(splits.values()))
    return result


def check_lengths(config: FinetuneConfig, ernie: ErnieModel) -> None:
    """Raise UserError when the task's samples are longer than the encoder has positions."""
    if config.task.max_len > ernie.config.max_positions:
        raise UserError(
            f"task.max_len: {config.task.max_len} tokens, but {config.model} has {ernie.config.max_positions} positions"
        )


def _trial(
    ernie: ErnieModel,
    task: FinetuneTask,
    splits: dict[str, Prepared],
    settings: TrainConfig,
    name: tuple[str, int],
    place: Path,
    quiet: bool,
) -> tuple[FinetunedModel, Trial]:
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(parents=True)
    log = Log(place, len(planned_steps(splits["train"].examples, settings, name[1])), quiet=quiet)

    def progress(step: int, shown: dict[str, str]) -> None:
        log.progress(step, **shown)
        interrupt.act()

    def evaluated(evaluation: Evaluation) -> None:
        log.record("evaluation", evaluation.step, epoch=evaluation.epoch, loss=evaluation.loss, **evaluation.scores)

    try:
        with Interrupt(log.say, "stopping after this step; finished trials are kept") as interrupt:
            model, curve = finetune(ernie, task, splits["train"], splits["dev"], settings, name[1], progress, evaluated)
    finally:
        log.close()
    answers = {name: model.answers(split.examples) for name, split in splits.items() if _is_judged(split)}
    scores = {name: task.scores(splits[name].rows, found) for name, found in answers.items()}
    write_dev_answers(place, task, splits["dev"], answers["dev"])
    best = curve[best_of(task, curve)]
    records = [
        {"step": item.step, "epoch": item.epoch, "loss": item.loss, "seconds": item.seconds, **item.scores}
        for item in curve
    ]
    return model, Trial(
        point=name[0],
        seed=name[1],
        scores=scores,
        best_step=best.step,
        steps=curve[-1].step,
        seconds=curve[-1].seconds,
        tokens=splits["train"].tokens,
        curve=records,
    )


def _is_judged(split: Prepared) -> bool:
    return split.labelled and split.name != "train"


def _claim(config: FinetuneConfig, folder: Path) -> None:
    """Make the folder this run's.  Raises UserError when it holds something else."""
    file = folder / CONFIG_FILE
    if file.exists():
        changed = {
            key: values
            for key, values in differences(to_dict(load(file)), to_dict(config)).items()
            if not any(key == free or key.startswith(f"{free}.") for free in _FREE)
        }
        if changed:
            lines = "\n".join(f"  {key}: was {old}, is {new}" for key, (old, new) in changed.items())
            raise UserError(f"{folder}: holds a run of another configuration:\n{lines}\nChoose another --output.")
    elif folder.exists() and any(folder.iterdir()):
        raise UserError(f"{folder}: is not empty and holds no run; choose another --output")
    folder.mkdir(parents=True, exist_ok=True)
    file.write_text(dump(config), encoding="utf-8")
    (folder / ORIGIN_FILE).write_text(json.dumps(origin(), indent=2) + "\n", encoding="utf-8")


def _save(model: FinetunedModel, folder: Path) -> None:
    """Put the model into its place, whole or not at all."""
    place = folder / MODEL_FOLDER
    filled = beside(place)
    model.save(filled)
    put(filled, place)


def read_run(folder: Path) -> FinetuneConfig:
    """The configuration of an existing run.  Raises UserError when the folder is none."""
    if not (folder / CONFIG_FILE).is_file() or not (folder / MODEL_FOLDER).is_dir():
        raise UserError(f"{folder}: is not the folder of a finished fine-tuning run")
    return replace(load(folder / CONFIG_FILE), output=folder)
