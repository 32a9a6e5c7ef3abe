"""Dynamic loss scaling, which keeps small gradients from underflowing in fp16."""

from __future__ import annotations

from dataclasses import dataclass

KIND = {"value": float, "steps": int, "patience": int}  # of one in a checkpoint, see `ernie.json_file.read_json`


@dataclass
class LossScale:
    """The factor of the loss before the backward pass, as large as possible without overflow in the gradients.

    Micikevicius et al. (2018, arXiv 1710.03740), section 3.2: halved after a step with non-finite gradients, and
    doubled after `patience` consecutive steps with finite ones, which `steps` counts.  It is a power of two, so that
    dividing the gradients by it is exact.
    """

    value: float = 2.0**16
    steps: int = 0
    patience: int = 2000

    def rise(self) -> None:
        """Count a step with finite gradients, doubling the scale after `patience` of them in a row."""
        self.steps += 1
        if self.steps == self.patience:
            self.value, self.steps = min(2 * self.value, 2.0**24), 0

    def fall(self) -> bool:
        """Halve the scale after a step with non-finite gradients; False if it was 1, and so not the cause."""
        before, self.value, self.steps = self.value, max(self.value / 2, 1.0), 0
        return before > 1
