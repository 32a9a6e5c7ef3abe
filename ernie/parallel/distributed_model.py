"""A model in training on the processes of a mesh: how it is split, its passes, and its gradients."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from operator import add
from typing import TYPE_CHECKING, cast

import paddle
from paddle import Tensor, nn
from paddle.distributed import ReduceOp, fleet
from paddle.distributed.fleet.utils.sequence_parallel_utils import is_sequence_parallel_parameter

from ernie.data.batch import Packed
from ernie.kernels.adamw import sum_of_squares
from ernie.kernels.gpu.linear import Passes, constant_weights
from ernie.kernels.precision import as_chosen
from ernie.kernels.upload import Uploads
from ernie.parallel.collectives import all_reduce, sum_over
from ernie.parallel.grad_reduce import EarlySums, all_reduce_gradients
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
    process it stays as it is.  A model that is split has the methods of `ernie.parallel.pipeline.Staged`.  `overlaps`
    is False if the caller changes gradients between the backward passes and their sum.
    """

    def __init__(self, model: nn.Layer, mesh: Mesh, overlaps: bool = True) -> None:
        self.mesh = mesh
        self._pipeline = _split(cast("Staged", model), mesh)
        self.state = ShardedState(model, mesh)
        self._uploads = Uploads()
        self._early: EarlySums | None = None
        if "data" in mesh.groups and mesh.layout.can_overlap and overlaps and _wants_overlap(mesh.layout.overlap):
            self._early = EarlySums(list(self.state.parameters.values()), mesh.groups["data"])
        self._task: str | None = None  # of the step, if all processes always have a micro-batch of it

    def backward(
        self,
        tasks: Sequence[str | None],
        made: Mapping[int, MicroBatch],
        loss: Callable[[str, Packed], Loss],
    ) -> list[tuple[str, Tensor]]:
        """Run forward and backward of this process's micro-batches; return each one's task and summed loss.

        A GPU may still compute the losses and the gradients: `totals` waits for them.

        `tasks` lists the task of every micro-batch of the step, None for those without targets.  `made` holds by number
        those that this process has, its own among them.  In a pipeline only the last stage knows the losses.
        """
        watch = self.mesh.watch
        with_targets = {number: micro for number, micro in made.items() if tasks[number] is not None}
        numbers = enumerate(self.mesh.shard(range(len(tasks))))
        own = {turn: with_targets[number] for turn, number in numbers if number in with_targets}
        watch.at(task=", ".join(dict.fromkeys(micro.task for micro in own.values())), doing="forward and backward")
        arrays = (array for micro in own.values() for array in micro.batch.arrays())
        with self._uploads.ahead(arrays), constant_weights(not self.mesh.layout.shards_weights) as passes:
            if self._pipeline is not None:
                with as_chosen():  # for both passes, which the schedule mixes
                    return self._pipeline.backward(list(own.values()))
            losses = self._backward(tasks, with_targets or made, own, loss, passes)
            passes.finish()
            return losses

    def _backward(
        self,
        tasks: Sequence[str | None],
        made: Mapping[int, MicroBatch],
        own: Mapping[int, MicroBatch],
        loss: Callable[[str, Packed], Loss],
        passes: Passes,
    ) -> list[tuple[str, Tensor]]:
        """As `backward`, where each process has all layers; `own` holds its micro-batches by turn."""
        layout, sharding = self.mesh.layout, self.state.sharding
        is_uniform = len(set(tasks)) == 1 and len(tasks) % layout.replicas == 0
        self._task = tasks[0] if is_uniform else None
        losses = []
        for turn in range(-(-len(tasks) // layout.replicas)):
            present = [task for task in tasks[turn * layout.replicas :][: layout.replicas] if task is not None]
            if not present:
                continue
            if sharding is not None:
                sharding.begin(len(present) == layout.replicas and len(set(present)) == 1)
            if turn in own:
                self.mesh.watch.at(task=own[turn].task)
                passes.is_last = sharding is not None or turn == max(own)
                if self._early is not None and self._task is not None and turn == max(own):
                    self._early.begin(self._task)
                losses.append((own[turn].task, backward(own[turn], loss)))
            elif layout.shards_weights:  # the others need this process's slices
                backward(next(iter((own or made).values()))._replace(factor=0.0), loss)
            if sharding is not None:
                sharding.end(list(self.state.parameters.values()))
        return losses

    @paddle.no_grad()
    def reduce_gradients(self) -> None:
        """Sum each parameter's gradient over all replicas, also where only some of them have one."""
        if self._early is not None:
            with self.mesh.watch.waiting("all_reduce"):
                if self._early.finish():
                    return
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
        if self._early is not None and self._task is not None:
            self._early.learn(self._task, learning)
            return
        for parameter in learning:
            if parameter.grad is None:
                parameter.grad = paddle.zeros_like(parameter)
        all_reduce_gradients(learning, self.mesh.groups["data"])

    @paddle.no_grad()
    def totals(
        self, losses: Sequence[Sequence[Tensor]], groups: Sequence[Sequence[Tensor]]
    ) -> tuple[list[float], list[float]]:
        """Return the sum of each list of losses over all processes, and the L2 norm of the gradients of each group.

        The groups are of parameters.  A norm is not finite if any of its gradients is not.  All numbers are copied from
        the device at once: a GPU first ends all that it computes, and exchanges with others.
        """
        numbers = []
        if losses:
            numbers.append(paddle.stack([_sum(own) for own in losses]))
            sum_over(self.mesh, numbers[0], [*REPLICAS, "pipeline"])
        squares, parts = (
            paddle.stack([sum_of_squares(self._gradients(group, are_split)) for group in groups])
            for are_split in (False, True)
        )
        sum_over(self.mesh, parts, ["tensor"])
        squares = squares + parts
        sum_over(self.mesh, squares, ["sharding", "pipeline"])
        with self.mesh.watch.waiting("the losses"):
            values = paddle.concat([*numbers, squares]).tolist()
        return values[: len(losses)], [square**0.5 for square in values[len(losses) :]]

    def _gradients(self, parameters: Sequence[Tensor], are_split: bool) -> list[Tensor]:
        """Return the gradients that count here of those parameters that are, or are not, parts of split ones."""
        if self.state.sharding is not None:
            parameters = self.state.sharding.owned(parameters)
        if self._pipeline is not None:
            parameters = [parameter for parameter in parameters if self._pipeline.counts(parameter)]
        return [
            gradient
            for parameter in parameters
            if is_split(parameter) is are_split and (gradient := self.state.values(parameter).grad) is not None
        ]


def _wants_overlap(choice: bool | None) -> bool:
    return paddle.get_device() != "cpu" if choice is None else choice


def _sum(losses: Sequence[Tensor]) -> Tensor:
    return reduce(add, (loss.astype("float64").reshape([]) for loss in losses), paddle.zeros([], "float64"))


def _split(model: Staged, mesh: Mesh) -> Pipeline | None:
    """Reduce a model to this process's part of it, in place; return its stage of a pipeline, if it is one."""
    if mesh.layout.recompute:
        model.ernie.gradient_checkpointing_enable()
    if "tensor" in mesh.groups:
        from ernie.parallel.tensor import split

        split(cast("nn.Layer", model), mesh.groups["tensor"], mesh.layout.sequence)
    if "pipeline" in mesh.groups:
        from ernie.parallel.pipeline import Pipeline

        strategy = fleet.fleet._user_defined_strategy
        return Pipeline(model, mesh.topology, strategy, mesh.layout, mesh.watch.waiting)
    return None
