"""Fused dropout, residual addition and LayerNorm.  Legend: T packed tokens, D width."""

from __future__ import annotations

import paddle.nn.functional as F
from paddle import Tensor

from ernie.kernels import cpu, gpu
from ernie.kernels.argument_checks import check_dropout, sizes
from ernie.kernels.choose import choose
from ernie.kernels.layer_norm import layer_norm


def add_norm(
    residual_TD: Tensor, x_TD: Tensor, gain_D: Tensor, offset_D: Tensor, epsilon: float, dropout: float = 0.0
) -> Tensor:
    """LayerNorm(residual + dropout(x)), (T, D) -> (T, D).  Ba et al. (2016, arXiv 1607.06450).

    Raises UserError if the shapes do not fit.
    """
    sizes(x_TD=x_TD, residual_TD=residual_TD, gain_D=gain_D, offset_D=offset_D)
    check_dropout(dropout)
    impl = choose((x_TD, residual_TD, gain_D, offset_D), reference, cpu.norm.add_norm, gpu.norm.add_norm)
    return impl(residual_TD, x_TD, gain_D, offset_D, epsilon, dropout)


def reference(
    residual_TD: Tensor, x_TD: Tensor, gain_D: Tensor, offset_D: Tensor, epsilon: float, dropout: float
) -> Tensor:
    """Reference implementation in plain Paddle."""
    total_TD = residual_TD + F.dropout(x_TD, dropout)
    return layer_norm(total_TD, gain_D, offset_D, epsilon)
