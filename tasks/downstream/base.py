"""The interface of fine-tuning tasks: how a row of data becomes samples, and model outputs become an answer.

A kind is a frozen dataclass whose fields are the keys under `task:` in a YAML file.  Reading rows and scoring answers
needs no Paddle.

Legend: T tokens of a packed batch, N sequences, R rows of one or more sequences, D width, C classes.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, cast

import numpy as np

from ernie.data.batch import Layout, Packed, pack
from ernie.data.document import Sample
from ernie.data.labeled.row import Row, is_empty
from ernie.errors import NotFinite, UserError, about, nearest
from ernie.registry import Registry
from ernie.text.frame import frame
from ernie.text.tokenizer import Tokenizer
from tasks.base import pair, single
from tasks.downstream.calling import calling, named
from tasks.downstream.windows import WindowConfig

if TYPE_CHECKING:
    from paddle import Tensor, nn

    from ernie.model.ernie import ErnieModel
    from ernie.model.losses import Loss

_MOST_AT_ONCE = 8192  # tokens of a single row that are computed at a time in answering, which bounds memory
MOST_COUNTED = 1 << 18  # characters of a text of which all tokens are counted, although only the first are used
# Settings of the loss that not all kinds have, and which kinds they are for: see tasks/downstream/loss_settings.py.
LOSS_SETTINGS = {
    "class_weights": "kinds with classes that are the same in all rows",
    "label_smoothing": "kinds that choose among classes",
    "focal_gamma": "kinds that choose among classes",
    "soft_labels": "kinds that choose among classes",
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

    @property
    def firsts(self) -> list[int]:
        """The number of the first sample of each text: all others are further windows of one."""
        return [number for number, sample in enumerate(self.samples) if not sample.continues]


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

    def distillation(self, logits: Tensor, teacher: Tensor, temperature: float) -> Tensor:
        """Return how much predictions differ from a teacher's, summed over the targets.

        Both logits are those of the loss (P, C).  By default they are of classes, softened by the temperature.  Raises
        UserError for a single class.
        """
        from ernie.model.losses import distillation

        if logits.shape[-1] < 2:
            raise UserError(f"{named(self, 'distillation')} compares classes, and there is one logit: write its own")
        return distillation(logits, teacher, temperature)

    def from_teacher(self, teacher: LogitsTask, logits: np.ndarray) -> np.ndarray:
        """Return logits (..., C) of a teacher, a model of the same kind, as those of this task.

        By default they are put into the order of `labels`.  Raises UserError if the labels are not the same.
        """
        own, theirs = (tuple(getattr(task, "labels", ())) for task in (self, teacher))
        if own == theirs:
            return logits
        lists = {"lacks": [label for label in own if label not in theirs]}
        lists["also has"] = [label for label in theirs if label not in own]
        if any(lists.values()):
            said = " and ".join(f"{verb} {', '.join(found[:5])}" for verb, found in lists.items() if found)
            raise UserError(
                f"has other labels: it {said}; data.values renames those of the rows, and task.labels can name labels "
                "that train lacks"
            )
        return logits[..., [theirs.index(label) for label in own]]

    def unlabeled_example(self, row: Row, tokenizer: Tokenizer) -> Example:
        """Return the samples of a training row without a target, of which only a teacher's predictions are learned.

        They have targets of any value, by which they are counted.  Raises UserError for a kind that cannot.
        """
        raise UserError(f"a model of the kind {self.variant_name} cannot learn from rows without labels")

    def mean_logits(self, members: Sequence[Sequence[np.ndarray]]) -> list[np.ndarray]:
        """Return logits by which `answer` finds what several models give on average.

        `members` holds for each model the logits of a row, as `answer` takes them.  By default they are of classes, and
        the result is the logarithm of the mean of the probabilities; of single numbers it is their mean.
        """
        each = zip(*members, strict=True)
        return [log_mean_softmax(parts) if parts[0].shape[-1] > 1 else np.mean(parts, 0) for parts in each]

    def encode(self, ernie: ErnieModel, head: Any, batch: Packed, task_id: int) -> Tensor:
        return ernie.encode_packed(batch, task_id, self.reads(batch.layout))

    def head_loss(self, head: nn.Layer, hidden_TD: Tensor, batch: Packed) -> Loss:
        return self.batch_loss(float_logits(self, head, hidden_TD, batch.layout), batch)

    def batch_loss(self, logits: Tensor, batch: Packed) -> Loss:
        """Return the loss of a batch, given the head's output; where samples continue a row, they count as one."""
        if batch.firsts is not None:
            logits, batch = self._of_rows(logits, batch, batch.firsts)
        with about(named(self, "loss")), calling(self, "loss"):
            return self.loss(logits, batch)

    def _of_rows(self, logits: Tensor, batch: Packed, firsts_R: np.ndarray) -> tuple[Tensor, Packed]:
        """Return what `loss` gets of a batch with samples that continue a row."""
        return logits, batch

    def answer_all(
        self, ernie: ErnieModel, head: nn.Layer, examples: Sequence[Example], task_id: int
    ) -> Sequence[Answer | UserError]:
        return self.answers_from(examples, self.row_logits(ernie, head, examples, task_id))

    def row_logits(
        self, ernie: ErnieModel, head: nn.Layer, examples: Sequence[Example], task_id: int
    ) -> list[list[np.ndarray]]:
        """Return the logits of the rows of one batch, as `answer` takes them."""
        samples = [sample for example in examples for sample in example.samples]
        groups = _in_groups(samples, _MOST_AT_ONCE) if len(examples) == 1 else [samples]
        parts = (logits for group in groups for logits in self._logits_of(ernie, head, group, task_id))
        return self._in_rows(parts, examples)

    def logits_of_rows(
        self, head: nn.Layer, hidden_TD: Tensor, layout: Layout, examples: Sequence[Example]
    ) -> list[list[np.ndarray]]:
        """Return the logits of rows as `answer` takes them, given the encoder's vectors of their samples."""
        return self._in_rows(iter(self._split(head, hidden_TD, layout)), examples)

    def _in_rows(self, logits: Iterator[np.ndarray], examples: Sequence[Example]) -> list[list[np.ndarray]]:
        """Return the logits of rows, given those of their samples in order."""
        return [self._of_row(example, [next(logits) for _ in example.samples]) for example in examples]

    def answers_from(
        self, examples: Sequence[Example], logits: Sequence[list[np.ndarray]]
    ) -> Sequence[Answer | UserError]:
        """Return the answers to rows with these logits, and errors in place of those whose logits are not finite."""
        return [self._answer(example, parts) for example, parts in zip(examples, logits, strict=True)]

    def _logits_of(
        self, ernie: ErnieModel, head: nn.Layer, samples: Sequence[Sample], task_id: int
    ) -> list[np.ndarray]:
        """Return the logits of each sample: (C,), or (n, C) if the kind is `per_token`."""
        packed = pack(samples)
        return self._split(head, self.encode(ernie, head, packed, task_id), packed.layout)

    def _split(self, head: nn.Layer, hidden_TD: Tensor, layout: Layout) -> list[np.ndarray]:
        """Return the logits of each sample, given the encoder's vectors."""
        logits = float_logits(self, head, hidden_TD, layout).numpy()
        return list(np.split(logits, layout.offsets[1:-1]) if self.per_token else logits)

    def _answer(self, example: Example, logits: list[np.ndarray]) -> Answer | UserError:
        from ernie.model.inference import finite

        try:
            for part in logits:
                finite(part)
        except NotFinite as error:
            return error
        with calling(self, "answer"):
            return self.answer(example, logits)

    def _of_row(self, example: Example, logits: list[np.ndarray]) -> list[np.ndarray]:
        """Return what `answer` gets of the logits of a row's samples."""
        return logits


