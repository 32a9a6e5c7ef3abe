"""A fine-tuned model, or an ensemble of some: encoders with heads of a task, predictions, saving and loading."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from paddle import nn

from ernie.config import build_fields, from_dict, to_dict
from ernie.data.batch import plan_by_length
from ernie.data.document import Sample
from ernie.data.labeled.row import Row
from ernie.data.raw import Place
from ernie.errors import Remark, UserError, about, check_iterable
from ernie.kernels.precision import InferencePrecisionChoice, is_chosen, precision
from ernie.model.adapted import ADAPTER_FOLDER, AdaptedModel, SavedAdapter
from ernie.model.checksums import check_model, write_checksums
from ernie.model.ernie import ErnieModel
from ernie.model.heads import SequenceHead
from ernie.model.inference import evaluating, for_inference, tokenizer_of
from ernie.model.initialization import initialize
from ernie.model.pretrained import TASK_FILE, model_folder
from ernie.model.published.arrays import GROWTH
from ernie.model.published.load import NO_POOLER, LoadedCheckpoint, read
from ernie.model.published.sentence_folder import read_sentence_config
from ernie.model.published.task_head import head_notes
from ernie.model.save import save
from ernie.model.weights import save_weights, set_weights
from ernie.outcome import Note, Outcome
from ernie.text.tokenizer import Tokenizer
from inference.operation import Prepared, grouped
from inference.precision import check_precision, precision_of
from inference.rows import FaultyRow, in_groups, read_column
from tasks.downstream.base import (
    Answer,
    Example,
    FinetuneTask,
    LogitsTask,
    truncation_note,
)
from tasks.downstream.calling import calling, named
from tasks.downstream.changes import common_task, decoding_with
from tasks.downstream.hooks import SizedHead
from tasks.downstream.saved import (
    HEAD_FILE,
    head_file,
    member_folders,
    model_of,
    read_head,
    read_task,
    write_task,
)

V = TypeVar("V")
BATCH_TOKENS = 2048  # per prediction batch: suits the caches of a CPU


class TaskModel(nn.Layer):
    """An encoder with the head of a fine-tuning task.

    `TaskModel.load(folder)` loads the folder of a run; `predict(rows)` yields predictions, `outcomes(rows)` also what
    is wrong with some of the rows.  They are computed in `precision`, in every thread, unless the caller chose another
    by `ernie.precision`.  Any number of threads may call a loaded model.
    """

    def __init__(self, ernie: ErnieModel, task: FinetuneTask, task_id: int = 0):
        super().__init__()
        self.ernie, self.task, self.task_id = ernie, task, task_id
        self.precision: InferencePrecisionChoice | None = None
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

    @property
    def singles(self) -> list[TaskModel]:
        """The models that answer together: those of an ensemble, or this one alone."""
        return [self]

    def predict(
        self, rows: Iterable[Row | Mapping[str, Any] | str], batch_tokens: int = BATCH_TOKENS
    ) -> Iterator[Answer]:
        """Yield the predictions for rows, one by one and in order; only a few hundred rows are held at a time.

        A row maps columns to cells; a string is a row with just the column that the task reads.  `rows` may also be a
        single row or string.  After the predictions for the rows before it, raises the error of the first row that has
        one.  That is a UserError, with its place, for a row that lacks a column or is none.  Warns (a Remark) of the
        first row with each kind of note.
        """
        noted: set[str] = set()
        for outcome in self.outcomes(rows, batch_tokens):
            for sentence in first_notes(outcome.notes, noted):
                warnings.warn(sentence, Remark, stacklevel=2)
            yield outcome.get()

    def outcomes(
        self, rows: Iterable[Row | Mapping[str, Any] | str], batch_tokens: int = BATCH_TOKENS
    ) -> Iterator[Outcome[Answer]]:
        """Yield the outcome of each row, as `predict`: its prediction or its error, and notes on what is unusual.

        A faulty row, or one for which the model's outputs are not finite, harms no other row.
        """
        if isinstance(rows, str | Mapping):
            rows = [rows]
        check_iterable(rows, "rows")
        for group in in_groups(_row_or_error(self.task, row, number) for number, row in enumerate(rows)):
            yield from self.group_outcomes(group, batch_tokens)

    def group_outcomes(
        self, rows: Sequence[Row | UserError], batch_tokens: int = BATCH_TOKENS
    ) -> list[Outcome[Answer]]:
        """Return the outcomes of a few rows, in order; the outcome of an error in the place of a row is that error."""
        outcomes: list[Outcome[Answer]] = [Outcome()] * len(rows)
        usable: dict[int, Prepared] = {}
        for number, row in enumerate(rows):
            try:
                if isinstance(row, UserError):
                    raise row
                usable[number] = self.prepare(row)
            except UserError as error:
                outcomes[number] = Outcome(error=error)
        outcomes_of_usable = self.compute([*usable.values()], batch_tokens)
        for number, outcome in zip(usable, outcomes_of_usable, strict=True):
            outcomes[number] = outcome
        return outcomes

    def prepare(self, row: Row, task: FinetuneTask | None = None) -> Prepared:
        """Return a row ready for `compute`, with notes on what is unusual about it; the network is not used.

        `task` is one that `decoding` returned.  Raises FaultyRow, with the row's place, for a row that cannot be read.
        """
        task = task or self.task
        try:
            example = task.example(row, self.tokenizer)
        except UserError as error:
            raise _faulty(row.place, error) from None
        notes = self._notes(row.place, example)
        return Prepared(example.tokens, (row.place, example, task), notes, is_cut=example.cut > 0)

    def compute(self, batch: Sequence[Prepared], batch_tokens: int = BATCH_TOKENS) -> list[Outcome[Answer]]:
        """Return the outcomes of prepared rows, in order, with their notes."""
        outcomes: dict[int, Outcome[Answer]] = {}
        for task, chosen in grouped(batch, lambda prepared: prepared.content[2]):
            examples = [batch[i].content[1] for i in chosen]
            outcomes |= zip(chosen, self._outcomes(examples, batch_tokens, task), strict=True)
        return [with_place(prepared, outcomes[i]) for i, prepared in enumerate(batch)]

    def _notes(self, place: Place, example: Example) -> tuple[Note, ...]:
        """Return notes on what is unusual about the row at a place."""
        if not (example.cut or example.warnings):
            return ()
        texts = [f"has {what}" for what in example.warnings]
        if example.cut:
            texts.append(f"is longer than {truncation_note(self.task)} and was truncated")
        where: dict[str, Any] = {"file": place.file, "line": place.line} if place.file else {"row": place.line}
        return tuple(Note(text, **where) for text in texts)

    def answers(self, examples: Sequence[Example], batch_tokens: int = BATCH_TOKENS) -> list[Answer]:
        """Return the predictions for examples, in order.  Dropout is off; each layer's mode is restored afterwards.

        Raises the error of the first example that has one.
        """
        return [outcome.get() for outcome in self._outcomes(examples, batch_tokens, self.task)]

    def _outcomes(self, examples: Sequence[Example], batch_tokens: int, task: FinetuneTask) -> list[Outcome[Answer]]:
        """Return the outcomes of examples, in order."""
        return self._by_length(examples, batch_tokens, lambda batch: self._batch_outcomes(batch, task))

    def _by_length(
        self, examples: Sequence[Example], batch_tokens: int, compute: Callable[[list[Example]], Sequence[V]]
    ) -> list[V]:
        """Return what is computed of each example, in order; examples of similar length are computed together."""
        found: dict[int, V] = {}
        with evaluating(self), self.computing():
            for chosen in plan_by_length([example.tokens for example in examples], batch_tokens):
                found |= zip(chosen, compute([without_labels(examples[i]) for i in chosen]), strict=True)
        return [found[i] for i in range(len(examples))]

    def _batch_outcomes(self, batch: Sequence[Example], task: FinetuneTask) -> list[Outcome[Answer]]:
        """Return the outcomes of one batch; where a kind raises an error for all of it, find the examples to blame."""
        try:
            answers = self._answer_all(batch, task)
        except UserError as error:
            if len(batch) == 1:
                return [Outcome(error=error)]
            half = len(batch) // 2
            return self._batch_outcomes(batch[:half], task) + self._batch_outcomes(batch[half:], task)
        return list(map(outcome_of, answers))

    def _answer_all(self, batch: Sequence[Example], task: FinetuneTask) -> Sequence[Answer | UserError]:
        """Return the answers to the rows of one batch, and errors in place of some."""
        return task.answer_all(self.ernie, self.head, batch, self.task_id)

    def logits(self, examples: Sequence[Example], batch_tokens: int = BATCH_TOKENS) -> list[list[np.ndarray]]:
        """Return the logits of examples of a `LogitsTask`, in order, as its `answer` takes them.  Dropout is off."""
        return self._by_length(examples, batch_tokens, lambda batch: self._row_logits(batch, self.task))

    def _row_logits(self, batch: Sequence[Example], task: FinetuneTask) -> list[list[np.ndarray]]:
        assert isinstance(task, LogitsTask)
        return task.row_logits(self.ernie, self.head, batch, self.task_id)

    def computing(self) -> AbstractContextManager[None]:
        """Return the context of the model's own precision, which changes nothing where the caller has chosen one."""
        return nullcontext() if self.precision is None or is_chosen() else precision(self.precision)

    def change_decoding(self, **given: Any) -> None:
        """Change how answers are found from now on: values of the task's `decoding_fields`, such as `beam`.

        The names of the columns that are read can be changed, too: `text_pair="hypothesis"`.

        Raises UserError for other fields, and for values that do not fit.
        """
        self.task = self.decoding(given)

    def decoding(self, given: Mapping[str, Any]) -> FinetuneTask:
        """Return the task with such a change, which `prepare` takes for single rows; this model keeps its own."""
        values = build_fields(type(self.task), from_dict(to_dict(given), "a change of decoding"), "task")
        return decoding_with(self.task, values, self.tokenizer)

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
        base: str | Path | ErnieModel | None = None,
    ) -> TaskModel:
        """Load the folder of a run (or its `model`), ready to predict.

        The folder may also be that of a published model with a head of one of our kinds, or that of an ensemble, which
        gives an `Ensemble`.  `precision` is that of matrix products; by default, as in `ernie predict`, fp32 for a run
        that was trained in it, else the fastest that the machine has.  A run may ask for code from outside the library;
        `trust_plugins` names the modules of it that may be imported, or is True for all.

        `base` is the pretrained encoder of a run that learned an adapter of it (`train.adapt`).  The run's folder then
        needs only the adapter, the head and the task.  A base given by its path is read, and gets the adapter's
        updates.  One that is loaded already is shared with whatever else uses it.

        Raises UserError for other modules, for a folder that is neither, for another base, and for a precision that the
        machine does not have.
        """
        precision = precision_of(Path(path), precision)
        check_precision(precision)
        folder = model_of(Path(path))
        members = [cls._read(member, trust_plugins, base) for member in member_folders(folder)]
        model = Ensemble._of(folder, members, trust_plugins) if members else cls._read(folder, trust_plugins, base)
        model.precision = precision
        for_inference(model)
        return model

    @classmethod
    def _read(
        cls, folder: Path, trust_plugins: Sequence[str] | bool, base: str | Path | ErnieModel | None = None
    ) -> TaskModel:
        """Read a single model, in no precision of its own."""
        task, task_id = read_task(folder, trust_plugins)
        weights = head_file(folder)
        reading = read(folder, ErnieModel) if base is None else _adapted(base, folder, task)
        if weights.name != HEAD_FILE:  # of another library, whose settings may say more positions than there are
            task, task_id = read_task(folder, positions=reading.model.config.max_positions)
        found = read_head(weights)
        _check_size(task, reading.model.config.hidden_size, sum(values.size for values in found.values()), weights)
        model = cls(reading.model, task, task_id)
        _warn_of_parts(reading, model, folder)
        set_weights(model.head, found, str(weights))
        return model


