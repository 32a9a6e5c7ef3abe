"""A teacher: a finished model from whose predictions, and from whose layers, a student learns.

The teacher's logits are computed once, before training, for all rows, and kept until the run is done.  So they are the
same in every epoch, and in a run that resumes.  Outputs of its layers are too large to be kept, and are computed at
each step.

Legend: T packed tokens, N sequences, P targets, C classes, D and E the widths of student and teacher.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import paddle
from paddle import Tensor, nn

from ernie.data.batch import Packed, pack
from ernie.data.labeled.row import Row
from ernie.errors import UserError, about
from ernie.formatting import plural
from ernie.kernels.linear import linear
from ernie.model.ernie import ErnieModel
from ernie.model.inference import evaluating, finite, for_inference, tokenizer_of
from ernie.model.initialization import initialize
from ernie.model.losses import relation_divergence
from ernie.model.published import hub
from ernie.parallel.collectives import on_rank0
from ernie.parallel.mesh import Mesh
from finetune.config import FinetuneConfig, TeacherConfig
from finetune.logits_file import read_logits, write_logits
from finetune.prepare import Prepared, check_segments
from inference.task_model import TaskModel
from tasks.downstream.base import Example, FinetuneTask, LogitsTask, WindowedTask, check_max_len
from tasks.downstream.scoring import score_answers

_LEAST = -1e9  # a logit; less, as of an answer that is excluded, could not be saved


class Teacher:
    """The teacher of a student, which is a model of `task` on the encoder `student`.

    `model` is the teacher with its head, None if only its encoder `ernie` is used.  Raises UserError for a teacher of
    another kind, with other labels, with other tokens where those have to be the same, or of a shape that does not fit.
    """

    def __init__(self, config: TeacherConfig, task: LogitsTask, student: ErnieModel, trust_plugins: Sequence[str] = ()):
        self.config, self._task = config, task
        self.model: TaskModel | None = None
        self.task_id = 0
        with about("teacher.model"):
            place = hub.find(Path(config.model))
            if config.weight:
                self.model = fitting(TaskModel.load(place, trust_plugins), task, config.model)
                self.ernie, self.task_id = self.model.ernie, self.model.task_id
                if config.compares_layers and (count := len(self.model.singles)) > 1:
                    raise UserError(
                        f"{config.model} is an ensemble of {count} models, whose layers are not compared; leave out "
                        "teacher.hidden and teacher.relations, or name the folder of one of them"
                    )
            else:
                self.ernie = ErnieModel.from_pretrained(place)
                for_inference(self.ernie)
            self._check_tokens(student)
        self._check_layers(student)
        self._logits: list[list[np.ndarray]] = []  # for each row, as the kind's `answer` takes them
        self._targets_per_token = 0.0

    def _check_tokens(self, student: ErnieModel) -> None:
        config, model = self.config, self.config.model
        self._same_tokens = tokenizer_of(self.ernie).fingerprint == tokenizer_of(student).fingerprint
        if self._same_tokens:
            check_max_len(self._task, self.ernie.config.max_positions, model)
            if self.model is not None and isinstance(self._task, WindowedTask):  # long texts are cut as the student's
                own: dict[str, Any] = {"max_len": self._task.max_len, "windows": self._task.windows}
                self.model.task = replace(self.model.task, **own)
        elif self._task.per_token:
            raise UserError(
                f"{model} has another vocabulary than the student, and a model of the kind {self._task.variant_name} "
                "learns from each of its tokens"
            )
        elif config.compares_layers:
            key = "hidden" if config.hidden is not None else "relations"
            raise UserError(
                f"{model} has another vocabulary than the student, and teacher.{key} compares the vectors of the same "
                "tokens; its predictions can be learned"
            )

    def _check_layers(self, student: ErnieModel) -> None:
        own, theirs, config = student.config, self.ernie.config, self.config
        self._layers = config.hidden.chosen(own.layers, theirs.layers) if config.hidden is not None else ()
        self._projects = bool(self._layers) and own.hidden_size != theirs.hidden_size
        self._layer = self._heads = 0
        if config.relations is not None:
            self._layer = config.relations.chosen_layer(theirs.layers)
            self._heads = config.relations.chosen_heads(theirs.heads, own.hidden_size, theirs.hidden_size)

    @property
    def described(self) -> str:
        """What the teacher is, and how it teaches, in a sentence."""
        shape = self.ernie.config
        sizes = f"{plural(shape.layers, 'layer')} of width {shape.hidden_size}"
        read = "" if self._same_tokens else "; it has another vocabulary and reads the text itself"
        return f"teacher: {self.config.model}, {sizes}{read}; {self.config.summary}"

    def projection(self, student: ErnieModel) -> nn.Linear | None:
        """Return a new projection of the student's vectors to the teacher's width, None if none is needed.

        It is learned with the student and not kept (TinyBERT: Jiao et al., 2020, arXiv 1909.10351, equation 8).
        """
        if not self._projects:
            return None
        made = nn.Linear(student.config.hidden_size, self.ernie.config.hidden_size)
        initialize(made, student.config.initializer_range)
        return made

    def read(
        self,
        train: Prepared,
        say: Callable[[str], None] | None = None,
        mesh: Mesh | None = None,
        kept: Path | None = None,
    ) -> None:
        """Have the teacher answer all rows that the student learns from; `say` is told before that.

        The first process of `mesh` does, and keeps the answers in the file `kept` for the run's next start.  Raises
        UserError for a row that the teacher cannot read as the student does.
        """
        if self._same_tokens:
            check_segments(train, self.ernie.config.segments, self.config.model, "teacher.model")
        if self.config.compares_layers:
            tokens = sum(example.tokens for example in train.examples)
            self._targets_per_token = sum(pack(example.samples).targets for example in train.examples) / tokens
        if self.model is not None:
            answered = partial(self._answered, self.model, train, say, kept)
            self._logits = on_rank0(mesh or Mesh(), "asking the teacher", answered)

    def _answered(
        self, model: TaskModel, train: Prepared, say: Callable[[str], None] | None, kept: Path | None
    ) -> list[list[np.ndarray]]:
        """Return the logits of all rows, from the file `kept` if it is there; otherwise write it."""
        if kept is not None and kept.is_file():
            return read_logits(kept, self._task)
        if say is not None:
            say(f"teacher: answers {plural(len(train), 'row')} before training")
        examples = train.examples if self._same_tokens else [_read(model, row) for row in train.rows]
        found = zip(train.rows, model.logits(examples), strict=True)
        logits = [[self._as_own(part, row) for part in parts] for row, parts in found]
        if kept is not None:
            write_logits(kept, logits)
        return logits

    def _as_own(self, logits: np.ndarray, row: Row) -> np.ndarray:
        assert self.model is not None and isinstance(self.model.task, LogitsTask)
        with about(row.place), about("teacher"):
            return np.maximum(self._task.from_teacher(self.model.task, finite(logits)), _LEAST)

    def score(self, rows: Sequence[Row]) -> dict[str, float]:
        """Return the teacher's scores on labeled rows; none if only its encoder is used."""
        return {} if self.model is None else score_answers(self._task, rows, list(self.model.predict(rows)))

    def prediction_loss(self, logits: Tensor, batch: Packed) -> Tensor:
        """Return how much the student's predictions differ from the teacher's, summed over the targets of a batch.

        `logits` are those of the student's loss (P, C).  `read` has read the rows that the batch names.
        """
        parts = [part for _, row, number in batch.samples.tolist() if number == 0 for part in self._logits[row]]
        joined = np.concatenate(parts) if self._task.per_token else np.stack(parts)
        with paddle.no_grad():  # as the rows' windows are pooled already, each row has one sequence
            pooled = replace(batch, firsts=None, weights=None)
            theirs = self._task.loss(paddle.to_tensor(joined.astype(np.float32)), pooled).logits
        assert theirs is not None
        return self._task.distillation(logits, theirs, self.config.temperature)

    def layer_loss(
        self, student: ErnieModel, states: Sequence[Tensor], batch: Packed, projection: nn.Linear | None
    ) -> Tensor:
        """Return how much the student's layers differ from the teacher's.

        `states` are the student's embeddings and the outputs (T, D) of its layers.  The losses of the tokens are summed
        and multiplied by the mean number of targets of a token of train, as the trainer divides by the targets.
        """
        theirs: list[Tensor] = []
        with evaluating(self.ernie):
            self.ernie.encode_packed(batch, self.task_id, states=theirs)
        total = paddle.zeros([])
        if self.config.hidden is not None:
            for own_TD, layer in zip(states[1:], self._layers, strict=True):
                own_TE = own_TD if projection is None else linear(own_TD, projection.weight, projection.bias)
                difference_TE = own_TE.astype("float32") - theirs[layer].astype("float32")
                total = total + self.config.hidden.weight / len(self._layers) * (difference_TE**2).mean(-1).sum()
        if self.config.relations is not None:
            own = _queries_keys_values(student, states, student.config.layers)
            for one, other in zip(own, _queries_keys_values(self.ernie, theirs, self._layer), strict=True):
                divergence = relation_divergence(one, other.detach(), batch.layout, self._heads)
                total = total + self.config.relations.weight * divergence
        return total * self._targets_per_token


