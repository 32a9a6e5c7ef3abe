"""A micro-batch and its forward and backward pass."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

import paddle
from paddle import Tensor

from ernie.data import seeded_rng
from ernie.data.batch import Packed
from ernie.kernels.precision import as_chosen

if TYPE_CHECKING:
    from ernie.model.losses import Loss


class MicroBatch(NamedTuple):
    """A batch of a task, the factor of its loss, and the key that seeds its dropout."""

    task: str
    batch: Packed
    factor: float
    key: int

    def seed(self, *piece: int) -> None:
        """Seed the dropout that follows by the micro-batch and, if given, the piece of the model only."""
        paddle.seed((seeded_rng.key(self.key, *piece) if piece else self.key) % 2**31)


def backward(micro: MicroBatch, loss: Callable[[str, Packed], Loss]) -> Tensor:
    """Run the forward and backward pass of a micro-batch; return its summed loss, which a GPU may still compute."""
    micro.seed()
    with as_chosen():
        result = loss(micro.task, micro.batch)
    (result.total * micro.factor).backward()
    return result.total.detach()
