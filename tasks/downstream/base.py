"""The interface of fine-tuning tasks: how a row of data becomes samples, and model outputs become an answer.

A kind is a frozen dataclass whose fields are the keys under `task:` in a YAML file.  Reading rows and scoring answers
needs no Paddle.

Legend: T tokens of a packed batch, N sequences, D width, C classes.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, dataclass, fields, replace
from reprlib import repr as shortened
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

import numpy as np

from ernie.config import differences, to_dict
from ernie.data.batch import Layout, Packed, pack
from ernie.data.document import Sample
from ernie.data.labeled.row import Row, is_empty
from ernie.errors import NotFinite, UserError, about, nearest
from ernie.registry import Registry
from ernie.text.tokenizer import Tokenizer
from tasks.base import pair, single
from tasks.downstream.calling import calling, named

if TYPE_CHECKING:
    from pathlib import Path

    from paddle import Tensor, nn

    from ernie.kernels.mask import Mask
    from ernie.model.ernie import ErnieModel
    from ernie.model.losses import Loss
    from ernie.parallel.layout import ParallelConfig

MOST_COUNTED = 1 << 18  # characters of a text of which all tokens are counted, although only the first are used

Own = TypeVar("Own", bound="FinetuneTask")
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


@dataclass(frozen=True, kw_only=True)
class FinetuneTask(ABC):
    """Base class of all kinds of fine-tuning task.

    `max_len` is the maximum length of a sample in tokens, special tokens included.  `metrics` are names of the kind's
    known metrics, by default the first `default_metrics` of them; the first selects the best checkpoint.
    """

    max_len: int = 128
    metrics: tuple[str, ...] = ()

    known_metrics: ClassVar[Mapping[str, Metric]] = {}  # of the kind, the default ones first
    default_metrics: ClassVar[int] = 1  # how many of them are used by default
    answer_field: ClassVar[str] = "label"  # the field that names the column of targets
    labels_belong_to: ClassVar[str] = "row"  # what has a label of its own, for kinds with `labels`
    files: ClassVar[tuple[str, ...]] = ()  # fields naming files needed for inference, which are saved with the model
    # Fields that mean something to the head's weights, such as labels: a run that keeps a head takes them from there.
    head_fields: ClassVar[tuple[str, ...]] = ()
    # Fields that say how answers are found, and can be changed after training, such as a threshold.
    decoding_fields: ClassVar[tuple[str, ...]] = ()
    # Fields that name columns, which may be called otherwise in other files.
    column_fields: ClassVar[tuple[str, ...]] = ()
    variant_key: ClassVar[str] = "kind"
    face: ClassVar[str] = "predict"  # what a loaded model of the kind is asked for: see inference/face.py

    def file_fingerprint(self, row: Row) -> bytes:
        """Return a fingerprint of the files that a row names, which shows whether they have changed; empty if none."""
        return b""

    @property
    def variant_name(self) -> str | None:
        """The name under which the class is registered."""
        return finetune_tasks.name_of(type(self))

    @classmethod
    def variant(cls, key: str, given: dict[str, Any]) -> tuple[type[FinetuneTask], set[str]]:
        """Return the kind that `task: {kind: ...}` names, and the keys used."""
        if "kind" not in given:
            raise UserError(f"kind: this key is required.{nearest('', finetune_tasks)}")
        return finetune_tasks[given["kind"]], {"kind"}

    @classmethod
    def completed(cls, saved: Mapping[str, Any]) -> dict[str, Any]:
        """Return the fields of a saved task with those that it lacks because they are newer.

        Their values are those that keep the model as it was trained, where these are not the defaults.
        """
        return dict(saved)

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

    @property
    def truncation_note(self) -> str:
        """The setting, with its value, to which texts that are too long are cut."""
        return f"max_len {self.max_len}"

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

    def check_layout(self, layout: ParallelConfig) -> None:  # noqa: B027 - most kinds support every layout
        """Raise UserError for a parallel layout that this kind does not support."""

    def check_fits(self, positions: int, encoder: str) -> None:
        """Raise UserError if the encoder has too few `positions` for the longest sample."""
        if self.max_len > positions:
            raise UserError(f"task.max_len: {self.max_len} tokens, but {encoder} has {positions} positions")

    def check_tokenizer(self, tokenizer: Tokenizer) -> None:  # noqa: B027 - most kinds can work with any tokenizer
        """Raise UserError if the task cannot be learned with this tokenizer."""

    def check_encoder(self, ernie: ErnieModel, task_id: int, encoder: str) -> None:  # noqa: B027 - most kinds take any
        """Raise UserError if the task cannot be learned with this encoder, or with this task embedding."""

    @property
    def answer_columns(self) -> tuple[str, ...]:
        """The column of targets, or several columns that hold a part of the target each."""
        named = getattr(self, self.answer_field)
        return (named,) if isinstance(named, str) else tuple(named)

    @property
    def learns_from(self) -> Mapping[str, Path]:
        """The files besides the rows that training depends on, by field; a changed file means another run."""
        return {field: file for field in self.files if (file := getattr(self, field)) is not None}

    def is_labeled(self, rows: Sequence[Row]) -> bool:
        """Return whether the rows have targets: whether any cell of the target columns is not empty."""
        return not all(is_empty(row.get(column)) for row in rows for column in self.answer_columns)

    def adapted_to(self, rows: Sequence[Row]) -> FinetuneTask:
        """Return the task with what it derives from the training rows, such as the labels if none are given."""
        return self

    def having_read(self, examples: Sequence[Example], tokenizer: Tokenizer) -> FinetuneTask:
        """Return the task with what it derives from the examples of the training rows."""
        return self

    def with_values_of(self: Own, before: FinetuneTask, names: Sequence[str], whose: str) -> Own:
        """Return the task with the values of these fields of a task before; `whose` names it in messages.

        Raises UserError for a field that has another value and not its default.
        """
        values = {name: getattr(before, name) for name in names}
        for field in fields(self):
            default = field.default if field.default_factory is MISSING else field.default_factory()
            if field.name in values and (own := getattr(self, field.name)) not in (default, values[field.name]):
                path, new = f"task.{field.name}", to_dict(values[field.name])
                unchanged = differences(to_dict(default), new, path)
                for key, (ours, theirs) in differences(to_dict(own), new, path).items():
                    if unchanged.get(key) == (ours, theirs):  # a key that is not given
                        continue
                    learned = f"{whose} has learned with {shortened(theirs)}"
                    raise UserError(f"{key}: is {shortened(ours)}, and {learned}; take the key out")
        return replace(self, **values)

    def keeping_head_of(self: Own, before: FinetuneTask, whose: str) -> Own:
        """Return the task with what a kept head was trained with; `before` is its task, `whose` names it in messages.

        Raises UserError if the configuration has something else.
        """
        return self.with_values_of(before, self.head_fields, whose)

    def decoding_with(self: Own, given: Mapping[str, Any], tokenizer: Tokenizer) -> Own:
        """Return the task with other values of its `decoding_fields` and `column_fields`.

        Raises UserError for other fields, and for values that do not fit one another, the task or the tokenizer.
        """
        for name in given:
            changeable = (*self.decoding_fields, *self.column_fields)
            if name not in changeable:
                can = f"; {', '.join(changeable)} can" if changeable else ""
                raise UserError(f"{name}: cannot be changed after training{can}")
        changed = replace(self, **given)
        changed.check_tokenizer(tokenizer)
        return changed

    @abstractmethod
    def example(self, row: Row, tokenizer: Tokenizer) -> Example:
        """Return the samples of one row, without targets.  Raises UserError for a row that cannot be read."""

    @abstractmethod
    def training_example(self, row: Row, tokenizer: Tokenizer) -> Example:
        """Return the samples of one training row.  Raises UserError if its target is missing or unknown."""

    def evaluation_example(self, row: Row, tokenizer: Tokenizer) -> Example:
        """Return the samples of one evaluation row: as `example`, if its target fits them.

        Raises UserError if it does not.
        """
        return self.example(row, tokenizer)

    def check_examples(self, examples: Sequence[Example], tokenizer: Tokenizer) -> None:  # noqa: B027 - for most kinds
        """Raise UserError if the rows of a split, taken together, are probably a mistake."""

    @abstractmethod
    def target(self, row: Row) -> Any:
        """Return the target of a row, as the metrics take it.  Raises UserError if it is missing or unknown."""

    @abstractmethod
    def prediction(self, answer: Answer) -> Any:
        """Return the prediction in an answer, as the metrics take it."""

    def least_weights(self, width: int) -> int:
        """Return how many weights the head has at least on an encoder of this width, by the sizes among the fields."""
        return 0

    @abstractmethod
    def head(self, model: ErnieModel) -> nn.Layer:
        """Build the head, which maps the encoder's output to the task's output."""

    def initialize(self, ernie: ErnieModel, head: Any) -> None:  # noqa: B027 - most heads keep their random initialization
        """Initialize a new head, and the encoder, beyond random weights; parameters frozen here are not trained."""

    def computed_tokens(self, example: Example) -> int:
        """Return the number of tokens computed in training on an example, by which micro-batches are sized."""
        return example.tokens

    def augmented(self, batch: Packed, training: bool) -> Packed:
        """Return the batch as the model gets it; random changes that differ each time are made here."""
        return batch

    def encoder_input(self, batch: Packed) -> tuple[Packed, Mask | None]:
        """Return what the encoder sees of a batch, and its attention mask: by default all, without a mask."""
        return batch, None

    @abstractmethod
    def encode(self, ernie: ErnieModel, head: Any, batch: Packed, task_id: int) -> Tensor:
        """Return the encoder's vectors for a batch from `augmented`, as `head_loss` takes them."""

    @abstractmethod
    def head_loss(self, head: nn.Layer, hidden_TD: Tensor, batch: Packed) -> Loss:
        """Return the loss, summed over the targets of a batch from `augmented`."""

    @abstractmethod
    def answer_all(
        self, ernie: ErnieModel, head: nn.Layer, examples: Sequence[Example], task_id: int
    ) -> Sequence[Answer | UserError]:
        """Return the answers to the rows of one batch, whose examples have no labels, and errors in place of some.

        An error that is raised instead is found for each row by computing smaller batches.
        """

    def scores(self, rows: Sequence[Row], answers: Sequence[Answer]) -> dict[str, float]:
        """Score the answers to these rows, the deciding measure first."""
        targets, predictions = [], []
        for row, answer in zip(rows, answers, strict=True):
            if not isinstance(answer, dict):
                raise UserError(
                    f"{row.place}: {named(self, 'answer')} returns {shortened(answer)}; expected a dict, whose first "
                    "value is the answer itself"
                )
            with calling(self, "target", row.place):
                targets.append(self.target(row))
            with calling(self, "prediction", row.place):
                predictions.append(self.prediction(answer))
        return {name: self._score(name, targets, predictions) for name in self.scored_by}

    def metric(self, name: str) -> Metric:
        """Return the measure of this name, with the task's settings for it."""
        return self.known_metrics[name]

    def signatures(self, rows: Sequence[Row]) -> dict[str, str]:
        """Return, for metrics with settings that change their values, the signature that tells them apart."""
        return {}

    def _score(self, name: str, targets: Sequence[Any], predictions: Sequence[Any]) -> float:
        with calling(self, name):
            score = self.metric(name)(targets, predictions)
        try:
            return float(score)
        except (TypeError, ValueError):
            raise UserError(f"{named(self, name)} returns {shortened(score)}; expected a number, the score") from None

    def scores_by_label(self, rows: Sequence[Row], answers: Sequence[Answer]) -> dict[str, LabelScores]:
        """Score the answers to these rows for each label, tag or type of entity; empty for kinds without any."""
        return {}

    def remarks_on(self, rows: Sequence[Row]) -> list[str]:
        """Return what is unusual about the targets of a split, in words that follow "dev: "."""
        return []

    def remarks_on_texts(self, rows: Sequence[Row], tokenizer: Tokenizer) -> list[str]:
        """Return what is unusual about the target texts of a split, as the vocabulary writes them."""
        return []

    def with_all_labels(self) -> FinetuneTask:
        """Return the task with answers that give the probability of every label.

        Raises UserError for a kind that has none.
        """
        raise UserError(f"a model of the kind {self.variant_name} gives no probability of each label")


