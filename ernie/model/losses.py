"""Losses as a sum and a count; only the trainer divides.  Legend: P targets, C classes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import paddle
import paddle.nn.functional as F
from paddle import Tensor


@dataclass(frozen=True)
class Loss:
    """The sum of a loss over `count` targets, with the logits (P, C) and labels (P,) that the metrics are made of."""

    total: Tensor
    count: int
    logits: Tensor
    labels: np.ndarray


def cross_entropy(logits_PC: Tensor, labels_P: np.ndarray) -> Loss:
    """Summed cross entropy of integer labels."""
    total = F.cross_entropy(logits_PC, paddle.to_tensor(labels_P), reduction="sum")
    return Loss(total, len(labels_P), logits_PC, labels_P)
