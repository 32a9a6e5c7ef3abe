"""The settings of a training step: AdamW's, and the learning rate as a pure function of the step.

Apart from the optimizer itself, so that reading a configuration does not import Paddle.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from ernie.errors import UserError


@dataclass(frozen=True)
class AdamConfig:
    """AdamW (Loshchilov and Hutter, 2019) with decoupled weight decay; biases and LayerNorm are not decayed."""

    beta1: float = 0.9
    beta2: float = 0.98
    epsilon: float = 1e-6
    weight_decay: float = 0.01

    def __post_init__(self) -> None:
        for name in ("beta1", "beta2"):
            if not 0 <= getattr(self, name) < 1:
                raise UserError(f"{name}: expected a number from 0 to below 1, found {getattr(self, name)}")
        if self.epsilon <= 0:
            raise UserError(f"epsilon: expected a number above 0, found {self.epsilon}")
        if self.weight_decay < 0:
            raise UserError(f"weight_decay: expected at least 0, found {self.weight_decay}")


@dataclass(frozen=True)
class RateConfig:
    """A learning rate that rises linearly to `peak`, then falls.

    `warmup` is a number of steps, or below 1 a share of all steps.  After it the rate falls to `floor` times the peak
    along a line or a cosine, stays (`constant`), stays until the last `cooldown` steps (or share of them; a fifth) and
    falls on a line then (`wsd`, warm-up, stable, decay: Hu et al., 2024, arXiv 2404.06395, section 4), or falls with
    the square root of the step (`noam`: Vaswani et al., 2017, section 5.3).  With `each_stage` all this begins anew at
    every stage, as ERNIE 2.0 warms up every task.
    """

    peak: float = 1e-4
    decay: Literal["linear", "cosine", "wsd", "noam", "constant"] = "linear"
    warmup: float = 0.1
    floor: float = 0.0
    cooldown: float = 0.2
    each_stage: bool = False

    def __post_init__(self) -> None:
        if self.peak <= 0:
            raise UserError(f"peak: expected a rate above 0, found {self.peak}")
        if self.warmup < 0:
            raise UserError(f"warmup: expected a number of steps or a share below 1, found {self.warmup}")
        if not 0 <= self.floor <= 1:
            raise UserError(f"floor: expected a share of the peak from 0 to 1, found {self.floor}")
        if self.cooldown < 0:
            raise UserError(f"cooldown: expected a number of steps or a share below 1, found {self.cooldown}")
        if self.floor and self.decay in ("noam", "constant"):
            raise UserError(f"floor: a rate with `decay: {self.decay}` falls to none; leave it out")
        if self.cooldown != RateConfig.cooldown and self.decay != "wsd":
            raise UserError(f"cooldown: only a rate with `decay: wsd` has one, found decay {self.decay}")

    def remark(self, steps: int) -> str | None:
        """What is odd about this rate in a run, or its shortest stage, of so many steps."""
        if self.warmup < 1 or self.warmup <= steps:
            return None
        return (
            f"the learning rate is to rise for {self.warmup:,g} steps, and there are {steps:,}: it does not reach its "
            "peak. See train.rate.warmup, which below 1 is a share of the steps"
        )

    def at(self, step: int, steps: int) -> float:
        """The rate of step `step` (from 0) of `steps`."""
        warmup, cooldown = (of * steps if of < 1 else of for of in (self.warmup, self.cooldown))
        done = step + 1
        if done <= warmup:
            return self.peak * done / warmup
        if self.decay == "noam":
            return self.peak * math.sqrt(max(warmup, 1.0) / done)
        if self.decay == "constant":
            return self.peak
        falls = cooldown if self.decay == "wsd" else steps - warmup
        left = min(1.0, max(0.0, (steps - step) / max(1.0, falls)))
        shape = 0.5 * (1 - math.cos(math.pi * left)) if self.decay == "cosine" else left
        return self.peak * (self.floor + (1 - self.floor) * shape)