@dataclass(frozen=True, kw_only=True)
class WindowedTask(LogitsTask):
    """A kind with one output for each text or pair of texts, which may be longer than a sample.

    A text that is too long is cut to `max_len` tokens or, with `windows`, read in windows whose logits are pooled: see
    WindowConfig.  Of a pair the longer text is divided into windows, and the shorter one stands in each of them, cut to
    half of a sample.  The loss and the answer are those of the pooled logits, so that a row counts once.
    """

    windows: WindowConfig | None = None

    decoding_fields: ClassVar[tuple[str, ...]] = ("windows",)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.windows is not None and self.windows.stride >= (room := _least_room(self.max_len, self.reads_pairs)):
            whose = "the longer text of a pair" if self.reads_pairs else "a text"
            raise UserError(
                f"windows.stride: a window of max_len {self.max_len} may hold as few as {room} tokens of {whose}; "
                f"expected an overlap of fewer, found {self.windows.stride}"
            )

    @property
    @abstractmethod
    def reads_pairs(self) -> bool:
        """Whether a sample is of two texts."""

    def samples_of(self, tokenizer: Tokenizer, texts: Sequence[str], labels: dict[str, Any]) -> Example:
        """Return the samples of a text or a pair of texts; the first one has the labels."""
        if self.windows is None:
            ids = [encode_start(tokenizer, text, self.max_len) for text in texts]
            return text_example(tokenizer, ids[0], ids[1] if len(ids) > 1 else None, self.max_len, labels)
        ids = [tokenizer.ids(text) for text in texts]
        return _windows_example(tokenizer, ids, self.max_len, self.windows, labels)

    def _of_rows(self, logits: Tensor, batch: Packed, firsts_R: np.ndarray) -> tuple[Tensor, Packed]:
        from ernie.model.losses import pooled_logits

        assert self.windows is not None
        weights_R = None if batch.weights is None else batch.weights[firsts_R]
        pooled = pooled_logits(self.comparable(logits), firsts_R, self.windows.pooling)
        return pooled, replace(batch, weights=weights_R)

    def _of_row(self, example: Example, logits: list[np.ndarray]) -> list[np.ndarray]:
        firsts = example.firsts
        if self.windows is None or len(firsts) == len(logits):
            return logits
        logits_NC = self.comparable(np.stack(logits))
        pool = np.mean if self.windows.pooling == "mean" else np.max
        return [pool(part_NC, 0) for part_NC in np.split(logits_NC, firsts[1:])]

    def comparable(self, logits_NC: Any) -> Any:
        """Return the logits of windows, arrays or tensors, in a form in which their largest value has a meaning."""
        return logits_NC


