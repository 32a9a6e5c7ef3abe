"""Check a fine-tuning configuration in a few seconds."""

from __future__ import annotations

import pickle
import time
from collections.abc import Iterator, Mapping
from dataclasses import fields, replace
from reprlib import repr as shortened

import numpy as np

from ernie.data.document import IGNORE, Sample, content
from ernie.data.labeled.row import Row
from ernie.errors import TrainingFailed, UserError, about, nearest
from ernie.formatting import plural
from ernie.kernels.precision import precision
from ernie.model.ernie import ErnieModel
from ernie.model.inference import tokenizer_of
from ernie.text.tokenizer import Tokenizer
from ernie.train.lr_schedule import LRScheduleConfig
from ernie.train.trackers import check_trackers
from finetune.calibrate import check_calibration
from finetune.config import FinetuneConfig
from finetune.folds import CrossValidation
from finetune.label_remarks import label_counts, listed_counts
from finetune.prepare import Prepared, check_segments, describe, loss_notes, prepare_all, training_rows
from finetune.train.loop import finetune
from finetune.train.steps import planned_steps, split_steps
from finetune.train.teacher import Teacher, load_teacher
from finetune.train.warm_start import kept_head, load_encoder, remark_on_head, starting_task
from tasks.downstream.base import Example, FinetuneTask, TextTask
from tasks.downstream.calling import named

# Of the trial step and of the scoring, where a voice takes long for each row.
_ROWS = {"train": 16, "unlabeled": 4, "dev": 4}
_JUDGED = 200  # rows of dev on which a teacher is scored
_SHOWN = 60  # tokens of the example that are shown


def check(config: FinetuneConfig) -> Iterator[str]:
    """Check model, data and one training step; yield a line for each finding.  Raises UserError for mistakes."""
    config.check_kept()
    check_trackers(config)
    ernie = load_encoder(config, config.seed)
    shape = ernie.config
    yield f"ok: {config.model} is an encoder of {plural(shape.layers, 'layer')}, width {shape.hidden_size}"
    yield f"ok: its {shape.max_positions} positions are enough for samples of {config.task.max_len} tokens"
    tokenizer = tokenizer_of(ernie)
    if kept_head(config) is not None:
        yield f"ok: its head is kept, that of a run of the kind {config.task.variant_name}"
    if remark := remark_on_head(config):
        yield f"note: {remark}"
    task, splits = prepare_all(starting_task(config), config.data, tokenizer, needed=config.needed)
    check_calibration(config.calibrate, task)
    check_segments(splits["train"], shape.segments, config.model)
    for split in splits.values():
        yield f"ok: {describe(split)}"
        yield from (f"note: {remark}" for remark in split.remarks)
    folds = CrossValidation.of(config, task, splits["train"], tokenizer)
    tried = {name: splits[name] for name in _ROWS if name in splits}
    if folds is not None:
        tried.setdefault("dev", folds.held_out)
    few = {name: split.part(range(min(_ROWS[name], len(split)))) for name, split in tried.items()}
    check_kind(task, {name: split for name, split in few.items() if name != "unlabeled"}, tokenizer)
    teacher = load_teacher(config, task, ernie)
    if teacher is not None:
        yield from _teacher_lines(teacher, splits)
    yield from _label_lines(task, splits["train"])
    yield from (f"ok: {note}" for note in loss_notes(task, splits["train"]))
    if folds is not None:
        yield f"ok: {folds.note(splits)}"
        yield from (f"note: {remark}" for remark in folds.remarks(task, splits, tokenizer))
    if config.tune is not None:
        yield f"ok: a search of {', '.join(config.tune.search)} in {plural(config.tune.trials, 'trial')}"
    yield f"ok: scored by {', '.join(task.scored_by)}; the first decides"
    yield from described_example(splits["train"], tokenizer, spoken=task.answer_fields == ("audio",))
    yield from (f"note: {remark}" for remark in _step_remarks(config, task, splits["train"]))
    yield from _try_step(config, ernie, task, few, teacher)


