"""The state of training spread over processes that share out the micro-batches.

Rajbhandari et al. (2020, arXiv 1910.02054), section 5: in stage 1 each process keeps and updates its part of the
optimizer's state and hands the parameters to the others; in stage 2 it also keeps only its part of the gradients, in
stage 3 of the weights.  By fleet's own optimizers and layers, around whatever updates a parameter.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import paddle
from paddle import Tensor, nn
from paddle.distributed import ReduceOp, all_gather, all_reduce, broadcast, reduce, sharding
from paddle.distributed.fleet.meta_optimizers.dygraph_optimizer.dygraph_sharding_optimizer import (
    DygraphShardingOptimizer,
)

from ernie.parallel.sums import sum_gradients

Update = Callable[[Sequence[Tensor]], None]


class Sharding:
    """What the stages share: each parameter has an owner, who updates it and keeps its moments."""

    def __init__(self, topology: Any):
        self._group = topology.get_sharding_parallel_group()
        self._data = topology.get_data_parallel_group()

    def owner(self, parameter: Tensor) -> int:
        """The rank, within the group, that a parameter is updated by."""
        raise NotImplementedError

    def owned(self, parameters: Sequence[Tensor]) -> list[Tensor]:
        """Those of the parameters that are this process's to update."""
        return [parameter for parameter in parameters if self.owner(parameter) == self._group.rank]

    def begin(self, alike: bool) -> None:
        """A micro-batch begins, `alike` when that of every other process is of the same task."""

    def end(self, parameters: Sequence[Tensor]) -> None:
        """The backward pass of a micro-batch, or of nothing while others had one, is over."""

    def sum_gradients(self, parameters: Sequence[Tensor]) -> None:
        """Hand the sum of each parameter's gradients, over all replicas, to its owner; those of others are undefined.

        The parameters are those that have a gradient in any process.
        """
        raise NotImplementedError

    def values(self, parameter: Tensor) -> Tensor:
        """What this process has and updates of an owned parameter, with its gradient."""
        return parameter

    def whole(self, values: Tensor | None, of: Tensor) -> Tensor:
        """A parameter or its moment, which its owner gives, or of which each gives a slice."""
        if values is of:
            return values
        if values is None:
            values = paddle.empty_like(of)
        broadcast(values, src=self._group.ranks[self.owner(of)], group=self._group)
        return values

    def part(self, values: np.ndarray, of: Tensor) -> np.ndarray:
        """What an owner has of a moment."""
        return values

    def step(self, update: Update) -> None:
        """Have `update` change the owned parameters that have gradients, then hand all of them round."""
        raise NotImplementedError

    def clear(self) -> None:
        """The gradients are forgotten."""

    def _sum_over_data(self, parameters: Sequence[Tensor]) -> None:
        """Add up gradients, zero for none, over the groups that share out the micro-batches as well."""
        for parameter in parameters:
            if parameter.grad is None:
                parameter.grad = paddle.zeros_like(parameter)
        if self._data.nranks > 1:
            sum_gradients(parameters, self._data)


class StateSharding(Sharding):
    """Stage 1.  All processes of a group hold all parameters and gradients."""

    def __init__(self, parameters: Sequence[Tensor], topology: Any):
        super().__init__(topology)
        self._topology = topology
        self._inner = _Inner(parameters)
        self._fleets = DygraphShardingOptimizer(self._inner, topology)

    def owner(self, parameter: Tensor) -> int:
        return int(self._fleets._param2rank[parameter.name])

    def sum_gradients(self, parameters: Sequence[Tensor]) -> None:
        self._sum_over_data(parameters)
        self._fleets.reduce_gradients(list(parameters), self._topology)
        for parameter in self.owned(parameters):
            parameter.grad.scale_(float(self._group.nranks))  # fleet makes the mean

    def step(self, update: Update) -> None:
        self._inner.update = update
        self._fleets.step()