@dataclass(frozen=True, kw_only=True)
class TextTask(WindowedTask):
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
    def reads_pairs(self) -> bool:
        return bool(self.text_pair)

    @property
    def texts(self) -> tuple[str, ...]:
        return (self.text, self.text_pair) if self.text_pair else (self.text,)

    def example(self, row: Row, tokenizer: Tokenizer) -> Example:
        return self._example(row, tokenizer, {})

    def training_example(self, row: Row, tokenizer: Tokenizer) -> Example:
        return self._example(row, tokenizer, {"label": self.sample_target(row)})

    @property
    def no_target(self) -> int | float | np.ndarray:
        """Any target of a sample, for rows that have none."""
        return 0

    def unlabeled_example(self, row: Row, tokenizer: Tokenizer) -> Example:
        return self._example(row, tokenizer, {"label": self.no_target})

    def _example(self, row: Row, tokenizer: Tokenizer, labels: dict[str, Any]) -> Example:
        return self.samples_of(tokenizer, [row.text(column) for column in self.texts], labels)

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
    if not isinstance(task, WindowedTask) or task.windows is None:
        return f"{task.truncating_field} {getattr(task, task.truncating_field)}"
    limits = [f"half of max_len {task.max_len} for the shorter text of a pair"] if task.reads_pairs else []
    return " or ".join(limits + ([f"windows.most {task.windows.most}"] if task.windows.most else []))


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


def _windows_example(
    tokenizer: Tokenizer, ids: Sequence[np.ndarray], max_len: int, windows: WindowConfig, labels: dict[str, Any]
) -> Example:
    """Make the samples of a text or a pair of texts, windows of the longer one; the first has the labels."""
    if sum(map(len, ids)) + len(ids) + 1 <= max_len:
        return text_example(tokenizer, ids[0], ids[1] if len(ids) > 1 else None, max_len, labels)
    divided = int(np.argmax([*map(len, ids)]))
    kept = [part[: _half(max_len)] for number, part in enumerate(ids) if number != divided]
    size = max_len - len(ids) - 1 - sum(map(len, kept))
    spans = windows.of(len(ids[divided]), size)
    samples: list[Sample] = []
    for start, stop in spans:
        parts = [*kept[:divided], ids[divided][start:stop], *kept[divided:]]
        samples.append(Sample(*frame(tokenizer, *parts), {} if samples else labels, continues=bool(samples)))
    behind = [0, *(stop for _, stop in spans)]
    read = sum(stop - max(start, before) for (start, stop), before in zip(spans, behind, strict=False))
    cut = sum(map(len, ids)) - read - sum(map(len, kept))
    return Example(tuple(samples), cut=cut, empty=not all(map(len, ids)))


def _half(max_len: int) -> int:
    """Return how many tokens of the shorter text of a pair stand in each window."""
    return (max_len - 3) // 2


def _least_room(max_len: int, is_pair: bool) -> int:
    """Return how many tokens of the divided text a window has at least."""
    return max_len - 3 - _half(max_len) if is_pair else max_len - 2


def _in_groups(samples: Sequence[Sample], budget: int) -> Iterator[list[Sample]]:
    """Yield samples in groups of at most `budget` tokens, or of one sample."""
    group: list[Sample] = []
    for sample in samples:
        if group and sum(map(len, group)) + len(sample) > budget:
            yield group
            group = []
        group.append(sample)
    yield group


def softmax(logits: np.ndarray) -> np.ndarray:
    """Return probabilities along the last axis."""
    powers = np.exp(logits - logits.max(-1, keepdims=True))
    return powers / powers.sum(-1, keepdims=True)


def log_mean_softmax(members: Sequence[np.ndarray]) -> np.ndarray:
    """Return the logarithm of the mean, over `members`, of the softmax along the last axis of their logits.

    NaN and plus infinity in the logits of one member give NaN.
    """
    logits = np.stack(members).astype(np.float64)
    with np.errstate(invalid="ignore"):
        log_probabilities = logits - np.logaddexp.reduce(logits, -1, keepdims=True)
        return np.logaddexp.reduce(log_probabilities) - np.log(len(members))


def by_label(labels: Sequence[str], **numbers: np.ndarray | None) -> Answer:
    """Return parts of an answer, each with a number for every label; None stands for a part that is left out."""
    asked = ((name, values) for name, values in numbers.items() if values is not None)
    return {name: dict(zip(labels, map(rounded, values), strict=True)) for name, values in asked}


def rounded(number: float) -> float:
    """Round a probability or score to six decimal places, for output."""
    return round(float(number), 6)