def _label_lines(task: FinetuneTask, train: Prepared) -> Iterator[str]:
    """Yield the labels, and how often each occurs in train, for kinds that have any."""
    labels = getattr(task, "labels", ())
    if not labels:
        return
    yield f"ok: labels: {', '.join(labels[:20])}" + (f" and {len(labels) - 20} more" if len(labels) > 20 else "")
    counts = dict.fromkeys(labels, 0) | label_counts(task, train.rows)
    total = len(train) if task.labels_belong_to == "row" else sum(counts.values())
    yield f"ok: of train: {listed_counts(counts, total, task.labels_belong_to)}"


def _step_remarks(config: FinetuneConfig, task: FinetuneTask, train: Prepared) -> list[str]:
    """Return remarks on settings that do not fit the steps, over all points of the grid."""
    remarks = []
    for _, settings in config.trials():
        steps = planned_steps(train.examples, settings, config.seed)
        remarks.append(settings.lr.remark(len(steps)))
        remarks.append(split_steps(task, train.examples, steps, settings))
    return list(dict.fromkeys(remark for remark in remarks if remark))


def described_example(split: Prepared, tokenizer: Tokenizer, spoken: bool) -> Iterator[str]:
    """Yield lines that show the first example as the model sees it; its sound is the target if it is `spoken`."""
    example = split.examples[0]
    yield f"the first row of train, {split.rows[0].place}, as the model sees it:"
    for number, sample in enumerate(example.samples[:2]):
        if sample.sound is not None and not spoken:
            yield f"  {len(sample.sound()):,} samples of sound, {len(sample)} vectors for the encoder"
        else:
            weight = [f"weight {sample.weight:.4g}"] if sample.weight != 1 else []
            described = ", ".join([plural(len(sample), "token"), *_describe_labels(sample), *weight])
            yield f"  sample {number + 1} of {len(example.samples)}: {described}"
            yield f"    {_shown(sample.ids, tokenizer)}"
        if sample.decoder_ids is not None:
            yield f"  to be generated: {_shown(sample.decoder_ids, tokenizer)}"
        if sample.sound is not None and spoken:
            yield f"  to be spoken: {plural(len(sample.sound()), 'sample')} of sound"


def _shown(ids: np.ndarray, tokenizer: Tokenizer) -> str:
    more = f" ... and {len(ids) - _SHOWN} more" if len(ids) > _SHOWN else ""
    return " ".join(tokenizer.tokens[i] for i in ids[:_SHOWN]) + more


def _describe_labels(sample: Sample) -> list[str]:
    parts = []
    for name, label in sample.labels.items():
        is_rows = isinstance(label, np.ndarray) and label.ndim > 1
        kept = ~np.isnan(label).all(1) if is_rows else np.atleast_1d(label) != IGNORE
        if not kept.any() and np.ndim(label) != 1:  # that of several samples is with the first
            continue
        if isinstance(label, np.ndarray) and (label.ndim == 1 or len(label) > 1):
            parts.append(f"{int(kept.sum())} tokens with a {name}")
        else:
            shown = label.round(4).astype(np.float64).round(4).tolist() if isinstance(label, np.ndarray) else label
            parts.append(f"{name} {shown}")
    return parts


def _teacher_lines(teacher: Teacher, splits: Mapping[str, Prepared]) -> Iterator[str]:
    """Yield what the teacher is, how many rows it teaches, and how well it does on dev."""
    yield f"ok: {teacher.described}"
    labeled, unlabeled = len(splits["train"]), len(splits.get("unlabeled", ()))
    yield f"ok: it teaches {plural(labeled, 'row')} with labels and {unlabeled:,} without"
    rows = splits["dev"].rows[:_JUDGED]
    which = "the first" if len(rows) < len(splits["dev"]) else "all"
    for name, score in teacher.score(rows).items():
        yield f"ok: its {name} is {score:.4f} on {which} {plural(len(rows), 'row')} of dev"


