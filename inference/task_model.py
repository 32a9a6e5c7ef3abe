"""A fine-tuned model, an encoder with a task head: its loss, predictions, saving and loading.

Legend: T packed tokens, N sequences, D width.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import paddle
from paddle import nn

from ernie.config import build_fields, from_dict, to_dict
from ernie.data.batch import Packed, plan_by_length
from ernie.data.document import Sample
from ernie.data.labeled.row import Row
from ernie.data.raw import Place
from ernie.errors import Remark, UserError, about, check_iterable
from ernie.kernels.mask import Mask
from ernie.kernels.precision import InferencePrecisionChoice, computing, is_chosen
from ernie.model.checksums import write_checksums
from ernie.model.ernie import ErnieModel
from ernie.model.heads import SequenceHead
from ernie.model.inference import evaluating, tokenizer_of
from ernie.model.initialization import initialize
from ernie.model.losses import Loss, checked
from ernie.model.pretrained import TASK_FILE
from ernie.model.published.arrays import GROWTH
from ernie.model.published.load import NO_POOLER, LoadedCheckpoint, read
from ernie.model.published.task_head import head_notes
from ernie.model.save import save
from ernie.model.weights import save_weights, set_weights
from ernie.text.tokenizer import Tokenizer
from inference.precision import precision_of
from inference.rows import FaultyRow, in_groups, read_column
from tasks.downstream.base import Answer, Example, FinetuneTask
from tasks.downstream.calling import calling, named
from tasks.downstream.saved import HEAD_FILE, head_file, model_of, read_head, read_task, write_task

BATCH_TOKENS = 2048  # per prediction batch: suits the caches of a CPU


class TaskModel(nn.Layer):
    """An encoder with the head of a fine-tuning task.

    `TaskModel.load(folder)` loads the folder of a run; `predict(rows)` yields predictions.  They are computed in
    `precision`, in every thread, unless the caller chose another by `ernie.kernels.precision.computing`.
    """

    def __init__(self, ernie: ErnieModel, task: FinetuneTask, task_id: int = 0):
        super().__init__()
        self.ernie, self.task, self.task_id = ernie, task, task_id
        self.precision: InferencePrecisionChoice | None = None
        self._warned: set[str] = set()  # remarks on rows
        with calling(task, "head"):
            self.head = task.head(ernie)
        if not isinstance(self.head, nn.Layer):
            raise UserError(
                f"{named(task, 'head')} returns a {type(self.head).__name__}; expected a layer of paddle.nn"
            )
        initialize(self.head, ernie.config.initializer_range)

    @property
    def tokenizer(self) -> Tokenizer:
        """The encoder's tokenizer.  Raises UserError when it has none."""
        return tokenizer_of(self.ernie)

    def loss(self, batch: Packed) -> Loss:
        """Return the loss of one batch."""
        batch = self.task.augmented(batch, self.training)
        return self.head_loss("", self.task.encode(self.ernie, self.head, batch, self.task_id), batch)

    def task_embedding(self, _: str) -> int:
        """Return the id of the task embedding."""
        return self.task_id

    def encoder_input(self, _: str, batch: Packed) -> tuple[Packed, Mask | None]:
        """Return the batch that the encoder gets, and its attention mask (None: full attention)."""
        return self.task.encoder_input(batch)

    def head_loss(self, _: str, hidden_TD: paddle.Tensor, batch: Packed) -> Loss:
        """Return the loss of one batch, given the encoder's hidden states.  Raises UserError if it is no such loss."""
        loss = self.task.head_loss(self.head, hidden_TD, batch)
        with about(f"kind '{self.task.variant_name}'"):
            return checked(loss, batch)

    def predict(
        self, rows: Iterable[Row | Mapping[str, Any] | str], batch_tokens: int = BATCH_TOKENS
    ) -> Iterator[Answer]:
        """Yield the predictions for rows, one by one and in order; only a few hundred rows are held at a time.

        A row maps columns to cells; a string is a row with just the column that the task reads.  `rows` may also be a
        single row or string.  Raises UserError for a row that lacks a column, with its place, after the predictions for
        the rows before it, and for an item that is not a row.
        """
        if isinstance(rows, str | Mapping):
            rows = [rows]
        check_iterable(rows, "rows")
        column = read_column(self.task)
        for group in in_groups(_as_row(row, number, column) for number, row in enumerate(rows)):
            yield from self.answer_group(group, batch_tokens)

    def answer_group(self, rows: Sequence[Row], batch_tokens: int = BATCH_TOKENS) -> Iterator[Answer]:
        """Yield the predictions for a few rows; raises as `predict` does."""
        examples: list[Example] = []
        fault: UserError | None = None
        tokenizer = self.tokenizer
        for row in rows:
            try:
                examples.append(self.task.example(row, tokenizer))
            except UserError as error:
                fault = FaultyRow(f"{row.place}: {error}")
                break
        self._warn(rows, examples)
        yield from self.answers(examples, batch_tokens)
        if fault is not None:
            raise fault

    def _warn(self, rows: Sequence[Row], examples: Sequence[Example]) -> None:
        """Warn of the first row that is longer than the model's limit, and of the first with each other oddity."""
        for row, example in zip(rows, examples, strict=False):
            remarks = [f"has {what}; later rows with such are not noted" for what in example.warnings]
            if example.cut:
                remarks.append(f"is longer than max_len {self.task.max_len} and was truncated, as is every longer row")
            for remark in remarks:
                if remark not in self._warned:
                    self._warned.add(remark)
                    warnings.warn(f"{row.place}: {remark}", Remark, stacklevel=4)

    def answers(self, examples: Sequence[Example], batch_tokens: int = BATCH_TOKENS) -> list[Answer]:
        """Return the predictions for examples, in order.  Dropout is off; each layer's mode is restored afterwards."""
        with evaluating(self), self.computing():
            return self._answers(examples, batch_tokens)

    def computing(self) -> AbstractContextManager[None]:
        """Return the context of the model's own precision, which changes nothing where the caller has chosen one."""
        return nullcontext() if self.precision is None or is_chosen() else computing(self.precision)

    def _answers(self, examples: Sequence[Example], batch_tokens: int) -> list[Answer]:
        answers: dict[int, Answer] = {}
        for chosen in plan_by_length([example.tokens for example in examples], batch_tokens):
            batch = [_without_labels(examples[i]) for i in chosen]
            answers |= zip(chosen, self.task.answer_all(self.ernie, self.head, batch, self.task_id), strict=True)
        return [answers[i] for i in range(len(examples))]

    def change_decoding(self, **given: Any) -> None:
        """Change how answers are found from now on: values of the task's `decoding_fields`, such as `beam`.

        The names of the columns that are read can be changed, too: `text_pair="hypothesis"`.

        Raises UserError for other fields, and for values that do not fit.
        """
        values = build_fields(type(self.task), from_dict(to_dict(given), "a change of decoding"), "task")
        self.task = self.task.decoding_with(values, self.tokenizer)

    def save(self, folder: Path) -> None:
        """Write encoder, tokenizer, head and task to a folder that `load` reads.

        The files that the task names are copied along.
        """
        save(self.ernie, folder)
        save_weights(self.head, folder / HEAD_FILE)
        write_checksums(folder, [HEAD_FILE, *write_task(folder, self.task, self.task_id)])

    @classmethod
    def load(
        cls,
        path: str | Path,
        trust_plugins: Sequence[str] | bool = (),
        precision: InferencePrecisionChoice | None = None,
    ) -> TaskModel:
        """Load the folder of a run (or its `model`), ready to predict.

        The folder may also be that of a published model with a head of one of our kinds.  `precision` is that of matrix
        products; by default, as in `ernie predict`, fp32 for a run that was trained in it, else the fastest that the
        machine has.  A run may ask for code from outside the library; `trust_plugins` names the modules of it that may
        be imported, or is True for all.  Raises UserError for other modules, for a folder that is neither, and for a
        precision that the machine does not have.
        """
        folder = model_of(Path(path))
        task, task_id = read_task(folder, trust_plugins)
        reading, weights = read(folder, ErnieModel), head_file(folder)
        if weights.name != HEAD_FILE:  # of another library, whose settings may say more positions than there are
            task, task_id = read_task(folder, positions=reading.model.config.max_positions)
        found = read_head(weights)
        _check_size(task, reading.model.config.hidden_size, sum(values.size for values in found.values()), weights)
        model = cls(reading.model, task, task_id)
        _warn_of_parts(reading, model, folder)
        set_weights(model.head, found, str(weights))
        model.precision = precision_of(Path(path), precision)
        computing(model.precision)  # raises for one that the machine does not have
        model.eval()
        return model


