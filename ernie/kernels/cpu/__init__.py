"""CPU implementations of the kernels: C++ in `src`, built by ernie.kernels.build and called through `library`."""

from __future__ import annotations

from ernie.kernels.cpu import (
    adamw,
    attention,
    dilated,
    embedding,
    gaussian,
    gru,
    layer,
    linear,
    low_rank,
    norm,
    runs,
    sampling,
    stack,
    vocabulary,
)

__all__ = [
    "adamw",
    "attention",
    "dilated",
    "embedding",
    "gaussian",
    "gru",
    "layer",
    "linear",
    "low_rank",
    "norm",
    "runs",
    "sampling",
    "stack",
    "vocabulary",
]
