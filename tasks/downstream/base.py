"""What a kind of fine-tuning task is: how a row of data becomes samples, and the model's output an answer.

A kind is a frozen dataclass whose fields are the keys under `task:` in a YAML file.  Reading rows and scoring answers
needs no Paddle.

Legend: T tokens of a packed batch, N sequences, D width, C classes.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from ernie.data.batch import Layout, Packed, pack
from ernie.data.document import Sample
from ernie.data.labelled.row import Row
from ernie.errors import UserError, nearest
from ernie.registry import Registry
from ernie.text.blank import is_blank
from ernie.text.tokenizer import Tokenizer
from tasks.base import pair, single

if TYPE_CHECKING:
    from pathlib import Path

    from paddle import Tensor, nn

    from ernie.kernels.mask import Mask
    from ernie.model.ernie import ErnieModel
    from ernie.model.losses import Loss
    from ernie.parallel.layout import ParallelConfig

Answer = dict[str, Any]  # what is written for a row: plain data, its first key the answer itself
Measure = Callable[[Sequence[Any], Sequence[Any]], float]  # what is right, what was answered -> the score


@dataclass(frozen=True)
class Example:
    """What the model sees of one row: its samples, and what `answer` needs to read their outputs.

    `cut` counts the tokens that were left out to keep to the limit; `empty` says that a text gave no tokens.
    `odd` names what else a user may want to know of, in words that follow "rows with".
    """

    samples: tuple[Sample, ...]
    notes: Any = None
    cut: int = 0
    empty: bool = False
    odd: tuple[str, ...] = ()

    @property
    def tokens(self) -> int:
        """The tokens of all its samples."""
        return sum(sample.size for sample in self.samples)


@dataclass(frozen=True, kw_only=True)
class FinetuneTask(ABC):
    """The base of all kinds of fine-tuning task.

    `max_len` is the longest sample in tokens, special tokens included.  `metrics` are names of the kind's measures;
    the first decides which checkpoint is the best.  Left out, they are the kind's usual ones.
    """

    max_len: int = 128
    metrics: tuple[str, ...] = ()

    measures: ClassVar[Mapping[str, Measure]] = {}  # those of the kind, the usual ones first
    usual: ClassVar[int] = 1  # how many of them are used unless `metrics` says
    answer_field: ClassVar[str] = "label"  # the field that names the column with what is right
    files: ClassVar[tuple[str, ...]] = ()  # the fields that name files which answering needs: a model takes them along
    variant_key: ClassVar[str] = "kind"

    def named_by(self, row: Row) -> bytes:
        """What tells whether the files that a row names are still the same; nothing, where it names none."""
        return b""

    @property
    def variant_name(self) -> str | None:
        """The name under which its class is registered."""
        return finetune_tasks.name_of(type(self))

    @classmethod
    def variant(cls, key: str, given: dict[str, Any]) -> tuple[type[FinetuneTask], set[str]]:
        """The kind that `task: {kind: ...}` names."""
        if "kind" not in given:
            raise UserError(f"kind: this key is required.{nearest('', finetune_tasks)}")
        return finetune_tasks[given["kind"]], {"kind"}

    def __post_init__(self) -> None:
        if self.max_len < 8:
            raise UserError(f"max_len: expected at least 8 tokens, found {self.max_len}")
        for name in self.metrics:
            if name not in self.measures:
                raise UserError(f"metrics: {self.variant_name} has no metric '{name}'.{nearest(name, self.measures)}")

    @property
    def scored_by(self) -> tuple[str, ...]:
        """The names of the measures that are used, the deciding one first."""
        return self.metrics or tuple(self.measures)[: self.usual]

    @property
    def clipped_apart(self) -> tuple[str, ...]:
        """The parts of the head that learn from a loss of their own, from which nothing else learns: of another size
        than the others, their gradients are clipped by themselves."""
        return ()

    @property
    def leaves_encoder(self) -> bool:
        """Whether the encoder stays as it is, and forgets nothing while something else learns from what it tells."""
        return False

    def check_layout(self, layout: ParallelConfig) -> None:  # noqa: B027 - most kinds can be spread in every way
        """Raise UserError for a way of spreading a run over processes that this kind has not."""

    def check_fits(self, positions: int, encoder: str) -> None:
        """Raise UserError when an encoder of so many positions is too small for the longest sample."""
        if self.max_len > positions:
            raise UserError(f"task.max_len: {self.max_len} tokens, but {encoder} has {positions} positions")

    def check_tokenizer(self, tokenizer: Tokenizer) -> None:  # noqa: B027 - most kinds can work with any tokenizer
        """Raise UserError when the task cannot be learnt with this tokenizer."""

    def check_encoder(self, ernie: ErnieModel, task_id: int, encoder: str) -> None:  # noqa: B027 - most kinds take any
        """Raise UserError when the task cannot be learnt with this encoder, or with this task embedding of it."""

    @property
    def learns_from(self) -> Mapping[str, Path]:
        """By their fields, the files beside the rows by which a run is told from another under the same names."""
        return {field: file for field in self.files if (file := getattr(self, field)) is not None}

    def is_labelled(self, rows: Sequence[Row]) -> bool:
        """Whether rows say what is right: any of them has something in the column for it."""
        column = getattr(self, self.answer_field)
        return not all(_is_empty(row.get(column)) for row in rows)

    def learnt_from(self, rows: Sequence[Row]) -> FinetuneTask:
        """The task with what it takes from the rows to learn from, such as the labels when they are not given."""
        return self

    @abstractmethod
    def example(self, row: Row, tokenizer: Tokenizer) -> Example:
        """The samples of one row, without what is right.  Raises UserError for a row that cannot be read."""

    @abstractmethod
    def labelled(self, row: Row, tokenizer: Tokenizer) -> Example:
        """The samples of one row to learn from.  Raises UserError when what is right is missing or unknown."""

    def judged(self, row: Row, tokenizer: Tokenizer) -> Example:
        """The samples of one row to be judged by: as `example`, where what is right for it fits them.

        Raises UserError where it does not.
        """
        return self.example(row, tokenizer)

    def check_examples(self, examples: Sequence[Example], tokenizer: Tokenizer) -> None:  # noqa: B027 - for most kinds
        """Raise UserError where the rows of a split, all taken together, can hardly be meant."""

    @abstractmethod
    def truth(self, row: Row) -> Any:
        """What is right for a row, as the measures take it.  Raises UserError when it is missing or unknown."""

    @abstractmethod
    def answered(self, answer: Answer) -> Any:
        """What an answer says, as the measures take it."""

    @abstractmethod
    def head(self, model: ErnieModel) -> nn.Layer:
        """What turns the encoder's output into what is wanted."""

    def begin(self, ernie: ErnieModel, head: Any) -> None:  # noqa: B027 - most heads begin as they are drawn
        """Give a fresh head, and the encoder, what they begin with; afterwards no parameter that is frozen learns."""

    def computed(self, example: Example) -> int:
        """The tokens that are computed to learn from an example, by which the batches are cut that memory holds."""
        return example.tokens

    def drawn(self, batch: Packed, training: bool) -> Packed:
        """A batch as the model gets it: what is made of its samples anew each time is made here."""
        return batch

    def sees(self, batch: Packed) -> tuple[Packed, Mask | None]:
        """What the encoder sees of a batch, and how much of its sequence each token does: all of it."""
        return batch, None

    @abstractmethod
    def encode(self, ernie: ErnieModel, head: Any, batch: Packed, task_id: int) -> Tensor:
        """The encoder's vectors of a batch that was `drawn`, as `judge` takes them."""

    @abstractmethod
    def judge(self, head: nn.Layer, hidden_TD: Tensor, batch: Packed) -> Loss:
        """The sum of the loss over the targets of a batch that was `drawn`."""

    @abstractmethod
    def answer_all(self, ernie: ErnieModel, head: nn.Layer, examples: Sequence[Example], task_id: int) -> list[Answer]:
        """The answers to the rows of one batch, which have no labels any more."""

    def scores(self, rows: Sequence[Row], answers: Sequence[Answer]) -> dict[str, float]:
        """The measures of the answers to these rows, the deciding one first."""
        right = [self.truth(row) for row in rows]
        given = [self.answered(answer) for answer in answers]
        return {name: float(self.measures[name](right, given)) for name in self.scored_by}