class GradientSharding(Sharding):
    """Stage 2.  What fleet's hooks do in the backward pass, each process has to do alike and in the same order.

    So they are used where all processes learn the same task at a time; elsewhere gradients are handed over after the
    micro-batch.
    """

    def __init__(self, layer: nn.Layer, parameters: Sequence[Tensor], topology: Any):
        super().__init__(topology)
        self._inner = _PaddleOptimizer(parameters)
        self._layer, self._optimizer, _ = sharding.group_sharded_parallel(
            layer, self._inner, "os_g", group=self._group, buffer_max_size=0
        )
        self._layer._fresh_trainable()
        self._alike = True

    def owner(self, parameter: Tensor) -> int:
        return int(self._optimizer.param2rank[parameter.name])

    def begin(self, alike: bool) -> None:
        self._alike = alike
        self._layer._clear_counters()
        if not alike:
            self._layer._grad_reduced = [False] * len(self._layer._grad_reduced)  # the hooks do nothing

    def end(self, parameters: Sequence[Tensor]) -> None:
        if self._alike:
            return
        with paddle.no_grad():
            present = paddle.to_tensor(np.array([parameter.grad is not None for parameter in parameters], np.int32))
            all_reduce(present, ReduceOp.MAX, group=self._group)
            for parameter, there in zip(parameters, present.numpy(), strict=True):
                if there:
                    self._hand_over(parameter)

    def _hand_over(self, parameter: Tensor) -> None:
        owner = self.owner(parameter)
        gradient = paddle.zeros_like(parameter) if parameter.grad is None else parameter.grad
        reduce(gradient, self._group.ranks[owner], group=self._group)
        if owner == self._group.rank:
            parameter.grad = gradient
        else:
            parameter.clear_gradient(False)

    def sum_gradients(self, parameters: Sequence[Tensor]) -> None:
        if self._data.nranks > 1:  # the owners have the sums of their own group already
            self._sum_over_data(self.owned(parameters))

    def step(self, update: Update) -> None:
        owned = self.owned(self._inner._parameter_list)
        self._inner.update = lambda: update([parameter for parameter in owned if parameter.grad is not None])
        self._optimizer._step()


class WeightSharding(Sharding):
    """Stage 3 for the layers of the encoder, which nearly all weights belong to; stage 2 for the others.

    Each process has a slice of every weight of the layers.  Fleet's hooks fetch the others before a layer computes and
    let them go after it; they are the same in every task.
    """

    def __init__(self, model: Any, parameters: Sequence[Tensor], topology: Any):
        super().__init__(topology)
        encoder = model.ernie.encoder
        for layer in encoder.layers:
            layer.extra_parameters = list(layer.parameters())  # it computes with those of its parts itself
        self._sliced = {parameter.name: parameter for parameter in encoder.parameters()}
        self._others = GradientSharding(
            model, [parameter for parameter in parameters if parameter.name not in self._sliced], topology
        )
        self._layers, _, _ = sharding.group_sharded_parallel(
            encoder,
            _PaddleOptimizer(list(self._sliced.values())),
            "p_g_os",
            group=self._group,
            segment_size=0,
            sync_comm=True,
        )

    def owned(self, parameters: Sequence[Tensor]) -> list[Tensor]:
        """A slice of each weight of the layers, and some of the others."""
        own = {id(parameter) for parameter in self._others.owned(self._without_slices(parameters))}
        return [parameter for parameter in parameters if parameter.name in self._sliced or id(parameter) in own]

    def begin(self, alike: bool) -> None:
        self._others.begin(alike)

    def end(self, parameters: Sequence[Tensor]) -> None:
        self._others.end(self._without_slices(parameters))

    def sum_gradients(self, parameters: Sequence[Tensor]) -> None:
        self._others.sum_gradients(self._without_slices(parameters))
        for parameter in self._sliced.values():
            if parameter.bw_storage is not None:
                parameter.bw_storage.scale_(float(self._group.nranks))  # fleet makes the mean
                if self._data.nranks > 1:
                    all_reduce(parameter.bw_storage, group=self._data)

    def values(self, parameter: Tensor) -> Tensor:
        if parameter.name not in self._sliced:
            return parameter
        values = parameter.fw_storage
        values.stop_gradient = False
        values.grad = parameter.bw_storage
        return values

    def whole(self, values: Tensor | None, of: Tensor) -> Tensor:
        if of.name not in self._sliced:
            return self._others.whole(values, of)
        assert values is not None
        parts: list[Tensor] = []
        all_gather(parts, (of.fw_storage if values is of else values).detach(), group=self._group)
        return paddle.concat(parts)[: math.prod(of.shape)].reshape(of.shape)

    def part(self, values: np.ndarray, of: Tensor) -> np.ndarray:
        if of.name not in self._sliced:
            return self._others.part(values, of)
        start, end = self._layers._param2buffer[of.name][self._group.rank]
        filled = np.zeros(self._layers._param2buffer_size[of.name], values.dtype)
        filled[: values.size] = values.reshape(-1)
        return filled[start:end]

    def step(self, update: Update) -> None:
        # Nobody else has the slices.
        update([parameter for parameter in self._sliced.values() if parameter.bw_storage is not None])
        self._others.step(update)

    def clear(self) -> None:
        for parameter in self._sliced.values():
            parameter.fw_storage.clear_gradient(False)
            parameter.bw_storage = None

    def _without_slices(self, parameters: Sequence[Tensor]) -> list[Tensor]:
        return [parameter for parameter in parameters if parameter.name not in self._sliced]


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
