"""The state of training spread over processes that share out the micro-batches.

Rajbhandari et al. (2020, arXiv 1910.02054), section 5: in stage 1 each process keeps and updates its part of the
optimizer's state and hands the parameters to the others; in stage 2 it also keeps only its part of the gradients.  By
fleet's own optimizers and layers, around whatever updates a parameter.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import paddle
from paddle import Tensor, nn
from paddle.distributed import ReduceOp, all_reduce, broadcast, reduce, sharding
from paddle.distributed.fleet.meta_optimizers.dygraph_optimizer.dygraph_sharding_optimizer import (
    DygraphShardingOptimizer,
)
from paddle.distributed.fleet.utils.hybrid_parallel_util import fused_allreduce_gradients_with_group

Update = Callable[[Sequence[Tensor]], None]


class StateSharding:
    """Stage 1.  All processes of a group hold all parameters and gradients."""

    def __init__(self, parameters: Sequence[Tensor], topology: Any):
        self._topology = topology
        self._inner = _Inner(parameters)
        self._fleets = DygraphShardingOptimizer(self._inner, topology)
        self._group = topology.get_sharding_parallel_group()
        self._data = topology.get_data_parallel_group()

    def owned(self, parameters: Sequence[Tensor]) -> list[Tensor]:
        """Those of the parameters that are this process's to update."""
        return list(self._fleets.filter_parameters(list(parameters), self._topology))

    def begin(self, alike: bool) -> None:
        """A micro-batch begins, `alike` when that of every other process is of the same task."""

    def end(self, parameters: Sequence[Tensor]) -> None:
        """The backward pass of a micro-batch, or of nothing while others had one, is over."""

    def sum_gradients(self, parameters: Sequence[Tensor]) -> None:
        """Hand the sum of each parameter's gradients, over all replicas, to its owner; those of others are undefined.

        The parameters are those that have a gradient in any process.
        """
        for parameter in parameters:
            if parameter.grad is None:
                parameter.grad = paddle.zeros_like(parameter)
        if self._data.nranks > 1:
            fused_allreduce_gradients_with_group(parameters, self._data, scale=1.0)
        self._fleets.reduce_gradients(list(parameters), self._topology)
        for parameter in self.owned(parameters):
            parameter.grad.scale_(float(self._group.nranks))  # fleet makes the mean

    def from_owner(self, values: Tensor, of: Tensor) -> Tensor:
        """The values that the owner of a parameter gives."""
        values = values.clone()
        broadcast(values, src=self._group.ranks[self._fleets._param2rank[of.name]], group=self._group)
        return values

    def step(self, update: Update) -> None:
        """Have `update` change the owned parameters that have gradients, then hand all of them round."""
        self._inner.update = update
        self._fleets.step()


class GradientSharding:
    """Stage 2.  What fleet's hooks do in the backward pass, each process has to do alike and in the same order.

    So they are used where all processes learn the same task at a time; elsewhere gradients are handed over after the
    micro-batch.
    """

    def __init__(self, layer: nn.Layer, parameters: Sequence[Tensor], topology: Any):
        self._group = topology.get_sharding_parallel_group()
        self._data = topology.get_data_parallel_group()
        self._inner = _PaddleOptimizer(parameters)
        self._layer, self._optimizer, _ = sharding.group_sharded_parallel(
            layer, self._inner, "os_g", group=self._group, buffer_max_size=0
        )
        self._layer._fresh_trainable()
        self._alike = True

    def owned(self, parameters: Sequence[Tensor]) -> list[Tensor]:
        """As StateSharding's."""
        owners = self._optimizer.param2rank
        return [parameter for parameter in parameters if owners[parameter.name] == self._group.rank]

    def begin(self, alike: bool) -> None:
        """As StateSharding's."""
        self._alike = alike
        self._layer._clear_counters()
        if not alike:
            self._layer._grad_reduced = [False] * len(self._layer._grad_reduced)  # the hooks do nothing

    def end(self, parameters: Sequence[Tensor]) -> None:
        """As StateSharding's."""
        if self._alike:
            return
        with paddle.no_grad():
            present = paddle.to_tensor(np.array([parameter.grad is not None for parameter in parameters], np.int32))
            all_reduce(present, ReduceOp.MAX, group=self._group)
            for parameter, there in zip(parameters, present.numpy(), strict=True):
                if there:
                    self._hand_over(parameter)

    def _hand_over(self, parameter: Tensor) -> None:
        owner = self._optimizer.param2rank[parameter.name]
        gradient = paddle.zeros_like(parameter) if parameter.grad is None else parameter.grad
        reduce(gradient, self._group.ranks[owner], group=self._group)
        if owner == self._group.rank:
            parameter.grad = gradient
        else:
            parameter.clear_gradient(False)

    def sum_gradients(self, parameters: Sequence[Tensor]) -> None:
        """As StateSharding's: the owners have the sums of their group already."""
        if self._data.nranks > 1:
            owned = self.owned(parameters)
            for parameter in owned:
                if parameter.grad is None:
                    parameter.grad = paddle.zeros_like(parameter)
            fused_allreduce_gradients_with_group(owned, self._data, scale=1.0)

    def from_owner(self, values: Tensor, of: Tensor) -> Tensor:
        """As StateSharding's."""
        values = values.clone()
        broadcast(values, src=self._group.ranks[self._optimizer.param2rank[of.name]], group=self._group)
        return values

    def step(self, update: Update) -> None:
        """As StateSharding's."""
        owned = self.owned(self._inner._parameter_list)
        self._inner.update = lambda: update([parameter for parameter in owned if parameter.grad is not None])
        self._optimizer._step()


class _Inner:
    """What fleet takes for an optimizer of Paddle's in stage 1."""

    def __init__(self, parameters: Sequence[Tensor]):
        self._parameter_list = self._param_groups = list(parameters)
        self.update: Update | None = None

    def _apply_optimize(
        self, loss: None, startup_program: None, params_grads: Sequence[tuple[Tensor, Tensor | None]]
    ) -> None:
        assert self.update is not None
        self.update([parameter for parameter, gradient in params_grads if gradient is not None])


class _PaddleOptimizer(paddle.optimizer.Optimizer):
    """What fleet takes for one in stage 2."""

    def __init__(self, parameters: Sequence[Tensor]):
        super().__init__(learning_rate=0.0, parameters=list(parameters))
        self.update: Callable[[], None] = lambda: None

    def step(self) -> None:
        self.update()
