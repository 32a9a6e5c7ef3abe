"""Functions of single elements, whose results do not depend on where in an array the elements are."""

from __future__ import annotations

import math
from collections.abc import Callable

import paddle
from paddle import Tensor

from ernie.kernels.precision import is_batch_invariant

_VECTOR = 16  # elements; the widest SIMD vectors of a CPU


def elementwise(function: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    """Apply a function of single elements, such as `paddle.exp`.

    Within `batch_invariant` the array is filled up to whole vectors: Paddle computes the elements after the last whole
    one by another formula, which differs in the last bit.
    """
    count = math.prod(x.shape)
    if not is_batch_invariant() or count % _VECTOR == 0:
        return function(x)
    filled = paddle.concat([x.reshape([-1]), paddle.zeros([-count % _VECTOR], x.dtype)])
    return function(filled)[:count].reshape(x.shape)
