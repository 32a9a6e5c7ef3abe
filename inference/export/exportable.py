"""Models to export, fine-tuned or plain encoders: the original, its padded form, and rows to compare both on."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path

import numpy as np

from ernie.data.batch import Packed
from ernie.data.document import Sample
from ernie.data.labeled.row import Row, RowOptions
from ernie.errors import UserError, about
from ernie.kernels.precision import to_numpy
from ernie.model.ernie import ErnieModel
from ernie.model.export.padded import PaddedModel
from ernie.model.heads import SequenceHead, TokenHead
from ernie.model.inference import evaluating, tokenizer_of
from ernie.model.pretrained import TASK_FILE
from ernie.model.published.fold import check_task
from ernie.model.sentence import SentenceConfig
from ernie.model.sentence import normalized as unit_vectors
from ernie.model.sentence_embedding import SentenceHead
from ernie.text.frame import frame
from inference.rows import file_rows, input_rows
from inference.task_model import Ensemble, TaskModel
from tasks.downstream.base import (
    LogitsTask,
    WindowedTask,
    float_logits,
)
from tasks.downstream.embed import Embed
from tasks.downstream.hooks import ExportNotes
from tasks.downstream.saved import find_model, member_folders, model_of, read_task

_ROWS = 32


class Exportable(ABC):
    """A model in its original and in its padded form.

    `longest` is the maximum number of tokens of a row; `labels` names the outputs, if they have names.  `texts` says
    what the text of a row is, or the two texts of a pair; `reading` says how to read the logits, and
    `reading_code` does so in Python.

    The constructor raises UserError for a model that cannot be exported.
    """

    padded: PaddedModel
    longest: int
    labels: tuple[str, ...] = ()
    texts: tuple[str, ...] = ("text",)
    reading: str = ""
    reading_code: str = ""

    @abstractmethod
    def outputs(self, batch: Packed) -> Sequence[np.ndarray]:
        """Return what the original model computes for a batch, in the order of the padded model's outputs."""

    @abstractmethod
    def read(self, file: str) -> Iterator[Row]:
        """Yield the rows of a file.  Raises UserError when they cannot be read."""

    @abstractmethod
    def samples(self, rows: Iterable[Row]) -> list[Sample]:
        """Return the samples of the first few rows.  Raises UserError for a row that the model cannot take."""


class ExportableTask(Exportable):
    """A fine-tuned model."""

    def __init__(self, run: Path) -> None:
        self._model = TaskModel.load(run)
        if isinstance(self._model, Ensemble):
            raise UserError(
                f"{run}: is an ensemble of {len(self._model.members)} models, which is no single graph. Export the "
                f"folder of one of them, such as {member_folders(model_of(run))[0]}, or train one model on the answers "
                "of all"
            )
        head, task = self._model.head, self._model.task
        if not isinstance(task, LogitsTask) or not isinstance(head, SequenceHead | TokenHead):
            raise UserError(
                f"{run}: a model of the kind {task.variant_name} cannot be exported: its head is neither a "
                "SequenceHead nor a TokenHead. Use it in Python by TaskModel.load"
            )
        self._task = task
        self.padded = PaddedModel(self._model.ernie, head.out, isinstance(head, TokenHead), self._model.task_id)
        self.longest, self.labels, self.texts = task.max_len, tuple(getattr(task, "labels", ())), task.texts
        if isinstance(task, ExportNotes):
            self.texts = task.text_names or task.texts
            self.reading, self.reading_code = task.reading, task.reading_code
        if isinstance(task, WindowedTask) and task.windows is not None:
            self.reading = f"{self.reading} {task.windows.reading(task.max_len)}".strip()

    def outputs(self, batch: Packed) -> Sequence[np.ndarray]:
        with evaluating(self._model):
            hidden_TD = self._task.encode(self._model.ernie, self._model.head, batch, self._model.task_id)
            return [float_logits(self._task, self._model.head, hidden_TD, batch.layout).numpy()]

    def read(self, file: str) -> Iterator[Row]:
        return input_rows(file, RowOptions(), self._task)

    def samples(self, rows: Iterable[Row]) -> list[Sample]:
        samples: list[Sample] = []
        for row in islice(rows, _ROWS):
            with about(row.place):
                samples += self._task.example(row, self._model.tokenizer).samples
        return samples


class ExportableEncoder(Exportable):
    """An encoder with the task embedding `task`, compared on the texts in a `column` of rows.

    One of sentences also gives their vectors, unless the graph has no way to compute them.
    """

    def __init__(self, path: Path, task: int | None, column: str = "text") -> None:
        self._model, self._column = ErnieModel.from_pretrained(path), column
        if task is not None:
            check_task(self._model.config, task)
        config = self._model.sentence_config
        pooling = "" if config is None else _pooling(config)
        normalized = config is not None and config.normalize
        self.padded = PaddedModel(self._model, task=task or 0, pooling=pooling, normalized=normalized)
        positions = self._model.config.max_positions
        self.longest = min(positions, (config and config.max_len) or positions) if pooling else positions

    def outputs(self, batch: Packed) -> Sequence[np.ndarray]:
        with evaluating(self._model):
            hidden_TD = self._model.encode_packed(batch, self.padded.task)
            found = [to_numpy(hidden_TD), to_numpy(self._model.pooler(hidden_TD, batch.layout))]
            if self.padded.pooling:
                vectors_ND = to_numpy(SentenceHead(self._model, self.padded.pooling)(hidden_TD, batch.layout))
                found.append(unit_vectors(vectors_ND) if self.padded.normalized else vectors_ND)
            return found

    def read(self, file: str) -> Iterator[Row]:
        return file_rows(file, RowOptions(format="text"))

    def samples(self, rows: Iterable[Row]) -> list[Sample]:
        tokenizer = tokenizer_of(self._model)
        return [
            Sample(*frame(tokenizer, tokenizer.encode(row.text(self._column), self.longest).ids[: self.longest - 2]))
            for row in islice(rows, _ROWS)
        ]


def _pooling(config: SentenceConfig) -> str:
    """Return the pooling of a sentence encoder, "" for one that the graph cannot compute."""
    (pooling, *others), layers = config.pooling, [layer.kind for layer in config.layers]
    is_known = not others and pooling in ("mean", "cls") and layers in ([], ["Normalize"])
    return pooling if is_known and (config.include_prompt or not config.prompts) else ""


def exportable(run: Path, task: int | None) -> Exportable:
    """Return the model of a fine-tuning run, or an encoder with one of its task embeddings (default: the first).

    Raises UserError when there is neither.
    """
    place = find_model(run)
    if place is None:
        return ExportableEncoder(run, task)
    if (place / TASK_FILE).is_file() and isinstance(own := read_task(place)[0], Embed):
        if task is not None:
            raise UserError(f"--task: {run} is a model of the kind embed, which has the task embedding 0")
        return ExportableEncoder(place, None, own.text)
    if task is not None:
        raise UserError(f"--task: {run} is a fine-tuned model, which keeps the task embedding that it was trained with")
    return ExportableTask(run)
