"""The weights and the optimizer's state of a model whose parts lie in several processes.

Each parameter has one or several owners, the processes that update it and keep its moments.  Files hold full arrays by
parameter name, whatever the layout: `gather` makes them of the parts, and `local` cuts a process's part from them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import zip_longest
from typing import TYPE_CHECKING

import numpy as np
import paddle
from paddle import Tensor, nn
from paddle.distributed import all_gather, all_gather_object, broadcast

from ernie import runtime
from ernie.model.weights import StoredArray, check_names, set_weight
from ernie.parallel.mesh import Mesh, quiet_fleet
from ernie.parallel.tensor_shard import full_shape, is_split, local_part

if TYPE_CHECKING:
    from ernie.parallel.sharding import Sharding


class ShardedState:
    """Where this process's weights and moments belong in the full state of a model.

    `model` is this process's part of the model, whose parameters are sharded here if the layout of the mesh says so.
    """

    def __init__(self, model: nn.Layer, mesh: Mesh) -> None:
        self.parameters = dict(model.named_parameters())
        self.mesh = mesh
        self.sharding = _sharding(model, list(self.parameters.values()), mesh)

    def owns(self, parameter: Tensor) -> bool:
        """Whether this process updates a parameter and keeps its moments."""
        return self.sharding is None or bool(self.sharding.owned([parameter]))

    def values(self, parameter: Tensor) -> Tensor:
        """Return the tensor, with its gradient, that this process updates of a parameter that it owns."""
        return parameter if self.sharding is None else self.sharding.values(parameter)

    def update(self, update: Callable[[Sequence[Tensor]], None]) -> None:
        """Call `update` on the parameters that have gradients and that this process owns."""
        if self.sharding is not None:
            self.sharding.step(update)
        else:
            update([parameter for parameter in self.parameters.values() if parameter.grad is not None])

    def clear_gradients(self) -> None:
        """Drop the gradients, rather than zero them: a zero gradient would still move a head that is not in a step."""
        for parameter in self.parameters.values():
            parameter.clear_gradient(False)  # Paddle ignores the keyword set_to_zero=False
        if self.sharding is not None:
            self.sharding.clear()

    @paddle.no_grad()
    def gather_weights(self, full_model: nn.Layer | None) -> None:
        """Copy the weights of all processes into rank 0's `full_model`.  A collective call."""
        full = full_model.state_dict() if self.mesh.is_first and full_model is not None else {}
        gathered = set()
        for name, values in self.gather({name: (part, part) for name, part in self.parameters.items()}):
            gathered.add(name)
            if name in full:
                set_weight(full[name], values)
        if self.mesh.is_first:
            check_names(full, gathered, "the processes")

    def gather(self, local: Mapping[str, tuple[Tensor | None, Tensor]]) -> Iterator[tuple[str, np.ndarray]]:
        """Gather named tensors from all processes, yielding full arrays by name on rank 0.

        `local` maps each name to this process's values (None if another process keeps them) and the parameter that
        they belong to.  Every process has to exhaust the iterator.  All but rank 0 get nothing, and hold at most one
        tensor besides their own.
        """
        place = self.mesh.coordinates
        if place["data"]:  # a copy of what others have
            return
        if "pipeline" in self.mesh.groups and place["sharding"] == place["tensor"] == 0:
            yield from self._gather_from_stages(local)
            return
        for name, (values, of) in local.items():
            full = self.full(values, of)
            if self.mesh.is_first:
                yield name, full.numpy()

    def _gather_from_stages(
        self, local: Mapping[str, tuple[Tensor | None, Tensor]]
    ) -> Iterator[tuple[str, np.ndarray]]:
        stages: list[dict[str, list[int]]] = []
        group = self.mesh.groups["pipeline"]
        shapes = {name: full_shape(of, self.mesh.layout.tensor) for name, (_, of) in local.items()}
        all_gather_object(stages, shapes, group=group)
        for turn in zip_longest(*stages):  # alternating between the stages, so that none waits long for another
            for stage, name in enumerate(turn):
                if name is None:
                    continue
                if stage == group.rank:
                    full = self.full(*local[name])
                if stage and name in stages[0]:  # the embedding matrix, which two stages have
                    continue
                if stage != group.rank:
                    full = paddle.empty(stages[stage][name])
                if stage:
                    broadcast(full, src=group.ranks[stage], group=group)
                if self.mesh.is_first:
                    yield name, full.numpy()

    def merge_stages(self, local: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Return the named arrays of all pipeline stages together.  A collective call."""
        if "pipeline" not in self.mesh.groups:
            return local
        stages: list[dict[str, np.ndarray]] = []
        all_gather_object(stages, local, group=self.mesh.groups["pipeline"])
        return {name: values for stage in reversed(stages) for name, values in stage.items()}

    def full(self, values: Tensor | None, of: Tensor) -> Tensor:
        """Return the full values of a parameter, or of its moment.  A collective call of a pipeline stage.

        A moment comes from its owner; the other processes may pass None.
        """
        if self.sharding is not None:
            values = self.sharding.full(values, of)
        assert values is not None
        values = values.detach()
        if not is_split(of):
            return values
        parts: list[Tensor] = []
        all_gather(parts, values, group=self.mesh.groups["tensor"])
        return paddle.concat(parts, axis=of.split_axis)

    def local(self, values: np.ndarray | StoredArray, of: Tensor) -> np.ndarray:
        """Return this process's part of the full values of a parameter's moment."""
        if is_split(of):  # no layout also cuts slices of it
            return local_part(values, of, self.mesh.groups["tensor"].rank)
        return values[...] if self.sharding is None else self.sharding.local(values, of)


def _sharding(model: nn.Layer, parameters: Sequence[Tensor], mesh: Mesh) -> Sharding | None:
    """Assign each parameter to the process that updates it, if the layout shards the training state."""
    if "sharding" not in mesh.groups:
        return None
    from ernie.parallel.sharding import GradientSharding, StateSharding, WeightSharding

    if mesh.layout.sharding_stage == 1:
        return StateSharding(parameters, mesh.topology)
    kind = GradientSharding if mesh.layout.sharding_stage == 2 else WeightSharding
    with quiet_fleet():
        sharding = kind(model, parameters, mesh.topology)
    runtime.release_free_memory()  # fleet has copied all weights into new buffers and freed the old ones
    return sharding
