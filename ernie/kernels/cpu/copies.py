"""Copies of weights in bfloat16: made once, renewed by our optimizer, made anew when others change a weight.

Paddle counts a tensor's versions, but not its optimizers' steps.  So a copy is not trusted after a backward pass until
our optimizer renews it, nor when a few elements are other ones now.  What set_value changes, and set_state_dict by it,
Paddle does not count either: here it does.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Iterable
from typing import Any, NamedTuple

from paddle import Tensor

from ernie.kernels.cpu.call import low

_SAMPLE = 64  # bytes
_set_value = Tensor.set_value


def _set_and_count(self: Tensor, value: Any) -> Any:
    set_ = _set_value(self, value)
    self._bump_inplace_version()
    return set_


Tensor.set_value = _set_and_count


class _Copy(NamedTuple):
    values: Tensor
    state: tuple[int, int, bytes] | None  # of the weight, when the copy was made; None: not to be trusted


def low_copy(weight: Tensor) -> Tensor:
    """The weight in bfloat16."""
    copy = _of(weight)
    if copy is None or copy.state != _state(weight):
        copy = _keep(weight, low(weight))
    return copy.values


def doubt(weights: Iterable[Tensor]) -> None:
    """These weights have gradients now: some optimizer will change them."""
    for weight in weights:
        copy = _of(weight)
        if copy is not None:
            weight._low_copy = copy._replace(state=None)


def to_renew(weight: Tensor) -> Tensor | None:
    """Where our optimizer, which writes every element, shall write the new values; then it calls `renewed`."""
    copy = _of(weight)
    return None if copy is None else copy.values


def renewed(weight: Tensor) -> None:
    """The copy is the weight's again."""
    copy = _of(weight)
    if copy is not None:
        _keep(weight, copy.values)


def _keep(weight: Tensor, values: Tensor) -> _Copy:
    weight._low_copy = _Copy(values, _state(weight))
    return weight._low_copy


def _of(weight: Tensor) -> _Copy | None:
    return getattr(weight, "_low_copy", None)


def _state(weight: Tensor) -> tuple[int, int, bytes]:
    # From the middle, where a row of an embedding is an ordinary token's.
    at, size = weight.data_ptr(), 4 * math.prod(weight.shape)
    return at, weight.inplace_version, ctypes.string_at(at + size // 8 * 4, min(_SAMPLE, size - size // 8 * 4))
