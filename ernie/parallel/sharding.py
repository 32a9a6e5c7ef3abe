"""Sharding of the training state (ZeRO) over processes that split the micro-batches.

Rajbhandari et al. (2020, arXiv 1910.02054), section 5: in stage 1 each process keeps and updates its part of the
optimizer state, and broadcasts the updated parameters.  In stage 2 it also keeps only its part of the gradients, in
stage 3 also of the weights.  Fleet's own optimizers and layers are used, around any function that updates parameters.
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

from ernie.model.weights import StoredArray
from ernie.parallel.grad_reduce import all_reduce_gradients
from ernie.parallel.tensor_shard import flat_part

Update = Callable[[Sequence[Tensor]], None]


class Sharding:
    """Base class of the stages: each parameter has an owner, the process that updates it and keeps its moments."""

    def __init__(self, topology: Any):
        self._group = topology.get_sharding_parallel_group()
        self._data = topology.get_data_parallel_group()

    def owner(self, parameter: Tensor) -> int:
        """Return the rank, within the group, of the process that updates a parameter."""
        raise NotImplementedError

    def owned(self, parameters: Sequence[Tensor]) -> list[Tensor]:
        """Return those of the parameters that this process updates."""
        return [parameter for parameter in parameters if self.owner(parameter) == self._group.rank]

    def begin(self, same_task: bool) -> None:
        """Called before a micro-batch; `same_task` if all processes have one, of the same task."""

    def end(self, parameters: Sequence[Tensor]) -> None:
        """Called after the backward pass of a micro-batch, also if only other processes had one."""

    def reduce_gradients(self, parameters: Sequence[Tensor]) -> None:
        """Reduce each parameter's gradient over all replicas to its owner; it is undefined on the other processes.

        The parameters are those that have a gradient in any process.
        """
        raise NotImplementedError

    def values(self, parameter: Tensor) -> Tensor:
        """Return the tensor, with its gradient, that this process updates of an owned parameter."""
        return parameter

    def full(self, values: Tensor | None, of: Tensor) -> Tensor:
        """Return the full values of a parameter or its moment, broadcast by its owner or gathered from all slices."""
        if values is of:
            return values
        if values is None:
            values = paddle.empty_like(of)
        broadcast(values, src=self._group.ranks[self.owner(of)], group=self._group)
        return values

    def local(self, values: np.ndarray | StoredArray, of: Tensor) -> np.ndarray:
        """Return an owner's part of a moment's full values."""
        return values[...]

    def step(self, update: Update) -> None:
        """Call `update` on the owned parameters that have gradients, then broadcast the new values."""
        raise NotImplementedError

    def clear(self) -> None:
        """Called after the gradients have been cleared."""

    def _sum_over_data(self, parameters: Sequence[Tensor]) -> None:
        """Sum gradients (zero where there are none) over the data-parallel group."""
        for parameter in parameters:
            if parameter.grad is None:
                parameter.grad = paddle.zeros_like(parameter)
        if self._data.nranks > 1:
            all_reduce_gradients(parameters, self._data)


class StateSharding(Sharding):
    """Stage 1: all processes of a group hold all parameters and gradients."""

    def __init__(self, parameters: Sequence[Tensor], topology: Any):
        super().__init__(topology)
        self._topology = topology
        self._inner = _InnerOptimizer(parameters)
        self._fleet_optimizer = DygraphShardingOptimizer(self._inner, topology)

    def owner(self, parameter: Tensor) -> int:
        return int(self._fleet_optimizer._param2rank[parameter.name])

    def reduce_gradients(self, parameters: Sequence[Tensor]) -> None:
        self._sum_over_data(parameters)
        self._fleet_optimizer.reduce_gradients(list(parameters), self._topology)
        for parameter in self.owned(parameters):
            parameter.grad.scale_(float(self._group.nranks))  # fleet takes the mean

    def step(self, update: Update) -> None:
        self._inner.update = update
        self._fleet_optimizer.step()


class GradientSharding(Sharding):
    """Stage 2: each gradient is reduced to its parameter's owner.

    Fleet's hooks do this during the backward pass, which requires the same calls in the same order on all processes.
    They are used when all processes have a micro-batch of the same task; otherwise gradients are reduced after it.
    """

    def __init__(self, layer: nn.Layer, parameters: Sequence[Tensor], topology: Any):
        super().__init__(topology)
        self._inner = _PaddleOptimizer(parameters)
        self._layer, self._optimizer, _ = sharding.group_sharded_parallel(
            layer, self._inner, "os_g", group=self._group, buffer_max_size=0
        )
        self._layer._fresh_trainable()
        self._same_task = True

    def owner(self, parameter: Tensor) -> int:
        return int(self._optimizer.param2rank[parameter.name])

    def begin(self, same_task: bool) -> None:
        self._same_task = same_task
        self._layer._clear_counters()
        if not same_task:
            self._layer._grad_reduced = [False] * len(self._layer._grad_reduced)  # disables the hooks

    def end(self, parameters: Sequence[Tensor]) -> None:
        if self._same_task:
            return
        with paddle.no_grad():
            present = paddle.to_tensor(np.array([parameter.grad is not None for parameter in parameters], np.int32))
            all_reduce(present, ReduceOp.MAX, group=self._group)
            for parameter, is_present in zip(parameters, present.numpy(), strict=True):
                if is_present:
                    self._reduce_to_owner(parameter)

    def _reduce_to_owner(self, parameter: Tensor) -> None:
        owner = self.owner(parameter)
        gradient = paddle.zeros_like(parameter) if parameter.grad is None else parameter.grad
        reduce(gradient, self._group.ranks[owner], group=self._group)
        if owner == self._group.rank:
            parameter.grad = gradient
        else:
            parameter.clear_gradient(False)

    def reduce_gradients(self, parameters: Sequence[Tensor]) -> None:
        if self._data.nranks > 1:  # the owners already have the sums over their own group
            self._sum_over_data(self.owned(parameters))

    def step(self, update: Update) -> None:
        owned = self.owned(self._inner._parameter_list)
        self._inner.update = lambda: update([parameter for parameter in owned if parameter.grad is not None])
        self._optimizer._step()


class WeightSharding(Sharding):
    """Stage 3 for the encoder's layers, which have nearly all of the weights; stage 2 for the other parameters.

    Each process has a slice of every weight of the layers.  Fleet's hooks gather the full weights before a layer
    computes and release them after it; the layers are the same for every task.
    """

    def __init__(self, model: Any, parameters: Sequence[Tensor], topology: Any):
        super().__init__(topology)
        encoder = model.ernie.encoder
        for layer in encoder.layers:
            layer.extra_parameters = list(layer.parameters())  # it uses its sublayers' parameters directly
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
        """Return all weights of the layers, which are sliced, and the other parameters that this process owns."""
        own = {id(parameter) for parameter in self._others.owned(self._unsliced(parameters))}
        return [parameter for parameter in parameters if parameter.name in self._sliced or id(parameter) in own]

    def begin(self, same_task: bool) -> None:
        self._others.begin(same_task)

    def end(self, parameters: Sequence[Tensor]) -> None:
        self._others.end(self._unsliced(parameters))

    def reduce_gradients(self, parameters: Sequence[Tensor]) -> None:
        self._others.reduce_gradients(self._unsliced(parameters))
        for parameter in self._sliced.values():
            if parameter.bw_storage is not None:
                parameter.bw_storage.scale_(float(self._group.nranks))  # fleet takes the mean
                if self._data.nranks > 1:
                    all_reduce(parameter.bw_storage, group=self._data)

    def values(self, parameter: Tensor) -> Tensor:
        if parameter.name not in self._sliced:
            return parameter
        values = parameter.fw_storage
        values.stop_gradient = False
        values.grad = parameter.bw_storage
        return values

    def full(self, values: Tensor | None, of: Tensor) -> Tensor:
        if of.name not in self._sliced:
            return self._others.full(values, of)
        assert values is not None
        parts: list[Tensor] = []
        all_gather(parts, (of.fw_storage if values is of else values).detach(), group=self._group)
        return paddle.concat(parts)[: math.prod(of.shape)].reshape(of.shape)

    def local(self, values: np.ndarray | StoredArray, of: Tensor) -> np.ndarray:
        if of.name not in self._sliced:
            return self._others.local(values, of)
        return flat_part(values, *self._layers._param2buffer[of.name][self._group.rank])

    def step(self, update: Update) -> None:
        # No broadcast: no other process holds these slices.
        update([parameter for parameter in self._sliced.values() if parameter.bw_storage is not None])
        self._others.step(update)

    def clear(self) -> None:
        for parameter in self._sliced.values():
            parameter.fw_storage.clear_gradient(False)
            parameter.bw_storage = None

    def _unsliced(self, parameters: Sequence[Tensor]) -> list[Tensor]:
        return [parameter for parameter in parameters if parameter.name not in self._sliced]


class _InnerOptimizer:
    """The minimal optimizer interface that fleet needs in stage 1."""

    def __init__(self, parameters: Sequence[Tensor]):
        self._parameter_list = self._param_groups = list(parameters)
        self.update: Update | None = None

    def _apply_optimize(
        self, loss: None, startup_program: None, params_grads: Sequence[tuple[Tensor, Tensor | None]]
    ) -> None:
        assert self.update is not None
        self.update([parameter for parameter, gradient in params_grads if gradient is not None])


class _PaddleOptimizer(paddle.optimizer.Optimizer):
    """An optimizer for fleet's stages 2 and 3 that calls `update` as its step."""

    def __init__(self, parameters: Sequence[Tensor]):
        super().__init__(learning_rate=0.0, parameters=list(parameters))
        self.update: Callable[[], None] = lambda: None

    def step(self) -> None:
        self.update()