def _adapted(base: str | Path | ErnieModel, folder: Path, task: FinetuneTask) -> LoadedCheckpoint[ErnieModel]:
    """Return a base with the adapter of a model's folder.

    Raises UserError if there is none, or one of another base, and for a kind that cannot share a loaded base.
    """
    place = folder / ADAPTER_FOLDER
    if not place.is_dir():
        raise UserError(f"{folder}: has no {ADAPTER_FOLDER}/, which runs with train.adapt have; load it without a base")
    if isinstance(base, ErnieModel):
        if not isinstance(task, LogitsTask) and task.face != "encode":
            raise UserError(f"{folder}: one of the kind {task.variant_name} cannot share a base; give the base's path")
        reading = LoadedCheckpoint(base, "ernie")
    else:
        reading = read(model_folder(Path(base)), ErnieModel)
    ernie = reading.model
    adapter = SavedAdapter.read(place, ernie.config.layers)
    adapter.check_base(ernie, place)
    if isinstance(base, ErnieModel):
        ernie = AdaptedModel(base, adapter)
    else:
        adapter.merge(ernie)
    own, _ = read_sentence_config(folder, ernie.config.max_positions, ernie.config.hidden_size)
    ernie.sentence_config = own or ernie.sentence_config
    return replace(reading, model=ernie, pooler=True)


