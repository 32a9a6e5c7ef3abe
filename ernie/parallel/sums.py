"""Sums of gradients over a group of processes, laid side by side in a few messages."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

from paddle import Tensor
from paddle.distributed.fleet.utils.hybrid_parallel_util import fused_allreduce_gradients_with_group

_MESSAGE = 1 << 25  # bytes, at most, unless a single gradient has more


def sum_gradients(parameters: Sequence[Tensor], group: Any) -> None:
    """Add up the gradients of these parameters, which all processes of the group have.

    Fleet lays all that it is given side by side before it sends the first message, which would be the memory of all
    gradients once more; so it is given some at a time.
    """
    for some in _messages(parameters):
        fused_allreduce_gradients_with_group(some, group, scale=1.0)


def _messages(parameters: Sequence[Tensor]) -> Iterator[list[Tensor]]:
    found: list[Tensor] = []
    size = 0
    for parameter in parameters:
        more = 4 * math.prod(parameter.shape)
        if found and size + more > _MESSAGE:
            yield found
            found, size = [], 0
        found.append(parameter)
        size += more
    if found:
        yield found