def _check_size(task: FinetuneTask, width: int, found: int, file: Path) -> None:
    """Raise UserError if a task's head would be far larger than the weights in its file, before it is made."""
    if (least := task.least_weights(width)) > GROWTH * found + (1 << 20):
        raise UserError(f"{file}: has {found:,} weights, and the sizes in {TASK_FILE} are for {least:,} or more")


def _warn_of_parts(reading: LoadedCheckpoint, model: TaskModel, folder: Path) -> None:
    """Warn of what is unusual about a model's files.  Raises UserError if they lack what its head needs."""
    if not reading.pooler and isinstance(model.head, SequenceHead):
        raise UserError(f"{folder}: lacks the pooler, which a head of the kind {model.task.variant_name} reads")
    for note in (*reading.notes, *head_notes(folder)):
        if note != NO_POOLER:  # that a head on tokens does not read
            warnings.warn(f"{folder}: {note}", Remark, stacklevel=3)  # points at the caller of TaskModel.load


def _without_labels(example: Example) -> Example:
    samples = tuple(Sample(sample.ids, sample.segments, sound=sample.sound) for sample in example.samples)
    return replace(example, samples=samples)


def _as_row(row: Any, number: int, column: str) -> Row:
    if isinstance(row, Row) and row.place.file:
        return row
    if isinstance(row, str):
        row = {column: row}
    if not isinstance(row, Mapping):
        raise UserError(f"row {number}: expected its cells by column, such as {{'{column}': ...}}, found {row!r:.60}")
    return Row(row, Place("", number))
