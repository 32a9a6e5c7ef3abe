"""A fine-tuned model in training: its loss, in one piece and in the parts that a pipeline of processes computes.

Legend: T packed tokens, D width.
"""

from __future__ import annotations

import paddle

from ernie.data.batch import Packed
from ernie.errors import about
from ernie.kernels.mask import Mask
from ernie.model.losses import Loss, checked
from inference.task_model import TaskModel
from tasks.downstream.hooks import OwnBatches


class TrainingModel(TaskModel):
    """A model of a task that also has a loss."""

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
            return checked(loss, batch)
