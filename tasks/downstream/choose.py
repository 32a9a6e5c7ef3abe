"""Multiple choice: which of several answers belongs to a text."""

from __future__ import annotations

import reprlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from string import ascii_uppercase
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from ernie.data.batch import Layout, Packed
from ernie.data.document import IGNORE
from ernie.data.labeled.row import Row, as_value, spelled
from ernie.errors import UserError
from ernie.formatting import plural
from ernie.text.tokenizer import Tokenizer
from tasks.downstream.base import (
    Answer,
    Example,
    WindowedTask,
    finetune_task,
    log_mean_softmax,
    rounded,
    softmax,
)
from tasks.downstream.calibration import Calibrated
from tasks.downstream.hooks import ExportNotes, SplitRemarks
from tasks.downstream.labels import is_number, label_in
from tasks.downstream.loss_settings import SoftLabels
from tasks.downstream.metrics import accuracy
from tasks.downstream.soft_labels import distribution, probability

if TYPE_CHECKING:
    from paddle import Tensor, nn

    from ernie.model.ernie import ErnieModel
    from ernie.model.losses import Loss


_ENOUGH_ROWS = 10  # in which the first choice is right at times


@finetune_task("choose")
@dataclass(frozen=True, kw_only=True)
class Choose(SoftLabels, Calibrated, WindowedTask, SplitRemarks, ExportNotes):
    """The right one of a row's choices: each is paired with the text, and their scores are compared.

    `text` names the column of the text and `question`, if there is one, a column to put before each choice.  `choices`
    is one column with a list, or several columns with one choice each.  With `blank`, each choice replaces that mark in
    the text as well.  `label` is the right choice: its number from `first`, its letter (A, B, ...), or its words.  It
    may also be the probability of each choice: {choice: probability}, or a list with as many numbers as choices.
    """

    text: str = "text"
    question: str = ""
    choices: tuple[str, ...] = ("choices",)
    blank: str = ""
    label: str = "label"
    first: int = 0

    column_fields: ClassVar = ("text", "question", "choices", "label")
    known_metrics: ClassVar = {"accuracy": accuracy}
    decoding_fields: ClassVar = ("windows", "temperature")

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.choices:
            raise UserError("choices: expected the column that lists them, or several columns with one each")

    def _choices(self, row: Row) -> list[str]:
        if len(self.choices) > 1:
            return [row.text(column) for column in self.choices]
        choices = row.texts(self.choices[0], "at least two texts")
        if len(choices) < 2:
            found = reprlib.repr(choices)
            raise UserError(f"column '{self.choices[0]}': expected a list of at least two texts, found {found}")
        return choices

    @property
    def reads_pairs(self) -> bool:
        return True

    def target(self, row: Row) -> int:
        soft = self._distribution(row)
        if soft is not None:
            return int(soft.argmax())
        # A number (not a string) cannot be the words of a choice, even if those are digits.
        return self._number_of(label_in(row, self.label), self._choices(row), isinstance(row[self.label], str))

    def _distribution(self, row: Row) -> np.ndarray | None:
        """Return the probability of each choice (C,); None if the row has one right choice."""
        choices, text = self._choices(row), row.cell(self.label)
        cell = None if isinstance(text, str) and text.strip() in choices else as_value(text)
        if not isinstance(cell, Mapping | list):
            return None
        found = np.zeros(len(choices))
        if isinstance(cell, Mapping):
            for key, value in cell.items():
                given = spelled(key).strip()
                found[self._number_of(given, choices, True)] = probability(value, f"choice '{given:.60}'")
        elif len(cell) != len(choices):
            raise UserError(
                f"column '{self.label}': expected a probability for each of {len(choices)} choices, found {len(cell)}"
            )
        else:
            found[:] = [probability(value, f"choice {n}") for n, value in enumerate(cell, self.first)]
        return distribution(found)

    def _number_of(self, given: str, choices: Sequence[str], is_text: bool) -> int:
        """Return the number, from 0, of the choice that a label names."""
        if given in choices and is_text:
            return choices.index(given)
        if is_number(given):
            number = int(given) - self.first
        else:
            number = ascii_uppercase.find(given.upper()) if len(given) == 1 else -1
        if not 0 <= number < len(choices):
            raise UserError(f"label '{given}' is none of the {len(choices)} choices (numbers begin at {self.first})")
        return number

    def remarks_on(self, rows: Sequence[Row]) -> list[str]:
        hard = [row for row in rows if self._distribution(row) is None]
        numbered = [row for row in hard if is_number(row.text(self.label).strip())]
        if len(numbered) < _ENOUGH_ROWS or any(self.target(row) == 0 for row in numbered):
            return []
        return [
            f"of {plural(len(numbered), 'row')} none has the first choice, number {self.first}; if the numbers begin "
            f"elsewhere, set task.first: {self.first + 1}"
        ]

    def prediction(self, answer: Answer) -> int:
        return answer["choice"] - self.first

    def example(self, row: Row, tokenizer: Tokenizer) -> Example:
        return self._example(row, tokenizer, None)

    def adapted_to(self, rows: Sequence[Row]) -> Choose:
        return self.softened_by(rows).weighed_by(rows)

    def has_soft_label(self, row: Row) -> bool:
        return self._distribution(row) is not None

    def training_example(self, row: Row, tokenizer: Tokenizer) -> Example:
        target = self.target(row)
        return self._example(row, tokenizer, target if not self.soft_labels else self._learned(row, target))

    def _learned(self, row: Row, target: int) -> np.ndarray:
        """Return the probability of each choice of a row (1, C)."""
        soft = self._distribution(row)
        return (np.eye(len(self._choices(row)))[target] if soft is None else soft)[None]

    def unlabeled_example(self, row: Row, tokenizer: Tokenizer) -> Example:
        return self._example(row, tokenizer, np.eye(len(self._choices(row)))[:1] if self.soft_labels else 0)

    def _example(self, row: Row, tokenizer: Tokenizer, target: int | np.ndarray | None) -> Example:
        text, choices = row.text(self.text), self._choices(row)
        if self.blank and self.blank not in text:
            raise UserError(f"column '{self.text}': there is no '{self.blank}' in the text")
        question = row.text(self.question) + " " if self.question else ""
        parts = []
        for index, choice in enumerate(choices):
            # The row's only target is at its first sample; IGNORE, or NaN, marks the others of its group.
            none = np.full((1, 1), np.nan) if isinstance(target, np.ndarray) else IGNORE
            labels: dict[str, Any] = {} if target is None else {"choice": none if index else target}
            first = text.replace(self.blank, choice) if self.blank else text
            parts.append(self.samples_of(tokenizer, (first, question + choice), labels))
        samples = tuple(sample for part in parts for sample in part.samples)
        return Example(samples, choices, sum(part.cut for part in parts), any(part.empty for part in parts))

    @property
    def text_names(self) -> tuple[str, ...]:
        return self.text, f"{self.question} and choice" if self.question else "choice"

    @property
    def texts(self) -> tuple[str, ...]:
        return self.text, *filter(None, [self.question]), *self.choices

    @property
    def reading(self) -> str:
        return (
            "A row is a text with one of its choices; the right one of these rows has the largest logit, and softmax "
            "over them gives probabilities." + self.tempered
        )

    def decisions(self, row: Row, example: Example, logits: list[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
        return np.concatenate(logits)[None], np.array([self.target(row)])

    def loss_notes(self, rows: Sequence[Row]) -> Iterator[str]:
        if self.soft_labels:
            found = [self._distribution(row) for row in rows]
            divided = sum(soft is not None and float(soft.max()) < 1 for soft in found)
            yield f"soft labels: {divided:,} of {plural(len(rows), 'row')} are divided among several choices"
        yield from super().loss_notes(rows)

    def head(self, model: ErnieModel) -> nn.Layer:
        from ernie.model.heads import SequenceHead

        return SequenceHead(model, 1)

    def reads(self, layout: Layout) -> np.ndarray | None:
        return layout.starts

    def logits(self, head: nn.Layer, hidden_TD: Tensor, layout: Layout) -> Tensor:
        return head(hidden_TD, layout)

    def loss(self, logits: Tensor, batch: Packed) -> Loss:
        from ernie.model.losses import grouped_logits

        labels = batch.labels["choice"]
        firsts = np.arange(len(labels.values)) if labels.positions is None else labels.positions
        scores, among = grouped_logits(logits, firsts)
        weights = None if batch.weights is None else batch.weights[firsts]
        return self.class_loss(scores, labels.values, weights, among)

    def mean_logits(self, members: Sequence[Sequence[np.ndarray]]) -> list[np.ndarray]:
        means = log_mean_softmax([np.concatenate(scores) for scores in members])
        return np.split(means, len(means))

    def answer(self, example: Example, logits: list[np.ndarray]) -> Answer:
        probabilities = softmax(np.concatenate(logits))
        best = int(probabilities.argmax())
        return {"choice": best + self.first, "text": example.notes[best], "probability": rounded(probabilities[best])}
