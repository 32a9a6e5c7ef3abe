"""Losses as a sum and a target count; only the trainer divides.

Legend: T packed tokens, N sequences, R rows of one or more sequences, P targets, C classes.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
import paddle
import paddle.nn.functional as F
from paddle import Tensor

from ernie.data.batch import Layout, Packed
from ernie.errors import UserError
from ernie.formatting import plural
from ernie.kernels.attention import pad
from ernie.kernels.precision import in_float32
from ernie.kernels.upload import on_device


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


@in_float32
def cross_entropy(logits_PC: Tensor, labels_P: np.ndarray) -> Loss:
    """Summed cross entropy of integer labels."""
    total = F.cross_entropy(logits_PC, on_device(labels_P), reduction="sum")
    return Loss(total, len(labels_P), logits_PC, labels_P)


def masses(
    labels: np.ndarray, classes: int, weights_P: np.ndarray | None = None, class_weights_C: np.ndarray | None = None
) -> np.ndarray:
    """Return the mass (P, C) that each target puts on each class: its probability times the weights.

    `labels` are integers (P,), or probabilities (P, C).  A target of mixed classes counts as so many parts of targets
    of a single class each, and each part has the weight of its class.
    """
    masses_PC = np.eye(classes)[labels] if labels.ndim == 1 else labels.astype(np.float64)
    if class_weights_C is not None:
        masses_PC = masses_PC * class_weights_C
    return masses_PC if weights_P is None else masses_PC * weights_P[:, None]


def smoothed(masses_PC: np.ndarray, smoothing: float, among_PC: np.ndarray | None = None) -> np.ndarray:
    """Spread the part `smoothing` of each target's mass evenly over its classes: label smoothing.

    `among_PC` tells the classes of each target from padding; by default all are classes.  The mass of a target stays
    the same.  Szegedy et al., 2016, "Rethinking the Inception Architecture" (arXiv 1512.00567), section 7.
    """
    among = np.ones(masses_PC.shape) if among_PC is None else among_PC.astype(np.float64)
    even = masses_PC.sum(1, keepdims=True) * among / among.sum(1, keepdims=True)
    return (1 - smoothing) * masses_PC + smoothing * even


@in_float32
def focal_cross_entropy(logits_PC: Tensor, masses_PC: np.ndarray, gamma: float = 0.0) -> Tensor:
    """Return the sum of -mass (1 - p)^gamma log p over all targets and classes, p being the softmax of the logits.

    With gamma 0 it is the cross entropy.  Lin et al., 2017, "Focal Loss for Dense Object Detection" (arXiv 1708.02002),
    equation 5, where alpha is the mass.
    """
    log_p = F.log_softmax(logits_PC, axis=-1)
    terms = paddle.to_tensor(masses_PC.astype(np.float32)) * log_p
    if gamma:
        # A power below 1 has an infinite slope at 0, where p is 1.
        terms = terms * paddle.clip(-paddle.expm1(log_p), min=1e-12) ** gamma
    return -terms.sum()


@in_float32
def binary_cross_entropy(logits_NC: Tensor, labels_NC: np.ndarray) -> Loss:
    """Binary cross entropy of each class: averaged over the classes, summed over the sequences."""
    total = F.binary_cross_entropy_with_logits(logits_NC, on_device(labels_NC), reduction="sum")
    return Loss(total / labels_NC.shape[1], len(labels_NC), logits_NC, labels_NC)


@in_float32
def divergence(log_p_PC: Tensor, log_q_PC: Tensor) -> Tensor:
    """Return half the sum of both Kullback-Leibler divergences between two distributions, summed over the targets.

    Both are logarithms of probabilities.  Gradients go into both: neither is the other's teacher.
    """
    p_PC, q_PC = paddle.exp(log_p_PC), paddle.exp(log_q_PC)
    return 0.5 * ((p_PC - q_PC) * (log_p_PC - log_q_PC)).sum()


@in_float32
def distillation(logits_PC: Tensor, teacher_PC: Tensor, temperature: float) -> Tensor:
    """Return how much a teacher's predictions diverge from a student's, both softened, summed over the targets.

    It is temperature^2 times the Kullback-Leibler divergence of the softmax of the logits over the temperature.  Hinton
    et al., 2015, "Distilling the Knowledge in a Neural Network" (arXiv 1503.02531), section 2.
    """
    log_q_PC = F.log_softmax(logits_PC / temperature, axis=-1)
    log_p_PC = F.log_softmax(teacher_PC / temperature, axis=-1)
    return temperature**2 * (paddle.exp(log_p_PC) * (log_p_PC - log_q_PC)).sum()


@in_float32
def relation_divergence(vectors_TD: Tensor, teacher_TE: Tensor, layout: Layout, heads: int) -> Tensor:
    """Return how much a teacher's relations of tokens diverge from a student's.

    The divergence is averaged over the heads and summed over the tokens.  Vectors are split into relation heads of a
    size d.  The relations of a token in a head are the softmax, over its sequence, of its products with all vectors
    over the root of d.  The widths D and E may differ; `heads` divides both.
    Wang et al., 2021, "MiniLMv2" (arXiv 2012.15828), section 3.1.
    """
    log_q, log_p = (_log_relations(each, layout, heads) for each in (vectors_TD, teacher_TE))
    terms_NHLL = paddle.exp(log_p) * (log_p - log_q)
    inside_NL = np.zeros(layout.sequences * layout.longest, np.float32)
    inside_NL[layout.slots] = 1.0 / heads
    return (terms_NHLL.sum([1, 3]).reshape([-1]) * paddle.to_tensor(inside_NL)).sum()


def _log_relations(vectors_TD: Tensor, layout: Layout, heads: int) -> Tensor:
    """Return the logarithm of the relations (N, H, L, L) of all tokens to those of their sequence."""
    N, L, D = layout.sequences, layout.longest, vectors_TD.shape[-1]
    padded = pad(vectors_TD.astype("float32"), layout).reshape([N, L, heads, D // heads]).transpose([0, 2, 1, 3])
    products = paddle.matmul(padded, padded, transpose_y=True) / math.sqrt(D // heads)
    if not layout.is_rectangular:
        bias_NL = np.where(np.arange(L) < layout.lengths[:, None], 0.0, -1e9).astype(np.float32)
        products = products + paddle.to_tensor(bias_NL).reshape([N, 1, 1, L])
    return F.log_softmax(products, axis=-1)


@in_float32
def squared_error(values_N1: Tensor, labels_N: np.ndarray, weights_N: np.ndarray | None = None) -> Loss:
    """Summed squared error of one output per sequence, times its weight.  Raises UserError if there are several."""
    if values_N1.shape[-1] != 1:
        raise UserError(f"squared_error takes one output per sequence, and there are {values_N1.shape[-1]}")
    difference_N = values_N1.squeeze(-1) - on_device(labels_N.astype("float32", copy=False))
    squares_N = difference_N * difference_N
    if weights_N is not None:
        squares_N = squares_N * paddle.to_tensor(weights_N.astype("float32"))
    return Loss(squares_N.sum(), len(labels_N), values_N1, labels_N)


@in_float32
def contrastive(queries_PD: Tensor, candidates_CD: Tensor, temperature: float, excluded_PC: np.ndarray) -> Tensor:
    """Return the cross entropy of finding each query's own candidate, the one of the same index, summed over queries.

    All vectors have length 1; the logits are cosines divided by the temperature.  A query's `excluded` candidates do
    not count.  Van den Oord et al., 2018, "Representation Learning with Contrastive Predictive Coding" (arXiv
    1807.03748), equation 4.
    """
    cosines_PC = paddle.matmul(queries_PD, candidates_CD, transpose_y=True)
    logits_PC = cosines_PC / temperature + paddle.to_tensor(np.where(excluded_PC, -1e9, 0.0).astype("float32"))
    return F.cross_entropy(logits_PC, paddle.arange(len(excluded_PC)), reduction="sum")


@in_float32
def margin_error(scores_C: Tensor, taught_C: np.ndarray, firsts_P: np.ndarray) -> Tensor:
    """Return the summed squared error of margins: the first score of each group, less each other one.

    `firsts_P` holds the first of each group.  Margin-MSE: Hofstaetter et al., 2020, "Improving Efficient Neural Ranking
    Models with Cross-Architecture Knowledge Distillation" (arXiv 2010.02666), equation 5.
    """
    own_C = np.repeat(firsts_P, np.diff([*firsts_P, len(taught_C)]))
    taught = paddle.to_tensor((taught_C[own_C] - taught_C).astype("float32"))
    return ((paddle.gather(scores_C, paddle.to_tensor(own_C)) - scores_C - taught) ** 2).sum()


@in_float32
def listwise_divergence(scores_C: Tensor, taught_C: np.ndarray, firsts_P: np.ndarray) -> Tensor:
    """Return the Kullback-Leibler divergence of the softmax over each group of scores from that of those taught.

    `firsts_P` holds the first of each group; the result is the sum over groups.
    """
    logits_PC, inside_PC = grouped_logits(scores_C.unsqueeze(-1), firsts_P)
    taught_PC, _ = grouped_logits(paddle.to_tensor(taught_C.astype("float32")).unsqueeze(-1), firsts_P)
    p_PC, inside = F.softmax(taught_PC, axis=-1), paddle.to_tensor(inside_PC.astype("float32"))
    terms_PC = p_PC * (F.log_softmax(taught_PC, axis=-1) - F.log_softmax(logits_PC, axis=-1))
    return (terms_PC * inside).sum()


def grouped_logits(scores_N1: Tensor, firsts_P: np.ndarray) -> tuple[Tensor, np.ndarray]:
    """Return the scores of each group of sequences (P, C), and which of them are not padding.

    `firsts_P` holds the first sequence of each group.  C is the size of the largest group; padding is -1e9.
    """
    N = scores_N1.shape[0]
    sizes = np.diff([*firsts_P, N])
    column_C = np.arange(sizes.max())
    inside_PC = column_C < sizes[:, None]
    index_PC = np.where(inside_PC, firsts_P[:, None] + column_C, 0)
    gathered = paddle.gather(scores_N1.squeeze(-1), paddle.to_tensor(index_PC.reshape(-1)))
    logits_PC = gathered.reshape(list(index_PC.shape)) + paddle.to_tensor(np.where(inside_PC, 0.0, -1e9), "float32")
    return logits_PC, inside_PC


def pooled_logits(logits_NC: Tensor, firsts_R: np.ndarray, pooling: Literal["mean", "max"]) -> Tensor:
    """Return the mean or the maximum of the logits of each row's sequences, (N, C) -> (R, C).

    `firsts_R` holds the first sequence of each row.
    """
    sizes = np.diff([*firsts_R, logits_NC.shape[0]])
    rows_N = paddle.to_tensor(np.repeat(np.arange(len(sizes)), sizes))
    pool = paddle.geometric.segment_mean if pooling == "mean" else paddle.geometric.segment_max
    return pool(logits_NC, rows_N)


def span_logits(logits_T2: Tensor, layout: Layout) -> tuple[Tensor, np.ndarray]:
    """Return the logits of each token as the start, then as the end, of a span in each sequence: (2 N, L).

    L is the length of the longest sequence, and padding is -1e9.  Also returns which logits are not padding.
    """
    L = layout.longest
    inside = np.zeros(layout.sequences * L, bool)
    inside[layout.slots] = True
    bias_NL = np.where(inside, 0.0, -1e9).astype(np.float32)
    padded = pad(logits_T2, layout) + paddle.to_tensor(bias_NL).unsqueeze(-1)
    logits_NL2 = padded.reshape([layout.sequences, L, 2])
    inside_NL = inside.reshape(layout.sequences, L)
    return paddle.concat([logits_NL2[:, :, 0], logits_NL2[:, :, 1]]), np.concatenate([inside_NL, inside_NL])