class Ensemble(TaskModel):
    """Several models of a task that answer together, by the mean of their probabilities, or of the numbers they give.

    They may have different encoders with the same tokenizer.  `ernie` and `head` are those of the first.
    """

    def __init__(self, members: Sequence[TaskModel], task: LogitsTask):
        nn.Layer.__init__(self)
        self.members = nn.LayerList(members)
        self.ernie, self.head, self.task, self.task_id = members[0].ernie, members[0].head, task, 0
        self.precision = None

    @classmethod
    def _of(cls, folder: Path, members: Sequence[TaskModel], trust_plugins: Sequence[str] | bool) -> Ensemble:
        """Return the ensemble of a folder, with these members.  Raises UserError if they do not fit one another."""
        names = [str(place) for place in member_folders(folder)]
        check_members(dict(zip(names, members, strict=True)))
        check_model(folder)
        task, _ = read_task(folder, trust_plugins)
        common_task({str(folder): task, names[0]: members[0].task})
        assert isinstance(task, LogitsTask)
        return cls(members, task)

    @property
    def singles(self) -> list[TaskModel]:
        return list(self.members)

    def _answer_all(self, batch: Sequence[Example], task: FinetuneTask) -> Sequence[Answer | UserError]:
        assert isinstance(task, LogitsTask)
        return task.answers_from(batch, self._row_logits(batch, task))

    def _row_logits(self, batch: Sequence[Example], task: FinetuneTask) -> list[list[np.ndarray]]:
        assert isinstance(task, LogitsTask)
        each = [task.row_logits(member.ernie, member.head, batch, member.task_id) for member in self.singles]
        return common_logits(task, each)

    def save(self, folder: Path) -> None:
        names = [f"member-{number}" for number in range(1, len(self.members) + 1)]
        for name, member in zip(names, self.members, strict=True):
            member.save(folder / name)
        write_checksums(folder, write_task(folder, self.task, self.task_id, names))