@dataclass(frozen=True, kw_only=True)
class LogitsTask(FinetuneTask):
    """A kind whose head gives logits: some for each sequence, or for each token."""

    per_token: ClassVar[bool] = False  # whether the head's output is (T, C), one row a token, or (N, C)

    @property
    def texts(self) -> tuple[str, ...]:
        """What the text of a sample is, or the two texts of a pair: columns, or words that say it."""
        return ("text",)

    def reads(self, layout: Layout) -> np.ndarray | None:
        """The tokens, ascending, whose vectors `logits` looks at; None for all of them.

        The encoder's last layer computes no others; their vectors are zero.
        """
        return None

    @abstractmethod
    def logits(self, head: nn.Layer, hidden_TD: Tensor, layout: Layout) -> Tensor:
        """The head's output: (N, C), or (T, C) where the kind is `per_token`."""

    @abstractmethod
    def loss(self, logits: Tensor, batch: Packed) -> Loss:
        """The sum of the loss over the batch's targets."""

    @abstractmethod
    def answer(self, example: Example, logits: list[np.ndarray]) -> Answer:
        """The answer to a row; `logits` holds, for each of its samples, (C,), or (n, C) where `per_token`."""

    def encode(self, ernie: ErnieModel, head: Any, batch: Packed, task_id: int) -> Tensor:
        return ernie.encode_packed(batch, task_id, self.reads(batch.layout))

    def judge(self, head: nn.Layer, hidden_TD: Tensor, batch: Packed) -> Loss:
        return self.loss(self.float_logits(head, hidden_TD, batch.layout), batch)

    def float_logits(self, head: nn.Layer, hidden_TD: Tensor, layout: Layout) -> Tensor:
        """The logits in float32, also from a GPU's half precision."""
        return self.logits(head, hidden_TD, layout).astype("float32")

    def answer_all(self, ernie: ErnieModel, head: nn.Layer, examples: Sequence[Example], task_id: int) -> list[Answer]:
        from ernie.model.inference import finite

        packed = pack([sample for example in examples for sample in example.samples])
        found = finite(self.float_logits(head, self.encode(ernie, head, packed, task_id), packed.layout).numpy())
        parts = iter(np.split(found, packed.layout.offsets[1:-1]) if self.per_token else found)
        return [self.answer(example, [next(parts) for _ in example.samples]) for example in examples]


