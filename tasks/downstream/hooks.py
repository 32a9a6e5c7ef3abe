"""What a kind of fine-tuning task may add to the methods of `FinetuneTask`, a class for each thing.

A kind inherits from those that it needs.  Whoever uses a task asks by `isinstance`, and does what most kinds need for
all others.

Legend: T tokens of a packed batch, D width.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from ernie.data.batch import Packed
from ernie.data.labeled.row import Row
from ernie.errors import UserError
from ernie.text.tokenizer import Tokenizer
from tasks.downstream.base import Answer, Example, FinetuneTask, LabelScores, Metric
from tasks.downstream.calling import named

if TYPE_CHECKING:
    from paddle import Tensor

    from ernie.kernels.mask import Mask
    from ernie.model.ernie import ErnieModel
    from ernie.model.losses import Loss
    from ernie.parallel.layout import ParallelConfig


# Rows


class DerivesFromRows(ABC):
    """A kind with fields that are derived from the training rows, such as the labels if none are given."""

    @abstractmethod
    def adapted_to(self, rows: Sequence[Row]) -> FinetuneTask:
        """Return the task with what it derives from the training rows."""


class DerivesFromExamples(ABC):
    """A kind with fields that are derived from the examples of the training rows."""

    @abstractmethod
    def having_read(self, examples: Sequence[Example], tokenizer: Tokenizer) -> FinetuneTask:
        """Return the task with what it derives from the examples of the training rows."""


class EvaluationExamples(ABC):
    """A kind that checks whether the target of an evaluation row fits its samples."""

    @abstractmethod
    def evaluation_example(self, row: Row, tokenizer: Tokenizer) -> Example:
        """Return the samples of one evaluation row, without targets.  Raises UserError if its target does not fit."""


class SplitRemarks:
    """A kind that knows what is unusual about the rows of a split, taken together."""

    def check_examples(self, examples: Sequence[Example], tokenizer: Tokenizer) -> None:
        """Raise UserError if the rows of a split, taken together, are probably a mistake."""

    def remarks_on(self, rows: Sequence[Row]) -> list[str]:
        """Return what is unusual about the targets of a split, in words that follow "dev: "."""
        return []

    def remarks_on_texts(self, rows: Sequence[Row], tokenizer: Tokenizer) -> list[str]:
        """Return what is unusual about the target texts of a split, as the vocabulary writes them."""
        return []


class GroupedRows(ABC):
    """A kind with rows that belong together, so that no cross-validation parts them."""

    grouped_by: ClassVar[str]  # what rows of a group have in common, in words

    @abstractmethod
    def group_of(self, row: Row) -> str:
        """Return what the rows of a group have in common.  Raises UserError for a row that lacks it."""


class FilesInRows(ABC):
    """A kind whose rows name files."""

    @abstractmethod
    def named_file(self, row: Row) -> Path | None:
        """Return the file that a row names, None if it names none.  Raises UserError for a faulty row."""

    @abstractmethod
    def file_fingerprint(self, row: Row) -> bytes:
        """Return a fingerprint of the files that a row names, which shows whether they have changed."""


# Conditions of the encoder


class EncoderConditions:
    """A kind that not every encoder, tokenizer or parallel layout suits."""

    def check_tokenizer(self, tokenizer: Tokenizer) -> None:
        """Raise UserError if the task cannot be learned with this tokenizer."""

    def check_encoder(self, ernie: ErnieModel, task_id: int, encoder: str) -> None:
        """Raise UserError if the task cannot be learned with this encoder, or with this task embedding."""

    def check_layout(self, layout: ParallelConfig) -> None:
        """Raise UserError for a parallel layout that this kind does not support."""


class OwnPositions(ABC):
    """A kind whose samples need other positions of the encoder than one for each of `max_len` tokens."""

    @abstractmethod
    def check_positions(self, positions: int, encoder: str) -> None:
        """Raise UserError if the encoder has too few `positions` for the longest sample."""


# Training


class ReadsSounds(ABC):
    """A kind whose batches have sounds, which take time to read and to change."""

    @abstractmethod
    def augmented(self, batch: Packed, training: bool) -> Packed:
        """Return the batch with the features of its sounds, which in training are changed at random.

        It depends on the batch alone, the names of its samples included: any process may call it.
        """


class OwnBatches:
    """A kind whose batches are not just the packed samples."""

    def encoder_input(self, batch: Packed) -> tuple[Packed, Mask | None]:
        """Return what the encoder sees of a batch, and its attention mask (None: full attention)."""
        return batch, None

    def computed_tokens(self, example: Example) -> int:
        """Return the number of tokens computed in training on an example, by which micro-batches are sized."""
        return example.tokens


class ComparesRows(ABC):
    """A kind whose loss may compare the rows of a micro-batch with each other, or a row with itself."""

    @property
    @abstractmethod
    def compares_rows(self) -> bool:
        """Whether the loss of a row depends on the other rows of its micro-batch.

        Micro-batches are then the same on any number of processes.
        """

    @property
    @abstractmethod
    def compares_passes(self) -> bool:
        """Whether a row is compared with itself under other dropout, so that training rows need no targets."""


class LossOfVectors(ABC):
    """A kind whose loss is that of one vector for each sample.

    The loss over more samples than are computed at once then has its exact gradient: see `GradCache`.
    """

    @abstractmethod
    def vectors(self, head: Any, hidden_TD: Tensor, batch: Packed) -> Tensor:
        """Return the vector of each sample, (N, D)."""

    @abstractmethod
    def vector_loss(self, vectors_ND: Tensor, batch: Packed) -> Loss:
        """Return the loss of the vectors of a batch's samples."""


