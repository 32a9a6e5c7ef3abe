"""The interface of fine-tuning tasks: how a row of data becomes samples, and model outputs become an answer.

A kind is a frozen dataclass whose fields are the keys under `task:` in a YAML file.  Reading rows and scoring answers
needs no Paddle.

Legend: T tokens of a packed batch, N sequences, D width, C classes.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, cast

import numpy as np

from ernie.data.batch import Layout, Packed, pack
from ernie.data.document import Sample
from ernie.data.labeled.row import Row, is_empty
from ernie.errors import NotFinite, UserError, about, nearest
from ernie.registry import Registry
from ernie.text.tokenizer import Tokenizer
from tasks.base import pair, single
from tasks.downstream.calling import calling, named

if TYPE_CHECKING:
    from paddle import Tensor, nn

    from ernie.model.ernie import ErnieModel
    from ernie.model.losses import Loss

MOST_COUNTED = 1 << 18  # characters of a text of which all tokens are counted, although only the first are used
# Settings of the loss that not all kinds have, and which kinds they are for: see tasks/downstream/loss_settings.py.
LOSS_SETTINGS = {
    "class_weights": "kinds with classes that are the same in all rows",
    "label_smoothing": "kinds that choose among classes",
    "focal_gamma": "kinds that choose among classes",
    "soft_labels": "kinds that classify or rank texts",
    "row_weight": "kinds that read texts and answer in labels, numbers or spans",
}

Answer = dict[str, Any]  # the output for a row: plain data, whose first key is the answer itself
LabelScores = dict[str, float]  # precision, recall, f1, and the number of targets
Metric = Callable[[Sequence[Any], Sequence[Any]], float]  # targets, predictions -> the score


@dataclass(frozen=True)
class Example:
    """The model input for one row: its samples, and what `answer` needs to interpret their outputs.

    `cut` counts the tokens dropped to keep within the limit, not all of them for a text of over MOST_COUNTED
    characters; `empty` says that a text gave no tokens.  `warnings` lists further remarks for the user, in words that
    follow "rows with".
    """

    samples: tuple[Sample, ...]
    notes: Any = None
    cut: int = 0
    empty: bool = False
    warnings: tuple[str, ...] = ()

    @property
    def tokens(self) -> int:
        """The number of tokens in all samples."""
        return sum(sample.size for sample in self.samples)


class Kind:
    """What the configuration asks of a class that `task: {kind: ...}` names."""

    variant_key: ClassVar[str] = "kind"

    @property
    def variant_name(self) -> str | None:
        """The name under which the class is registered."""
        return finetune_tasks.name_of(cast(Any, type(self)))

    @classmethod
    def variant(cls, key: str, given: dict[str, Any]) -> tuple[type[FinetuneTask], set[str]]:
        """Return the kind that `task: {kind: ...}` names, and the keys used."""
        if "kind" not in given:
            raise UserError(f"kind: this key is required.{nearest('', finetune_tasks)}")
        kind = finetune_tasks[given["kind"]]
        for key in given:
            if key in LOSS_SETTINGS and not hasattr(kind, key):
                those = ", ".join(name for name in finetune_tasks if hasattr(finetune_tasks[name], key))
                raise UserError(f"{key}: {given['kind']} has no such key: it is for {LOSS_SETTINGS[key]} ({those})")
        return kind, {"kind"}


@dataclass(frozen=True, kw_only=True)
class FinetuneTask(Kind, ABC):
    """The base class of all kinds of fine-tuning task: how rows are read, learned from and answered.

    `max_len` is the maximum length of a sample in tokens, special tokens included.  `metrics` are names of the kind's
    known metrics, by default the first `default_metrics` of them; the first selects the best checkpoint.

    What only some kinds need is in `tasks.downstream.hooks`, a class for each thing.
    """

    max_len: int = 128
    metrics: tuple[str, ...] = ()

    known_metrics: ClassVar[Mapping[str, Metric]] = {}  # of the kind, the default ones first
    default_metrics: ClassVar[int] = 1  # how many of them are used by default
    # Fields that name the columns of targets; the first one stands for them in messages.
    answer_fields: ClassVar[tuple[str, ...]] = ("label",)
    labels_belong_to: ClassVar[str] = "row"  # what has a label of its own, for kinds with `labels`
    truncating_field: ClassVar[str] = "max_len"  # the field that says where texts that are too long are cut
    files: ClassVar[tuple[str, ...]] = ()  # fields naming files needed for inference, which are saved with the model
    # Fields that mean something to the head's weights, such as labels: a run that keeps a head takes them from there.
    head_fields: ClassVar[tuple[str, ...]] = ()
    # Fields that say how answers are found, and can be changed after training, such as a threshold.
    decoding_fields: ClassVar[tuple[str, ...]] = ()
    # Fields that name columns, which may be called otherwise in other files.
    column_fields: ClassVar[tuple[str, ...]] = ()
    face: ClassVar[str] = "predict"  # what a loaded model of the kind is asked for: see inference/face.py

    def __post_init__(self) -> None:
        if self.max_len < 8:
            raise UserError(f"max_len: expected at least 8 tokens, found {self.max_len}")
        for name in self.metrics:
            if name not in self.known_metrics:
                raise UserError(
                    f"metrics: {self.variant_name} has no metric '{name}'.{nearest(name, self.known_metrics)}"
                )

    @property
    def scored_by(self) -> tuple[str, ...]:
        """The names of the metrics in use, the deciding one first."""
        return self.metrics or tuple(self.known_metrics)[: self.default_metrics]

    @abstractmethod
    def example(self, row: Row, tokenizer: Tokenizer) -> Example:
        """Return the samples of one row, without targets.  Raises UserError for a row that cannot be read."""

    @abstractmethod
    def training_example(self, row: Row, tokenizer: Tokenizer) -> Example:
        """Return the samples of one training row.  Raises UserError if its target is missing or unknown."""

    @abstractmethod
    def target(self, row: Row) -> Any:
        """Return the target of a row, as the metrics take it.  Raises UserError if it is missing or unknown."""

    @abstractmethod
    def prediction(self, answer: Answer) -> Any:
        """Return the prediction in an answer, as the metrics take it."""

    @abstractmethod
    def head(self, model: ErnieModel) -> nn.Layer:
        """Build the head, which maps the encoder's output to the task's output."""

    @abstractmethod
    def encode(self, ernie: ErnieModel, head: Any, batch: Packed, task_id: int) -> Tensor:
        """Return the encoder's vectors for a batch, as `head_loss` takes them."""

    @abstractmethod
    def head_loss(self, head: nn.Layer, hidden_TD: Tensor, batch: Packed) -> Loss:
        """Return the loss, summed over the targets of a batch."""

    @abstractmethod
    def answer_all(
        self, ernie: ErnieModel, head: nn.Layer, examples: Sequence[Example], task_id: int
    ) -> Sequence[Answer | UserError]:
        """Return the answers to the rows of one batch, whose examples have no labels, and errors in place of some.

        An error that is raised instead is found for each row by computing smaller batches.
        """


