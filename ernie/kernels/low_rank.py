"""Matrices that follow from learned factors (LoRA: Hu et al., 2021, arXiv 2106.09685, section 4.1).

Legend: r rank, D and E widths.
"""

from __future__ import annotations

import paddle
from paddle import Tensor

from ernie.kernels import cpu
from ernie.kernels.argument_checks import sizes
from ernie.kernels.choose import choose
from ernie.kernels.types import Factors


def set_from_factors(weight_DE: Tensor, pretrained_DE: Tensor, factors: Factors) -> None:
    """Set a weight, in place, to its pretrained values plus `scale` times `a` (D, r) times `b` (r, E).

    If the kernels keep a lower-precision copy of the weight, it is updated too.  Raises UserError if the shapes do not
    fit.
    """
    a, b, _ = factors
    sizes(weight_DE=weight_DE, pretrained_DE=pretrained_DE, a_Dr=a, b_rE=b)
    choose((weight_DE, pretrained_DE, a, b), reference, cpu.low_rank.set_from_factors)(
        weight_DE, pretrained_DE, factors
    )


def reference(weight_DE: Tensor, pretrained_DE: Tensor, factors: Factors) -> None:
    """Reference implementation in plain Paddle."""
    a, b, scale = factors
    weight_DE.set_value(paddle.addmm(pretrained_DE, a, b, alpha=scale))