@dataclass(frozen=True, kw_only=True)
class LogitsTask(FinetuneTask):
    """A kind whose head returns logits, for each sequence or for each token."""

    # Whether a text has one right answer, so that two rows that differ only in it contradict each other.
    one_answer: ClassVar[bool] = True

    per_token: ClassVar[bool] = False  # whether the logits are (T, C), one row for each token, or (N, C)

    @property
    def texts(self) -> tuple[str, ...]:
        """The text of a sample, or the two texts of a pair: column names, or descriptions."""
        return ("text",)

    @property
    def read_columns(self) -> tuple[str, ...]:
        """The columns that the texts of a row stand in."""
        return self.texts

    @property
    def reading(self) -> str:
        """How to read the logits, in a sentence for the README of an exported model."""
        return ""

    @property
    def reading_code(self) -> str:
        """A line of Python that reads the `logits`, for the same README; empty where a sentence says enough."""
        return ""

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

    def encode(self, ernie: ErnieModel, head: Any, batch: Packed, task_id: int) -> Tensor:
        return ernie.encode_packed(batch, task_id, self.reads(batch.layout))

    def head_loss(self, head: nn.Layer, hidden_TD: Tensor, batch: Packed) -> Loss:
        logits = self.float_logits(head, hidden_TD, batch.layout)
        with about(named(self, "loss")), calling(self, "loss"):
            return self.loss(logits, batch)

    def float_logits(self, head: nn.Layer, hidden_TD: Tensor, layout: Layout) -> Tensor:
        """Return the logits in float32, also from half precision on a GPU."""
        return self.logits(head, hidden_TD, layout).astype("float32")

    def answer_all(
        self, ernie: ErnieModel, head: nn.Layer, examples: Sequence[Example], task_id: int
    ) -> Sequence[Answer | UserError]:
        packed = pack([sample for example in examples for sample in example.samples])
        logits = self.float_logits(head, self.encode(ernie, head, packed, task_id), packed.layout).numpy()
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


def encode_start(tokenizer: Tokenizer, text: str, needed: int) -> np.ndarray:
    """Return the token ids of a text of which only the first `needed` are used, the others only counted.

    Of a text of over MOST_COUNTED characters no more is tokenized than is needed: the others are not counted either.
    """
    return tokenizer.encode(text, None if len(text) <= MOST_COUNTED else needed + 1).ids


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


def by_label(labels: Sequence[str], probabilities: np.ndarray) -> Answer:
    """Return the part of an answer with the probability of every label."""
    return {"all_labels": dict(zip(labels, map(rounded, probabilities), strict=True))}


def rounded(number: float) -> float:
    """Round a probability or score to six decimal places, for output."""
    return round(float(number), 6)