@dataclass(frozen=True, kw_only=True)
class LogitsTask(FinetuneTask):
    """A kind whose head returns logits, for each sequence or for each token."""

    # Whether a text has one right answer, so that two rows that differ only in it contradict each other.
    one_answer: ClassVar[bool] = True

    per_token: ClassVar[bool] = False  # whether the logits are (T, C), one row for each token, or (N, C)

    @property
    def texts(self) -> tuple[str, ...]:
        """The columns that the texts of a row stand in."""
        return ("text",)

    def reads(self, layout: Layout) -> np.ndarray | None:
        """Return the tokens, ascending, whose vectors `logits` uses; None for all of them.

        The encoder's last layer computes no others; their vectors are zero.
        """
        return None

    @abstractmethod
    def logits(self, head: nn.Layer, hidden_TD: Tensor, layout: Layout) -> Tensor:
        """Return the head's output: (N, C), or (T, C) if the kind is `per_token`."""

    @abstractmethod
    def loss(self, logits: Tensor, batch: Packed) -> Loss:
        """Return the loss, summed over the targets of the batch."""

    @abstractmethod
    def answer(self, example: Example, logits: list[np.ndarray]) -> Answer:
        """Return the answer to a row; `logits` holds (C,) for each of its samples, or (n, C) if `per_token`."""

    def divergence(self, logits: Tensor) -> Tensor:
        """Return how much the predictions of two passes over the same samples differ, summed over the targets.

        `logits` are those of the loss (P, C), first of one pass and then of the other.  By default they are of classes.
        """
        from paddle.nn.functional import log_softmax

        from ernie.model.losses import divergence

        one, other = log_softmax(logits, axis=-1).chunk(2)
        return divergence(one, other)

    def encode(self, ernie: ErnieModel, head: Any, batch: Packed, task_id: int) -> Tensor:
        return ernie.encode_packed(batch, task_id, self.reads(batch.layout))

    def head_loss(self, head: nn.Layer, hidden_TD: Tensor, batch: Packed) -> Loss:
        logits = float_logits(self, head, hidden_TD, batch.layout)
        with about(named(self, "loss")), calling(self, "loss"):
            return self.loss(logits, batch)

    def answer_all(
        self, ernie: ErnieModel, head: nn.Layer, examples: Sequence[Example], task_id: int
    ) -> Sequence[Answer | UserError]:
        packed = pack([sample for example in examples for sample in example.samples])
        logits = float_logits(self, head, self.encode(ernie, head, packed, task_id), packed.layout).numpy()
        parts = iter(np.split(logits, packed.layout.offsets[1:-1]) if self.per_token else logits)
        return [self._answer(example, [next(parts) for _ in example.samples]) for example in examples]

    def _answer(self, example: Example, logits: list[np.ndarray]) -> Answer | UserError:
        from ernie.model.inference import finite

        try:
            for part in logits:
                finite(part)
        except NotFinite as error:
            return error
        with calling(self, "answer"):
            return self.answer(example, logits)


