"""Check a kind's own code, such as that of a plug-in, on a few rows."""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from dataclasses import fields
from reprlib import repr as shortened

import numpy as np

from ernie.data.document import content
from ernie.data.labeled.row import Row
from ernie.errors import UserError, about, nearest
from ernie.report.words import plural
from ernie.text.tokenizer import Tokenizer
from finetune.prepare import Prepared
from tasks.downstream.base import Example, FinetuneTask, TextTask
from tasks.downstream.calling import named


def check_kind(task: FinetuneTask, splits: Mapping[str, Prepared], tokenizer: Tokenizer) -> None:
    """Check targets and training examples, and that they are the same when made again.  Raises UserError if not."""
    if not 1 <= task.usual <= len(task.measures):
        raise UserError(
            f"{named(task, 'usual')} is {task.usual}, and it has {plural(len(task.measures), 'measure')}: "
            f"{', '.join(task.measures) or 'none'}; expected how many of them are used by default"
        )
    names = {item.name for item in fields(task)}
    for name in task.head_fields:
        if name not in names:
            raise UserError(f"{named(task, 'head_fields')} names '{name}', which is no field.{nearest(name, names)}")
    for split in splits.values():
        for row, example in zip(split.rows, split.examples, strict=True):
            with about(row.place):
                _check_truth(task, row)
                if split.name == "train":
                    _check_example(task, example, task.training_example(row, tokenizer))


def _check_truth(task: FinetuneTask, row: Row) -> None:
    target, again = task.truth(row), task.truth(row)
    if target is None:
        raise UserError(f"{named(task, 'truth')} returns None; expected the row's target, as the measures take it")
    if pickle.dumps(target) != pickle.dumps(again):
        raise UserError(
            f"{named(task, 'truth')} returns {shortened(target)} and, called again, {shortened(again)}; a target has "
            "to follow from the row alone"
        )


def _check_example(task: FinetuneTask, example: Example, again: Example) -> None:
    method = named(task, "target" if isinstance(task, TextTask) else "training_example")
    for label in (label for sample in example.samples for label in sample.labels.values()):
        numbers = np.asarray(label)
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
