"""Evaluation of tasks on held-out documents."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np

from ernie.data.batch import Packed
from ernie.data.shards import Corpus
from ernie.data.stream import Source, TooLittleText
from ernie.errors import UserError, about, nearest
from ernie.metrics import METRICS, Score
from ernie.model.losses import Loss
from ernie.train.evaluate import evaluate
from pretrain.config import PretrainConfig
from pretrain.feeds import sources
from pretrain.model import MultiTaskModel
from tasks.base import ClassifierTask, PretrainTask

_HOLD_OUT = "Or hold out more when the corpus is built (held_out: 0.05)."


class Probe:
    """A fixed set of held-out batches per task, the same at every measurement of a run.

    Raises UserError if a task has nothing to be measured on.
    """

    def __init__(self, config: PretrainConfig, corpus: Corpus):
        self._batches: dict[str, list[Packed]] = {}
        for source in sources(config, corpus, held_out=True):
            with about("held-out documents"):
                try:
                    batches = first_batches(source, config.probe.batches)
                except TooLittleText as error:
                    raise UserError(f"{error} {_HOLD_OUT}{_one_document(corpus)}") from None
            if not any(batch.targets for batch in batches):
                raise UserError(
                    f"task '{source.name}' has samples of held-out documents, but not one label in them to be measured "
                    f"by. Take the task out of the schedule. {_HOLD_OUT}"
                )
            self._batches[source.name] = batches
            _check_metrics(source.name, config.tasks[source.name])

    def measure(self, model: MultiTaskModel, name: str, most: int | None = None) -> dict[str, Score]:
        """Return the task's metrics by name, the headline first, on at most `most` batches if given."""
        batches = [batch for batch in self._batches[name] if batch.targets][:most]
        return evaluate(model, partial(_checked_loss, model, name), batches, model.tasks[name].metrics)


def _one_document(corpus: Corpus) -> str:
    """Return what is probably wrong with a corpus of one document, "" for others."""
    if len(corpus.train) + len(corpus.held_out) > 1:
        return ""
    return " The corpus is a single document: a blank line separates documents in a text file."


def _checked_loss(model: MultiTaskModel, name: str, batch: Packed) -> Loss:
    """Return the loss of a batch.  Raises UserError unless it has the logits (P, C) and the labels (P,), classes, that
    metrics need."""
    loss = model.loss(name, batch)
    labels, shape = loss.labels, None if loss.logits is None else tuple(loss.logits.shape)
    if not isinstance(labels, np.ndarray):
        raise UserError(f"task '{name}': the labels of its loss are a {type(labels).__name__}; expected a NumPy array")
    if shape is None or len(shape) != 2 or labels.shape != shape[:1] or labels.dtype.kind not in "iu":
        logits = "no logits" if shape is None else f"logits of the shape {shape}"
        raise UserError(
            f"task '{name}': its loss has {logits} and labels of the shape {labels.shape}, type {labels.dtype}. "
            "Metrics compare classes: they need logits (P, C) and P whole numbers below C. A number can be learned as "
            "the class of its range"
        )
    return loss


def _check_metrics(name: str, task: PretrainTask) -> None:
    """Raise UserError for unknown metrics, which would otherwise fail only after a stage of training."""
    metrics: Sequence[str] = task.metrics
    if isinstance(metrics, str) or not metrics:
        raise UserError(f"task '{name}': expected names of metrics, as (\"accuracy\",), found {metrics!r}")
    for metric in metrics:
        if metric not in METRICS:
            raise UserError(f"task '{name}': there is no metric '{metric}'.{nearest(metric, METRICS)}")
    if "f1" in metrics and isinstance(task, ClassifierTask) and task.class_count() > 2:
        raise UserError(
            f"task '{name}': f1 is that of class 1 of two, and there are {task.class_count()}; macro_f1 is the mean "
            "over all of them"
        )


def first_batches(source: Source, count: int) -> list[Packed]:
    """Return the first `count` batches of a source's first epoch, or all if there are fewer."""
    per_block = source.items_per_block()
    batches: list[Packed] = []
    for first in range(0, len(source.items), per_block):
        batches += source.batches(0, first, min(len(source.items), first + per_block))
        if len(batches) >= count:
            break
    return batches[:count]
