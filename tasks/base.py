"""What a pretraining task is: how it makes samples from documents, and what is learnt from them.

A task is a frozen dataclass whose fields are its YAML keys.  Most subclass SequenceTask (one label a sequence) or
TokenTask (one label a token) and write nothing but `samples`.  Making samples needs no Paddle: data workers import
only this.

Legend: T tokens of a packed batch, N sequences, D width, C classes, P targets.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from ernie.data.batch import Packed
from ernie.data.document import IGNORE, Sample, Tokens
from ernie.errors import UserError
from ernie.registry import Registry
from ernie.text.frame import frame, kept
from ernie.text.tokenizer import Tokenizer

if TYPE_CHECKING:
    from paddle import Tensor, nn

    from ernie.model.ernie import ErnieModel
    from ernie.model.losses import Loss

DEFAULT_MAX_LEN = 128


@dataclass(frozen=True, kw_only=True)
class PretrainTask(ABC):
    """The base of all pretraining tasks.

    `max_len` is the longest sample in tokens, special tokens included; left out, it is the run's `data.max_len`.
    `head_of` names another objective of the run whose head and task id this one trains too: two entries of one task
    that differ in their fields make a curriculum.
    """

    max_len: int = 0
    head_of: str = ""

    window: ClassVar[int] = 1  # how many items `samples` gets at a time; the first is the one the samples are about
    metrics: ClassVar[tuple[str, ...]] = ("accuracy",)  # names of ernie.metrics; the first is the headline

    @property
    def variant_name(self) -> str | None:
        """The name under which its class is registered."""
        return pretrain_tasks.name_of(type(self))

    @classmethod
    def variant(cls, key: str, given: dict[str, Any]) -> tuple[type[PretrainTask], set[str]]:
        """The registered task that the YAML entry `key` means: its `task:`, or the key itself."""
        return pretrain_tasks[given.get("task", key)], {"task"}

    @property
    def length(self) -> int:
        """The longest sample in tokens."""
        return self.max_len or DEFAULT_MAX_LEN

    @property
    def files(self) -> tuple[Path, ...]:
        """The files of its own that it learns from."""
        return tuple(value for field in fields(self) if isinstance(value := getattr(self, field.name), Path))

    @property
    def measured(self) -> PretrainTask:
        """The task as it is on held-out documents, where it is measured: the same, but for what helps learning only."""
        return self

    def items(self, documents: Sequence[Any], *, held_out: bool) -> Sequence[Any]:
        """What the samples are made from: the documents of a split, unless a task brings its own file."""
        return documents

    def check(self, tokenizer: Tokenizer) -> None:  # noqa: B027 - most tasks can work with any tokenizer
        """Raise UserError when the task cannot be learnt with this tokenizer."""

    @abstractmethod
    def samples(self, items: Sequence[Any], tokenizer: Tokenizer, rng: np.random.Generator) -> Iterator[Sample]:
        """Samples about items[0]; the rest of the window supplies strangers.  All randomness comes from `rng`."""

    def check_sample(self, sample: Sample) -> None:
        """Raise UserError for a sample that cannot be learnt from."""
        if len(sample) > self.length:
            raise UserError(f"a sample has {len(sample)} tokens, and none may have more than `length`, {self.length}")

    @abstractmethod
    def head(self, model: ErnieModel) -> nn.Layer:
        """What turns the encoder's output into logits."""

    def begin(self, head: nn.Layer, items: Sequence[Any]) -> None:  # noqa: B027 - most heads need nothing
        """Give a fresh head what can be known of its labels before training."""

    def reads(self, batch: Packed) -> np.ndarray | None:
        """The tokens, ascending, whose vectors `loss` looks at; None for all of them.

        The encoder's last layer computes no others, which saves most of it; their vectors are zero.
        """
        return None

    @abstractmethod
    def loss(self, head: nn.Layer, hidden_TD: Tensor, batch: Packed) -> Loss:
        """The sum of the loss over the batch's targets, with their number and the logits."""


@dataclass(frozen=True, kw_only=True)
class ClassifierTask(PretrainTask):
    """A task with one label called "label", of a fixed number of classes."""

    classes: ClassVar[int] = 0

    def class_count(self) -> int:
        """How many classes there are: `classes`, unless it depends on the fields."""
        return self.classes

    def class_names(self) -> Sequence[str]:
        """What the classes are, in the order of their numbers: by these, unless a task names them."""
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
            odd = values.min() if values.min() < 0 else values.max()
            ignored = f"; that of a token that is not scored is IGNORE, {IGNORE}, of ernie.data.document"
            raise UserError(
                f"a label is {odd}, and the task has {self.class_count()} classes; labels count from 0, and `classes` "
                f"of the task says how many there are{ignored if odd < 0 else ''}"
            )


@dataclass(frozen=True, kw_only=True)
class SequenceTask(ClassifierTask):
    """A task with one label a sequence: a classifier on [CLS]."""

    def check_sample(self, sample: Sample) -> None:
        super().check_sample(sample)
        if (shape := np.shape(sample.labels["label"])) != ():
            raise UserError(f"a label has the shape {shape}; a SequenceTask has one label a sequence, a number")
        if sample.labels["label"] == IGNORE:
            raise UserError("a label is IGNORE; of a sequence without a label a SequenceTask gives no sample")

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
    """A task with one label a token: a classifier on the labelled tokens."""

    def check_sample(self, sample: Sample) -> None:
        super().check_sample(sample)
        if (shape := np.shape(sample.labels["label"])) != sample.ids.shape:
            raise UserError(
                f"the labels have the shape {shape}, and the sample {len(sample)} tokens; a TokenTask has a label a "
                "token, IGNORE (of ernie.data.document) for those that count for nothing"
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

pretrain_task = pretrain_tasks.register  # class decorator: enters one under the name that YAML uses


def single(tokenizer: Tokenizer, tokens: Tokens | np.ndarray, **labels: int | Sequence[int] | np.ndarray) -> Sample:
    """[CLS] tokens [SEP] as one sample.

    Labels (n,) of the tokens get IGNORE at the special tokens; an array (1, C) of the whole sample stays as it is.
    """
    return Sample(*frame(tokenizer, _ids(tokens)), {key: _framed(label) for key, label in labels.items()})


def pair(
    tokenizer: Tokenizer, first: Tokens | np.ndarray, second: Tokens | np.ndarray, max_len: int, **labels: int
) -> Sample:
    """[CLS] first [SEP] second [SEP] as one sample of at most `max_len` tokens; the longer side is cut at its end."""
    one, two = _ids(first), _ids(second)
    keep_one, keep_two = kept(len(one), len(two), max_len)
    return Sample(*frame(tokenizer, one[:keep_one], two[:keep_two]), dict(labels))


def _ids(tokens: Tokens | np.ndarray) -> np.ndarray:
    return tokens.ids if isinstance(tokens, Tokens) else tokens


def _framed(label: int | Sequence[int] | np.ndarray) -> int | np.ndarray:
    if isinstance(label, Sequence):
        label = np.asarray(label)
    if not isinstance(label, np.ndarray) or label.ndim != 1:
        return label
    # Of booleans, and of integers without a sign, IGNORE would become a class.
    signed = label.astype(np.int64) if label.dtype.kind in "biu" else label
    return np.pad(signed, 1, constant_values=IGNORE)
