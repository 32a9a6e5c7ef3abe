"""Cross entropy over the vocabulary at masked positions.  Legend: P positions, D width, V vocabulary."""

from __future__ import annotations

import numpy as np
import paddle
import paddle.nn.functional as F
from paddle import Tensor

from ernie.kernels import cpu
from ernie.kernels.check import sizes
from ernie.kernels.choose import choose


def vocabulary_cross_entropy(x_PD: Tensor, table_VD: Tensor, bias_V: Tensor, labels_P: np.ndarray) -> Tensor:
    """Return the summed cross entropy of softmax(x table^T + bias) against integer labels.

    Raises UserError if the shapes do not fit.
    """
    sizes(x_PD=x_PD, table_VD=table_VD, bias_V=bias_V)
    impl = choose((x_PD, table_VD, bias_V), reference, cpu.vocabulary.vocabulary_cross_entropy, reference)
    return impl(x_PD, table_VD, bias_V, labels_P)


def reference(x_PD: Tensor, table_VD: Tensor, bias_V: Tensor, labels_P: np.ndarray) -> Tensor:
    """Reference implementation in plain Paddle."""
    logits_PV = paddle.matmul(x_PD, table_VD, transpose_y=True) + bias_V
    return F.cross_entropy(logits_PV, paddle.to_tensor(labels_P), reduction="sum")
