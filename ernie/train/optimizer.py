"""AdamW whose state is kept under the parameters' own names, so that it survives a restart."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import paddle
from paddle import nn

from ernie.train.settings import AdamConfig


class Optimizer:
    """AdamW over a layer's parameters.  A parameter that took no part in a step stays as it is, moments included.

    `factors` multiply the rate of the parameters they name.
    """

    def __init__(self, layer: nn.Layer, config: AdamConfig, factors: Mapping[str, float] | None = None):
        self.parameters = dict(layer.named_parameters())
        for name, parameter in self.parameters.items():
            # Not AdamW's own lr_ratio, which Paddle has for GPUs only.
            parameter.optimize_attr = {"learning_rate": (factors or {}).get(name, 1.0)}
        self._fresh = {"moment1": 0.0, "moment2": 0.0, "beta1_pow_acc": config.beta1, "beta2_pow_acc": config.beta2}
        self._restored: dict[str, np.ndarray] = {}
        undecayed = {p.name for p in self.parameters.values() if p.ndim < 2}
        self._adam = paddle.optimizer.AdamW(
            learning_rate=1.0,
            beta1=config.beta1,
            beta2=config.beta2,
            epsilon=config.epsilon,
            weight_decay=config.weight_decay,
            parameters=list(self.parameters.values()),
            apply_decay_param_fun=lambda name: name not in undecayed,
        )

    @paddle.no_grad()
    def gradient_norm(self) -> float:
        """The L2 norm of all gradients together; not finite when any of them is not."""
        squares = [(p.grad * p.grad).sum() for p in self.parameters.values() if p.grad is not None]
        return float(paddle.stack(squares).sum().sqrt()) if squares else 0.0

    @paddle.no_grad()
    def step(self, rate: float, scale: float = 1.0) -> None:
        """Update with the gradients times `scale`, then forget them."""
        if scale != 1.0:
            for parameter in self.parameters.values():
                if parameter.grad is not None:
                    parameter.grad.scale_(scale)
        self._adam.set_lr(rate)
        self._adam.step()
        self.clear()

    def clear(self) -> None:
        """Forget the gradients.  Not set to zero: a zero gradient would still move a head that sits out."""
        self._adam.clear_grad(set_to_zero=False)

    def state(self) -> dict[str, np.ndarray]:
        """The moments and powers of beta of all parameters that had a step, as `parameter/accumulator` -> array."""
        saved = self._adam.state_dict()
        found = {}
        for name, parameter in self.parameters.items():
            for accumulator in self._fresh:
                key = f"{name}/{accumulator}"
                value = saved.get(f"{parameter.name}_{accumulator}_0")
                if value is not None:
                    found[key] = np.ascontiguousarray(value.numpy())
                elif key in self._restored:  # Paddle forgets what it was given until the parameter's next step
                    found[key] = self._restored[key]
        return found

    def set_state(self, state: dict[str, np.ndarray]) -> None:
        """Continue from a `state()`.

        Paddle wants the accumulators of every parameter or of none; those of heads that had no step yet, which the
        state does not know, get the values that a fresh optimizer gives them.
        """
        named = {}
        for name, parameter in self.parameters.items():
            for accumulator, fresh in self._fresh.items():
                value = state.get(f"{name}/{accumulator}")
                if value is None:
                    shape = parameter.shape if accumulator.startswith("moment") else [1]
                    value = np.full(shape, fresh, np.float32)
                named[f"{parameter.name}_{accumulator}_0"] = paddle.to_tensor(value)
        self._adam.set_state_dict(named)
        self._restored = state
