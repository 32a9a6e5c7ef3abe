"""The optimizer's state spread over processes: each updates its part of the parameters and hands it to the others.

Rajbhandari et al. (2020, arXiv 1910.02054), section 5.1, by fleet's own optimizer around whatever updates a parameter.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from paddle import Tensor
from paddle.distributed import broadcast
from paddle.distributed.fleet.meta_optimizers.dygraph_optimizer.dygraph_sharding_optimizer import (
    DygraphShardingOptimizer,
)


class Sharding:
    """Which parameters are whose, and what is done with them; all processes of a group hold all parameters."""

    def __init__(self, parameters: Sequence[Tensor], topology: Any):
        self._topology = topology
        self._inner = _Inner(parameters)
        self._fleets = DygraphShardingOptimizer(self._inner, topology)

    def owned(self, parameters: Sequence[Tensor]) -> list[Tensor]:
        """Those of the parameters that are this process's to update."""
        return list(self._fleets.filter_parameters(list(parameters), self._topology))

    def sum_gradients(self, parameters: Sequence[Tensor]) -> None:
        """Hand the sum of each parameter's gradients, zero for none, to its owner; those of others are undefined."""
        self._fleets.reduce_gradients(list(parameters), self._topology)
        for parameter in self.owned(parameters):
            parameter.grad.scale_(float(self._topology.get_sharding_parallel_world_size()))  # fleet makes the mean

    def from_owner(self, values: Tensor, of: Tensor) -> Tensor:
        """The values that the owner of a parameter gives."""
        group = self._topology.get_sharding_parallel_group()
        values = values.clone()
        broadcast(values, src=group.ranks[self._fleets._param2rank[of.name]], group=group)
        return values

    def step(self, update: Callable[[Sequence[Tensor]], None]) -> None:
        """Have `update` change the owned parameters that have gradients, then hand all of them round."""
        self._inner.update = update
        self._fleets.step()


class _Inner:
    """What fleet takes for an optimizer of Paddle's."""

    def __init__(self, parameters: Sequence[Tensor]):
        self._parameter_list = self._param_groups = list(parameters)
        self.update: Callable[[Sequence[Tensor]], None] | None = None

    def _apply_optimize(
        self, loss: None, startup_program: None, params_grads: Sequence[tuple[Tensor, Tensor | None]]
    ) -> None:
        assert self.update is not None
        self.update([parameter for parameter, gradient in params_grads if gradient is not None])