@dataclass(frozen=True, kw_only=True)
class TextTask(LogitsTask):
    """A task on a text or on a pair of texts, with one output a sequence.

    `text` and, for pairs, `text_pair` name the columns that are read, `label` the column with what is right.
    """

    text: str = "text"
    text_pair: str = ""
    label: str = "label"

    @abstractmethod
    def target(self, row: Row) -> int | float | np.ndarray:
        """What a row's sample is to learn, see Sample."""

    @abstractmethod
    def outputs(self) -> int:
        """How many outputs the head has."""

    @property
    def texts(self) -> tuple[str, ...]:
        return (self.text, self.text_pair) if self.text_pair else (self.text,)

    def example(self, row: Row, tokenizer: Tokenizer) -> Example:
        return self._example(row, tokenizer, {})

    def labelled(self, row: Row, tokenizer: Tokenizer) -> Example:
        return self._example(row, tokenizer, {"label": self.target(row)})

    def _example(self, row: Row, tokenizer: Tokenizer, labels: dict[str, Any]) -> Example:
        second = tokenizer.encode(row.text(self.text_pair)).ids if self.text_pair else None
        return text_example(tokenizer, tokenizer.encode(row.text(self.text)).ids, second, self.max_len, labels)

    def head(self, model: ErnieModel) -> nn.Layer:
        from ernie.model.heads import SequenceHead

        return SequenceHead(model, self.outputs())

    def reads(self, layout: Layout) -> np.ndarray | None:
        return layout.starts

    def logits(self, head: nn.Layer, hidden_TD: Tensor, layout: Layout) -> Tensor:
        return head(hidden_TD, layout)


finetune_tasks: Registry[type[FinetuneTask]] = Registry(
    "kind of fine-tuning task", "ernie.finetune_tasks", FinetuneTask
)

finetune_task = finetune_tasks.register  # class decorator: enters one under the name that YAML uses


def text_example(
    tokenizer: Tokenizer, first: np.ndarray, second: np.ndarray | None, max_len: int, labels: dict[str, Any]
) -> Example:
    """One sample of a text or a pair of texts, cut to `max_len`."""
    if second is None:
        sample = single(tokenizer, first[: max_len - 2], **labels)
        return Example((sample,), cut=max(0, len(first) + 2 - max_len), empty=not len(first))
    sample = pair(tokenizer, first, second, max_len, **labels)
    cut = len(first) + len(second) + 3 - len(sample)
    return Example((sample,), cut=cut, empty=not (len(first) and len(second)))


def _is_empty(cell: Any) -> bool:
    """Whether nothing stands in a cell.  pandas has a number that is none in the place of an empty one."""
    return cell is None or (isinstance(cell, str) and is_blank(cell)) or (isinstance(cell, float) and math.isnan(cell))


def softmax(logits: np.ndarray) -> np.ndarray:
    """Probabilities along the last axis."""
    powers = np.exp(logits - logits.max(-1, keepdims=True))
    return powers / powers.sum(-1, keepdims=True)


def rounded(number: float) -> float:
    """A probability or score as it is written: six digits behind the point."""
    return round(float(number), 6)
