"""What a step computes at a time."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

import paddle

from ernie.data import order
from ernie.data.batch import Packed

if TYPE_CHECKING:
    from ernie.model.losses import Loss


class MicroBatch(NamedTuple):
    """A batch of a task, what its loss is multiplied by, and the key of its dropout."""

    task: str
    batch: Packed
    factor: float
    key: int

    def seed(self, *piece: int) -> None:
        """Have the dropout that follows depend on the micro-batch, and the piece of the model, alone."""
        paddle.seed((order.key(self.key, *piece) if piece else self.key) % 2**31)


def backward(micro: MicroBatch, loss: Callable[[str, Packed], Loss]) -> float:
    """Forward and backward of one; returns its summed loss."""
    micro.seed()
    found = loss(micro.task, micro.batch)
    (found.total * micro.factor).backward()
    return float(found.total)