def common_logits(task: LogitsTask, each: Sequence[list[list[np.ndarray]]]) -> list[list[np.ndarray]]:
    """Return the logits of rows, given those of each model that answers: the mean of several, as its task has it."""
    return each[0] if len(each) == 1 else [task.mean_logits(of_row) for of_row in zip(*each, strict=True)]


def check_members(members: Mapping[str, TaskModel]) -> tuple[LogitsTask, list[str]]:
    """Return the task of an ensemble of these models, by name, and the fields that `common_task` returns.

    Raises UserError for models that do not answer alike.
    """
    (first, one), *others = members.items()
    for other, model in others:
        if model.tokenizer.fingerprint != one.tokenizer.fingerprint:
            raise UserError(f"{other}: has another tokenizer than {first}; models of an ensemble have the same")
    return common_task({name: model.task for name, model in members.items()})


def first_notes(notes: Sequence[Note], noted: set[str]) -> Iterator[str]:
    """Yield the sentences of the notes whose text is new, and add them to the texts that were `noted`."""
    for note in notes:
        if note.text not in noted:
            noted.add(note.text)
            yield f"{note}; later rows like it are not noted"


def outcome_of(answer: Answer | UserError) -> Outcome[Answer]:
    """Return an answer, or the error in its place, as an outcome."""
    return Outcome(error=answer) if isinstance(answer, UserError) else Outcome(answer)


