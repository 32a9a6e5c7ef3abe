"""AdamW whose state is keyed by parameter names, so that it can be restored after a restart."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import paddle
from paddle import Tensor
from paddle.distributed import ReduceOp

from ernie.kernels.adamw import adamw
from ernie.kernels.types import AdamStep
from ernie.model.weights import StoredArray
from ernie.parallel.collectives import all_reduce
from ernie.parallel.sharded_state import ShardedState
from ernie.train.adam_config import AdamConfig


class Optimizer:
    """AdamW over a model's parameters.  A parameter without a gradient in a step is left unchanged, moments included.

    `state` says which of the parameters this process updates.  `factors` multiply the learning rate of the parameters
    they name.

    With a `decay` above 0 it also keeps moving averages of the weights.  The average after t steps of a parameter is d
    times the one before plus 1 - d times the weights.  d is the smaller of `decay` and (1 + t) / (10 + t), so that the
    first weights are soon forgotten.
    """

    def __init__(
        self,
        state: ShardedState,
        config: AdamConfig,
        factors: Mapping[str, float] | None = None,
        decay: float = 0.0,
    ):
        self.parameters = state.parameters
        self._names = {id(parameter): name for name, parameter in self.parameters.items()}
        self._sharded = state
        self._config = config
        self._factors = factors or {}
        self._decay = decay
        self._averages: dict[str, Tensor] = {}
        # Keyed by (parameter name, owner); the owner is "" where there is a single set of moments.
        self._moments: dict[tuple[str, str], tuple[Tensor, Tensor]] = {}
        self._steps: dict[tuple[str, str], int] = {}
        self._owners: set[str] = set()

    @paddle.no_grad()
    def step(self, lr: float, scales: Mapping[str, float] | None = None, owner: str = "") -> None:
        """Update with the gradients multiplied by `scales` (keyed by parameter name), then clear them.

        `owner` selects the set of moments, for instance a task's own.
        """
        scales = scales or {}
        self._owners.add(owner)
        self._sharded.update(lambda learning: self._update(learning, lr, scales, owner))
        self.clear()

    def _update(self, learning: Sequence[Tensor], lr: float, scales: Mapping[str, float], owner: str) -> None:
        config = self._config
        for parameter in learning:
            name = self._names[id(parameter)]
            values, key = self._sharded.values(parameter), (name, owner)
            if key not in self._moments:
                self._moments[key] = paddle.zeros_like(values), paddle.zeros_like(values)
            taken = self._steps[key] = self._steps.get(key, 0) + 1
            step = AdamStep(
                lr=lr * self._factors.get(name, 1.0),
                weight_decay=config.weight_decay if parameter.ndim > 1 else 0.0,
                beta1=config.beta1,
                beta2=config.beta2,
                epsilon=config.epsilon,
                power1=config.beta1**taken,
                power2=config.beta2**taken,
                gradient_scale=scales.get(name, 1.0),
            )
            adamw(step, values, values.grad, *self._moments[key])
            if self._decay:
                self._average(name, values, taken)

    def _average(self, name: str, values: Tensor, taken: int) -> None:
        if name not in self._averages:
            self._averages[name] = values.detach().clone()
        else:
            self._averages[name].lerp_(values.detach(), 1 - min(self._decay, (1 + taken) / (10 + taken)))

    @paddle.no_grad()
    def averages(self) -> dict[str, np.ndarray]:
        """Return the moving averages of the weights, as full arrays, of all parameters that had a step.

        A collective call: rank 0 gets the arrays, the others get nothing.
        """
        if not self._decay:
            return {}
        kept = [name in self._averages for name in self.parameters]
        known = all_reduce(self._sharded.mesh, kept, ["sharding"], ReduceOp.MAX)
        own: dict[str, tuple[Tensor | None, Tensor]] = {
            name: (self._averages.get(name), parameter)
            for (name, parameter), is_known in zip(self.parameters.items(), known, strict=True)
            if is_known
        }
        found = dict(self._sharded.gather(own))
        return found if self._sharded.mesh.is_first else {}

    def clear(self) -> None:
        """Drop the gradients."""
        self._sharded.clear_gradients()

    @paddle.no_grad()
    def state(self) -> dict[str, np.ndarray]:
        """Return the moments, step counts and averages of all parameters that had a step.

        They are full arrays under the keys `parameter/moment1` or, where moments have an owner,
        `parameter/owner/moment1`.  A collective call: rank 0 gets the arrays, the others get nothing.
        """
        own: dict[str, tuple[Tensor | None, Tensor]] = {}
        numbers: dict[str, np.ndarray] = {}
        keys = [(name, owner) for owner in sorted(self._owners) for name in self.parameters]
        own_steps = [self._steps.get(key, 0) for key in keys]
        steps = all_reduce(self._sharded.mesh, own_steps, ["sharding"], ReduceOp.MAX)
        for (name, owner), taken in zip(keys, map(int, steps), strict=True):
            if not taken:
                continue
            prefix = f"{name}/{owner}" if owner else name
            for k, moment in enumerate(self._moments.get((name, owner), (None, None)), 1):
                own[f"{prefix}/moment{k}"] = moment, self.parameters[name]
            numbers[f"{prefix}/steps"] = np.array([taken])
        numbers = self._sharded.merge_stages(numbers)
        moments = dict(self._sharded.gather(own))
        averages = {f"{name}/average": values for name, values in self.averages().items()}
        return {**moments, **averages, **numbers} if self._sharded.mesh.is_first else {}

    def set_state(self, state: Mapping[str, np.ndarray | StoredArray]) -> None:
        """Restore a `state()`.  Parameters that are not in it start without moments.

        Of arrays in a file, only the parts that this process keeps are read.
        """
        self._moments, self._steps, self._averages = {}, {}, {}
        for prefix in (key.removesuffix("/steps") for key in state if key.endswith("/steps")):
            name, _, owner = prefix.partition("/")
            parameter = self.parameters.get(name)
            self._owners.add(owner)
            if parameter is None or not self._sharded.owns(parameter):
                continue
            first, second = (self._sharded.local(state[f"{prefix}/moment{k}"], parameter) for k in (1, 2))
            self._moments[name, owner] = paddle.to_tensor(first), paddle.to_tensor(second)
            self._steps[name, owner] = int(state[f"{prefix}/steps"][...][0])
            if (average := state.get(f"{name}/average")) is not None:
                self._averages[name] = paddle.to_tensor(self._sharded.local(average, parameter))
