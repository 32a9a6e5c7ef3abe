"""A model in training on the processes of a mesh: how it is split, its passes, and its gradients."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, cast

import paddle
from paddle import Tensor, nn
from paddle.distributed import ReduceOp, fleet
from paddle.distributed.fleet.utils.sequence_parallel_utils import is_sequence_parallel_parameter

from ernie.data.batch import Packed
from ernie.kernels.adamw import sum_of_squares
from ernie.parallel.collectives import all_reduce
from ernie.parallel.grad_reduce import all_reduce_gradients
from ernie.parallel.layout import REPLICAS
from ernie.parallel.mesh import Mesh
from ernie.parallel.micro_batch import MicroBatch, backward
from ernie.parallel.sharded_state import ShardedState
from ernie.parallel.tensor_shard import is_split

if TYPE_CHECKING:
    from ernie.model.losses import Loss
    from ernie.parallel.pipeline import Pipeline, Staged


class DistributedModel:
    """This process's part of a model, and the passes of a training step over all processes.

    Every process creates the model identically; here it is reduced to this process's part, in place.  In a single
    process it stays as it is.  A model that is split has the methods of `ernie.parallel.pipeline.Staged`.
    """

    def __init__(self, model: nn.Layer, mesh: Mesh) -> None:
        self.mesh = mesh
        self._pipeline = _split(cast("Staged", model), mesh)
        self.state = ShardedState(model, mesh)

    def backward(
        self,
        tasks: Sequence[str | None],
        made: Mapping[int, MicroBatch],
        loss: Callable[[str, Packed], Loss],
    ) -> list[tuple[str, float]]:
        """Run forward and backward of this process's micro-batches; return each one's task and summed loss.

        `tasks` lists the task of every micro-batch of the step, None for those without targets.  `made` holds by number
        those that this process has, its own among them.  In a pipeline only the last stage knows the losses.
        """
        layout, sharding, watch = self.mesh.layout, self.state.sharding, self.mesh.watch
        replicas = layout.replicas
        with_targets = {number: micro for number, micro in made.items() if tasks[number] is not None}
        numbers = enumerate(self.mesh.shard(range(len(tasks))))
        own = {turn: with_targets[number] for turn, number in numbers if number in with_targets}
        watch.at(task=", ".join(dict.fromkeys(micro.task for micro in own.values())), doing="forward and backward")
        if self._pipeline is not None:
            return self._read(self._pipeline.backward(list(own.values())))
        losses = []
        for turn in range(-(-len(tasks) // replicas)):
            present = [task for task in tasks[turn * replicas :][:replicas] if task is not None]
            if not present:
                continue
            if sharding is not None:
                sharding.begin(len(present) == replicas and len(set(present)) == 1)
            if turn in own:
                watch.at(task=own[turn].task)
                losses.append((own[turn].task, backward(own[turn], loss)))
            elif layout.shards_weights:  # the others need this process's slices
                idle = next(iter([*with_targets.values(), *made.values()]))
                backward(idle._replace(factor=0.0), loss)
            if sharding is not None:
                sharding.end(list(self.state.parameters.values()))
        return self._read(losses)

    def _read(self, losses: Sequence[tuple[str, Tensor]]) -> list[tuple[str, float]]:
        """Copy losses from the device at once: a GPU first ends all that it computes, and exchanges with others."""
        if not losses:
            return []
        with self.mesh.watch.waiting("the losses"):
            values = paddle.stack([loss.astype("float64").reshape([]) for _, loss in losses]).tolist()
        return [(task, value) for (task, _), value in zip(losses, values, strict=True)]

    @paddle.no_grad()
    def reduce_gradients(self) -> None:
        """Sum each parameter's gradient over all replicas, also where only some of them have one."""
        parameters = list(self.state.parameters.values())
        if self.mesh.layout.sequence:
            parts = [p for p in parameters if p.grad is not None and is_sequence_parallel_parameter(p)]
            all_reduce_gradients(parts, self.mesh.groups["tensor"])
        if self.mesh.layout.replicas == 1:
            return
        present = all_reduce(self.mesh, [p.grad is not None for p in parameters], REPLICAS, ReduceOp.MAX)
        learning = [p for p, is_present in zip(parameters, present, strict=True) if is_present]
        if self.state.sharding is not None:
            self.state.sharding.reduce_gradients(learning)
            return
        for parameter in learning:
            if parameter.grad is None:
                parameter.grad = paddle.zeros_like(parameter)
        all_reduce_gradients(learning, self.mesh.groups["data"])

    def gradient_norm(self, parameters: Sequence[Tensor]) -> float:
        """Return the global L2 norm of the gradients of these parameters; not finite if any of them is not."""
        if self.state.sharding is not None:
            parameters = self.state.sharding.owned(parameters)
        if self._pipeline is not None:
            parameters = [parameter for parameter in parameters if self._pipeline.counts(parameter)]
        full, parts = (
            sum_of_squares(
                [
                    gradient
                    for parameter in parameters
                    if is_split(parameter) is split and (gradient := self.state.values(parameter).grad) is not None
                ]
            )
            for split in (False, True)
        )
        [parts] = all_reduce(self.mesh, [parts], ["tensor"])
        return float(all_reduce(self.mesh, [full + parts], ["sharding", "pipeline"])[0] ** 0.5)


def _split(model: Staged, mesh: Mesh) -> Pipeline | None:
    """Reduce a model to this process's part of it, in place; return its stage of a pipeline, if it is one."""
    if mesh.layout.recompute:
        model.ernie.gradient_checkpointing_enable()
    if "tensor" in mesh.groups:
        from ernie.parallel.tensor import split

        split(cast("nn.Layer", model), mesh.groups["tensor"], mesh.layout.sequence)
    if "pipeline" in mesh.groups:
        from ernie.parallel.pipeline import Pipeline

        return Pipeline(model, mesh.topology, fleet.fleet._user_defined_strategy, mesh.layout)
    return None
