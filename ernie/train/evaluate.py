"""Measuring a layer on batches it does not learn from."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import numpy as np
import paddle
import paddle.nn.functional as F
from paddle import nn

from ernie.data.batch import Packed
from ernie.metrics import Score, score
from ernie.model.losses import Loss


@paddle.no_grad()
def evaluate(
    layer: nn.Layer, loss: Callable[[Packed], Loss], batches: Iterable[Packed], metrics: Sequence[str]
) -> dict[str, Score]:
    """The metrics, by name and in their order, of what `loss` predicts for all the batches together."""
    layer.eval()
    predicted, labels, losses = [], [], []
    for batch in batches:
        result = loss(batch)
        assert result.logits is not None
        predicted.append(result.logits.argmax(-1).numpy())
        labels.append(result.labels)
        each = F.cross_entropy(result.logits, paddle.to_tensor(result.labels), reduction="none")
        losses.append(each.numpy().reshape(-1))
    joined = [np.concatenate(parts) for parts in (predicted, labels, losses)]
    return {metric: score(metric, *joined) for metric in metrics}
