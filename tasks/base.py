"""The interface of pretraining tasks: how a task makes samples from documents, and the loss on these samples.

A task is a frozen dataclass whose fields are its YAML keys.  Most tasks subclass SequenceTask (one label per sequence)
or TokenTask (one label per token) and implement only `samples`.  Making samples needs no Paddle, so data workers do not
import it.

Legend: T tokens of a packed batch, N sequences, D hidden size, C classes, P targets.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from ernie.data.batch import Packed
from ernie.data.document import IGNORE, Sample, Tokens
from ernie.errors import UserError
from ernie.registry import Registry
from ernie.text.frame import frame, truncated_lengths
from ernie.text.tokenizer import Tokenizer

if TYPE_CHECKING:
    from paddle import Tensor, nn

    from ernie.model.ernie import ErnieModel
    from ernie.model.losses import Loss

DEFAULT_MAX_LEN = 128


@dataclass(frozen=True, kw_only=True)
class PretrainTask(ABC):
    """The base class of all pretraining tasks.

    `max_len` is the maximum sample length in tokens, special tokens included; by default the run's `data.max_len`.
    `head_of` names another task of the run whose head and task id this one trains too: two entries of one task
    with different fields make a curriculum.
    """

    max_len: int = 0
    head_of: str = ""

    window: ClassVar[int] = 1  # items passed to `samples` at a time; the samples are about the first one
    metrics: ClassVar[tuple[str, ...]] = ("accuracy",)  # names of ernie.metrics; the first is the headline
    head_fields: ClassVar[tuple[str, ...]] = ()  # by which the head is made: alike in tasks that share it

    def __post_init__(self) -> None:  # noqa: B027 - for tasks to override and to call
        """Check the fields; raises UserError for one that is wrong."""

    @property
    def variant_name(self) -> str | None:
        """The name under which the task's class is registered."""
        return pretrain_tasks.name_of(type(self))

    @classmethod
    def variant(cls, key: str, given: dict[str, Any]) -> tuple[type[PretrainTask], set[str]]:
        """Return the task class of the YAML entry `key` (its `task:`, or the key itself), and the keys this used up."""
        return pretrain_tasks[given.get("task", key)], {"task"}

    @property
    def length(self) -> int:
        """The maximum sample length in tokens."""
        return self.max_len or DEFAULT_MAX_LEN

    @property
    def files(self) -> tuple[Path, ...]:
        """The task's own data files: the fields that are paths."""
        return tuple(value for field in fields(self) if isinstance(value := getattr(self, field.name), Path))

    @property
    def prepares(self) -> bool:
        """Whether the encoder's input depends on weights (see `prepare`)."""
        return type(self).prepare is not PretrainTask.prepare

    @property
    def measured(self) -> PretrainTask:
        """The task as measured on held-out documents: the same, without what only helps training."""
        return self

    def items(self, documents: Sequence[Any], *, held_out: bool) -> Sequence[Any]:
        """Return what samples are made from: the documents of a split, unless the task brings its own file."""
        return documents

    def fitted(self, items: Sequence[Any], tokenizer: Tokenizer) -> PretrainTask:
        """Return the task as it makes samples to train on, given all items: itself, unless it has to know them."""
        return self

    def at(self, batch: Packed, progress: float) -> Packed:
        """Return a training batch as it is used at a step, after a part of the run's steps from 0 to 1."""
        return batch

    def check(self, tokenizer: Tokenizer) -> None:  # noqa: B027 - most tasks can work with any tokenizer
        """Raise UserError if the task cannot be trained with this tokenizer."""

    @abstractmethod
    def samples(self, items: Sequence[Any], tokenizer: Tokenizer, rng: np.random.Generator) -> Iterator[Sample]:
        """Yield samples about items[0]; the other items of the window supply negatives.

        All randomness must come from `rng`.
        """

    def check_sample(self, sample: Sample) -> None:
        """Raise UserError for a sample that cannot be trained on."""
        if len(sample) > self.length:
            raise UserError(f"a sample has {len(sample)} tokens, and none may have more than `length`, {self.length}")

    @abstractmethod
    def head(self, model: ErnieModel) -> nn.Layer:
        """Make the layer that turns the encoder's output into logits."""

    def initialize(self, head: nn.Layer, items: Sequence[Any]) -> None:  # noqa: B027 - most heads need nothing
        """Initialize a fresh head from what is known about its labels before training."""

    def prepare(self, head: nn.Layer, batch: Packed, embed: Callable[[Packed], Tensor]) -> tuple[Packed, Tensor | None]:
        """Return the batch as the encoder sees it, with as many targets, and a loss of its own to be added, or None.

        For a task whose samples depend on weights: `embed` returns the encoder's embeddings (T, D) of a batch.  Chance
        may depend on the batch alone.  Such a task needs all of the model in one process, see
        ernie.parallel.layout.Sizes.
        """
        return batch, None

    def reads(self, batch: Packed) -> np.ndarray | None:
        """Return the tokens whose vectors `loss` uses, in ascending order, or None for all of them.

        The encoder's last layer computes only these, which saves most of its cost; all other vectors are zero.
        """
        return None

    @abstractmethod
    def loss(self, head: nn.Layer, hidden_TD: Tensor, batch: Packed) -> Loss:
        """Return the sum of the loss over the batch's targets, with their number and the logits."""


