"""Evaluation of a layer on held-out batches."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import numpy as np
import paddle
import paddle.nn.functional as F
from paddle import nn

from ernie.data.batch import Packed
from ernie.errors import NotFinite
from ernie.kernels.precision import in_float32, to_numpy
from ernie.metrics import Score, score
from ernie.model.losses import Loss


@paddle.no_grad()
def evaluate(
    layer: nn.Layer, loss: Callable[[Packed], Loss], batches: Iterable[Packed], metrics: Sequence[str]
) -> dict[str, Score]:
    """Return the given metrics, by name and in order, of the predictions for all batches together.

    `loss` gives a batch's logits and labels.  Confidence intervals are over the items that the samples come from.
    Raises NotFinite when the logits are not finite.
    """
    layer.eval()
    predicted, labels, losses, items = [], [], [], []
    for batch in batches:
        result = loss(batch)
        assert result.logits is not None
        predicted.append(result.logits.argmax(-1).numpy())
        labels.append(result.labels)
        cross_entropy = in_float32(F.cross_entropy)(result.logits, paddle.to_tensor(result.labels), reduction="none")
        losses.append(to_numpy(cross_entropy).reshape(-1))
        items.append(_items(batch, len(result.labels)))
    if np.isnan(np.concatenate(losses)).any():
        raise NotFinite("the model's outputs are not finite")
    joined = [np.concatenate(parts) for parts in (predicted, labels, losses, items)]
    return {metric: score(metric, *joined) for metric in metrics}


def _items(batch: Packed, targets: int) -> np.ndarray:
    """Return each target's item, (P,), from the first of the batch's labels that have `targets` positions."""
    candidates = [batch.layout.sequences_of(labels.positions) for labels in batch.labels.values()]
    found = next((sequences for sequences in candidates if len(sequences) == targets), None)
    if found is None:
        raise ValueError(f"the loss has {targets} targets, but no labels of its batch have as many")
    return batch.samples[found, 1]
