"""Models with adapters of one base, computed as one batch: all of it passes through the base's layers at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ernie.data.batch import Layout, pack
from ernie.model.adapted import AdaptedModel
from ernie.model.inference import evaluating
from ernie.outcome import Outcome
from inference.operation import Prepared
from inference.task_model import TaskModel, common_logits, outcome_of, with_place, without_labels
from tasks.downstream.base import Answer, Example, LogitsTask


@dataclass(frozen=True)
class _Rows:
    """The rows of one model in a batch: their examples, and the layout of these.

    They begin at each token of `starts`, once for each model that answers: one, or those of an ensemble.
    """

    model: TaskModel
    task: LogitsTask
    rows: Sequence[int]
    examples: Sequence[Example]
    layout: Layout
    starts: Sequence[int]

    @property
    def parts(self) -> list[tuple[TaskModel, int, int]]:
        """The models that answer, each with its first token and the token behind its last."""
        tokens = self.layout.tokens
        return [(each, start, start + tokens) for each, start in zip(self.model.singles, self.starts, strict=True)]

    @property
    def reads(self) -> np.ndarray:
        """The tokens of the batch whose vectors the heads use."""
        own = self.task.reads(self.layout)
        own = np.arange(self.layout.tokens) if own is None else own
        return np.concatenate([start + own for start in self.starts])


def compute_together(batch: Sequence[tuple[TaskModel, Prepared]]) -> list[Outcome[Answer]]:
    """Return the outcomes of rows of several models, in order, as `TaskModel.compute` does for one model.

    The models are of kinds with logits; they share a base, the task embedding and the precision, as all models of an
    ensemble do.
    """
    first = batch[0][0]
    single = first.singles[0]
    assert isinstance(single.ernie, AdaptedModel)
    base = single.ernie.base
    found = _by_model(batch)
    samples = [sample for own in found for _ in own.starts for example in own.examples for sample in example.samples]
    adapted = [model.ernie.updates_of(start, stop) for own in found for model, start, stop in own.parts]
    needed = np.concatenate([own.reads for own in found])
    outcomes: dict[int, Outcome[Answer]] = {}
    with evaluating(base), first.computing():
        hidden_TD = base.encode_packed(pack(samples), single.task_id, needed, adapted=adapted)
        for own in found:
            each = [
                own.task.logits_of_rows(model.head, hidden_TD[start:stop], own.layout, own.examples)
                for model, start, stop in own.parts
            ]
            logits = common_logits(own.task, each)
            for row, answer in zip(own.rows, own.task.answers_from(own.examples, logits), strict=True):
                outcomes[row] = with_place(batch[row][1], outcome_of(answer))
    return [outcomes[row] for row in range(len(batch))]


def _by_model(batch: Sequence[tuple[TaskModel, Prepared]]) -> list[_Rows]:
    """Return the rows of each model and task."""
    rows: dict[tuple[TaskModel, LogitsTask], list[int]] = {}
    for row, (model, prepared) in enumerate(batch):
        rows.setdefault((model, prepared.content[2]), []).append(row)
    found: list[_Rows] = []
    start = 0
    for (model, task), chosen in rows.items():
        examples = [without_labels(batch[row][1].content[1]) for row in chosen]
        layout = Layout.of_lengths([sample.size for example in examples for sample in example.samples])
        starts = [start + number * layout.tokens for number in range(len(model.singles))]
        found.append(_Rows(model, task, chosen, examples, layout, starts))
        start = starts[-1] + layout.tokens
    return found
