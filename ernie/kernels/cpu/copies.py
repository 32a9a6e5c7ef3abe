"""Copies of weights in bfloat16: made once, renewed by our optimizer, made anew when others change a weight.

Paddle counts a tensor's versions, but not its optimizers' steps, nor what is written through other views of its memory.
So a copy is not trusted after a backward pass until our optimizer renews it, nor when a sample of its rows is another
one now.  What set_value changes, set_state_dict by it, and copy_, Paddle does not count either: here it does.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterable
from functools import wraps
from typing import Any, NamedTuple

from paddle import Tensor

from ernie.kernels.cpu.call import byref, loaded, low


def _counted(change: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(change)
    def change_and_count(self: Tensor, *given: Any, **named: Any) -> Any:
        changed = change(self, *given, **named)
        self._bump_inplace_version()
        return changed

    return change_and_count


Tensor.set_value = _counted(Tensor.set_value)
Tensor.copy_ = _counted(Tensor.copy_)


class _Copy(NamedTuple):
    values: Tensor
    state: tuple[int, int, int] | None  # of the weight, when the copy was made; None: not to be trusted


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


def _state(weight: Tensor) -> tuple[int, int, int]:
    found = ctypes.c_uint64()
    loaded().call("fingerprint", weight.data_ptr(), *weight.shape, byref(found))
    return weight.data_ptr(), weight.inplace_version, found.value