def _try_step(
    config: FinetuneConfig, ernie: ErnieModel, task: FinetuneTask, few: dict[str, Prepared], teacher: Teacher | None
) -> Iterator[str]:
    lr = LRScheduleConfig(peak=config.train.lr.peak, decay="constant", warmup=0)  # the real one may span many steps
    rows, head = training_rows(few), kept_head(config)
    settings = replace(config.train, epochs=1, batch=len(rows), batch_tokens=0, evaluations=1, lr=lr)
    began = time.monotonic()
    with precision(config.train.precision, config.train.amp_level):
        if teacher is not None:
            teacher.read(rows)
        model, curve = finetune(ernie, task, rows, few["dev"], settings, config.seed, head=head, teacher=teacher)
    loss, seconds = curve[-1].loss, time.monotonic() - began
    if not np.isfinite(loss):
        raise TrainingFailed(f"the loss of the first step is {loss}: is the model damaged?")
    trained, total = model.weight_counts()
    if trained < total:
        yield f"ok: {trained:,} of {total:,} weights are trained ({trained / total:.2%})"
    scored, on = len(few["dev"]), few["dev"].name
    for name, score in curve[-1].scores.items():
        if not np.isfinite(score):
            yield f"note: {name} is {score} on the first {plural(scored, 'row')} of {on}; no checkpoint is best by that"
    if config.calibrate:
        where = "dev" if "dev" in config.data.splits() else "the rows that are held out"
        yield f"ok: fitted on {where} after training: {', '.join(config.calibrate)}"
    if config.keep == "ensemble":
        count, size = config.seeds * config.folds, 4 * total / 1e6
        yield (
            f"ok: an ensemble of {count} models is kept: {count * size:,.1f} MB in place of {size:,.1f}, and {count} "
            "times the computing for an answer"
        )
    yield f"ok: one step on {len(rows)} rows and a scoring of {scored}: loss {loss:.4f}, {seconds:.1f} s"


def check_kind(task: FinetuneTask, splits: Mapping[str, Prepared], tokenizer: Tokenizer) -> None:
    """Check the code of a kind on a few rows.

    Targets and training examples have to be the same when made again.  Raises UserError for a mistake in the code.
    """
    if not 1 <= task.default_metrics <= len(task.known_metrics):
        known = f"{plural(len(task.known_metrics), 'metric')}: {', '.join(task.known_metrics) or 'none'}"
        raise UserError(
            f"{named(task, 'default_metrics')} is {task.default_metrics}, and it has "
            f"{known}; expected how many of them are used by default"
        )
    names = {item.name for item in fields(task)}
    for name in task.head_fields:
        if name not in names:
            raise UserError(f"{named(task, 'head_fields')} names '{name}', which is no field.{nearest(name, names)}")
    for split in splits.values():
        for row, example in zip(split.rows, split.examples, strict=True):
            with about(row.place):
                _check_target(task, row)
                if split.name == "train":
                    _check_example(task, example, task.training_example(row, tokenizer))


def _check_target(task: FinetuneTask, row: Row) -> None:
    target, again = task.target(row), task.target(row)
    if target is None:
        raise UserError(f"{named(task, 'target')} returns None; expected the row's target, as the metrics take it")
    if pickle.dumps(target) != pickle.dumps(again):
        raise UserError(
            f"{named(task, 'target')} returns {shortened(target)} and, called again, {shortened(again)}; a target has "
            "to follow from the row alone"
        )


def _check_example(task: FinetuneTask, example: Example, again: Example) -> None:
    method = named(task, "sample_target" if isinstance(task, TextTask) else "training_example")
    labels = [(number, label) for number, sample in enumerate(example.samples) for label in sample.labels.values()]
    for number, label in labels:
        numbers = np.asarray(label)
        if numbers.ndim > 1 and (number or len(numbers) > 1):  # NaN marks tokens, and further samples, without a label
            numbers = numbers[~np.isnan(numbers).all(1)]
        if numbers.dtype.kind not in "biuf" or not np.isfinite(numbers).all():
            raise UserError(f"{method} gives the label {shortened(numbers.tolist())}; expected finite numbers")
    if _contents(example) != _contents(again):
        raise UserError(
            f"{method} gives something else when called again for the row, so that no run could be repeated; use no "
            "random numbers, and keep no state between two calls"
        )


def _contents(example: Example) -> list[list[bytes]]:
    return [
        [*content(sample.ids, sample.segments, sample.labels), np.asarray(sample.decoder_ids).tobytes()]
        for sample in example.samples
    ]
