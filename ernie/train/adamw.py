"""AdamW for training loops of one's own: Paddle's optimizer with this library's update on a CPU."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import paddle
from paddle import Tensor
from paddle.nn import ClipGradByGlobalNorm
from paddle.optimizer.lr import LRScheduler

from ernie.errors import UserError
from ernie.kernels.adamw import adamw, sum_of_squares
from ernie.kernels.choose import runs_in_cpp
from ernie.kernels.types import AdamStep
from ernie.train.adam_config import AdamConfig

Pair = tuple[Tensor, Tensor]  # a parameter and its gradient


class AdamW(paddle.optimizer.AdamW):
    """`paddle.optimizer.AdamW`, updating the float32 parameters of a CPU by the kernels of `ernie finetune`.

    Arguments and states are Paddle's, and each can continue from the other's state in a new process.  The global norm
    of `ClipGradByGlobalNorm` is computed in one pass over the gradients.  The update clips, and renews the parameters'
    bfloat16 copies.  Other parameters and other ways to clip are left to Paddle's operators, those of a GPU among them.

    Three defaults differ: `beta2` and `epsilon` are those of `ernie pretrain`.  Without `apply_decay_param_fun` only
    parameters of two and more axes decay, and thus no biases or norms.  `clear_grad` drops the gradients instead of
    filling them with zeros: without a gradient, a parameter is left as it is.
    """

    def __init__(
        self,
        learning_rate: float | LRScheduler = 1e-3,
        beta1: float = AdamConfig.beta1,
        beta2: float = AdamConfig.beta2,
        epsilon: float = AdamConfig.epsilon,
        parameters: Iterable[Tensor] | Iterable[Mapping[str, Any]] | None = None,
        weight_decay: float = AdamConfig.weight_decay,
        *,
        apply_decay_param_fun: Callable[[str], bool] | None = None,
        **others: Any,
    ) -> None:
        given = parameters if parameters is None or isinstance(parameters, Tensor | Mapping) else list(parameters)
        super().__init__(
            learning_rate,
            beta1,
            beta2,
            epsilon,
            given,
            weight_decay,
            apply_decay_param_fun=apply_decay_param_fun or self._is_matrix,
            **others,
        )
        self._matrices = {parameter.name for parameter in self._parameters() if parameter.ndim > 1}
        self._loaded: dict[str, Any] = {}  # of a state, until its parameter has a step
        self._scales: dict[str, float] = {}  # of the gradients of this step, by parameter name; 1 where there is none

    def clear_grad(self, set_to_zero: bool = False) -> None:
        """Drop the gradients, or fill them with zeros, which move parameters that the next loss does not reach."""
        super().clear_grad(set_to_zero)

    def state_dict(self) -> dict[str, Any]:
        """Return the moments and powers of the betas by parameter name, and the state of the learning-rate schedule.

        Parameters that had no step are not in it.  The keys are those of Paddle's optimizer in a new process.
        """
        state = dict(self._loaded)
        for kind, values in self._accumulators.items():
            state |= {f"{name}_{kind}_0": value for name, value in values.items()}
        if self._master_weights:
            state["master_weights"] = self._master_weights
        if isinstance(self._learning_rate, LRScheduler):
            state["LR_Scheduler"] = self._learning_rate.state_dict()
        return state

    def set_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Continue from a state.  Parameters that are not in it start anew.

        Raises UserError if the state holds other parameters than the optimizer.
        """
        state = dict(state_dict)
        schedule = state.pop("LR_Scheduler", None)
        if isinstance(self._learning_rate, LRScheduler) and schedule:
            self._learning_rate.set_state_dict(schedule)
        self._master_weights = state.pop("master_weights", {})
        self._check_names(state)
        self._accumulators.clear()
        self._already_create_accumulator.clear()
        self._loaded = state

    load_state_dict = set_state_dict

    def _check_names(self, state: Mapping[str, Any]) -> None:
        own = tuple(f"{parameter.name}_" for parameter in self._parameters())
        unknown = [key for key in state if not key.startswith(own)]
        if unknown:
            raise UserError(
                f"the state has '{unknown[0]}', and the optimizer no such parameter. Paddle numbers parameters as they "
                "are made: make the same layers in the same order as in the process that saved the state, and no "
                "others before them"
            )

    def _create_accumulators(self, block: Any, parameters: Any) -> None:
        """Create the moments of parameters that have none yet, with the values of a loaded state."""
        super()._create_accumulators(block, parameters)
        for kind, values in self._accumulators.items() if self._loaded else ():
            for name, value in values.items():
                if (loaded := self._loaded.pop(f"{name}_{kind}_0", None)) is not None:
                    value.set_value(loaded)

    def _is_matrix(self, name: str) -> bool:
        return name in self._matrices

    def _parameters(self) -> list[Tensor]:
        groups = self._param_groups
        return [p for group in groups for p in group["params"]] if isinstance(groups[0], dict) else list(groups)

    def _apply_optimize(self, loss: Any, startup_program: Any, params_grads: Any, param_group_idx: int = 0) -> Any:
        """Apply a step to a group of parameters, or to all of them if there are no groups."""
        group = (
            params_grads if isinstance(params_grads, dict) else {"params": params_grads, "grad_clip": self._grad_clip}
        )
        clip, pairs = group["grad_clip"], group["params"]
        self._scales = {}
        if type(clip) is ClipGradByGlobalNorm and all(self._is_fused(*pair) for pair in pairs):
            self._scales = _clip_scales(pairs, clip.clip_norm)
            group = {**group, "grad_clip": None}
        return super()._apply_optimize(loss, startup_program, group, param_group_idx)

    def _append_optimize_op(self, block: Any, param_and_grad: Any) -> Any:
        """Update one parameter."""
        pair = self._update_param_group(param_and_grad) if isinstance(param_and_grad, dict) else param_and_grad
        if not self._is_fused(*pair):
            return super()._append_optimize_op(block, param_and_grad)
        parameter, gradient = pair
        moment1, moment2, power1, power2 = (
            self._get_accumulator_master(name, parameter)
            for name in ("moment1", "moment2", "beta1_pow_acc", "beta2_pow_acc")
        )
        lr = self.get_lr() * getattr(parameter, "optimize_attr", {}).get("learning_rate", 1.0)
        decays = self._apply_decay_param_fun(parameter.name)
        beta1, beta2 = float(self._beta1), float(self._beta2)
        step = AdamStep(
            lr=lr,
            weight_decay=self._weight_decay if decays else 0.0,
            beta1=beta1,
            beta2=beta2,
            epsilon=float(self._epsilon),
            power1=power1.item(),
            power2=power2.item(),
            gradient_scale=self._scales.get(parameter.name, 1.0),
        )
        adamw(step, parameter, gradient, moment1, moment2)
        power1.scale_(beta1)
        power2.scale_(beta2)
        return None

    def _is_fused(self, parameter: Tensor, gradient: Tensor) -> bool:
        """Whether the kernel can update a parameter: a whole float32 tensor on a CPU, as its gradient is."""
        return not self._amsgrad and not parameter.is_dist() and runs_in_cpp(parameter, gradient)


def _clip_scales(pairs: Sequence[Pair], maximum: float) -> dict[str, float]:
    """Return the factors by which gradients are clipped to a global norm, by parameter name."""
    clipped = [(parameter.name, gradient) for parameter, gradient in pairs if getattr(parameter, "need_clip", True)]
    norm = math.sqrt(float(sum_of_squares([gradient for _, gradient in clipped])))
    return dict.fromkeys((name for name, _ in clipped), maximum / max(norm, maximum))
