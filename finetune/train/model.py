"""A fine-tuned model in training: its loss, in one piece and in the parts that a pipeline of processes computes.

Legend: T packed tokens, D width.
"""

from __future__ import annotations

from dataclasses import replace

import paddle

from ernie.data.batch import Packed
from ernie.errors import UserError, about
from ernie.kernels.mask import Mask
from ernie.model.ernie import ErnieModel
from ernie.model.losses import Loss, checked
from ernie.train.adapter import Adapter
from inference.task_model import TaskModel
from tasks.downstream.base import FinetuneTask, LogitsTask
from tasks.downstream.hooks import OwnBatches


class TrainingModel(TaskModel):
    """A model of a task that also has a loss.

    With `r_drop` above 0 a batch has every sample twice, and the loss also counts how much the two predictions differ
    under dropout (R-Drop: Liang et al., 2021, arXiv 2106.14448, section 2.2, in the scale of the authors' code).

    An `adapter` is what is trained of the encoder, if only that is (see Adapter).
    """

    r_drop = 0.0

    def __init__(self, ernie: ErnieModel, task: FinetuneTask, task_id: int = 0):
        super().__init__(ernie, task, task_id)
        self.adapter: Adapter | None = None

    def weight_counts(self) -> tuple[int, int]:
        """Return how many weights are trained, and how many encoder and head have."""
        merged = [] if self.adapter is None else [id(update.weight) for update in self.adapter.updates.values()]
        trained = [each for each in self.parameters() if not each.stop_gradient and id(each) not in merged]
        own = [*self.ernie.parameters(), *self.head.parameters()]
        return sum(each.size for each in trained), sum(each.size for each in own)

    def loss(self, batch: Packed) -> Loss:
        """Return the loss of one batch."""
        if isinstance(self.task, OwnBatches):
            batch = self.task.augmented(batch, self.training)
        return self.head_loss("", self.task.encode(self.ernie, self.head, batch, self.task_id), batch)

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
            if not self.r_drop:
                return found
            if not isinstance(self.task, LogitsTask) or found.logits is None:
                raise UserError("train.r_drop: compares the logits of a Loss, and its `loss` gives none")
        # The trainer divides by the targets of both passes.
        return replace(found, total=found.total + 2 * self.r_drop * self.task.divergence(found.logits))
