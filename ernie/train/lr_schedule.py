"""The learning rate as a pure function of the step.  Imports no Paddle: configurations use it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from ernie.errors import UserError


@dataclass(frozen=True)
class LRScheduleConfig:
    """A learning-rate schedule with linear warm-up to `peak` and a choice of decays.

    `warmup` is a number of steps, or below 1 a fraction of all steps.  `decay` says what follows:

    linear, cosine    a decay to `floor` times the peak, in a straight line or along a cosine
    constant          the peak to the end
    wsd               the peak, then a linear decay to `floor` times the peak over the last `cooldown` steps (or, below
                      1, fraction of all steps); warm-up, stable, decay: Hu et al. (2024, arXiv 2404.06395), section 4
    wsd_sqrt          the same with a fall by the root of the part of the cool-down that is done, faster at first:
                      Haegele et al. (2024, arXiv 2405.18392)
    noam              a decay with the inverse square root of the step: Vaswani et al. (2017), section 5.3

    With `each_stage` the schedule restarts at every stage, as ERNIE 2.0 warms up every task.
    """

    peak: float = 1e-4
    decay: Literal["linear", "cosine", "wsd", "wsd_sqrt", "noam", "constant"] = "linear"
    warmup: float = 0.1
    floor: float = 0.0
    cooldown: float = 0.2
    each_stage: bool = False

    def __post_init__(self) -> None:
        if self.peak <= 0:
            raise UserError(f"peak: expected a learning rate above 0, found {self.peak}")
        if self.warmup < 0:
            raise UserError(f"warmup: expected a number of steps or a fraction below 1, found {self.warmup}")
        if not 0 <= self.floor <= 1:
            raise UserError(f"floor: expected a fraction of the peak from 0 to 1, found {self.floor}")
        if self.cooldown < 0:
            raise UserError(f"cooldown: expected a number of steps or a fraction below 1, found {self.cooldown}")
        if self.floor and self.decay in ("noam", "constant"):
            raise UserError(f"floor: has no effect with `decay: {self.decay}`; leave it out")
        if self.cooldown != LRScheduleConfig.cooldown and not self._cools_down:
            raise UserError(
                f"cooldown: has an effect with `decay: wsd` or `wsd_sqrt` only, found `decay: {self.decay}`"
            )

    @property
    def _cools_down(self) -> bool:
        return self.decay in ("wsd", "wsd_sqrt")

    def remark(self, steps: int) -> str | None:
        """Return a warning if the `steps` steps of a run, or of its shortest stage, are too few; else None."""
        warmup, cooldown = self._phases(steps)
        if self._cools_down and warmup <= steps < warmup + cooldown:
            return (
                f"the learning rate warms up for {warmup:,g} steps and cools down for {cooldown:,g}, but there are "
                f"only {steps:,}: it falls at once when the cool-down begins. See train.lr.cooldown"
            )
        if warmup <= steps:
            return None
        return (
            f"the learning rate warms up for {self.warmup:,g} steps, but there are only {steps:,}: it does not reach "
            "its peak. See train.lr.warmup, which below 1 is a fraction of the steps"
        )

    def _phases(self, steps: int) -> tuple[float, float]:
        """Return the steps of warm-up and cool-down in a schedule of `steps`."""
        warmup, cooldown = (phase * steps if phase < 1 else phase for phase in (self.warmup, self.cooldown))
        return warmup, cooldown

    def at(self, step: int, steps: int) -> float:
        """Return the learning rate of step `step` (from 0) of `steps`."""
        warmup, cooldown = self._phases(steps)
        done = step + 1
        if done <= warmup:
            return self.peak * done / warmup
        if self.decay == "noam":
            return self.peak * math.sqrt(max(warmup, 1.0) / done)
        if self.decay == "constant":
            return self.peak
        falls = cooldown if self._cools_down else steps - warmup
        left = min(1.0, max(0.0, (steps - step) / max(1.0, falls)))
        shape = left
        if self.decay == "cosine":
            shape = 0.5 * (1 - math.cos(math.pi * left))
        elif self.decay == "wsd_sqrt":
            shape = 1 - math.sqrt(1 - left)
        return self.peak * (self.floor + (1 - self.floor) * shape)