@dataclass(frozen=True, kw_only=True)
class TextTask(LogitsTask):
    """A task on a text or on a pair of texts, with one output for each sequence.

    `text` and, for pairs, `text_pair` name the columns that are read, `label` the column of targets.
    """

    text: str = "text"
    text_pair: str = ""
    label: str = "label"

    column_fields: ClassVar[tuple[str, ...]] = ("text", "text_pair", "label")

    @abstractmethod
    def sample_target(self, row: Row) -> int | float | np.ndarray:
        """Return the target of a row's sample, see Sample."""

    @abstractmethod
    def outputs(self) -> int:
        """Return the number of outputs of the head."""

    @property
    def texts(self) -> tuple[str, ...]:
        return (self.text, self.text_pair) if self.text_pair else (self.text,)

    def example(self, row: Row, tokenizer: Tokenizer) -> Example:
        return self._example(row, tokenizer, {})

    def training_example(self, row: Row, tokenizer: Tokenizer) -> Example:
        return self._example(row, tokenizer, {"label": self.sample_target(row)})

    def _example(self, row: Row, tokenizer: Tokenizer, labels: dict[str, Any]) -> Example:
        columns = (self.text, self.text_pair) if self.text_pair else (self.text,)
        first, *second = (encode_start(tokenizer, row.text(column), self.max_len) for column in columns)
        return text_example(tokenizer, first, second[0] if second else None, self.max_len, labels)

    def head(self, model: ErnieModel) -> nn.Layer:
        from ernie.model.heads import SequenceHead

        return SequenceHead(model, self.outputs())

    def reads(self, layout: Layout) -> np.ndarray | None:
        return layout.starts

    def logits(self, head: nn.Layer, hidden_TD: Tensor, layout: Layout) -> Tensor:
        return head(hidden_TD, layout)

    def loss(self, logits: Tensor, batch: Packed) -> Loss:
        from ernie.model.losses import cross_entropy

        return cross_entropy(logits, batch.labels["label"].values)


finetune_tasks: Registry[type[FinetuneTask]] = Registry(
    "kind of fine-tuning task", "ernie.finetune_tasks", FinetuneTask
)

finetune_task = finetune_tasks.register  # class decorator: registers a kind under its name in YAML


def answer_columns(task: FinetuneTask) -> tuple[str, ...]:
    """Return the columns of a task's targets; several may hold a part of the target each."""
    named = (getattr(task, field) for field in task.answer_fields)
    return tuple(column for each in named for column in ((each,) if isinstance(each, str) else each))


def is_labeled(task: FinetuneTask, rows: Sequence[Row]) -> bool:
    """Return whether rows have targets: whether any cell of the target columns is not empty."""
    return not all(is_empty(row.get(column)) for row in rows for column in answer_columns(task))


def check_max_len(task: FinetuneTask, positions: int, encoder: str) -> None:
    """Raise UserError if the encoder has too few `positions` for a sample of `max_len` tokens."""
    if task.max_len > positions:
        raise UserError(f"task.max_len: {task.max_len} tokens, but {encoder} has {positions} positions")


def truncation_note(task: FinetuneTask) -> str:
    """Return the setting, with its value, to which texts that are too long are cut."""
    return f"{task.truncating_field} {getattr(task, task.truncating_field)}"


def float_logits(task: LogitsTask, head: nn.Layer, hidden_TD: Tensor, layout: Layout) -> Tensor:
    """Return the logits in float32, also from half precision on a GPU."""
    return task.logits(head, hidden_TD, layout).astype("float32")


def encode_start(tokenizer: Tokenizer, text: str, needed: int) -> np.ndarray:
    """Return the token ids of a text.  Only the first `needed` of them are used; the others are only counted.

    A text of over MOST_COUNTED characters is tokenized only as far as is needed: its other tokens are not counted.
    """
    return tokenizer.ids(text, None if len(text) <= MOST_COUNTED else needed + 1)


def text_example(
    tokenizer: Tokenizer, first: np.ndarray, second: np.ndarray | None, max_len: int, labels: dict[str, Any]
) -> Example:
    """Make one sample of a text or a pair of texts, cut to `max_len`."""
    if second is None:
        sample = single(tokenizer, first[: max_len - 2], **labels)
        return Example((sample,), cut=max(0, len(first) + 2 - max_len), empty=not len(first))
    sample = pair(tokenizer, first, second, max_len, **labels)
    cut = len(first) + len(second) + 3 - len(sample)
    return Example((sample,), cut=cut, empty=not (len(first) and len(second)))


def softmax(logits: np.ndarray) -> np.ndarray:
    """Return probabilities along the last axis."""
    powers = np.exp(logits - logits.max(-1, keepdims=True))
    return powers / powers.sum(-1, keepdims=True)


def by_label(labels: Sequence[str], **numbers: np.ndarray | None) -> Answer:
    """Return parts of an answer, each with a number for every label; None stands for a part that is left out."""
    asked = ((name, values) for name, values in numbers.items() if values is not None)
    return {name: dict(zip(labels, map(rounded, values), strict=True)) for name, values in asked}


def rounded(number: float) -> float:
    """Round a probability or score to six decimal places, for output."""
    return round(float(number), 6)
