"""bfloat16 copies of weights: made once, updated by our optimizer, made again when anything else changes a weight.

Paddle counts in-place changes of a tensor, but neither the steps of its optimizers nor writes through other views of
the memory.  A copy is therefore stale after a backward pass, until our optimizer updates it, and when the weight's
fingerprint, a hash of some of its elements, has changed.  Paddle does not count set_value (and so set_state_dict) or
copy_ either: the wrappers below do.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterable
from functools import wraps
from typing import Any, NamedTuple

from paddle import Tensor

from ernie.kernels.cpu.call import byref, loaded, to_bf16


def _counted(change: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(change)
    def change_and_count(self: Tensor, *args: Any, **kwargs: Any) -> Any:
        result = change(self, *args, **kwargs)
        self._bump_inplace_version()
        return result

    return change_and_count


Tensor.set_value = _counted(Tensor.set_value)
Tensor.copy_ = _counted(Tensor.copy_)


class _Copy(NamedTuple):
    values: Tensor
    state: tuple[int, int, int] | None  # the weight's `_state` when the copy was made; None if stale


def bf16_copy(weight: Tensor) -> Tensor:
    """Return the weight in bfloat16."""
    copy = _copy_of(weight)
    if copy is None or copy.state != _state(weight):
        copy = _store(weight, to_bf16(weight))
    return copy.values


def invalidate(weights: Iterable[Tensor]) -> None:
    """Mark the copies of these weights as stale: they have gradients now, and some optimizer will change them."""
    for weight in weights:
        copy = _copy_of(weight)
        if copy is not None:
            weight._bf16_copy = copy._replace(state=None)


def copy_to_update(weight: Tensor) -> Tensor | None:
    """Return the copy, of which our optimizer overwrites every element before it calls `mark_current`; None if none."""
    copy = _copy_of(weight)
    return None if copy is None else copy.values


def mark_current(weight: Tensor) -> None:
    """Mark the copy as equal to the weight as it is now."""
    copy = _copy_of(weight)
    if copy is not None:
        _store(weight, copy.values)


def _store(weight: Tensor, values: Tensor) -> _Copy:
    weight._bf16_copy = _Copy(values, _state(weight))
    return weight._bf16_copy


def _copy_of(weight: Tensor) -> _Copy | None:
    return getattr(weight, "_bf16_copy", None)


def _state(weight: Tensor) -> tuple[int, int, int]:
    fingerprint = ctypes.c_uint64()
    loaded().call("fingerprint", weight.data_ptr(), *weight.shape, byref(fingerprint))
    return weight.data_ptr(), weight.inplace_version, fingerprint.value
