"""GPU bodies of the kernels: Paddle's own fused operators, for the kernels that it has any for."""

from __future__ import annotations

from ernie.kernels.gpu import attention, linear, norm

__all__ = ["attention", "linear", "norm"]
