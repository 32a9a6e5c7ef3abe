"""Keeping small gradients above what fp16 can tell from zero."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class LossScale:
    """What the loss is multiplied by before the backward pass, as large as the gradients can bear.

    Micikevicius et al. (2018, arXiv 1710.03740), section 3.2: halved at each step whose gradients are not finite, and
    doubled after `patience` steps in a row whose were; `steps` counts those.  It is a power of two, so that dividing
    the gradients by it again is exact.
    """

    value: float = 2.0**16
    steps: int = 0
    patience: int = 2000

    def rise(self) -> None:
        """Count a step whose gradients were finite."""
        self.steps += 1
        if self.steps == self.patience:
            self.value, self.steps = min(2 * self.value, 2.0**24), 0

    def fall(self) -> bool:
        """Take back after a step whose gradients were not.  False when that cannot have been its fault, being 1."""
        was, self.value, self.steps = self.value, max(self.value / 2, 1.0), 0
        return was > 1
