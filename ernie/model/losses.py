"""Losses as a sum and a target count; only the trainer divides.

Legend: T packed tokens, N sequences, P targets, C classes.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import paddle
import paddle.nn.functional as F
from paddle import Tensor

from ernie.data.batch import Layout, Packed
from ernie.errors import UserError
from ernie.formatting import plural
from ernie.kernels.attention import pad


@dataclass(frozen=True)
class Loss:
    """The sum of a loss over `count` targets, with the logits (P, C) and labels (P,) for the metrics.

    `logits` may be None in training: a fused loss kernel does not keep them.
    """

    total: Tensor
    count: int
    logits: Tensor | None
    labels: np.ndarray


def checked(loss: object, batch: Packed) -> Loss:
    """Return the loss of a task.  Raises UserError if it is no Loss, or not the sum over all labels of the batch."""
    if not isinstance(loss, Loss) or not isinstance(loss.total, Tensor) or math.prod(loss.total.shape) != 1:
        raise UserError(
            f"its `loss` gives {_described(loss)}; expected a Loss (of ernie.model.losses), whose `total` is a tensor "
            "of one number"
        )
    if loss.count != batch.targets:
        labels = ", ".join(f"{len(values.values):,} called '{key}'" for key, values in batch.labels.items())
        raise UserError(
            f"its loss is a sum over {plural(loss.count, 'target')}, and a batch of its samples has "
            f"{plural(batch.targets, 'label')} ({labels}). The sum is divided by the number of labels: "
            "give samples only those that the loss counts"
        )
    return loss


def _described(loss: object) -> str:
    """Describe a loss that is invalid."""
    if not isinstance(loss, Loss):
        return f"a {type(loss).__name__}"
    total = f"of the shape {list(loss.total.shape)}" if isinstance(loss.total, Tensor) else type(loss.total).__name__
    return f"a Loss with a total {total}"


def cross_entropy(logits_PC: Tensor, labels_P: np.ndarray) -> Loss:
    """Summed cross entropy of integer labels."""
    total = F.cross_entropy(logits_PC, paddle.to_tensor(labels_P), reduction="sum")
    return Loss(total, len(labels_P), logits_PC, labels_P)


def cross_entropy_at(logits_TC: Tensor, positions_P: np.ndarray, labels_P: np.ndarray) -> Loss:
    """Summed cross entropy of integer labels at some token positions."""
    return cross_entropy(paddle.gather(logits_TC, paddle.to_tensor(positions_P)), labels_P)


def binary_cross_entropy(logits_NC: Tensor, labels_NC: np.ndarray) -> Loss:
    """Binary cross entropy of each class: averaged over the classes, summed over the sequences."""
    total = F.binary_cross_entropy_with_logits(logits_NC, paddle.to_tensor(labels_NC), reduction="sum")
    return Loss(total / labels_NC.shape[1], len(labels_NC), logits_NC, labels_NC)


def squared_error(values_N1: Tensor, labels_N: np.ndarray) -> Loss:
    """Summed squared error of one output per sequence.  Raises UserError if there are several."""
    if values_N1.shape[-1] != 1:
        raise UserError(f"squared_error takes one output per sequence, and there are {values_N1.shape[-1]}")
    difference_N = values_N1.squeeze(-1) - paddle.to_tensor(labels_N.astype("float32"))
    return Loss((difference_N * difference_N).sum(), len(labels_N), values_N1, labels_N)


def grouped_cross_entropy(scores_N1: Tensor, firsts_P: np.ndarray, labels_P: np.ndarray) -> Loss:
    """Cross entropy of the correct sequence of each group; `firsts_P` holds the first sequence of each group.

    The result's `logits` are (P, C), where C is the size of the largest group, with -1e9 as padding.
    """
    N = scores_N1.shape[0]
    sizes = np.diff([*firsts_P, N])
    column_C = np.arange(sizes.max())
    inside_PC = column_C < sizes[:, None]
    index_PC = np.where(inside_PC, firsts_P[:, None] + column_C, 0)
    gathered = paddle.gather(scores_N1.squeeze(-1), paddle.to_tensor(index_PC.reshape(-1)))
    logits_PC = gathered.reshape(list(index_PC.shape)) + paddle.to_tensor(np.where(inside_PC, 0.0, -1e9), "float32")
    return cross_entropy(logits_PC, labels_P)


def span_cross_entropy(logits_T2: Tensor, layout: Layout, starts_N: np.ndarray, ends_N: np.ndarray) -> Loss:
    """Cross entropy of the start and the end of a span in each sequence; counts two targets per sequence.

    `starts_N` and `ends_N` are token positions within the sequences.
    """
    L = layout.longest
    # -1e9 at padding.
    bias_NL = np.full(layout.sequences * L, -1e9, np.float32)
    bias_NL[layout.slots] = 0.0
    padded = pad(logits_T2, layout) + paddle.to_tensor(bias_NL).unsqueeze(-1)
    logits_NL2 = padded.reshape([layout.sequences, L, 2])
    stacked = paddle.concat([logits_NL2[:, :, 0], logits_NL2[:, :, 1]])
    return cross_entropy(stacked, np.concatenate([starts_N, ends_N]))