class PartialTraining:
    """A kind that trains not all of the model, or not all of it alike."""

    def initialize(self, ernie: ErnieModel, head: Any) -> None:
        """Initialize a new head, and the encoder, beyond random weights; parameters frozen here are not trained."""

    @property
    def separate_clip_groups(self) -> tuple[str, ...]:
        """The parts of the head with a loss of their own, from which nothing else learns.

        Their gradients have another scale than the rest, so they are clipped separately.
        """
        return ()

    @property
    def freezes_encoder(self) -> bool:
        """Whether the encoder is frozen, and runs without dropout while something else learns from its output."""
        return False


class TrainingFiles(ABC):
    """A kind whose training depends on more files than those that are saved with the model."""

    @property
    @abstractmethod
    def learns_from(self) -> Mapping[str, Path]:
        """The files besides the rows that training depends on, by field; a changed file means another run."""


# A trained head


class HeadConditions(ABC):
    """A kind that has conditions for going on with a trained head, beyond the values of `head_fields`."""

    @abstractmethod
    def keeping_head_of(self, before: FinetuneTask, whose: str) -> FinetuneTask:
        """Return the task with what a kept head was trained with; `before` is its task, `whose` names it in messages.

        Raises UserError if the configuration has something else.
        """


class SizedHead(ABC):
    """A kind whose head has sizes among its fields."""

    @abstractmethod
    def least_weights(self, width: int) -> int:
        """Return how many weights the head has at least on an encoder of this width."""


class CompletesSaved(ABC):
    """A kind with fields that are newer than some saved models, which were trained with other values."""

    @classmethod
    @abstractmethod
    def completed(cls, saved: Mapping[str, Any]) -> dict[str, Any]:
        """Return the fields of a saved task with those that it lacks, as the model was trained."""


class DecodingConditions(ABC):
    """A kind with conditions for other values of `decoding_fields`."""

    @abstractmethod
    def decoding_with(self, given: Mapping[str, Any], tokenizer: Tokenizer) -> FinetuneTask:
        """Return the task with other values of its `decoding_fields` and `column_fields`.

        Raises UserError for other fields, and for values that do not fit one another, the task or the tokenizer.
        """


# Answers and scores


class MetricSettings(ABC):
    """A kind with settings that change the values of its metrics."""

    @abstractmethod
    def metric(self, name: str) -> Metric:
        """Return the metric of this name, with the task's settings for it."""

    def signatures(self, rows: Sequence[Row]) -> dict[str, str]:
        """Return, for metrics with settings that change their values, the signature that tells them apart."""
        return {}


class ComparesAnswers:
    """A kind whose metrics compare the answers to different rows, which have to be those of one model.

    Out of fold its score is the mean over the folds, by their numbers of rows.
    """

    compared: ClassVar[tuple[str, ...]] = ()  # the parts of an answer that serve for that alone


class ScoresByLabel(ABC):
    """A kind whose answers can be scored for each label, tag or type of entity."""

    @abstractmethod
    def scores_by_label(self, rows: Sequence[Row], answers: Sequence[Answer]) -> dict[str, LabelScores]:
        """Score the answers to these rows for each label, tag or type of entity."""


class ExportNotes(ABC):
    """A kind with logits that says how to read them, in the README of an exported model."""

    @property
    @abstractmethod
    def reading(self) -> str:
        """How to read the logits, in a sentence."""

    @property
    def reading_code(self) -> str:
        """A line of Python that reads the `logits`; empty where the sentence says enough."""
        return ""

    @property
    def text_names(self) -> tuple[str, ...]:
        """What the text of a sample is, or the two texts of a pair; empty where they are the columns `texts`."""
        return ()


def check_hooks(task: FinetuneTask) -> None:
    """Raise UserError for a method of a hook that the kind does not inherit: nobody would call it."""
    settings = {field.name for field in fields(task)}
    for hook in globals().values():
        if isinstance(hook, type) and hook.__module__ == __name__ and not isinstance(task, hook):
            for name in vars(hook):
                if not name.startswith("_") and name not in settings and hasattr(type(task), name):
                    raise UserError(
                        f"{named(task, name)} is never called: the kind has to inherit from {hook.__name__}, too (of "
                        "tasks.downstream.hooks)"
                    )
