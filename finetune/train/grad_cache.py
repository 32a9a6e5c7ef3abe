"""The gradient of a loss over more samples than fit into memory at once.

Gao et al., 2021, "Scaling Deep Contrastive Learning Batch Size under Memory Limited Setup" (arXiv 2101.06983).

Legend: N samples of a step, n those of a micro-batch, D width.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import paddle
from paddle import Tensor

from ernie.data.batch import Packed
from ernie.model.losses import Loss, checked
from ernie.parallel.micro_batch import MicroBatch
from finetune.train.model import TrainingModel
from tasks.downstream.hooks import LossOfVectors


class GradCache:
    """The loss of all samples of a step, and its gradient with respect to the vector of each.

    `fill` computes the vectors of all micro-batches, and the loss of them all.  `loss` then computes a micro-batch
    again, with the same dropout.  What it returns has the gradient of the loss of the whole step, and the sum of these
    losses is that loss.
    """

    def __init__(self, model: TrainingModel):
        self._model = model
        self._kept: dict[int, tuple[Tensor, float]] = {}  # by the id of a batch: its gradient (n, D), and its loss

    def fill(self, micros: Sequence[MicroBatch], whole: Packed) -> None:
        """Compute the loss of all micro-batches; `whole` has their samples, in order.

        Every process computes all of them.
        """
        parts = []
        for micro in micros:
            micro.seed()
            parts.append(self._vectors(micro.batch).detach())  # with gradients, which other kernels may compute
        vectors_ND = paddle.concat(parts)
        vectors_ND.stop_gradient = False
        loss = checked(self._task.vector_loss(vectors_ND, whole), whole)
        loss.total.backward()
        gradient_ND, share = vectors_ND.grad, float(loss.total) / max(1, whole.targets)
        ends = np.cumsum([len(part) for part in parts]).tolist()
        self._kept = {
            id(micro.batch): (gradient_ND[end - len(part) : end], share * micro.batch.targets)
            for micro, part, end in zip(micros, parts, ends, strict=True)
        }

    def loss(self, batch: Packed) -> Loss:
        """Return the part of a micro-batch in the loss of its step."""
        gradient_nD, share = self._kept.pop(id(batch))
        total = (self._vectors(batch) * gradient_nD).sum()
        return Loss(total - total.detach() + share, batch.targets, None, np.empty(0))

    @property
    def _task(self) -> LossOfVectors:
        task = self._model.task
        assert isinstance(task, LossOfVectors)
        return task

    def _vectors(self, batch: Packed) -> Tensor:
        model = self._model
        return self._task.vectors(model.head, model.task.encode(model.ernie, model.head, batch, model.task_id), batch)
