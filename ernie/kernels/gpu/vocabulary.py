"""GPU implementation of ernie.kernels.vocabulary.  Legend: P positions, D width, V vocabulary."""

from __future__ import annotations

import numpy as np
import paddle
import paddle.nn.functional as F
from paddle import Tensor
from paddle.autograd import PyLayer

from ernie.kernels.gpu.linear import in_precision
from ernie.kernels.precision import as_given
from ernie.kernels.samples import Samples
from ernie.kernels.upload import on_device

_ROWS = 1024  # positions whose float32 logits are in memory at a time, at most


def vocabulary_cross_entropy(
    x_PD: Tensor, table_VD: Tensor, bias_V: Tensor, labels_P: np.ndarray, samples: Samples | None = None
) -> Tensor:
    """As ernie.kernels.vocabulary.reference, in half precision with sums in float32; no logits are kept.

    Gradients are computed with the loss, for a part of the positions at a time, as long as their logits are there.
    """
    learns = [paddle.is_grad_enabled() and not tensor.stop_gradient for tensor in (x_PD, table_VD, bias_V)]
    with as_given():
        return _CrossEntropy.apply(x_PD, table_VD, bias_V, labels_P, samples, learns)


class _CrossEntropy(PyLayer):
    @staticmethod
    def forward(ctx, x, table, bias, labels, samples, learns):  # type: ignore[no-untyped-def]
        low_PD, low_VD, bias_V = in_precision([x]), in_precision([table]), bias.astype("float32")
        label_P1 = on_device(labels).unsqueeze(-1)
        P, losses, x_grads = len(labels), [], []
        table_grad = bias_grad = None
        parts = -(-P // _ROWS)
        for first, last in [(P * part // parts, P * (part + 1) // parts) for part in range(parts)]:
            x_part, labels_part = (each if parts == 1 else each[first:last] for each in (low_PD, label_P1))
            logits = paddle.matmul(x_part, low_VD, transpose_y=True).astype("float32") + bias_V
            losses.append(F.cross_entropy(logits, labels_part, reduction="sum"))
            if not any(learns) and samples is None:
                continue
            shares = F.softmax(logits)
            if samples is not None:
                samples.draw(shares, first)
            if not any(learns):
                continue
            # The gradient of the logits: their softmax, less 1 at the label.
            logit_grad = shares.put_along_axis_(labels_part, paddle.full(labels_part.shape, -1.0), 1, "add")
            if learns[2]:
                summed = logit_grad.sum(0)
                bias_grad = summed if bias_grad is None else bias_grad + summed
            low_grad = logit_grad.astype(low_PD.dtype)
            if learns[0]:
                x_grads.append(paddle.matmul(low_grad, low_VD))
            if learns[1]:  # added to the parts before, in float32
                operator = paddle._C_ops.fused_linear_param_grad_add
                table_grad, _ = operator(low_grad, x_part, table_grad, None, True, False)
        ctx.type, ctx.grads = x.dtype, (paddle.concat(x_grads) if x_grads else None, table_grad, bias_grad)
        return paddle.add_n(losses)

    @staticmethod
    def backward(ctx, grad):  # type: ignore[no-untyped-def]
        x_grad, *others = ctx.grads
        with as_given():
            return (
                None if x_grad is None else (x_grad.astype("float32") * grad).astype(ctx.type),
                *(None if each is None else each * grad for each in others),
            )
