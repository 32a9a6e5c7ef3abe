"""Predictions for rows, by a fine-tuned model of any kind."""

from __future__ import annotations

import json
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property, lru_cache, partial
from typing import Any

import numpy as np
from paddle import no_grad

from ernie.data.batch import pack
from ernie.data.document import Sample
from ernie.data.labeled.row import Row
from ernie.errors import UserError
from ernie.kernels.precision import batch_invariant, to_numpy
from ernie.model.adapted import AdaptedModel
from ernie.model.ernie import ErnieModel
from ernie.model.inference import evaluating, finite
from ernie.outcome import Outcome
from inference.face import Face, Facts, face, weight_count
from inference.operation import Addressed, Operation, Prepared
from inference.task_model import BATCH_TOKENS, TaskModel, as_row
from inference.together import compute_together
from tasks.downstream.base import Answer, FinetuneTask, LogitsTask
from tasks.downstream.hooks import FilesInRows


class Predict(Operation):
    """The answer to a row: its cells by column, or the text of the column that the task reads.

    The settings are those of the task that say how answers are found, such as `all_labels`.  A row may come from
    anywhere: one that names a file is refused, and no setting names one.
    """

    def __init__(self, model: TaskModel):
        self._model = model
        self.settings = frozenset(model.task.decoding_fields).difference(model.task.files)
        self._decoded = lru_cache(maxsize=64)(partial(_decoding, model))  # a method would be a reference to this

    def prepare(self, given: Any, row: int = 0, **settings: Any) -> Prepared:
        task = self._decoded(json.dumps(settings, sort_keys=True)) if settings else self._model.task
        own = as_row(task, given, row)
        _check_files(task, own, row)
        return self._model.prepare(own, task)

    def compute(self, batch: Sequence[Prepared]) -> list[Outcome[Answer]]:
        with batch_invariant():
            return self._model.compute(batch, batch_tokens=max(1, sum(prepared.tokens for prepared in batch)))

    @property
    def together(self) -> Hashable | None:  # type: ignore[override]
        """Models with adapters of one base are computed together, if their kinds have logits."""
        model = self._model
        bases = {
            (one.ernie.base, one.task_id) if isinstance(one.ernie, AdaptedModel) else None for one in model.singles
        }
        common = next(iter(bases))
        if len(bases) > 1 or common is None or not isinstance(model.task, LogitsTask):
            return None
        return *common, model.precision

    @staticmethod
    def compute_together(batch: Sequence[Addressed]) -> list[Outcome[Answer]]:
        with batch_invariant():
            return compute_together([(_model_of(each), each.prepared) for each in batch])

    @property
    def longest(self) -> int:
        return self._model.task.max_len

    def exercise(self, lengths: Sequence[int]) -> None:
        with self._model.computing(), batch_invariant():
            for single in self._model.singles:
                exercise(single.ernie, lengths)


def _model_of(addressed: Addressed) -> TaskModel:
    assert isinstance(addressed.operation, Predict)
    return addressed.operation._model


def _decoding(model: TaskModel, settings: str) -> FinetuneTask:
    return model.decoding(json.loads(settings))


def _check_files(task: FinetuneTask, row: Row, number: int) -> None:
    """Raise UserError for a row that names a file."""
    try:
        named = task.named_file(row) if isinstance(task, FilesInRows) else None
    except UserError:
        return  # what is wrong with it is told later
    if named is not None:
        raise UserError(f"row {number}: it names a file, which is not read; expected what the file contains")


def exercise(ernie: ErnieModel, lengths: Sequence[int]) -> None:
    """Encode sequences of these lengths, in tokens, for the time that it takes.  Raises NotFinite."""
    batch = pack([Sample(np.zeros(n, np.int64), np.zeros(n, np.int64)) for n in lengths])
    with evaluating(ernie), no_grad():
        finite(to_numpy(ernie.encode_packed(batch)))


def _names(columns: Any) -> list[str]:
    """Return the names of columns that a task's field gives."""
    return [columns] if isinstance(columns, str) and columns else list(columns or ())


@face("predict")
class Predictor(Face):
    """Answers rows: `predict` raises the error of a faulty row, `outcomes` returns it in the row's place."""

    def __init__(self, model: TaskModel):
        super().__init__(model)

    @cached_property
    def operations(self) -> Mapping[str, Operation]:
        """`predict`: the answer to a row."""
        return {"predict": Predict(self.model)}

    @cached_property
    def facts(self) -> Facts:
        """What the model is."""
        task, config = self.model.task, self.model.ernie.config
        columns = {
            field: _names(getattr(task, field)) for field in task.column_fields if field not in task.answer_fields
        }
        labels = getattr(task, "labels", None)
        return Facts(
            config.layers,
            config.hidden_size,
            weight_count(self.model),
            task.variant_name,
            list(map(str, labels)) if labels else None,
            {field: names for field, names in columns.items() if names},
        )

    def predict(
        self, rows: Iterable[Row | Mapping[str, Any] | str], batch_tokens: int = BATCH_TOKENS
    ) -> Iterator[Answer]:
        """Yield the predictions for rows: see `TaskModel.predict`."""
        yield from self.model.predict(rows, batch_tokens)

    def outcomes(
        self, rows: Iterable[Row | Mapping[str, Any] | str], batch_tokens: int = BATCH_TOKENS
    ) -> Iterator[Outcome[Answer]]:
        """Yield the outcome of each row, with notes: see `TaskModel.outcomes`."""
        yield from self.model.outcomes(rows, batch_tokens)
