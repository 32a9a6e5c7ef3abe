"""All-reduce of gradients over a group of processes, fused into a few messages."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

from paddle import Tensor
from paddle.distributed.fleet.utils.hybrid_parallel_util import fused_allreduce_gradients_with_group

_MESSAGE = 1 << 25  # maximum bytes of a message, unless a single gradient has more


def all_reduce_gradients(parameters: Sequence[Tensor], group: Any) -> None:
    """All-reduce (sum) the gradients of these parameters, which all processes of the group have.

    Fleet copies all the gradients that it is given into one buffer before it sends the first message.  Passing them in
    batches avoids twice their memory.
    """
    for batch in _messages(parameters):
        fused_allreduce_gradients_with_group(batch, group, scale=1.0)


def _messages(parameters: Sequence[Tensor]) -> Iterator[list[Tensor]]:
    batch: list[Tensor] = []
    size = 0
    for parameter in parameters:
        added = 4 * math.prod(parameter.shape)
        if batch and size + added > _MESSAGE:
            yield batch
            batch, size = [], 0
        batch.append(parameter)
        size += added
    if batch:
        yield batch
