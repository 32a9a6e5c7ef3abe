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
from inference.task_model import TaskModel, with_place, without_labels
from tasks.downstream.base import Answer, Example, LogitsTask


@dataclass(frozen=True)
class _Part:
    """The rows of one model in a batch: their examples, and the layout of these, which begins at a token."""

    model: TaskModel
    task: LogitsTask
    rows: Sequence[int]
    examples: Sequence[Example]
    layout: Layout
    start: int

    @property
    def stop(self) -> int:
        """The token behind the last."""
        return self.start + self.layout.tokens

    @property
    def reads(self) -> np.ndarray:
        """The tokens of the batch whose vectors the head uses."""
        own = self.task.reads(self.layout)
        return self.start + (np.arange(self.layout.tokens) if own is None else own)


def compute_together(batch: Sequence[tuple[TaskModel, Prepared]]) -> list[Outcome[Answer]]:
    """Return the outcomes of rows of several models, in order, as `TaskModel.compute` does for one model.

    The models are of kinds with logits; they share a base, the task embedding and the precision.
    """
    first = batch[0][0]
    assert isinstance(first.ernie, AdaptedModel)
    base = first.ernie.base
    parts = _parts(batch)
    samples = [sample for part in parts for example in part.examples for sample in example.samples]
    adapted = [part.model.ernie.updates_of(part.start, part.stop) for part in parts]
    needed = np.concatenate([part.reads for part in parts])
    outcomes: dict[int, Outcome[Answer]] = {}
    with evaluating(base), first.computing():
        hidden_TD = base.encode_packed(pack(samples), first.task_id, needed, adapted=adapted)
        for part in parts:
            own_TD = hidden_TD[part.start : part.stop]
            logits = part.task.logits_of_rows(part.model.head, own_TD, part.layout, part.examples)
            for row, answer in zip(part.rows, part.task.answers_from(part.examples, logits), strict=True):
                found = Outcome[Answer](error=answer) if isinstance(answer, Exception) else Outcome(answer)
                outcomes[row] = with_place(batch[row][1], found)
    return [outcomes[row] for row in range(len(batch))]


def _parts(batch: Sequence[tuple[TaskModel, Prepared]]) -> list[_Part]:
    """Return the rows of each model and task."""
    rows: dict[tuple[TaskModel, LogitsTask], list[int]] = {}
    for row, (model, prepared) in enumerate(batch):
        rows.setdefault((model, prepared.content[2]), []).append(row)
    parts: list[_Part] = []
    for (model, task), chosen in rows.items():
        examples = [without_labels(batch[row][1].content[1]) for row in chosen]
        layout = Layout.of_lengths([sample.size for example in examples for sample in example.samples])
        parts.append(_Part(model, task, chosen, examples, layout, parts[-1].stop if parts else 0))
    return parts
