"""Collectives of plain numbers and objects between the processes of a mesh.

Every process of the mesh has to call them, in the same order.  In a single process they return its own values.  The
watch learns that a process waits in them.  On a GPU, where tensors are reduced in the background, each of them waits
for all work before it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np
import paddle
from paddle import Tensor
from paddle.distributed import ReduceOp, all_gather_object, broadcast_object_list
from paddle.distributed import all_reduce as all_reduce_tensor

from ernie.parallel.mesh import Mesh

T = TypeVar("T")


def all_reduce(mesh: Mesh, values: Sequence[float], axes: Sequence[str], op: Any = ReduceOp.SUM) -> list[float]:
    """Return the elementwise sum (or another reduction) over the processes along some axes of the mesh."""
    return _reduced(mesh, values, [mesh.groups[axis] for axis in axes if axis in mesh.groups], op)


def sum_over(mesh: Mesh, values: Tensor, axes: Sequence[str]) -> None:
    """Sum a tensor over the processes along some axes of the mesh, in place.  A GPU goes on before it has the sums."""
    for axis in axes:
        if axis in mesh.groups:
            with mesh.watch.waiting("all_reduce"):
                all_reduce_tensor(values, group=mesh.groups[axis])


def max_of_ranks(mesh: Mesh, value: float) -> float:
    """Return the maximum of `value` over all processes."""
    return _reduced(mesh, [value], [] if mesh.everyone is None else [mesh.everyone], ReduceOp.MAX)[0]


def any_rank(mesh: Mesh, flag: bool) -> bool:
    """Whether `flag` is true in any process."""
    return bool(max_of_ranks(mesh, flag))


def all_gather(mesh: Mesh, value: T) -> list[T]:
    """Return the `value` of every process, by rank.  Values are pickled."""
    if mesh.everyone is None:
        return [value]
    values: list[T] = []
    with mesh.watch.waiting("all_gather"):
        all_gather_object(values, value)
    return values


def differing_ranks(mesh: Mesh, value: str) -> list[int]:
    """Return the ranks whose `value` differs from that of rank 0."""
    values = all_gather(mesh, value)
    return [rank for rank, other in enumerate(values) if other != values[0]]


def on_rank0(mesh: Mesh, doing: str, compute: Callable[[], T]) -> T:
    """Compute something on rank 0 only, and broadcast the pickled result.  The others wait without a time limit.

    `doing` says in words what rank 0 computes, for the error message of a process that fails meanwhile.
    """
    with mesh.watch.doing(doing if mesh.is_first else f"waiting for rank 0, {doing}"):
        if mesh.everyone is None:
            return compute()
        result: list[Any] = [None]
        if mesh.is_first:
            result[0] = compute()
            mesh.watch.pass_on()
        else:
            mesh.watch.wait_for_first()
        with mesh.watch.waiting("broadcast"):
            broadcast_object_list(result, src=0)
    return result[0]


def _reduced(mesh: Mesh, values: Sequence[float], groups: Sequence[Any], op: Any) -> list[float]:
    """All-reduce numbers over the groups, one group after the other."""
    if not values or not groups:  # Gloo fails on an empty tensor
        return list(values)
    total = paddle.to_tensor(np.array(values, np.float64))
    with mesh.watch.waiting("all_reduce"):
        for group in groups:
            all_reduce_tensor(total, op, group=group)
        return [float(value) for value in total.numpy()]
