"""Logits of a vocabulary and their cross entropy.  Legend: P positions, D width, V vocabulary."""

from __future__ import annotations

import numpy as np
import paddle
import paddle.nn.functional as F
from paddle import Tensor

from ernie.errors import UserError
from ernie.kernels import cpu, gpu
from ernie.kernels.argument_checks import row_indices, sizes
from ernie.kernels.choose import choose
from ernie.kernels.precision import in_float32, is_low
from ernie.kernels.upload import on_device


def vocabulary_logits(x_PD: Tensor, table_VD: Tensor, bias_V: Tensor) -> Tensor:
    """Return x table^T + bias, (P, V).  Raises UserError if the shapes do not fit."""
    sizes(x_PD=x_PD, table_VD=table_VD, bias_V=bias_V)
    tensors = (x_PD, table_VD, bias_V)
    return choose(tensors, reference_logits, cpu.vocabulary.vocabulary_logits)(*tensors)


def reference_logits(x_PD: Tensor, table_VD: Tensor, bias_V: Tensor) -> Tensor:
    """Reference implementation of `vocabulary_logits` in plain Paddle."""
    return paddle.matmul(x_PD, table_VD, transpose_y=True) + bias_V


def vocabulary_cross_entropy(x_PD: Tensor, table_VD: Tensor, bias_V: Tensor, labels_P: np.ndarray) -> Tensor:
    """Return the summed cross entropy of softmax(x table^T + bias) against integer labels.

    Raises UserError if the shapes do not fit or a label is out of range: none is ignored.
    """
    size = sizes(x_PD=x_PD, table_VD=table_VD, bias_V=bias_V)
    if labels_P.shape != (size["P"],):
        raise UserError(f"labels of the shape {labels_P.shape}: expected {size['P']}, one for each position")
    labels_P = row_indices(labels_P, size["V"], "label")
    on_cpu, on_gpu = cpu.vocabulary.vocabulary_cross_entropy, gpu.vocabulary.vocabulary_cross_entropy
    impl = choose((x_PD, table_VD, bias_V), reference, on_cpu, on_gpu, is_low)
    return impl(x_PD, table_VD, bias_V, labels_P)


def reference(x_PD: Tensor, table_VD: Tensor, bias_V: Tensor, labels_P: np.ndarray) -> Tensor:
    """Reference implementation of `vocabulary_cross_entropy` in plain Paddle."""
    logits_PV = reference_logits(x_PD, table_VD, bias_V)
    return in_float32(F.cross_entropy)(logits_PV, on_device(labels_P), reduction="sum")
