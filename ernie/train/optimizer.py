"""AdamW whose state is kept under the parameters' own names, so that it survives a restart."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import paddle
from paddle import Tensor, nn

from ernie.kernels.adamw import AdamStep, adamw
from ernie.parallel.world import World
from ernie.train.settings import AdamConfig


class Optimizer:
    """AdamW over a layer's parameters.  A parameter that took no part in a step stays as it is, moments included.

    `factors` multiply the rate of the parameters they name.  `world` are the processes that train together.
    """

    def __init__(
        self,
        layer: nn.Layer,
        config: AdamConfig,
        factors: Mapping[str, float] | None = None,
        world: World | None = None,
    ):
        self.parameters = dict(layer.named_parameters())
        self._names = {id(parameter): name for name, parameter in self.parameters.items()}
        self._world = world or World()
        self._world.begin(layer, list(self.parameters.values()))
        self._config = config
        self._factors = factors or {}
        # By the parameter, and by whom they are of where there are several sets.
        self._moments: dict[tuple[str, str], tuple[Tensor, Tensor]] = {}
        self._steps: dict[tuple[str, str], int] = {}
        self._owners: set[str] = set()

    @paddle.no_grad()
    def step(self, rate: float, scales: Mapping[str, float] | None = None, of: str = "") -> None:
        """Update with the gradients times `scales`, by the parameters' names, then forget them.

        `of` says whose moments are used: those of a task, say, beside those of others.
        """
        scales = scales or {}
        self._owners.add(of)
        self._world.update(list(self.parameters.values()), lambda learning: self._update(learning, rate, scales, of))
        self.clear()

    def _update(self, learning: Sequence[Tensor], rate: float, scales: Mapping[str, float], of: str) -> None:
        config = self._config
        for parameter in learning:
            name = self._names[id(parameter)]
            values, key = self._world.values(parameter), (name, of)
            if key not in self._moments:
                self._moments[key] = paddle.zeros_like(values), paddle.zeros_like(values)
            taken = self._steps[key] = self._steps.get(key, 0) + 1
            step = AdamStep(
                rate=rate * self._factors.get(name, 1.0),
                decay=config.weight_decay if parameter.ndim > 1 else 0.0,
                beta1=config.beta1,
                beta2=config.beta2,
                epsilon=config.epsilon,
                power1=config.beta1**taken,
                power2=config.beta2**taken,
                gradient_scale=scales.get(name, 1.0),
            )
            adamw(step, values, *self._moments[key])

    def clear(self) -> None:
        """Forget the gradients.  Not set to zero: a zero gradient would still move a head that sits out."""
        for parameter in self.parameters.values():
            parameter.clear_gradient(False)  # Paddle does not hear set_to_zero=False
        self._world.clear()

    @paddle.no_grad()
    def state(self) -> dict[str, np.ndarray]:
        """The moments and the number of steps of all parameters that had one, as `parameter/moment1` -> array, with
        `parameter/of/moment1` for those of somebody.

        Whole, however parameters and moments are spread, in the first process; every process has to ask, and the others
        get nothing.
        """
        own: dict[str, tuple[Tensor | None, Tensor]] = {}
        numbers: dict[str, np.ndarray] = {}
        keys = [(name, of) for of in sorted(self._owners) for name in self.parameters]
        steps = self._world.most([self._steps.get(key, 0) for key in keys])
        for (name, of), taken in zip(keys, steps, strict=True):
            if not taken:
                continue
            place = f"{name}/{of}" if of else name
            for k, moment in enumerate(self._moments.get((name, of), (None, None)), 1):
                own[f"{place}/moment{k}"] = moment, self.parameters[name]
            numbers[f"{place}/steps"] = np.array([taken])
        numbers = self._world.of_all_stages(numbers)
        moments = dict(self._world.gathered(own))
        return {**moments, **numbers} if self._world.is_first else {}

    def set_state(self, state: Mapping[str, np.ndarray]) -> None:
        """Continue from a `state()`.  Parameters that it does not know begin anew."""
        self._moments, self._steps = {}, {}
        for place in (key.removesuffix("/steps") for key in state if key.endswith("/steps")):
            name, _, of = place.partition("/")
            parameter = self.parameters.get(name)
            self._owners.add(of)
            if parameter is None or not self._world.keeps(parameter):
                continue
            first, second = (self._world.part(state[f"{place}/moment{k}"], parameter) for k in (1, 2))
            self._moments[name, of] = paddle.to_tensor(first), paddle.to_tensor(second)
            self._steps[name, of] = int(state[f"{place}/steps"][0])
