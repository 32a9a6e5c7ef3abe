"""A fine-tuned model in training: its loss, in one piece and in the parts that a pipeline of processes computes.

Legend: T packed tokens, D width.
"""

from __future__ import annotations

from dataclasses import replace

import paddle
from paddle import nn

from ernie.data.batch import Packed
from ernie.errors import UserError, about
from ernie.kernels.mask import Mask
from ernie.model.ernie import ErnieModel
from ernie.model.losses import Loss, checked
from ernie.train.adapter import Adapter
from finetune.train.teacher import Teacher
from inference.task_model import TaskModel
from tasks.downstream.base import FinetuneTask, LogitsTask
from tasks.downstream.hooks import OwnBatches


class TrainingModel(TaskModel):
    """A model of a task that also has a loss.

    With `r_drop` above 0 a batch has every sample twice, and the loss also counts how much the two predictions differ
    under dropout (R-Drop: Liang et al., 2021, arXiv 2106.14448, section 2.2, in the scale of the authors' code).

    An `adapter` is what is trained of the encoder, if only that is (see Adapter).  A `teacher` adds what the model
    learns from it, by way of a `projection` to the teacher's width if it compares vectors of another width.
    """

    r_drop = 0.0

    def __init__(self, ernie: ErnieModel, task: FinetuneTask, task_id: int = 0):
        super().__init__(ernie, task, task_id)
        self.adapter: Adapter | None = None
        self.projection: nn.Linear | None = None
        self.teacher: Teacher | None = None

    def weight_counts(self) -> tuple[int, int]:
        """Return how many weights are trained, and how many encoder and head have."""
        merged = [] if self.adapter is None else [id(update.weight) for update in self.adapter.updates.values()]
        dropped = [] if self.projection is None else [id(each) for each in self.projection.parameters()]
        left_out = {*merged, *dropped}
        trained = [each for each in self.parameters() if not each.stop_gradient and id(each) not in left_out]
        own = [*self.ernie.parameters(), *self.head.parameters()]
        return sum(each.size for each in trained), sum(each.size for each in own)

    def loss(self, batch: Packed) -> Loss:
        """Return the loss of one batch, which has the features of its sounds if it has any."""
        if self.teacher is None or not self.teacher.config.compares_layers:
            return self.head_loss("", self.task.encode(self.ernie, self.head, batch, self.task_id), batch)
        states: list[paddle.Tensor] = []
        found = self.head_loss("", self.ernie.encode_packed(batch, self.task_id, states=states), batch)
        compared = self.teacher.layer_loss(self.ernie, states, batch, self.projection)
        return replace(found, total=found.total + compared)

    def task_embedding(self, _: str) -> int:
        """Return the id of the task embedding."""
        return self.task_id

    def encoder_input(self, _: str, batch: Packed) -> tuple[Packed, Mask | None]:
        """Return the batch that the encoder gets, and its attention mask (None: full attention)."""
        return self.task.encoder_input(batch) if isinstance(self.task, OwnBatches) else (batch, None)

    def head_loss(self, _: str, hidden_TD: paddle.Tensor, batch: Packed) -> Loss:
        """Return the loss of one batch, given the encoder's hidden states.  Raises UserError if it is no such loss."""
        loss = self.task.head_loss(self.head, hidden_TD, batch)
        with about(f"kind '{self.task.variant_name}'"):
            found = checked(loss, batch)
            taught = 0.0 if self.teacher is None else self.teacher.config.weight
            if not self.r_drop and not taught:
                return found
            if not isinstance(self.task, LogitsTask) or found.logits is None:
                key = "train.r_drop" if self.r_drop else "teacher"
                raise UserError(f"{key}: compares the logits of a Loss, and its `loss` gives none")
        total = found.total
        if self.teacher is not None and taught:
            total = (1 - taught) * total + taught * self.teacher.prediction_loss(found.logits, batch)
        if self.r_drop:  # twice, as the trainer divides by the targets of both passes
            total = total + 2 * self.r_drop * self.task.divergence(found.logits)
        return replace(found, total=total)
