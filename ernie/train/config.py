"""What pretraining and fine-tuning configure alike.  Imports no Paddle: configurations use it."""

from __future__ import annotations

from dataclasses import dataclass, field

from ernie.config import check_least
from ernie.errors import UserError
from ernie.kernels.precision import Level, PrecisionChoice
from ernie.renames import formerly
from ernie.train.adam_config import AdamConfig
from ernie.train.lr_schedule import LRScheduleConfig


@dataclass(frozen=True)
class UpdateConfig:
    """An update of the weights: the learning rate, the optimizer, clipping, and the precision of the step.

    `clip` is the maximum norm of the gradients (0: no clipping).  Matrix products are computed in `precision` (`auto`:
    the fastest that the machine has); `amp_level` says what else is, on a GPU (see ernie.kernels.precision).  A step
    whose loss or gradient is not finite is skipped; training stops after `max_bad_steps` of them in a row.  With `ema`
    moving averages of the weights are measured and kept in place of the weights; it is the share of the average that a
    step leaves (Polyak and Juditsky, 1992).
    """

    lr: LRScheduleConfig = field(default_factory=LRScheduleConfig, metadata=formerly("rate"))
    adam: AdamConfig = field(default_factory=AdamConfig)
    clip: float = 1.0
    precision: PrecisionChoice = "auto"
    amp_level: Level = "O1"
    max_bad_steps: int = 20
    ema: float = 0.0

    def __post_init__(self) -> None:
        check_least(self, clip=0, max_bad_steps=1)
        if not 0 <= self.ema < 1:
            raise UserError(f"ema: expected a share from 0 (no averages) to below 1, found {self.ema:g}")