@dataclass(frozen=True, kw_only=True)
class ClassifierTask(PretrainTask):
    """A task with one label, named "label", and a fixed number of classes."""

    classes: ClassVar[int] = 0

    def class_count(self) -> int:
        """Return the number of classes: `classes`, unless it depends on the fields."""
        return self.classes

    def class_names(self) -> Sequence[str]:
        """Return the names of the classes in order; by default these are their numbers."""
        return [str(number) for number in range(self.class_count())]

    def check_sample(self, sample: Sample) -> None:
        super().check_sample(sample)
        if "label" not in sample.labels:
            names = ", ".join(sample.labels) or "none"
            raise UserError(
                f"a sample has no label called 'label' (it has: {names}); give it by single(..., label=...)"
            )
        labels = np.asarray(sample.labels["label"])
        if labels.dtype.kind not in "iu":
            raise UserError(f"labels are of the type {labels.dtype}; expected integers, from 0")
        values = labels[labels != IGNORE]
        if values.size and not 0 <= values.min() <= values.max() < self.class_count():
            invalid = values.min() if values.min() < 0 else values.max()
            hint = f"; a token that is not scored has the label IGNORE, {IGNORE}, of ernie.data.document"
            raise UserError(
                f"a label is {invalid}, and the task has {self.class_count()} classes; labels count from 0, and "
                f"`classes` of the task says how many there are{hint if invalid < 0 else ''}"
            )


@dataclass(frozen=True, kw_only=True)
class SequenceTask(ClassifierTask):
    """A task with one label per sequence: a classifier on [CLS]."""

    def check_sample(self, sample: Sample) -> None:
        super().check_sample(sample)
        if (shape := np.shape(sample.labels["label"])) != ():
            raise UserError(f"a label has the shape {shape}; a SequenceTask has one label a sequence, a number")
        if sample.labels["label"] == IGNORE:
            raise UserError("a label is IGNORE; for a sequence without a label a SequenceTask must yield no sample")

    def head(self, model: ErnieModel) -> nn.Layer:
        from ernie.model.heads import SequenceHead

        return SequenceHead(model, self.class_count())

    def reads(self, batch: Packed) -> np.ndarray | None:
        return batch.layout.starts

    def loss(self, head: nn.Layer, hidden_TD: Tensor, batch: Packed) -> Loss:
        from ernie.model.losses import cross_entropy

        return cross_entropy(head(hidden_TD, batch.layout), batch.labels["label"].values)


@dataclass(frozen=True, kw_only=True)
class TokenTask(ClassifierTask):
    """A task with one label per token: a classifier on the labeled tokens."""

    def check_sample(self, sample: Sample) -> None:
        super().check_sample(sample)
        if (shape := np.shape(sample.labels["label"])) != sample.ids.shape:
            raise UserError(
                f"the labels have the shape {shape}, and the sample {len(sample)} tokens; a TokenTask has one label "
                "per token, IGNORE (of ernie.data.document) for tokens that are not scored"
            )

    def head(self, model: ErnieModel) -> nn.Layer:
        from ernie.model.heads import TokenHead

        return TokenHead(model.config, self.class_count())

    def reads(self, batch: Packed) -> np.ndarray | None:
        return batch.labels["label"].positions

    def loss(self, head: nn.Layer, hidden_TD: Tensor, batch: Packed) -> Loss:
        from ernie.model.losses import cross_entropy

        labels = batch.labels["label"]
        return cross_entropy(head(hidden_TD, labels.positions), labels.values)


pretrain_tasks: Registry[type[PretrainTask]] = Registry("pretraining task", "ernie.pretrain_tasks", PretrainTask)

pretrain_task = pretrain_tasks.register  # class decorator: registers a task under its name in YAML


def single(tokenizer: Tokenizer, tokens: Tokens | np.ndarray, **labels: int | Sequence[int] | np.ndarray) -> Sample:
    """Return [CLS] tokens [SEP] as one sample.

    Per-token labels (n,) get IGNORE at the special tokens.  An array (1, C) for the whole sample, or one (n + 2, C) for
    the special tokens, too, is kept as it is.
    """
    return Sample(*frame(tokenizer, _ids(tokens)), {key: _pad_labels(label) for key, label in labels.items()})


def pair(
    tokenizer: Tokenizer, first: Tokens | np.ndarray, second: Tokens | np.ndarray, max_len: int, **labels: int
) -> Sample:
    """Return [CLS] first [SEP] second [SEP] as one sample, cutting the longer side's end to fit `max_len` tokens."""
    first_ids, second_ids = _ids(first), _ids(second)
    first_length, second_length = truncated_lengths(len(first_ids), len(second_ids), max_len)
    return Sample(*frame(tokenizer, first_ids[:first_length], second_ids[:second_length]), dict(labels))


def _ids(tokens: Tokens | np.ndarray) -> np.ndarray:
    return tokens.ids if isinstance(tokens, Tokens) else tokens


def _pad_labels(label: int | Sequence[int] | np.ndarray) -> int | np.ndarray:
    if isinstance(label, Sequence):
        label = np.asarray(label)
    if not isinstance(label, np.ndarray) or label.ndim != 1:
        return label
    # In booleans and unsigned integers, IGNORE would turn into a class.
    signed = label.astype(np.int64) if label.dtype.kind in "biu" else label
    return np.pad(signed, 1, constant_values=IGNORE)