def fitting(model: TaskModel, task: LogitsTask, name: str) -> TaskModel:
    """Return a model that reads a task's columns.  Raises UserError for one of another kind, or with other labels."""
    if type(model.task) is not type(task):
        raise UserError(f"{name}: is of the kind {model.task.variant_name}; expected the kind {task.variant_name}")
    columns = {field: getattr(task, field) for field in task.column_fields}
    model.task = replace(model.task, **columns, metrics=())
    assert isinstance(model.task, LogitsTask)
    with about(name):
        task.from_teacher(model.task, np.zeros((1, max(1, len(getattr(model.task, "labels", ()))))))
    return model


def _read(model: TaskModel, row: Row) -> Example:
    """Return a row with the teacher's tokens.  Raises UserError if it cannot be read."""
    with about(row.place), about("teacher"):
        return model.task.example(row, model.tokenizer)


def _queries_keys_values(ernie: ErnieModel, states: Sequence[Tensor], layer: int) -> list[Tensor]:
    """Return queries, keys and values (T, D) of a layer, counted from 1, given the embeddings and all outputs."""
    w, x_TD = ernie.encoder.layers[layer - 1].routed_weights(), states[layer - 1]
    return [linear(x_TD, weight, bias) for weight, bias in ((w.q, w.q_bias), (w.k, w.k_bias), (w.v, w.v_bias))]


def load_teacher(config: FinetuneConfig, task: FinetuneTask, student: ErnieModel) -> Teacher | None:
    """Return the teacher that a configuration names, None if it names none.  Raises UserError if it cannot teach."""
    if config.teacher is None:
        return None
    assert isinstance(task, LogitsTask)
    return Teacher(config.teacher, task, student, config.plugins)
