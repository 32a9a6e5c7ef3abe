"""The operators that a GPU would be given, and the memory that they would read and write, counted on a played one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import wraps
from typing import Any

import paddle
import pytest
from paddle import Tensor
from support.fake_gpu import FakeGpu, fake_gpu

_ARITHMETIC = [f"__{side}{name}__" for name in ("add", "sub", "mul", "truediv", "pow") for side in ("", "r")]
_NO_OPERATOR = {"GradNodeAccumulation", *(f"{name}GradNode" for name in ("Reshape", "Squeeze", "Unsqueeze"))}


@dataclass
class Operators:
    """How often each operator was called, and the bytes that all of them read and wrote.

    A view is no operator.  A stand-in counts as the fused operator for which it stands.
    """

    calls: Counter[str] = field(default_factory=Counter)
    memory: int = 0
    largest: int = 0  # elements of a result

    def add_backward(self, loss: Tensor) -> None:
        """Count the operators of a backward pass that is still to come, but for those that its Python code calls."""
        nodes, seen = [loss.grad_fn], set()
        while nodes:
            node = nodes.pop()
            if node is None or node.node_ptr() in seen:
                continue
            seen.add(node.node_ptr())
            nodes += node.next_functions
            name = node.name()
            if name not in _NO_OPERATOR and ("PyLayer" not in name or "OneOperator" in name):
                self.calls[name] += 1


@contextmanager
def counted_operators(**settings: Any) -> Iterator[tuple[FakeGpu, Operators]]:
    """Play a GPU whose operators are counted, but for those of the backward pass (see `add_backward`)."""
    found, devices = Operators(), []
    with pytest.MonkeyPatch.context() as patch:
        for owner, names in ((paddle._C_ops, dir(paddle._C_ops)), (Tensor, _ARITHMETIC)):
            for name in names:
                operator = getattr(owner, name)
                if callable(operator) and (owner is Tensor or not name.startswith("_")):
                    patch.setattr(owner, name, _counted(found, devices, name, operator))
        with fake_gpu(**settings) as device:
            devices.append(device)
            yield device, found


def _counted(found: Operators, devices: list[FakeGpu], name: str, operator: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(operator)
    def call(*args: Any, **kwargs: Any) -> Any:
        result = operator(*args, **kwargs)
        if devices and devices[0].counts:
            read, written = list(_tensors([*args, *kwargs.values()])), list(_tensors([result]))
            addresses = {tensor.data_ptr() for tensor in read}
            is_view = not name.endswith("_") and any(tensor.data_ptr() in addresses for tensor in written)
            if written and not is_view:
                found.calls[name] += 1
                found.largest = max(found.largest, *(tensor.size for tensor in written))
                found.memory += sum(tensor.size * tensor.element_size() for tensor in (*read, *written))
        return result

    return call


def _tensors(values: Any) -> Iterator[Tensor]:
    for value in values:
        if isinstance(value, Tensor):
            if value._is_initialized():
                yield value
        elif isinstance(value, list | tuple):
            yield from _tensors(value)
