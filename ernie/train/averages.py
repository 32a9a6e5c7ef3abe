"""A model that holds the moving averages of its weights for a while."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import numpy as np
from paddle import nn

from ernie.model.weights import arrays, set_weights
from ernie.train.adapter import Adapter


@contextmanager
def holding(
    model: nn.Layer | None, averages: Mapping[str, np.ndarray], adapter: Adapter | None = None
) -> Iterator[None]:
    """Have a model hold its averages meanwhile; without any, it keeps its weights.

    Weights without an average stay as they are, and those that follow from an `adapter` are computed anew.
    """
    if model is None or not averages:
        yield
        return
    own = arrays(model)
    set_weights(model, {**own, **averages}, "the averages")
    if adapter is not None:
        adapter.merge()
    try:
        yield
    finally:
        set_weights(model, own, "the training")
