"""GPU implementations: Paddle's own fused operators, for the kernels for which it has one."""

from __future__ import annotations

from ernie.kernels.gpu import adamw, attention, linear, norm, vocabulary

__all__ = ["adamw", "attention", "linear", "norm", "vocabulary"]
