"""Measuring objectives on held-out documents."""

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
    """A fixed set of held-out batches for each objective: the same at every measurement of a run.

    Raises UserError when an objective has nothing to be measured on.
    """

    def __init__(self, config: PretrainConfig, corpus: Corpus):
        self._batches: dict[str, list[Packed]] = {}
        for source in sources(config, corpus, held_out=True):
            with about("held-out documents"):
                try:
                    batches = first_batches(source, config.probe.batches)
                except TooLittleText as error:
                    raise UserError(f"{error} {_HOLD_OUT}") from None
            if not any(batch.targets for batch in batches):
                raise UserError(
                    f"task '{source.name}' has samples of held-out documents, and not one label in them to be measured "
                    f"by. Take the task out of the schedule. {_HOLD_OUT}"
                )
            self._batches[source.name] = batches
            _check_metrics(source.name, config.objectives[source.name])

    def measure(self, model: MultiTaskModel, name: str, most: int | None = None) -> dict[str, Score]:
        """The objective's metrics, by name, the headline first; of the first batches only, if `most` says how many."""
        batches = [batch for batch in self._batches[name] if batch.targets][:most]
        return evaluate(model, partial(_classified, model, name), batches, model.objectives[name].metrics)


def _classified(model: MultiTaskModel, name: str, batch: Packed) -> Loss:
    """The loss of a batch.  Raises UserError unless it tells logits (P, C) and labels (P,), classes both, of which
    metrics are made."""
    found = model.loss(name, batch)
    labels, shape = found.labels, None if found.logits is None else tuple(found.logits.shape)
    if not isinstance(labels, np.ndarray):
        raise UserError(
            f"task '{name}': the labels that its loss tells are a {type(labels).__name__}; expected a NumPy array"
        )
    if shape is None or len(shape) != 2 or labels.shape != shape[:1] or labels.dtype.kind not in "iu":
        told = "no logits" if shape is None else f"logits of the shape {shape}"
        raise UserError(
            f"task '{name}': its loss tells {told} and labels of the shape {labels.shape}, type {labels.dtype}. "
            "Metrics compare classes: they need logits (P, C) and P whole numbers below C. A number can be learnt as "
            "the class of its range"
        )
    return found


def _check_metrics(name: str, task: PretrainTask) -> None:
    """Raise UserError for metrics that there are not: else a stage would be learnt before it is told."""
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


def first_batches(source: Source, wanted: int) -> list[Packed]:
    """The first batches of a source's first epoch: as many as are wanted, or as there are."""
    per_block = source.items_per_block()
    found: list[Packed] = []
    for first in range(0, len(source.items), per_block):
        found += source.batches(0, first, min(len(source.items), first + per_block))
        if len(found) >= wanted:
            break
    return found[:wanted]
