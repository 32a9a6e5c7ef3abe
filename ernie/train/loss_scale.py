"""Dynamic loss scaling, which keeps small gradients from underflowing in fp16."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

KIND = {"value": float, "steps": int, "patience": int}  # of one in a checkpoint, see `ernie.json_file.read_json`


@dataclass
class LossScale:
    """The factor of the loss before the backward pass, as large as possible without overflow in the gradients.

    Micikevicius et al. (2018, arXiv 1710.03740), section 3.2: halved after a step with non-finite gradients, and
    doubled after `growth_interval` consecutive steps with finite ones, which `steps` counts.  Dividing the gradients by
    it is exact, since it is a power of two.
    """

    value: float = 2.0**16
    steps: int = 0
    growth_interval: int = 2000

    @classmethod
    def from_dict(cls, record: Mapping[str, Any]) -> LossScale:
        """Return the loss scale that `as_dict` has described."""
        return cls(record["value"], record["steps"], record["patience"])

    def as_dict(self) -> dict[str, Any]:
        """Return it as plain data, for a checkpoint."""
        return {"value": self.value, "steps": self.steps, "patience": self.growth_interval}

    def rise(self) -> None:
        """Count a step with finite gradients, doubling the scale after `growth_interval` of them in a row."""
        self.steps += 1
        if self.steps == self.growth_interval:
            self.value, self.steps = min(2 * self.value, 2.0**24), 0

    def fall(self) -> bool:
        """Halve the scale after a step with non-finite gradients; False if it was 1, and so not the cause."""
        before, self.value, self.steps = self.value, max(self.value / 2, 1.0), 0
        return before > 1
