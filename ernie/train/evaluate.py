"""Measuring a layer on batches it does not learn from."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import numpy as np
import paddle
import paddle.nn.functional as F
from paddle import nn

from ernie.data.batch import Packed
from ernie.kernels.precision import to_numpy
from ernie.metrics import Score, score
from ernie.model.losses import Loss


@paddle.no_grad()
def evaluate(
    layer: nn.Layer, loss: Callable[[Packed], Loss], batches: Iterable[Packed], metrics: Sequence[str]
) -> dict[str, Score]:
    """The metrics, by name and in their order, of what `loss` predicts for all the batches together.

    Their intervals are over the items that the batches' samples are made of.
    """
    layer.eval()
    predicted, labels, losses, items = [], [], [], []
    for batch in batches:
        result = loss(batch)
        assert result.logits is not None
        predicted.append(result.logits.argmax(-1).numpy())
        labels.append(result.labels)
        each = F.cross_entropy(result.logits, paddle.to_tensor(result.labels), reduction="none")
        losses.append(to_numpy(each).reshape(-1))
        items.append(_items(batch, len(result.labels)))
    joined = [np.concatenate(parts) for parts in (predicted, labels, losses, items)]
    return {metric: score(metric, *joined) for metric in metrics}


def _items(batch: Packed, targets: int) -> np.ndarray:
    """The item that each target of a batch is of, (P,): of those labels of which there are so many."""
    of_each = [batch.layout.sequences_of(labels.positions) for labels in batch.labels.values()]
    found = next((sequences for sequences in of_each if len(sequences) == targets), None)
    if found is None:
        raise ValueError(f"the loss tells of {targets} targets, and no labels of its batch are so many")
    return batch.samples[found, 1]
