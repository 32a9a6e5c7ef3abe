"""The settings of AdamW.  Imports no Paddle: configurations use them."""

from __future__ import annotations

from dataclasses import dataclass

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