def with_place(prepared: Prepared, outcome: Outcome[Answer]) -> Outcome[Answer]:
    """Return the outcome of a row with its notes, and with its place in its error."""
    located = None if outcome.error is None else _located(prepared.content[0], outcome.error)
    return Outcome(outcome.value, located, prepared.notes)


def _faulty(place: Place, error: UserError) -> FaultyRow:
    located = _located(place, error)
    return FaultyRow(str(located), file=located.file, line=located.line, key=located.key, row=located.row)


def _located(place: Place, error: UserError) -> UserError:
    """Return the error with the place of its row."""
    try:
        with about(place):
            raise error
    except UserError as located:
        return located


def _check_size(task: FinetuneTask, width: int, found: int, file: Path) -> None:
    """Raise UserError if a task's head would be far larger than the weights in its file, before it is made."""
    least = task.least_weights(width) if isinstance(task, SizedHead) else 0
    if least > GROWTH * found + (1 << 20):
        raise UserError(f"{file}: has {found:,} weights, and the sizes in {TASK_FILE} are for {least:,} or more")


def _warn_of_parts(reading: LoadedCheckpoint[ErnieModel], model: TaskModel, folder: Path) -> None:
    """Warn of what is unusual about a model's files.  Raises UserError if they lack what its head needs."""
    if not reading.pooler and isinstance(model.head, SequenceHead):
        raise UserError(f"{folder}: lacks the pooler, which a head of the kind {model.task.variant_name} reads")
    for note in (*reading.notes, *head_notes(folder)):
        if note != NO_POOLER:  # that a head on tokens does not read
            warnings.warn(f"{folder}: {note}", Remark, stacklevel=3)  # points at the caller of TaskModel.load


def without_labels(example: Example) -> Example:
    """Return an example as it is answered."""
    samples = tuple(
        Sample(sample.ids, sample.segments, sound=sample.sound, continues=sample.continues)
        for sample in example.samples
    )
    return replace(example, samples=samples)


def as_row(task: FinetuneTask, given: Any, number: int = 0) -> Row:
    """Return a row of cells by column, or of a text of the column that the task reads.

    Raises UserError for anything else.
    """
    if isinstance(given, Row) and given.place.file:
        return given
    column = read_column(task)
    if isinstance(given, str):
        given = {column: given}
    if not isinstance(given, Mapping):
        expected = f"expected its cells by column, such as {{'{column}': ...}}"
        raise UserError(f"row {number}: {expected}, found {given!r:.60}", row=number)
    return Row(given, Place("", number))


def _row_or_error(task: FinetuneTask, given: Any, number: int) -> Row | UserError:
    try:
        return as_row(task, given, number)
    except UserError as error:
        return error
